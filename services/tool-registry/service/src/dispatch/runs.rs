//! Workflows, single nodes and agents, as runs of the services that own them.
//!
//! The effect id is the request id of the run, so that a call that is dispatched again finds the
//! run that it started the first time.

mod agent;
mod outcome;
mod question;

use call_outcome::{CallOutcome, Category, Failure, Violation};
use std::pin::pin;

use contracts::tavern::{
    agent::v1::{StartTurnRequest, profile_service_client::ProfileServiceClient},
    common::v1::{CallGrant, ErrorReason, Run, RunOptions},
    workflow::v1::{
        SingleNode, StartRunRequest, start_run_request::Target,
        workflow_service_client::WorkflowServiceClient,
    },
};
use core_types::{RunId, RunOwner};
use futures::StreamExt;
use grpc_kit::{CallContext, Outbound, Transport};
use run_client::{ChildRequest, ChildRun, Followed, NotStarted, pending_run, policy::RUN_GRACE};
use run_log::Hash;
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use tonic::{Code, Status};

use super::{ResolvedCall, timeout};
use tool_domain::definition::Implementation;

/// Carries calls out as runs of other services.
#[derive(Clone, Debug)]
pub struct ChildRuns {
    workflow: Transport,
    agent: Transport,
}

impl ChildRuns {
    /// Takes workflow-execution and agent-runtime.
    pub fn new(workflow: Transport, agent: Transport) -> Self {
        Self { workflow, agent }
    }

    /// Returns a run that was started before, of the service that its id names.
    pub fn run(&self, run_id: &str, context: &CallContext) -> ChildRun {
        let owner = run_id.parse().map(|run: RunId| run.owner().service());
        let service = match owner {
            Ok(RunOwner::Agent) => &self.agent,
            _ => &self.workflow,
        };
        ChildRun::of(service, context, run_id)
    }

    /// Returns the client of the profiles of agents.
    pub fn profiles(&self, context: &CallContext) -> ProfileServiceClient<Outbound> {
        ProfileServiceClient::new(self.agent.with(context))
    }

    /// Returns the client of workflows.
    pub fn client(&self, context: &CallContext) -> WorkflowServiceClient<Outbound> {
        WorkflowServiceClient::new(self.workflow.with(context))
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
        let (child, run) = match started {
            Ok(started) => started,
            Err(ended) => return ended,
        };
        resolved.in_flight.child_started(&run.run_id).await;
        if question::is_left_open(resolved) {
            return CallOutcome::Succeeded(question::pending(&run.run_id));
        }
        if run.outcome.is_some() {
            resolved.in_flight.used_below(&run);
            return outcome::read(&run, resolved);
        }
        let followed = tokio::select! {
            ended = to_the_end(&child, resolved) => ended,
            () = cancel.cancelled() => {
                let reason = resolved.in_flight.cancel_reason();
                return match end(&child, resolved, &reason).await {
                    // It may have ended by itself just before.
                    Some(run) => outcome::read(&run, resolved),
                    None => CallOutcome::cancelled_after_start(resolved.tool.id(), &reason),
                };
            }
            () = tokio::time::sleep_until(resolved.deadline) => Err(Status::deadline_exceeded("")),
        };
        match followed {
            Ok(run) => {
                resolved.in_flight.used_below(&run);
                outcome::read(&run, resolved)
            }
            // The deadline travels with the watch, so the other end may notice it first.
            Err(status)
                if status.code() == Code::DeadlineExceeded || resolved.remaining().is_zero() =>
            {
                let ended = end(&child, resolved, "the call's time is over").await;
                match ended.map(|run| outcome::read(&run, resolved)) {
                    // It may have ended by itself just before, or leave a call below in doubt.
                    Some(ended @ (CallOutcome::Succeeded(_) | CallOutcome::InDoubt(_))) => ended,
                    Some(_) => CallOutcome::Failed(timeout(resolved)),
                    None => CallOutcome::InDoubt(lost(resolved, &run.run_id)),
                }
            }
            Err(status) => {
                tracing::warn!(run = run.run_id, %status, "a run can no longer be followed");
                CallOutcome::InDoubt(lost(resolved, &run.run_id))
            }
        }
    }

    async fn start(&self, resolved: &ResolvedCall) -> Result<(ChildRun, Run), CallOutcome> {
        let request = start_request(resolved);
        let service = match &request {
            ChildRequest::Workflow(_) => &self.workflow,
            ChildRequest::Turn(_) => &self.agent,
        };
        let started = ChildRun::start(service, &resolved.context, request, resolved.deadline);
        started.await.map_err(
            |NotStarted {
                 status,
                 may_have_started,
             }| {
                if may_have_started && !resolved.tool.is_idempotent() {
                    tracing::warn!(%status, "whether a run was started is unknown");
                    return CallOutcome::InDoubt(start_lost(resolved));
                }
                refused(&status, resolved)
            },
        )
    }
}

/// Follows a run to its end, and adds its output to the call's output.
async fn to_the_end(child: &ChildRun, resolved: &ResolvedCall) -> Result<Run, Status> {
    let mut followed = pin!(child.follow(0, resolved.deadline));
    while let Some(next) = followed.next().await {
        match next? {
            Followed::Event(event) if event.run_id == child.run_id() => {
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

/// Cancels a run and waits for its end. Returns nothing if it continues.
async fn end(child: &ChildRun, resolved: &ResolvedCall, reason: &str) -> Option<Run> {
    let (ended, still_running) = match child.cancel(reason, RUN_GRACE).await {
        Ok(cancelled) => (cancelled.ended, cancelled.still_running),
        Err(_) => (None, vec![pending_run(child.run_id())]),
    };
    for work in still_running {
        resolved.in_flight.leave_running(work);
    }
    if let Some(run) = &ended {
        resolved.in_flight.used_below(run);
    }
    ended
}

fn start_request(resolved: &ResolvedCall) -> ChildRequest {
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
        return ChildRequest::Turn(Box::new(turn));
    }
    let mut inputs_json = resolved.arguments.text().to_owned();
    let target = match resolved.tool.implementation() {
        Implementation::Workflow { workflow_id } => Target::WorkflowId(workflow_id.clone()),
        Implementation::Node {
            full_type,
            config,
            interface,
        } => {
            let mut config = config.clone();
            if let Some(interface) = interface
                && let Value::Object(mut inputs) = Value::clone(&resolved.arguments)
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
    ChildRequest::Workflow(Box::new(StartRunRequest {
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
        Some(_) if resolved.attempt == 1 => resolved.request_id(),
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
        Some(ErrorReason::PluginMissing) => (Category::Dependency, "plugin_missing"),
        Some(ErrorReason::InvalidFields) => (Category::Validation, "invalid_arguments"),
        Some(ErrorReason::LimitExceeded) => (Category::Limit, "limit_exceeded"),
        Some(ErrorReason::ConversationBusy) => (Category::Limit, "agent_busy"),
        Some(ErrorReason::HookDenied) => (Category::Policy, "hook_denied"),
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
