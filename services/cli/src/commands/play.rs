//! Plays transcripts against a gateway and shows each as a timeline.

mod check;
mod files;
mod scene;
mod transcript;

use std::{path::Path, process::ExitCode, time::Instant};

use anyhow::{Context, bail};
use contracts::tavern::agent::v1::{
    scene_service_client::SceneServiceClient, state_service_client::StateServiceClient,
};
use contracts::tavern::common::v1::{
    Run, RunEvent, Wait, WaitKind, run_event::Kind, watch_record::Record,
};
use contracts::tavern::gateway::v1::gateway_service_client::GatewayServiceClient;
use contracts::tavern::gateway::v1::{
    AgentTarget, CallsTarget, InvokeTextRequest, ToolScope, agent_target::Input,
    invoke_text_request::Target,
};
use contracts::tavern::registry::v1::{
    ApprovalVerdict, DecideApprovalRequest, workspace_service_client::WorkspaceServiceClient,
};
use contracts::tavern::run::v1::{AnswerWaitRequest, run_service_client::RunServiceClient};
use grpc_kit::Outbound;
use serde_json::Value;

use super::{approvals, print, print_table};
use crate::timeline;

use transcript::{Approval, Lines, Step, Transcript};

/// Plays every transcript of `directory`. The exit code is 0 if each had the expected result.
/// `deciders` is the way of the calls that decide about approvals: a caller never decides about a call
/// of its own.
///
/// # Errors
/// A transcript that cannot be read, or a gateway that does not answer.
pub async fn play_all(
    transport: Outbound,
    deciders: Outbound,
    directory: &Path,
) -> anyhow::Result<ExitCode> {
    let mut player = Player {
        gateway: GatewayServiceClient::new(transport.clone()),
        scenes: SceneServiceClient::new(transport.clone()),
        states: StateServiceClient::new(transport.clone()),
        runs: RunServiceClient::new(transport.clone()),
        files: WorkspaceServiceClient::new(transport),
        approvals: approvals::Client::new(deciders),
    };
    let transcripts = transcript::read_all(directory)?;
    let mut wrong = 0;
    let mut rows = vec![["TRANSCRIPT", "TIME", "RESULT"].map(str::to_owned).to_vec()];
    for (path, transcript) in &transcripts {
        let begun = Instant::now();
        let (drawing, differences) = play(&mut player, transcript)
            .await
            .with_context(|| format!("{} could not be played", path.display()))?;
        let time = format!("{:.1} ms", begun.elapsed().as_secs_f64() * 1e3);
        let result = match differences.len() {
            0 => "as expected".to_owned(),
            count => format!("{count} differences"),
        };
        rows.push(vec![transcript.title.clone(), time, result]);
        print(&format!("{drawing}\n"));
        for difference in &differences {
            print(&format!("  DIFFERS: {difference}\n"));
        }
        wrong += usize::from(!differences.is_empty());
    }
    let count = transcripts.len();
    print_table(&rows, None);
    print(&format!(
        "\n{} of {count} transcripts gave the expected result\n",
        count - wrong
    ));
    Ok(match wrong {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}

async fn play(
    player: &mut Player,
    transcript: &Transcript,
) -> anyhow::Result<(String, Vec<String>)> {
    let mut drawing = format!("== {}", transcript.title);
    if !transcript.source.is_empty() {
        drawing.push_str(&format!("   ({})", transcript.source));
    }
    drawing.push('\n');
    if let Some(scene) = &transcript.scene {
        let (events, run, differences) = scene::play(player, scene).await?;
        drawing.push_str(&timeline::draw(&events, &run));
        return Ok((drawing, differences));
    }
    let mut differences = Vec::new();
    let mut conversation_id = String::new();
    for step in &transcript.steps {
        if !step.files.is_empty() && conversation_id.is_empty() {
            conversation_id = format!("conv_{}", uuid::Uuid::new_v4().simple());
        }
        files::put(&mut player.files, &conversation_id, &step.files).await?;
        let request = request(step, &conversation_id);
        let (events, run) = player.follow(request, step).await?;
        drawing.push_str(&timeline::draw(&events, &run));
        differences.extend(check::differences(&step.expect, &events, &run));
        conversation_id = run.conversation_id;
        let expected = &step.expect.files;
        differences.extend(files::compare(&mut player.files, &conversation_id, expected).await?);
    }
    Ok((drawing, differences))
}

fn request(step: &Step, conversation_id: &str) -> InvokeTextRequest {
    let conversation_id = conversation_id.to_owned();
    let model_text = step.model_text.as_ref().map(Lines::text);
    let target = match step.agent.is_empty() {
        true => Target::Calls(CallsTarget {
            text: model_text.unwrap_or_default(),
            scope: Some(ToolScope {
                tool_ids: step.tools.clone(),
                ..ToolScope::default()
            }),
            conversation_id,
            ..CallsTarget::default()
        }),
        false => {
            let user_message = step.user_message.as_ref().map(Lines::text);
            let input = model_text.map(Input::ModelText);
            Target::Agent(AgentTarget {
                profile_id: step.agent.clone(),
                input: input.or(user_message.map(Input::UserMessage)),
                conversation_id,
                ..AgentTarget::default()
            })
        }
    };
    InvokeTextRequest {
        target: Some(target),
        ..InvokeTextRequest::default()
    }
}

/// The player of a transcript: invokes texts, decides about calls that wait for a person, and
/// answers questions.
struct Player {
    gateway: GatewayServiceClient<Outbound>,
    scenes: SceneServiceClient<Outbound>,
    states: StateServiceClient<Outbound>,
    runs: RunServiceClient<Outbound>,
    approvals: approvals::Client,
    files: WorkspaceServiceClient<Outbound>,
}

impl Player {
    /// Invokes a text and collects all events up to the end of the run.
    async fn follow(
        &mut self,
        request: InvokeTextRequest,
        step: &Step,
    ) -> anyhow::Result<(Vec<RunEvent>, Run)> {
        let mut records = self.gateway.invoke_text(request).await?.into_inner();
        let mut events: Vec<RunEvent> = Vec::new();
        while let Some(answer) = records.message().await? {
            match contracts::watch::decode(answer.record)? {
                Some(Record::Event(event)) => {
                    let expected = events.len() as u64 + 1;
                    if event.sequence != expected {
                        bail!("event {} came where {expected} was due", event.sequence);
                    }
                    if let Some(Kind::ApprovalRequested(asked)) = &event.kind {
                        let decision = step.approval.as_ref();
                        self.decide(&asked.approval_id, decision).await?;
                    }
                    if let Some(Kind::NodeWaiting(waiting)) = &event.kind {
                        let wait = waiting.wait.as_ref().context("an event names no wait")?;
                        self.answer(&event.run_id, wait, step.answer.as_ref())
                            .await?;
                    }
                    events.push(event);
                }
                Some(Record::Terminal(terminal)) => {
                    return Ok((
                        events,
                        terminal.run.context("the terminal record names no run")?,
                    ));
                }
                Some(Record::Drain(_)) => bail!("the server drains"),
                Some(Record::Gap(_)) => bail!("events of a new run are missing"),
                Some(Record::Heartbeat(_)) | None => {}
            }
        }
        bail!("the stream ended before the run did")
    }

    /// Answers a question as the transcript states.
    async fn answer(
        &mut self,
        run_id: &str,
        wait: &Wait,
        answer: Option<&Value>,
    ) -> anyhow::Result<()> {
        if wait.kind() != WaitKind::HumanInput {
            return Ok(());
        }
        let Some(answer) = answer else {
            bail!(
                "a person is asked {:?}, and the transcript has no answer",
                wait.name
            );
        };
        let request = AnswerWaitRequest {
            run_id: run_id.to_owned(),
            wait_id: wait.wait_id.clone(),
            answer_json: answer.to_string(),
            ..AnswerWaitRequest::default()
        };
        self.runs.answer_wait(request).await?;
        Ok(())
    }

    /// Decides as the transcript states about a call that waits for a person.
    async fn decide(
        &mut self,
        approval_id: &str,
        decision: Option<&Approval>,
    ) -> anyhow::Result<()> {
        let Some(decision) = decision else {
            bail!(
                "a call waits for the approval {approval_id}, and the transcript decides nothing"
            );
        };
        let verdict = match decision.approve {
            true => ApprovalVerdict::Approve,
            false => ApprovalVerdict::Reject,
        };
        let arguments = decision.arguments.as_ref().map(ToString::to_string);
        let request = DecideApprovalRequest {
            approval_id: approval_id.to_owned(),
            verdict: verdict.into(),
            reason: decision.reason.clone(),
            edited_arguments_json: arguments.unwrap_or_default(),
            ..DecideApprovalRequest::default()
        };
        approvals::decide_present(&mut self.approvals, request).await?;
        Ok(())
    }
}
