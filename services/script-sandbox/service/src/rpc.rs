//! The contract: `tavern.sandbox.v1`.

use std::{sync::Arc, time::Duration};

use contracts::tavern::{
    common::v1::ErrorReason,
    sandbox::v1::{
        ExecuteRequest, ExecuteResponse, ExecuteStreamRequest, ExecuteStreamResponse,
        GetIsolationRequest, GetIsolationResponse, ListRuntimesRequest, ListRuntimesResponse,
        script_sandbox_service_server::ScriptSandboxService,
    },
};
use grpc_kit::{CallContext, Failure};
use sandbox_engine::{domain::violation::Violation, packages::PackageError};
use tokio::time::Instant;
use tonic::{Code, Request, Response, Status, Streaming};

use crate::{error::Refusal, runner::sandbox::Sandbox};

pub(crate) mod blobs;
mod inward;
mod outward;
mod sessions;
mod streaming;

/// The delay before a retry if too many scripts wait, or too many transfers are in progress.
const BUSY_DELAY: Duration = Duration::from_secs(1);

pub(crate) use blobs::{BlobRpc, LONGEST};

/// Serves the RPCs of a sandbox.
#[derive(Clone, Debug)]
pub struct Rpc {
    sandbox: Arc<Sandbox>,
}

impl Rpc {
    pub(crate) fn new(sandbox: Arc<Sandbox>) -> Self {
        Self { sandbox }
    }
}

#[tonic::async_trait]
impl ScriptSandboxService for Rpc {
    async fn execute(
        &self,
        request: Request<ExecuteRequest>,
    ) -> Result<Response<ExecuteResponse>, Status> {
        let limits = self.sandbox.limits();
        let context = CallContext::of(&request);
        let principal = context.principal();
        let script = inward::script(&self.sandbox, principal, request.into_inner(), limits);
        let executed = self.sandbox.execute(script.map_err(invalid)?).await;
        Ok(Response::new(outward::response(
            &executed.map_err(refused)?,
        )))
    }

    type ExecuteStreamStream = streaming::ResponseStream<ExecuteStreamResponse>;

    async fn execute_stream(
        &self,
        request: Request<Streaming<ExecuteStreamRequest>>,
    ) -> Result<Response<Self::ExecuteStreamStream>, Status> {
        streaming::execute(self, request).await
    }

    async fn get_isolation(
        &self,
        _request: Request<GetIsolationRequest>,
    ) -> Result<Response<GetIsolationResponse>, Status> {
        Ok(Response::new(outward::isolation(&self.sandbox)))
    }

    async fn list_runtimes(
        &self,
        request: Request<ListRuntimesRequest>,
    ) -> Result<Response<ListRuntimesResponse>, Status> {
        let tenant = Some(CallContext::of(&request).tenant());
        let sets = self.sandbox.package_sets().await;
        let runtimes = self
            .sandbox
            .runtimes()
            .iter()
            .map(|runtime| outward::runtime(&self.sandbox, runtime, &sets, tenant))
            .collect();
        Ok(Response::new(ListRuntimesResponse { runtimes }))
    }
}

/// The deadline of a call: the caller's, or `longest` from now if that is earlier.
fn deadline_of<T>(request: &Request<T>, longest: Duration) -> Instant {
    let ours = Instant::now() + longest;
    let context = request.extensions().get::<grpc_kit::CallContext>();
    let theirs = context.and_then(grpc_kit::CallContext::deadline);
    theirs.map_or(ours, |theirs| theirs.min(ours))
}

/// The first message of a caller's stream, which must arrive soon: the purpose of the stream is
/// unknown before.
async fn in_time<T>(first: impl Future<Output = Result<T, Status>>) -> Result<T, Status> {
    const FIRST_MESSAGE: Duration = Duration::from_secs(10);
    match tokio::time::timeout(FIRST_MESSAGE, first).await {
        Ok(first) => first,
        Err(_) => Err(Failure::deadline_exceeded().into_status()),
    }
}

fn wrong(field: &str, problem: impl Into<String>) -> Status {
    invalid(vec![Violation::new(field, problem)])
}

fn invalid(problems: Vec<Violation>) -> Status {
    let add = |failure: Failure, it: Violation| failure.violation(it.field, it.problem);
    let failure = problems.into_iter().fold(Failure::invalid_fields(), add);
    failure.into_status()
}

/// The violations of a message that is in this field of another.
fn below(field: &str, mut problems: Vec<Violation>) -> Vec<Violation> {
    for problem in &mut problems {
        problem.field = format!("{field}.{}", problem.field);
    }
    problems
}

fn refused(refusal: Refusal) -> Status {
    let message = refusal.to_string();
    let precondition = |reason, message| Failure::new(Code::FailedPrecondition, reason, message);
    let failure = match refusal {
        Refusal::Invalid(problems) => return invalid(problems),
        Refusal::Blobs(absent) => return blobs::absent(&absent),
        Refusal::Lost => return grpc_kit::internal(&refusal),
        Refusal::Busy { .. } => Failure::overloaded(BUSY_DELAY),
        Refusal::TenantLimit(reached) => reached.into(),
        Refusal::TenantClosed(tenant) => tenancy::closed(tenant),
        Refusal::Quota { limit, maximum } => Failure::limit_exceeded(limit, maximum, maximum + 1),
        Refusal::Runtime { runtime, .. } => {
            precondition(ErrorReason::RuntimeUnavailable, message).metadata("runtime", runtime)
        }
        Refusal::Packages(PackageError::Unknown { name, known }) => {
            Failure::new(Code::NotFound, ErrorReason::UnknownPackageSet, message)
                .metadata("packages", name)
                .metadata("known", known.join(","))
        }
        Refusal::Packages(PackageError::Unfit { name, .. }) => {
            precondition(ErrorReason::PackageSetUnfit, message).metadata("packages", name)
        }
        Refusal::Isolation {
            wanted,
            available,
            missing,
            ..
        } => precondition(ErrorReason::IsolationUnavailable, message)
            .metadata("wanted", wanted)
            .metadata("available", available)
            .metadata("missing", missing.join("; ")),
        Refusal::RequestIdReused { request_id } => {
            Failure::new(Code::AlreadyExists, ErrorReason::RequestIdReused, message)
                .metadata("request_id", request_id)
        }
        Refusal::SessionNotFound { id } => {
            Failure::new(Code::NotFound, ErrorReason::SessionNotFound, message)
                .metadata("session_id", id)
        }
        Refusal::SessionEnded { id, end } => {
            let reason = outward::end_reason(end.reason).as_str_name();
            precondition(ErrorReason::SessionEnded, message)
                .metadata("session_id", id)
                .metadata("end", reason.trim_start_matches("SESSION_END_REASON_"))
        }
        Refusal::SessionBusy { id, cell } => precondition(ErrorReason::SessionBusy, message)
            .metadata("session_id", id)
            .metadata("cell", cell.to_string()),
        Refusal::ShutDown { begun } => {
            let failure = Failure::new(Code::Unavailable, ErrorReason::Draining, message);
            let failure = failure.retry_after(BUSY_DELAY);
            // The caller decides whether the script may run once more.
            match begun {
                true => failure.after_sending(),
                false => failure,
            }
        }
    };
    failure.into_status()
}
