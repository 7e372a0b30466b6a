//! `tavern runs fork`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use contracts::tavern::agent::v1::{
    ForkTurnRequest, agent_service_client::AgentServiceClient, fork_turn_request::Edit,
};
use contracts::tavern::common::v1::Run;
use contracts::tavern::workflow::v1::workflow_service_client::WorkflowServiceClient;
use contracts::tavern::workflow::v1::{ForkEdit, ForkPlan, ForkRunRequest};

use super::super::{Remote, documents, json, print, refusal};

/// The run to fork, and the changes.
#[derive(Args)]
pub struct Fork {
    /// The id of the run.
    run_id: String,
    /// (workflows) A change, as `PATH=JSON`, such as `/inputs/text="a"`; may be given several times.
    #[arg(long = "edit", value_name = "PATH=JSON", conflicts_with = "at")]
    edits: Vec<String>,
    /// (workflows) The digest of the effects that may be repeated, as the plan shows it.
    #[arg(long, conflicts_with = "at")]
    accept: Option<String>,
    /// (workflows) Show the plan without starting the run.
    #[arg(long, conflicts_with = "at")]
    plan: bool,
    /// (turns) The event at which to fork: an answer, a result or a message.
    #[arg(long, value_name = "SEQUENCE")]
    at: Option<u64>,
    #[command(flatten)]
    edit: TurnEdit,
}

/// The replacement of an event in a fork of a turn.
#[derive(Args)]
#[group(multiple = false)]
struct TurnEdit {
    /// (turns) A file with a replacement for the model's answer, calls included.
    #[arg(long, value_name = "FILE", requires = "at")]
    answer: Option<PathBuf>,
    /// (turns) A replacement result for the call, as JSON.
    #[arg(long, value_name = "JSON", requires = "at")]
    output: Option<String>,
    /// (turns) A failure in place of the call's result: its message.
    #[arg(long, value_name = "TEXT", requires = "at")]
    failure: Option<String>,
    /// (turns) A replacement for the message.
    #[arg(long, value_name = "TEXT", requires = "at")]
    message: Option<String>,
}

impl Fork {
    pub(super) async fn run(self, remote: &Remote) -> anyhow::Result<ExitCode> {
        match self.at {
            Some(sequence) => fork_turn(remote, self.run_id, sequence, self.edit).await,
            None => {
                let accept = self.accept.unwrap_or_default();
                fork_workflow(remote, self.run_id, &self.edits, accept, self.plan).await
            }
        }
    }
}

impl TurnEdit {
    fn read(self) -> anyhow::Result<Option<Edit>> {
        if let Some(file) = self.answer {
            return Ok(Some(Edit::AnswerText(documents::read(&file)?)));
        }
        let output = self.output.map(Edit::OutputJson);
        let failure = self.failure.map(Edit::FailureMessage);
        Ok(output.or(failure).or(self.message.map(Edit::Message)))
    }
}

/// Starts a turn that continues another one.
async fn fork_turn(
    remote: &Remote,
    run_id: String,
    sequence: u64,
    edit: TurnEdit,
) -> anyhow::Result<ExitCode> {
    let request = ForkTurnRequest {
        run_id,
        sequence,
        edit: edit.read()?,
        ..ForkTurnRequest::default()
    };
    let mut agents = AgentServiceClient::new(remote.connect()?);
    let forked = agents.fork_turn(request).await;
    let forked = forked.map_err(|status| refusal(&status))?;
    show_started(remote, forked.into_inner().run)
}

fn show_started(remote: &Remote, run: Option<Run>) -> anyhow::Result<ExitCode> {
    let run = run.context("the answer has no run")?;
    match remote.json {
        true => json::print_line(&run)?,
        false => print(&format!("started {}\n", run.run_id)),
    }
    Ok(ExitCode::SUCCESS)
}

/// Shows the plan of a fork, and starts the fork where its effects are accepted.
async fn fork_workflow(
    remote: &Remote,
    run_id: String,
    edits: &[String],
    accept: String,
    only_plan: bool,
) -> anyhow::Result<ExitCode> {
    let mut workflows = WorkflowServiceClient::new(remote.connect()?);
    let request = ForkRunRequest {
        run_id,
        edits: edits
            .iter()
            .map(|edit| read(edit))
            .collect::<Result<_, _>>()?,
        accept_effects: accept.clone(),
        validate_only: true,
        ..ForkRunRequest::default()
    };
    let planned = workflows.fork_run(request.clone()).await;
    let planned = planned.map_err(|status| refusal(&status))?.into_inner();
    let plan = planned.plan.context("the answer has no plan")?;
    match remote.json {
        true => json::print_line(&plan)?,
        false => show(&plan),
    }
    if only_plan {
        return Ok(ExitCode::SUCCESS);
    }
    if !plan.effects_digest.is_empty() && accept != plan.effects_digest {
        let digest = &plan.effects_digest;
        print(&format!(
            "nothing was started; to repeat these effects: --accept {digest}\n"
        ));
        return Ok(ExitCode::FAILURE);
    }
    let request = ForkRunRequest {
        validate_only: false,
        ..request
    };
    let forked = workflows.fork_run(request).await;
    let forked = forked.map_err(|status| refusal(&status))?.into_inner();
    show_started(remote, forked.run)
}

/// Reads `PATH=JSON`.
fn read(edit: &str) -> anyhow::Result<ForkEdit> {
    let (path, value_json) = edit
        .split_once('=')
        .with_context(|| format!("`{edit}` is not PATH=JSON"))?;
    Ok(ForkEdit {
        path: path.to_owned(),
        value_json: value_json.to_owned(),
    })
}

fn show(plan: &ForkPlan) {
    print(&format!("taken over  {}\n", plan.reused.join(", ")));
    print(&format!("done again  {}\n", plan.redone.join(", ")));
    for effect in &plan.effects_repeated {
        let harmless = match effect.harmless {
            true => "   (harmless)",
            false => "",
        };
        let (path, tool_id, before) = (&effect.path, &effect.tool_id, &effect.before);
        print(&format!(
            "repeated    {path}: {tool_id}, before {before}{harmless}\n"
        ));
    }
}
