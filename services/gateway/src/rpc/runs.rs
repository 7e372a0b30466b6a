//! Runs of every service: the prefix of a run's id names its owner.

use async_stream::stream;
use bytes::Bytes;
use contracts::tavern::common::v1::watch_record::Record;
use contracts::tavern::common::v1::{self as common, ErrorReason};
use contracts::tavern::run::v1::run_service_client::RunServiceClient;
use contracts::tavern::run::v1::run_service_server::RunService;
use contracts::tavern::run::v1::{
    AnswerWaitRequest, AnswerWaitResponse, CancelRunRequest, CancelRunResponse, DeleteRunRequest,
    DeleteRunResponse, GetRunRequest, GetRunResponse, ListQuestionsRequest, ListQuestionsResponse,
    ListRunsRequest, ListRunsResponse, ListWaitsRequest, ListWaitsResponse, PauseRunRequest,
    PauseRunResponse, ResumeRunRequest, ResumeRunResponse, SignalRunRequest, SignalRunResponse,
    WatchRunRequest, WatchRunResponse,
};
use contracts::watch::{decode, encode, is_event};
use core_types::{RunId, RunOwner};
use futures::future::try_join_all;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use grpc_kit::{CallContext, Drain, Failure, Outbound};
use tonic::{Code, Request, Response, Status};

use super::GatewayRpc;

/// Records of a watch, from any service, which are passed on unchanged.
type Records = BoxStream<'static, Result<Bytes, Status>>;

#[tonic::async_trait]
impl RunService for GatewayRpc {
    type WatchRunStream = BoxStream<'static, Result<WatchRunResponse, Status>>;

    async fn get_run(
        &self,
        request: Request<GetRunRequest>,
    ) -> Result<Response<GetRunResponse>, Status> {
        let (mut runs, request) = self.owner(request, |request| &request.run_id)?;
        runs.get_run(request).await
    }

    async fn list_runs(
        &self,
        request: Request<ListRunsRequest>,
    ) -> Result<Response<ListRunsResponse>, Status> {
        let context = CallContext::of(&request);
        let request = request.into_inner();
        let lists = self.peers.all_runs(&context).map(|mut runs| {
            let request = request.clone();
            async move { runs.list_runs(request).await }
        });
        let pages = try_join_all(lists).await?.into_iter().map(|response| {
            let page = response.into_inner();
            (page.runs, page.next_page_token)
        });
        let (runs, next_page_token) = grpc_kit::run_list::merge_pages(&context, &request, pages);
        Ok(Response::new(ListRunsResponse {
            runs,
            next_page_token,
        }))
    }

    async fn watch_run(
        &self,
        request: Request<WatchRunRequest>,
    ) -> Result<Response<Self::WatchRunStream>, Status> {
        let (context, drain) = (CallContext::of(&request), Drain::of(&request));
        let WatchRunRequest {
            run_id,
            after_sequence,
        } = request.into_inner();
        let records = self.watch(&context, run_id, after_sequence, drain).await?;
        let responses = records.map_ok(|record| WatchRunResponse { record });
        Ok(Response::new(responses.boxed()))
    }

    async fn cancel_run(
        &self,
        request: Request<CancelRunRequest>,
    ) -> Result<Response<CancelRunResponse>, Status> {
        let (mut runs, request) = self.owner(request, |request| &request.run_id)?;
        runs.cancel_run(request).await
    }

    async fn pause_run(
        &self,
        request: Request<PauseRunRequest>,
    ) -> Result<Response<PauseRunResponse>, Status> {
        let (mut runs, request) = self.owner(request, |request| &request.run_id)?;
        runs.pause_run(request).await
    }

    async fn resume_run(
        &self,
        request: Request<ResumeRunRequest>,
    ) -> Result<Response<ResumeRunResponse>, Status> {
        let (mut runs, request) = self.owner(request, |request| &request.run_id)?;
        runs.resume_run(request).await
    }

    async fn signal_run(
        &self,
        request: Request<SignalRunRequest>,
    ) -> Result<Response<SignalRunResponse>, Status> {
        let (mut runs, request) = self.owner(request, |request| &request.run_id)?;
        runs.signal_run(request).await
    }

    async fn answer_wait(
        &self,
        request: Request<AnswerWaitRequest>,
    ) -> Result<Response<AnswerWaitResponse>, Status> {
        let (mut runs, request) = self.owner(request, |request| &request.run_id)?;
        runs.answer_wait(request).await
    }

    async fn list_waits(
        &self,
        request: Request<ListWaitsRequest>,
    ) -> Result<Response<ListWaitsResponse>, Status> {
        let (mut runs, request) = self.owner(request, |request| &request.run_id)?;
        runs.list_waits(request).await
    }

    async fn list_questions(
        &self,
        request: Request<ListQuestionsRequest>,
    ) -> Result<Response<ListQuestionsResponse>, Status> {
        // Only nodes of workflows wait for people, also where an agent asks.
        let context = CallContext::of(&request);
        let mut workflows = self.peers.runs(&context, RunOwner::Workflow);
        workflows.list_questions(request.into_inner()).await
    }

    async fn delete_run(
        &self,
        request: Request<DeleteRunRequest>,
    ) -> Result<Response<DeleteRunResponse>, Status> {
        let (mut runs, request) = self.owner(request, |request| &request.run_id)?;
        runs.delete_run(request).await
    }
}

impl GatewayRpc {
    /// Returns the run service of the owner of the run that a request names, and the request.
    fn owner<T>(
        &self,
        request: Request<T>,
        run_id: fn(&T) -> &str,
    ) -> Result<(RunServiceClient<Outbound>, T), Status> {
        let owner = owner_of(run_id(request.get_ref()))?;
        let runs = self.peers.runs(&CallContext::of(&request), owner);
        Ok((runs, request.into_inner()))
    }

    /// Follows a run at its owner. When this server drains, the follower gets a drain record.
    pub(super) async fn watch(
        &self,
        context: &CallContext,
        run_id: String,
        after_sequence: u64,
        drain: Drain,
    ) -> Result<Records, Status> {
        let mut runs = self.peers.runs(context, owner_of(&run_id)?);
        let request = WatchRunRequest {
            run_id,
            after_sequence,
        };
        let responses = runs.watch_run(request).await?.into_inner();
        let records = responses.map_ok(|response| response.record);
        Ok(until_drained(records.boxed(), after_sequence, drain))
    }
}

/// Returns the service that owns the run.
fn owner_of(run_id: &str) -> Result<RunOwner, Status> {
    let parsed: Result<RunId, _> = run_id.parse();
    parsed.map(|run| run.owner()).map_err(|error| {
        Failure::new(Code::NotFound, ErrorReason::RunNotFound, error.to_string())
            .metadata("run_id", error.text)
            .into_status()
    })
}

/// Passes records on until this server drains; then sends the sequence to resume after.
pub(super) fn until_drained(mut records: Records, after_sequence: u64, drain: Drain) -> Records {
    Box::pin(stream! {
        let mut last = Bytes::new();
        loop {
            tokio::select! {
                biased;
                next = records.next() => {
                    let Some(next) = next else { return };
                    if let Ok(record) = &next
                        && is_event(record)
                    {
                        last.clone_from(record);
                    }
                    let failed = next.is_err();
                    yield next;
                    if failed {
                        return;
                    }
                }
                () = drain.started() => {
                    let retry_after = Some(prost_types::Duration { seconds: 1, nanos: 0 });
                    let last_sequence = match decode(last) {
                        Ok(Some(Record::Event(event))) => event.sequence,
                        _ => after_sequence,
                    };
                    let drain = common::WatchDrain { retry_after, last_sequence };
                    yield Ok(encode(Record::Drain(drain)));
                    return;
                }
            }
        }
    })
}
