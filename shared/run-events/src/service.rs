//! The run service of the contract, for every owner of runs.

use contracts::tavern::run::v1::{
    AnswerWaitRequest, AnswerWaitResponse, CancelRunRequest, CancelRunResponse, DeleteRunRequest,
    DeleteRunResponse, GetRunRequest, GetRunResponse, ListQuestionsRequest, ListQuestionsResponse,
    ListRunsRequest, ListRunsResponse, ListWaitsRequest, ListWaitsResponse, PauseRunRequest,
    PauseRunResponse, ResumeRunRequest, ResumeRunResponse, SignalRunRequest, SignalRunResponse,
    WatchRunRequest, WatchRunResponse,
    run_service_server::{RunService, RunServiceServer},
};
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use grpc_kit::{CallContext, Drain};
use tonic::{Request, Response, Status};

use crate::runs::Runs;

impl Runs {
    /// Returns the service that reads, follows, pauses, signals, answers, cancels and deletes these runs.
    pub fn service(&self) -> RunServiceServer<impl RunService + use<>> {
        RunServiceServer::new(Rpc { runs: self.clone() })
    }
}

struct Rpc {
    runs: Runs,
}

#[tonic::async_trait]
impl RunService for Rpc {
    type WatchRunStream = BoxStream<'static, Result<WatchRunResponse, Status>>;

    async fn get_run(
        &self,
        request: Request<GetRunRequest>,
    ) -> Result<Response<GetRunResponse>, Status> {
        let context = CallContext::of(&request);
        let run = self
            .runs
            .get(&context, &request.into_inner().run_id)
            .await?;
        Ok(Response::new(GetRunResponse { run: Some(run) }))
    }

    async fn list_runs(
        &self,
        request: Request<ListRunsRequest>,
    ) -> Result<Response<ListRunsResponse>, Status> {
        let (context, request) = (CallContext::of(&request), request.into_inner());
        let listed = self.runs.list(&context, &request);
        let (runs, next_page_token) = listed.await?;
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
        let records = self.runs.watch(context, &run_id, after_sequence, drain);
        let records = records.await?;
        let responses = records.map_ok(|record| WatchRunResponse { record });
        Ok(Response::new(responses.boxed()))
    }

    async fn cancel_run(
        &self,
        request: Request<CancelRunRequest>,
    ) -> Result<Response<CancelRunResponse>, Status> {
        let context = CallContext::of(&request);
        let CancelRunRequest { run_id, reason } = request.into_inner();
        let cancelled = self.runs.cancel(&context, &run_id, &reason).await?;
        Ok(Response::new(CancelRunResponse {
            run: Some(cancelled.run),
            still_running: cancelled.still_running,
        }))
    }

    async fn pause_run(
        &self,
        request: Request<PauseRunRequest>,
    ) -> Result<Response<PauseRunResponse>, Status> {
        let context = CallContext::of(&request);
        let PauseRunRequest { run_id, reason } = request.into_inner();
        let run = self.runs.pause(&context, &run_id, &reason).await?;
        Ok(Response::new(PauseRunResponse { run: Some(run) }))
    }

    async fn resume_run(
        &self,
        request: Request<ResumeRunRequest>,
    ) -> Result<Response<ResumeRunResponse>, Status> {
        let (context, request) = (CallContext::of(&request), request.into_inner());
        let resumed = self.runs.resume(&context, &request.run_id);
        let run = resumed.await?;
        Ok(Response::new(ResumeRunResponse { run: Some(run) }))
    }

    async fn signal_run(
        &self,
        request: Request<SignalRunRequest>,
    ) -> Result<Response<SignalRunResponse>, Status> {
        let context = CallContext::of(&request);
        let replayed = self.runs.signal(context, request.into_inner()).await?;
        Ok(Response::new(SignalRunResponse { replayed }))
    }

    async fn answer_wait(
        &self,
        request: Request<AnswerWaitRequest>,
    ) -> Result<Response<AnswerWaitResponse>, Status> {
        let context = CallContext::of(&request);
        let replayed = self.runs.answer(context, request.into_inner()).await?;
        Ok(Response::new(AnswerWaitResponse { replayed }))
    }

    async fn list_waits(
        &self,
        request: Request<ListWaitsRequest>,
    ) -> Result<Response<ListWaitsResponse>, Status> {
        let (context, request) = (CallContext::of(&request), request.into_inner());
        let listed = self.runs.list_waits(&context, &request);
        let page = listed.await?;
        Ok(Response::new(page))
    }

    async fn list_questions(
        &self,
        request: Request<ListQuestionsRequest>,
    ) -> Result<Response<ListQuestionsResponse>, Status> {
        let (context, request) = (CallContext::of(&request), request.into_inner());
        let listed = self.runs.list_questions(&context, &request);
        let page = listed.await?;
        Ok(Response::new(page))
    }

    async fn delete_run(
        &self,
        request: Request<DeleteRunRequest>,
    ) -> Result<Response<DeleteRunResponse>, Status> {
        let (context, request) = (CallContext::of(&request), request.into_inner());
        let deleted = self.runs.delete(&context, &request.run_id);
        deleted.await?;
        Ok(Response::new(DeleteRunResponse {}))
    }
}
