//! Runs of every service: a run's id says who owns it.

use async_stream::stream;
use contracts::tavern::common::v1::watch_record::Record;
use contracts::tavern::common::v1::{self as common, ErrorReason, Run, WatchRecord};
use contracts::tavern::gateway::v1::{CancelRunRequest, CancelRunResponse};
use contracts::tavern::{agent::v1 as agent, registry::v1 as registry, workflow::v1 as workflow};
use core_types::{RunId, RunOwner};
use futures::StreamExt;
use futures::stream::BoxStream;
use grpc_kit::{Drain, Failure};
use tonic::{Code, Status};

use super::GatewayRpc;

/// Records of a watch, from whichever service.
type Records = BoxStream<'static, Result<WatchRecord, Status>>;

impl GatewayRpc {
    pub(super) async fn run(&self, run_id: String) -> Result<Option<Run>, Status> {
        let peers = &self.peers;
        Ok(match owner(&run_id)? {
            RunOwner::Agent => {
                let request = agent::GetRunRequest { run_id };
                peers.agent.clone().get_run(request).await?.into_inner().run
            }
            RunOwner::Workflow => {
                let request = workflow::GetRunRequest { run_id };
                peers
                    .workflow
                    .clone()
                    .get_run(request)
                    .await?
                    .into_inner()
                    .run
            }
            RunOwner::Registry => {
                let request = registry::GetRunRequest { run_id };
                peers
                    .registry
                    .clone()
                    .get_run(request)
                    .await?
                    .into_inner()
                    .run
            }
        })
    }

    /// Follows a run at its owner. When this server drains, the follower is told.
    pub(super) async fn watch(
        &self,
        run_id: String,
        after_sequence: u64,
        drain: Drain,
    ) -> Result<Records, Status> {
        let peers = &self.peers;
        let records: Records = match owner(&run_id)? {
            RunOwner::Agent => {
                let request = agent::WatchRunRequest {
                    run_id,
                    after_sequence,
                };
                let answers = peers.agent.clone().watch_run(request).await?.into_inner();
                Box::pin(answers.map(|answer| record(answer?.record)))
            }
            RunOwner::Workflow => {
                let request = workflow::WatchRunRequest {
                    run_id,
                    after_sequence,
                };
                let answers = peers
                    .workflow
                    .clone()
                    .watch_run(request)
                    .await?
                    .into_inner();
                Box::pin(answers.map(|answer| record(answer?.record)))
            }
            RunOwner::Registry => {
                let request = registry::WatchRunRequest {
                    run_id,
                    after_sequence,
                };
                let answers = peers
                    .registry
                    .clone()
                    .watch_run(request)
                    .await?
                    .into_inner();
                Box::pin(answers.map(|answer| record(answer?.record)))
            }
        };
        Ok(until_drained(records, after_sequence, drain))
    }

    pub(super) async fn cancel(
        &self,
        CancelRunRequest { run_id, reason }: CancelRunRequest,
    ) -> Result<CancelRunResponse, Status> {
        let peers = &self.peers;
        let (run, still_running) = match owner(&run_id)? {
            RunOwner::Agent => {
                let request = agent::CancelRunRequest { run_id, reason };
                let answer = peers.agent.clone().cancel_run(request).await?.into_inner();
                (answer.run, answer.still_running)
            }
            RunOwner::Workflow => {
                let request = workflow::CancelRunRequest { run_id, reason };
                let answer = peers
                    .workflow
                    .clone()
                    .cancel_run(request)
                    .await?
                    .into_inner();
                (answer.run, answer.still_running)
            }
            RunOwner::Registry => {
                let request = registry::CancelRunRequest { run_id, reason };
                let answer = peers
                    .registry
                    .clone()
                    .cancel_run(request)
                    .await?
                    .into_inner();
                (answer.run, answer.still_running)
            }
        };
        Ok(CancelRunResponse { run, still_running })
    }
}

/// Returns the service that owns the run.
fn owner(run_id: &str) -> Result<RunOwner, Status> {
    let parsed: Result<RunId, _> = run_id.parse();
    parsed.map(|run| run.owner()).map_err(|error| {
        Failure::new(Code::NotFound, ErrorReason::RunNotFound, error.to_string())
            .metadata("run_id", error.text)
            .into_status()
    })
}

fn record(record: Option<WatchRecord>) -> Result<WatchRecord, Status> {
    record.ok_or_else(|| Status::internal("a watch gave an empty answer"))
}

/// Passes records on until this server drains; then says where to resume.
fn until_drained(mut records: Records, after_sequence: u64, drain: Drain) -> Records {
    Box::pin(stream! {
        let mut last_sequence = after_sequence;
        loop {
            tokio::select! {
                biased;
                next = records.next() => {
                    let Some(next) = next else { return };
                    if let Ok(WatchRecord { record: Some(Record::Event(event)) }) = &next {
                        last_sequence = event.sequence;
                    }
                    let failed = next.is_err();
                    yield next;
                    if failed {
                        return;
                    }
                }
                () = drain.started() => {
                    let retry_after = Some(prost_types::Duration { seconds: 1, nanos: 0 });
                    let drain = common::Drain { retry_after, last_sequence };
                    yield Ok(WatchRecord { record: Some(Record::Drain(drain)) });
                    return;
                }
            }
        }
    })
}
