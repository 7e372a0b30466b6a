//! A run in another service: started, followed, cancelled.

use std::{pin::pin, time::Duration};

use contracts::tavern::{
    agent::v1::{StartTurnRequest, agent_service_client::AgentServiceClient},
    common::v1::{ErrorReason, PendingWork, Run, WorkKind},
    run::v1::{CancelRunRequest, GetRunRequest, run_service_client::RunServiceClient},
    workflow::v1::{StartRunRequest, workflow_service_client::WorkflowServiceClient},
};
use futures::{Stream, StreamExt};
use grpc_kit::{Backoff, CallContext, Outbound, Patience, Transport};
use tokio::time::Instant;
use tonic::{Code, Status};

use crate::{Followed, follow, policy::START_PATIENCE};

/// A request for a run.
#[derive(Clone, Debug)]
pub enum ChildRequest {
    /// A run of a workflow or a node, from workflow-execution.
    Workflow(Box<StartRunRequest>),
    /// A turn of an agent, from agent-runtime.
    Turn(Box<StartTurnRequest>),
}

/// A run that was not started, as far as its owner knows.
#[derive(Debug)]
pub struct NotStarted {
    /// The last answer of the service.
    pub status: Status,
    /// Whether one of the requests may have started the run, so that its effects are in doubt.
    pub may_have_started: bool,
}

/// A run in another service.
#[derive(Clone, Debug)]
pub struct ChildRun {
    run_id: String,
    service: Transport,
    context: CallContext,
}

/// A run that was cancelled.
#[derive(Debug)]
pub struct CancelledRun {
    /// The run, if it ended within its grace.
    pub ended: Option<Run>,
    /// The work that continues: work below the run, and the run itself unless it has ended.
    pub still_running: Vec<PendingWork>,
}

impl ChildRun {
    /// Takes a run that `service` has started before, below the runs of `context`.
    pub fn of(service: &Transport, context: &CallContext, run_id: impl Into<String>) -> Self {
        Self {
            run_id: run_id.into(),
            service: service.clone(),
            context: context.clone(),
        }
    }

    /// Starts a run below those of `context`, or finds the one that was started with the same request id. A
    /// service that is away is asked for up to [`START_PATIENCE`] and not past `deadline`; but once only without a request id, as a
    /// second request could start a second run. Returns the run as it was when the service answered, too.
    ///
    /// # Errors
    /// The service refused, failed or stayed away.
    pub async fn start(
        service: &Transport,
        context: &CallContext,
        request: ChildRequest,
        deadline: Instant,
    ) -> Result<(Self, Run), NotStarted> {
        let mut patience = Patience::new(START_PATIENCE, deadline);
        let mut may_have_started = false;
        loop {
            match request.send(service.with(context)).await {
                Ok(run) => return Ok((Self::of(service, context, run.run_id.clone()), run)),
                Err(status) => {
                    may_have_started |= grpc_kit::may_have_arrived(&status)
                        || matches!(
                            status.code(),
                            Code::DeadlineExceeded | Code::Cancelled | Code::Unknown
                        );
                    if !request.can_repeat() || !patience.wait_after(&status).await {
                        return Err(NotStarted {
                            status,
                            may_have_started,
                        });
                    }
                }
            }
        }
    }

    fn runs(&self) -> RunServiceClient<Outbound> {
        RunServiceClient::new(self.service.with(&self.context))
    }

    /// Returns the run as the calls of another context reach it.
    fn within(&self, context: CallContext) -> Self {
        Self {
            context,
            ..self.clone()
        }
    }

    /// Returns the id of the run.
    pub fn run_id(&self) -> &str {
        &self.run_id
    }

    /// Reads the run.
    ///
    /// # Errors
    /// The status of its service.
    pub async fn get(&self) -> Result<Run, Status> {
        let run_id = self.run_id.clone();
        let mut runs = self.runs();
        let answer = runs.get_run(GetRunRequest { run_id }).await?;
        Ok(answer.into_inner().run.unwrap_or_default())
    }

    /// Follows the run after the sequence `after_sequence` until it has ended. A broken connection
    /// is resumed at the break. The stream ends with an error when the run does not exist or stays
    /// out of reach.
    pub fn follow(
        &self,
        after_sequence: u64,
        deadline: Instant,
    ) -> impl Stream<Item = Result<Followed, Status>> + Send + use<> {
        let (runs, run_id) = (self.runs(), self.run_id.clone());
        follow::follow(runs, run_id, after_sequence, deadline)
    }

    /// Follows the run to its end and returns it.
    ///
    /// # Errors
    /// The run does not exist or stays out of reach.
    pub async fn end(&self, deadline: Instant) -> Result<Run, Status> {
        let mut followed = pin!(self.follow(0, deadline));
        while let Some(next) = followed.next().await {
            if let Followed::Ended(run) = next? {
                return Ok(*run);
            }
        }
        Err(Status::unavailable("the run can no longer be followed"))
    }

    /// Waits for the end of the run however long its service is away. Returns `None` if the run
    /// does not exist.
    pub async fn end_at_last(&self, longest: Duration) -> Option<Run> {
        let run = self.within(self.context.clone().without_deadline());
        let mut backoff = Backoff::default();
        loop {
            let status = match run.end(Instant::now() + longest).await {
                Ok(run) => return Some(run),
                Err(status) => status,
            };
            if grpc_kit::reason(&status) == Some(ErrorReason::RunNotFound) {
                return None;
            }
            tokio::time::sleep(backoff.after(&status)).await;
        }
    }

    /// Cancels the run and waits up to `grace` for its end; the deadline of the context does not count. The grace is [`GRACE`](crate::policy::GRACE) for an owner that is a run itself,
    /// and [`RUN_GRACE`](crate::policy::RUN_GRACE) for a call.
    ///
    /// # Errors
    /// The status with which its service refused the cancel.
    pub async fn cancel(&self, reason: &str, grace: Duration) -> Result<CancelledRun, Status> {
        let until = Instant::now() + grace;
        let run = self.within(self.context.clone().without_deadline().with_deadline(until));
        let mut still_running = Vec::new();
        let ending = async {
            let request = CancelRunRequest {
                run_id: self.run_id.clone(),
                reason: reason.to_owned(),
            };
            let answer = run.runs().cancel_run(request).await?.into_inner();
            still_running = answer.still_running;
            still_running.retain(|work| work.id != self.run_id);
            match answer.run.filter(|run| run.outcome.is_some()) {
                Some(run) => Ok::<_, Status>(Some(run)),
                None => Ok(run.end(until).await.ok()),
            }
        };
        let ended = tokio::time::timeout_at(until, ending).await;
        let ended = match ended {
            Ok(Err(status)) if status.code() != Code::DeadlineExceeded => return Err(status),
            Ok(ended) => ended.ok().flatten(),
            Err(_) => None,
        };
        if ended.is_none() {
            still_running.push(pending_run(&self.run_id));
        }
        Ok(CancelledRun {
            ended,
            still_running,
        })
    }
}

/// Names a run that has not ended.
pub fn pending_run(run_id: &str) -> PendingWork {
    PendingWork {
        kind: WorkKind::Run.into(),
        id: run_id.to_owned(),
    }
}

impl ChildRequest {
    /// Whether the same request finds the run that an earlier request started.
    fn can_repeat(&self) -> bool {
        let request_id = match self {
            Self::Workflow(request) => &request.request_id,
            Self::Turn(request) => &request.request_id,
        };
        !request_id.is_empty()
    }

    async fn send(&self, service: Outbound) -> Result<Run, Status> {
        let run = match self.clone() {
            Self::Workflow(request) => {
                let mut workflows = WorkflowServiceClient::new(service);
                workflows.start_run(*request).await?.into_inner().run
            }
            Self::Turn(request) => {
                let mut agents = AgentServiceClient::new(service);
                agents.start_turn(*request).await?.into_inner().run
            }
        };
        let message = "the service started no run; it may be of another version";
        run.ok_or_else(|| Status::data_loss(message))
    }
}
