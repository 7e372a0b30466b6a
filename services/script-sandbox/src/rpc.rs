//! The contract: `tavern.sandbox.v1`.

use std::{sync::Arc, time::Duration};

use contracts::tavern::{
    common::v1::ErrorReason,
    sandbox::v1::{
        ExecuteRequest, ExecuteResponse, ExecuteStreamRequest, ExecuteStreamResponse,
        GetIsolationRequest, GetIsolationResponse, ListRuntimesRequest, ListRuntimesResponse,
        blob_service_server::BlobServiceServer,
        script_sandbox_service_server::{ScriptSandboxService, ScriptSandboxServiceServer},
        session_service_server::SessionServiceServer,
    },
};
use grpc_kit::{Failure, Need, Services};
use sandbox_engine::domain::{script::request_id_problems, violation::Violation};
use tokio::time::Instant;
use tonic::{Code, Request, Response, Status, Streaming};

use crate::{error::Refusal, sandbox::Sandbox};

mod blobs;
mod inward;
mod outward;
mod sessions;
mod streaming;

/// When to come back if too many scripts wait, or too many transfers are under way.
const BUSY_DELAY: Duration = Duration::from_secs(1);

pub use blobs::BlobRpc;

/// How long a session may take to be ready, and a cell to be interrupted.
const SET_UP: Duration = Duration::from_secs(120);

/// Returns what the sandbox needs to do its work: that it may run scripts at all.
pub fn scripts(sandbox: &Arc<Sandbox>) -> Need {
    let sandbox = Arc::clone(sandbox);
    Need::condition("scripts", move || {
        let report = sandbox.report();
        match report.is_ready(sandbox.settings().lowest_isolation) {
            true => Ok(()),
            false => Err("scripts are refused; GetIsolation says why".to_owned()),
        }
    })
}

/// Serves the RPCs of a sandbox.
#[derive(Clone, Debug)]
pub struct Rpc {
    sandbox: Arc<Sandbox>,
}

/// The services of a sandbox, with the time that its scripts may take.
pub fn services(sandbox: Arc<Sandbox>) -> Services {
    let longest = sandbox.longest_request();
    Services::new()
        .add(BlobServiceServer::new(BlobRpc::new(
            sandbox.blobs().clone(),
        )))
        .add(ScriptSandboxServiceServer::new(Rpc {
            sandbox: sandbox.clone(),
        }))
        .add(SessionServiceServer::new(Rpc { sandbox }))
        .method_timeout(
            "tavern.sandbox.v1.BlobService/UploadBlob",
            blobs::LONGEST_TRANSFER,
        )
        .method_timeout(
            "tavern.sandbox.v1.BlobService/DownloadBlob",
            blobs::LONGEST_TRANSFER,
        )
        .method_timeout("tavern.sandbox.v1.ScriptSandboxService/Execute", longest)
        .method_timeout(
            "tavern.sandbox.v1.ScriptSandboxService/ExecuteStream",
            longest,
        )
        .method_timeout("tavern.sandbox.v1.SessionService/RunCell", longest)
        .method_timeout("tavern.sandbox.v1.SessionService/CreateSession", SET_UP)
        .method_timeout("tavern.sandbox.v1.SessionService/InterruptCell", SET_UP)
}

#[tonic::async_trait]
impl ScriptSandboxService for Rpc {
    async fn execute(
        &self,
        request: Request<ExecuteRequest>,
    ) -> Result<Response<ExecuteResponse>, Status> {
        let mut request = request.into_inner();
        let digest = inward::digest(&mut request);
        let request_id = request.request_id.clone();
        let (default, maximum) = self.sandbox.limits();
        let traceparent = telemetry::context::current_traceparent().unwrap_or_default();
        let mut problems = request_id_problems(&request_id);
        let most_collected = self.sandbox.most_collected();
        let script = match inward::script(request, traceparent, &default, &maximum, &most_collected)
        {
            Ok(script) => script,
            Err(more) => {
                problems.extend(more);
                return Err(invalid(problems));
            }
        };
        if !problems.is_empty() {
            return Err(invalid(problems));
        }
        match self.sandbox.execute(&request_id, digest, script).await {
            Ok((outcome, replayed)) => Ok(Response::new(outward::response(&outcome, replayed))),
            Err(refusal) => Err(refused(refusal)),
        }
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
        _request: Request<ListRuntimesRequest>,
    ) -> Result<Response<ListRuntimesResponse>, Status> {
        let runtimes = self
            .sandbox
            .runtimes()
            .iter()
            .map(|runtime| outward::runtime(runtime, self.sandbox.pool_state(runtime)))
            .collect();
        Ok(Response::new(ListRuntimesResponse { runtimes }))
    }
}

/// When a call must be over: the caller's deadline, and `longest` from now at the latest.
fn deadline_of<T>(request: &Request<T>, longest: Duration) -> Instant {
    let ours = Instant::now() + longest;
    let context = request.extensions().get::<grpc_kit::CallContext>();
    let theirs = context.and_then(grpc_kit::CallContext::deadline);
    theirs.map_or(ours, |theirs| theirs.min(ours))
}

/// The first message of a caller's stream, which may not take long: until it comes, the purpose of
/// the stream is unknown.
async fn in_time<T>(first: impl Future<Output = Result<T, Status>>) -> Result<T, Status> {
    const FIRST_MESSAGE: Duration = Duration::from_secs(10);
    match tokio::time::timeout(FIRST_MESSAGE, first).await {
        Ok(first) => first,
        Err(_) => Err(Failure::deadline_exceeded().into_status()),
    }
}

fn invalid(problems: Vec<Violation>) -> Status {
    problems
        .into_iter()
        .fold(
            Failure::invalid_fields(),
            |failure, Violation { field, problem }| failure.violation(field, problem),
        )
        .into_status()
}

fn refused(refusal: Refusal) -> Status {
    let message = refusal.to_string();
    match refusal {
        Refusal::Invalid(problems) => invalid(problems),
        Refusal::Runtime { runtime, .. } => Failure::new(
            Code::FailedPrecondition,
            ErrorReason::RuntimeUnavailable,
            message,
        )
        .metadata("runtime", runtime)
        .into_status(),
        Refusal::Isolation {
            wanted,
            available,
            missing,
            ..
        } => Failure::new(
            Code::FailedPrecondition,
            ErrorReason::IsolationUnavailable,
            message,
        )
        .metadata("wanted", wanted)
        .metadata("available", available)
        .metadata("missing", missing.join("; "))
        .into_status(),
        Refusal::Busy { .. } => Failure::overloaded(BUSY_DELAY).into_status(),
        Refusal::RequestIdReused { request_id } => {
            Failure::new(Code::AlreadyExists, ErrorReason::RequestIdReused, message)
                .metadata("request_id", request_id)
                .into_status()
        }
        Refusal::Blobs(absent) => blobs::absent(&absent),
        Refusal::Quota { limit, maximum } => {
            Failure::limit_exceeded(limit, maximum, maximum + 1).into_status()
        }
        Refusal::SessionNotFound { id } => {
            Failure::new(Code::NotFound, ErrorReason::SessionNotFound, message)
                .metadata("session_id", id)
                .into_status()
        }
        Refusal::SessionEnded { id, end } => {
            let reason = outward::end_reason(end.reason).as_str_name();
            Failure::new(Code::FailedPrecondition, ErrorReason::SessionEnded, message)
                .metadata("session_id", id)
                .metadata("end", reason.trim_start_matches("SESSION_END_REASON_"))
                .into_status()
        }
        Refusal::SessionBusy { id, cell } => {
            Failure::new(Code::FailedPrecondition, ErrorReason::SessionBusy, message)
                .metadata("session_id", id)
                .metadata("cell", cell.to_string())
                .into_status()
        }
        Refusal::ShutDown { begun } => {
            let reason = ErrorReason::Draining;
            let failure = Failure::new(Code::Unavailable, reason, message).retry_after(BUSY_DELAY);
            // Who asked decides whether the script may run once more.
            let failure = if begun {
                failure.after_sending()
            } else {
                failure
            };
            failure.into_status()
        }
        Refusal::Lost => grpc_kit::internal(&refusal),
    }
}
