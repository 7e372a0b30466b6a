//! Messages and budgets of people for a running turn.

use std::time::Duration;

use agent_domain::budgets::Budgets;
use contracts::tavern::{
    agent::v1::{
        self as proto, EditBudgetsRequest, EditBudgetsResponse, SteerTurnRequest, SteerTurnResponse,
    },
    common::v1::{ErrorReason, RunState},
};
use core_types::RequestId;
use documents::change::request_id_reused;
use grpc_kit::{CallContext, Failure};
use run_events::Runs;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout_at};
use tonic::{Code, Status};

use super::start::limits;
use crate::error::expect_turn;
use crate::runner::{Directive, Refusal, Runner};

/// The time for which a caller waits until its message is in force.
const EFFECT_WAIT: Duration = Duration::from_secs(2);
/// The time for which a caller waits until its message is accepted.
const ACCEPT_WAIT: Duration = Duration::from_secs(5);

/// Sends a message to a turn.
pub(super) async fn steer(
    runner: &Runner,
    runs: &Runs,
    context: &CallContext,
    request: SteerTurnRequest,
) -> Result<SteerTurnResponse, Status> {
    check_request_id(&request.request_id)?;
    if request.message.trim().is_empty() {
        return Err(Failure::invalid_fields()
            .violation("message", "is empty")
            .into());
    }
    let (accepted, was_accepted) = oneshot::channel();
    let (in_force, is_in_force) = oneshot::channel();
    let until = Instant::now() + EFFECT_WAIT;
    let request_id = request.request_id.clone();
    let directive = Directive::Steer {
        principal: context.principal().clone(),
        request_id: request.request_id,
        message: request.message,
        interrupt: request.interrupt,
        accepted,
        in_force,
    };
    give(runner, runs, context, &request.run_id, directive).await?;
    let accepted = answer(runs, context, &request.run_id, was_accepted).await?;
    let accepted_sequence = accepted.map_err(|refusal| refused(refusal, &request_id))?;
    let in_force = timeout_at(until, is_in_force).await;
    Ok(SteerTurnResponse {
        accepted_sequence,
        effect_sequence: in_force.ok().and_then(Result::ok).unwrap_or_default(),
    })
}

/// Changes the budgets of a turn.
pub(super) async fn edit_budgets(
    runner: &Runner,
    runs: &Runs,
    context: &CallContext,
    request: EditBudgetsRequest,
) -> Result<EditBudgetsResponse, Status> {
    check_request_id(&request.request_id)?;
    let (in_force, is_in_force) = oneshot::channel();
    let request_id = request.request_id.clone();
    let directive = Directive::Edit {
        principal: context.principal().clone(),
        request_id: request.request_id,
        limits: limits(&request.budgets.unwrap_or_default()),
        in_force,
    };
    give(runner, runs, context, &request.run_id, directive).await?;
    let edited = answer(runs, context, &request.run_id, is_in_force).await?;
    let (effect_sequence, budgets) = edited.map_err(|refusal| refused(refusal, &request_id))?;
    Ok(EditBudgetsResponse {
        effect_sequence,
        budgets: Some(to_proto(&budgets)),
    })
}

fn refused(refusal: Refusal, request_id: &str) -> Failure {
    match refusal {
        Refusal::Full => {
            let message =
                "as many messages wait for the model as may; try again when it has answered";
            Failure::new(Code::ResourceExhausted, ErrorReason::LimitExceeded, message)
        }
        Refusal::RequestIdReused => request_id_reused(request_id),
    }
}

fn check_request_id(request_id: &str) -> Result<(), Failure> {
    if request_id.is_empty() {
        return Ok(());
    }
    let checked = RequestId::new(request_id).map(drop);
    checked.map_err(|error| Failure::invalid_fields().violation("request_id", error.to_string()))
}

async fn give(
    runner: &Runner,
    runs: &Runs,
    context: &CallContext,
    run_id: &str,
    directive: Directive,
) -> Result<(), Status> {
    expect_turn(run_id)?;
    runs.get(context, run_id).await?;
    let Some(turn): Option<mpsc::Sender<Directive>> = runner.directives_to(run_id) else {
        return Err(not_running(runs, context, run_id).await);
    };
    match tokio::time::timeout(ACCEPT_WAIT, turn.send(directive)).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) => Err(not_running(runs, context, run_id).await),
        Err(_) => Err(busy()),
    }
}

/// Waits for the answer of the turn. A turn that ends meanwhile does not answer.
async fn answer<T>(
    runs: &Runs,
    context: &CallContext,
    run_id: &str,
    answer: oneshot::Receiver<T>,
) -> Result<T, Status> {
    match tokio::time::timeout(ACCEPT_WAIT, answer).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(_)) => Err(not_running(runs, context, run_id).await),
        Err(_) => Err(busy()),
    }
}

async fn not_running(runs: &Runs, context: &CallContext, run_id: &str) -> Status {
    let run = match runs.get(context, run_id).await {
        Ok(run) => run,
        Err(status) => return status,
    };
    match run.state() {
        RunState::Running | RunState::Waiting | RunState::Paused | RunState::Queued => busy(),
        _ => Failure::new(
            Code::FailedPrecondition,
            ErrorReason::RunFinished,
            "the turn has ended; say it in a new turn",
        )
        .metadata("run_id", run_id)
        .into(),
    }
}

fn busy() -> Status {
    Failure::new(
        Code::Unavailable,
        ErrorReason::StorageUnavailable,
        "the turn does not answer; try again with the same request id",
    )
    .into()
}

fn to_proto(budgets: &Budgets) -> proto::Budgets {
    proto::Budgets {
        iterations: budgets.iterations,
        calls_per_response: budgets.calls_per_response,
        calls: budgets.calls,
        tokens: budgets.tokens.unwrap_or_default(),
        money_micros: budgets.money_micros.unwrap_or_default(),
        wall_seconds: budgets.wall_seconds.unwrap_or_default(),
        bytes: budgets.bytes,
        depth: budgets.depth,
    }
}
