//! Following a run of another service, over broken connections and restarts.

use contracts::tavern::{
    common::v1::{Run, RunEvent, WatchEnd, watch_record::Record},
    run::v1::{WatchRunRequest, run_service_client::RunServiceClient},
};
use futures::Stream;
use grpc_kit::{Outbound, Patience};
use tokio::time::Instant;
use tonic::{Response, Status};

use crate::policy::OUT_OF_REACH;

/// A message about a run that is followed.
#[derive(Debug)]
pub enum Followed {
    /// An event of the run or of a run below it.
    Event(Box<RunEvent>),
    /// The run, which has ended; the last message.
    Ended(Box<Run>),
}

/// Follows a run after the sequence `after_sequence` until it has ended. A broken connection is
/// resumed at the break. The stream ends with an error when the run does not exist or stays out of
/// reach.
pub(crate) fn follow(
    client: RunServiceClient<Outbound>,
    run_id: String,
    mut after_sequence: u64,
    deadline: Instant,
) -> impl Stream<Item = Result<Followed, Status>> + Send {
    async_stream::stream! {
        let gone = || Status::unavailable("the watch ended before the run");
        let mut patience = Patience::new(OUT_OF_REACH, deadline);
        loop {
            let request = WatchRunRequest { run_id: run_id.clone(), after_sequence };
            let mut watch = client.clone().watch_run(request).await.map(Response::into_inner);
            let broken = loop {
                let response = match &mut watch {
                    Ok(stream) => stream.message().await.and_then(|next| next.ok_or_else(gone)),
                    Err(status) => break status.clone(),
                };
                match response.and_then(|response| contracts::watch::decode(response.record)) {
                    Ok(Some(Record::Event(event))) => {
                        after_sequence = event.sequence;
                        patience.reset();
                        yield Ok(Followed::Event(Box::new(event)));
                    }
                    Ok(Some(Record::Terminal(WatchEnd { run: Some(run), .. }))) => {
                        yield Ok(Followed::Ended(Box::new(run)));
                        return;
                    }
                    // The server is about to end: repeat the request, elsewhere or later.
                    Ok(Some(Record::Terminal(_) | Record::Drain(_))) => break gone(),
                    Ok(Some(Record::Heartbeat(_) | Record::Gap(_)) | None) => {}
                    Err(status) => break status,
                }
            };
            if !patience.wait_after(&broken).await {
                yield Err(broken);
                return;
            }
        }
    }
}
