//! Workflows, single nodes and agents, as runs of the services that own them.
//!
//! The effect id is the request id of the run, so that a call that is dispatched again finds the
//! run that it started the first time.

mod agent;
mod outcome;
mod question;

use call_outcome::{CallOutcome, Category, Failure, Violation};
use std::{pin::pin, time::Duration};

use contracts::tavern::{
    agent::v1::{StartTurnRequest, profile_service_client::ProfileServiceClient},
    common::v1::{CallGrant, ErrorReason, PendingWork, Run, RunOptions},
    run::v1::{CancelRunRequest, run_service_client::RunServiceClient},
    workflow::v1::{
        SingleNode, StartRunRequest, start_run_request::Target,
        workflow_service_client::WorkflowServiceClient,
    },
};
use core_types::{RunId, RunOwner};
use futures::StreamExt;
use grpc_kit::{Patience, Transport};
use run_events::{Followed, follow};
use run_log::Hash;
use serde_json::Value;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::{Code, Status};

use super::{ResolvedCall, timeout};
use crate::{in_flight::pending_run, peers::AgentPeer};
use tool_domain::definition::Implementation;

/// How long to wait for a workflow service that is not there when a run is to be started.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a cancelled run may take to end before it is given up.
const CANCEL_GRACE: Duration = Duration::from_millis(1_800);

/// Starts, follows and cancels runs.
#[derive(Clone, Debug)]
pub struct ChildRuns {
    client: WorkflowServiceClient<Transport>,
    runs: RunServiceClient<Transport>,
    agents: AgentPeer,
}

/// A request for a run.
#[derive(Clone)]
enum StartRequest {
    Workflow(Box<StartRunRequest>),
    Turn(Box<StartTurnRequest>),
}

/// Why following a run stopped.
enum FollowStop {
    Ended(Box<Run>),
    Cancelled,
    OutOfTime,
    Lost(Status),
}

impl ChildRuns {
    /// Takes clients of workflow-execution, of its runs, and of agent-runtime.
    pub fn new(
        client: WorkflowServiceClient<Transport>,
        runs: RunServiceClient<Transport>,
        agents: AgentPeer,
    ) -> Self {
        Self {
            client,
            runs,
            agents,
        }
    }

    /// Returns the client of the service that owns a run.
    pub fn runs_of(&self, run_id: &str) -> RunServiceClient<Transport> {
        let owner = run_id.parse().map(|run: RunId| run.owner().service());
        match owner {
            Ok(RunOwner::Agent) => self.agents.runs.clone(),
            _ => self.runs.clone(),
        }
    }

    /// Returns the client of the profiles of agents.
    pub fn profiles(&self) -> ProfileServiceClient<Transport> {
        self.agents.profiles.clone()
    }

    /// Returns the client of workflows.
    pub fn client(&self) -> WorkflowServiceClient<Transport> {
        self.client.clone()
    }

    /// Executes one call as a run.
    pub(super) async fn execute(
        &self,
        resolved: &ResolvedCall,
        cancel: &CancellationToken,
    ) -> CallOutcome {
        let started = tokio::select! {
            started = self.start(resolved) => started,
            // Whether the request arrived is not known, so the run is looked for and cancelled.
            () = cancel.cancelled() => self.start(resolved).await,
        };
        let run = match started {
            Ok(run) => run,
            Err(ended) => return ended,
        };
        resolved.in_flight.child_started(&run.run_id).await;
        if question::is_left_open(resolved) {
            return CallOutcome::Succeeded(question::pending(&run.run_id));
        }
        let stop = match run.outcome {
            Some(_) => FollowStop::Ended(Box::new(run.clone())),
            None => self.wait(&run.run_id, resolved, cancel).await,
        };
        match stop {
            FollowStop::Ended(run) => {
                resolved.in_flight.used_below(&run);
                outcome::read(&run, resolved)
            }
            FollowStop::Cancelled => self.end_cancelled(&run.run_id, resolved).await,
            FollowStop::OutOfTime => {
                let ended = self
                    .end(&run.run_id, resolved, "the call's time is over")
                    .await;
                match ended.map(|run| outcome::read(&run, resolved)) {
                    // It may have ended by itself just before, or leave a call below in doubt.
                    Some(ended @ (CallOutcome::Succeeded(_) | CallOutcome::InDoubt(_))) => ended,
                    Some(_) => CallOutcome::Failed(timeout(resolved)),
                    None => CallOutcome::InDoubt(lost(resolved, &run.run_id)),
                }
            }
            FollowStop::Lost(status) => {
                tracing::warn!(run = run.run_id, status = %status, "a run can no longer be followed");
                CallOutcome::InDoubt(lost(resolved, &run.run_id))
            }
        }
    }

    /// Cancels a run. Returns what has not ended.
    ///
    /// # Errors
    /// The status with which the service that owns it refused.
    pub async fn cancel(&self, run_id: &str, reason: &str) -> Result<Vec<PendingWork>, Status> {
        let request = CancelRunRequest {
            run_id: run_id.to_owned(),
            reason: reason.to_owned(),
        };
        let answer = self.runs_of(run_id).cancel_run(request).await?.into_inner();
        let ended = answer.run.is_some_and(|run| run.outcome.is_some());
        Ok(match ended {
            false if answer.still_running.is_empty() => vec![pending_run(run_id)],
            _ => answer.still_running,
        })
    }

    async fn start(&self, resolved: &ResolvedCall) -> Result<Run, CallOutcome> {
        let request = start_request(resolved);
        let mut patience = Patience::new(PATIENCE, resolved.deadline);
        let mut may_have_started = false;
        loop {
            match self.send(request.clone()).await {
                Ok(run) => {
                    return run.ok_or_else(|| {
                        CallOutcome::Failed(Failure::new(
                            Category::Dependency,
                            "run_service_failed",
                            "the service started no run; it may be of another version",
                        ))
                    });
                }
                Err(status) => {
                    may_have_started |= grpc_kit::may_have_arrived(&status)
                        || matches!(
                            status.code(),
                            Code::DeadlineExceeded | Code::Cancelled | Code::Unknown
                        );
                    // Without a request id, asking again could start a second run.
                    if resolved.effect_id.is_some() && patience.wait_after(&status).await {
                        continue;
                    }
                    if may_have_started && !resolved.tool.is_idempotent() {
                        tracing::warn!(status = %status, "whether a run was started is unknown");
                        return Err(CallOutcome::InDoubt(start_lost(resolved)));
                    }
                    return Err(refused(&status, resolved));
                }
            }
        }
    }

    async fn send(&self, request: StartRequest) -> Result<Option<Run>, Status> {
        Ok(match request {
            StartRequest::Workflow(request) => {
                let started = self.client.clone().start_run(*request).await?;
                started.into_inner().run
            }
            StartRequest::Turn(request) => {
                let started = self.agents.turns.clone().start_turn(*request).await?;
                started.into_inner().run
            }
        })
    }

    async fn wait(
        &self,
        run_id: &str,
        resolved: &ResolvedCall,
        cancel: &CancellationToken,
    ) -> FollowStop {
        tokio::select! {
            ended = self.to_the_end(run_id, resolved) => match ended {
                Ok(run) => FollowStop::Ended(Box::new(run)),
                // The deadline travels with the watch, so the other end may notice it first.
                Err(status) if status.code() == Code::DeadlineExceeded => FollowStop::OutOfTime,
                Err(_) if resolved.remaining().is_zero() => FollowStop::OutOfTime,
                Err(status) => FollowStop::Lost(status),
            },
            () = cancel.cancelled() => FollowStop::Cancelled,
            () = tokio::time::sleep_until(resolved.deadline) => FollowStop::OutOfTime,
        }
    }

    /// Follows a run to its end, and shows what it writes of the call's output.
    async fn to_the_end(&self, run_id: &str, resolved: &ResolvedCall) -> Result<Run, Status> {
        let client = self.runs_of(run_id);
        let mut followed = pin!(follow(client, run_id.to_owned(), 0, resolved.deadline));
        while let Some(next) = followed.next().await {
            match next? {
                Followed::Event(event) if event.run_id == run_id => {
                    event
                        .kind
                        .iter()
                        .for_each(|kind| resolved.in_flight.below(kind));
                }
                Followed::Event(_) => {}
                Followed::Ended(run) => return Ok(*run),
            }
        }
        Err(Status::unavailable("the run can no longer be followed"))
    }

    async fn end_cancelled(&self, run_id: &str, resolved: &ResolvedCall) -> CallOutcome {
        let reason = resolved.in_flight.cancel_reason();
        match self.end(run_id, resolved, &reason).await {
            // It may have ended by itself just before.
            Some(run) => outcome::read(&run, resolved),
            None => CallOutcome::cancelled_after_start(resolved.tool.id(), &reason),
        }
    }

    /// Cancels a run and waits for its end. Nothing comes back if it continues.
    async fn end(&self, run_id: &str, resolved: &ResolvedCall, reason: &str) -> Option<Run> {
        let until = Instant::now() + CANCEL_GRACE;
        let context = grpc_kit::CallContext::new(resolved.in_flight.path().clone())
            .with_timeout(CANCEL_GRACE);
        let ended = context.scope(async {
            let still_running = self.cancel(run_id, reason).await.ok()?;
            for work in still_running.into_iter().filter(|work| work.id != run_id) {
                resolved.in_flight.leave_running(work);
            }
            run_events::follow_to_the_end(self.runs_of(run_id), run_id, until)
                .await
                .ok()
        });
        let ended = tokio::time::timeout_at(until, ended).await.ok().flatten();
        match &ended {
            Some(run) => resolved.in_flight.used_below(run),
            None => resolved.in_flight.leave_running(pending_run(run_id)),
        }
        ended
    }
}

fn start_request(resolved: &ResolvedCall) -> StartRequest {
    let options = RunOptions {
        durability: run_events::durability_to_proto(resolved.durability).into(),
        timeout: resolved
            .timeout
            .and_then(|timeout| prost_types::Duration::try_from(timeout).ok()),
    };
    let is_nested = resolved.tool.implementation().is_nested();
    let grant = resolved.grant.clone().map(|grant| CallGrant {
        depth: grant
            .depth
            .map(|depth| depth.saturating_sub(is_nested.into())),
        // A workflow that an agent may call is a tool: which tools it is made of is up to its author.
        tools: grant.tools.filter(|_| {
            !matches!(
                resolved.tool.implementation(),
                Implementation::Workflow { .. }
            )
        }),
        ..grant
    });
    if let Implementation::Agent {
        profile_id,
        conversation_id,
    } = resolved.tool.implementation()
    {
        let turn = StartTurnRequest {
            conversation_id: conversation_id.clone().unwrap_or_default(),
            request_id: request_id_of(resolved),
            options: Some(options),
            ..agent::turn(profile_id, &resolved.arguments, grant)
        };
        return StartRequest::Turn(Box::new(turn));
    }
    let mut inputs_json = resolved.arguments.to_string();
    let target = match resolved.tool.implementation() {
        Implementation::Workflow { workflow_id } => Target::WorkflowId(workflow_id.clone()),
        Implementation::Node {
            full_type,
            config,
            interface,
        } => {
            let mut config = config.clone();
            if let Some(interface) = interface
                && let Value::Object(mut inputs) = resolved.arguments.clone()
            {
                config = interface.take_settings(&config, &mut inputs);
                inputs_json = Value::Object(inputs).to_string();
            }
            Target::Node(SingleNode {
                full_type: full_type.clone(),
                config_values_json: match config.is_empty() {
                    true => String::new(),
                    false => Value::Object(config).to_string(),
                },
            })
        }
        Implementation::Question => {
            let node;
            (node, inputs_json) = question::node(&resolved.arguments);
            Target::Node(node)
        }
        // Nothing else is a run; an empty target is refused by the workflow service.
        _ => Target::WorkflowId(String::new()),
    };
    StartRequest::Workflow(Box::new(StartRunRequest {
        request_id: request_id_of(resolved),
        target: Some(target),
        inputs_json,
        conversation_id: resolved
            .conversation
            .as_ref()
            .map_or_else(String::new, ToString::to_string),
        options: Some(options),
        grant,
        ..StartRunRequest::default()
    }))
}

/// Returns the request id by which the run of one attempt at an effect is found again.
fn request_id_of(resolved: &ResolvedCall) -> String {
    match &resolved.effect_id {
        None => String::new(),
        Some(effect) if resolved.attempt == 1 => effect.to_string(),
        Some(effect) => {
            let digest = Hash::of(effect.as_str().as_bytes());
            format!("{digest}#{}", resolved.attempt)
        }
    }
}

fn refused(status: &Status, resolved: &ResolvedCall) -> CallOutcome {
    let said = status.message();
    let (category, code) = match grpc_kit::reason(status) {
        Some(ErrorReason::DepthExceeded) => (Category::Limit, "depth_exceeded"),
        Some(ErrorReason::WorkflowNotFound) => (Category::Validation, "unknown_workflow"),
        Some(ErrorReason::ProfileNotFound) => (Category::Validation, "unknown_agent"),
        Some(ErrorReason::ModelNotFound) => (Category::Validation, "model_not_found"),
        Some(ErrorReason::WorkflowInvalid) => (Category::Validation, "invalid_workflow"),
        Some(ErrorReason::InvalidFields) => (Category::Validation, "invalid_arguments"),
        Some(ErrorReason::LimitExceeded) => (Category::Limit, "limit_exceeded"),
        Some(ErrorReason::ConversationBusy) => (Category::Limit, "agent_busy"),
        Some(ErrorReason::WaitCycle) => (Category::Policy, "wait_cycle"),
        _ => {
            let transient = matches!(status.code(), Code::Unavailable | Code::ResourceExhausted);
            tracing::warn!(code = ?status.code(), said, "a service did not start a run");
            let message = format!(
                "{} was not started: the service that runs it failed",
                resolved.tool.id()
            );
            let failure = Failure::new(Category::Dependency, "run_service_failed", message);
            return CallOutcome::Failed(if transient {
                failure.retryable()
            } else {
                failure
            });
        }
    };
    let mut failure = Failure::new(
        category,
        code,
        format!("{} was not started: {said}", resolved.tool.id()),
    );
    failure.violations = grpc_kit::violations(status)
        .into_iter()
        .map(|(place, problem)| Violation::new(place, code, problem))
        .collect();
    CallOutcome::Rejected(failure)
}

fn start_lost(resolved: &ResolvedCall) -> Failure {
    let message = format!(
        "the service that runs {} did not answer when it was to be started; whether it runs is unknown, and \
         it was not repeated: look for its run, then decide",
        resolved.tool.id()
    );
    Failure::new(Category::Dependency, "run_service_lost", message)
}

fn lost(resolved: &ResolvedCall, run_id: &str) -> Failure {
    let message = format!(
        "{} runs as {run_id}, and how it ended could not be learned; look at that run",
        resolved.tool.id()
    );
    Failure::new(Category::Dependency, "run_lost", message)
}
