//! `tavern runs fork`.

use std::process::ExitCode;

use anyhow::Context;
use contracts::tavern::workflow::v1::workflow_service_client::WorkflowServiceClient;
use contracts::tavern::workflow::v1::{ForkEdit, ForkPlan, ForkRunRequest};

use super::super::{Remote, json, print, refusal};

/// Shows the plan of a fork, and starts the fork where its effects are accepted.
pub(super) async fn run(
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
    let run = forked.run.context("the answer has no run")?;
    match remote.json {
        true => json::print_line(&run)?,
        false => print(&format!("started {}\n", run.run_id)),
    }
    Ok(ExitCode::SUCCESS)
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
