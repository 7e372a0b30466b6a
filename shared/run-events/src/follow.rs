//! Following a run of another service, over broken connections and restarts.

use std::time::Duration;

use contracts::tavern::{
    common::v1::{Run, RunEvent, watch_record::Record},
    run::v1::{WatchRunRequest, WatchRunResponse, run_service_client::RunServiceClient},
};
use futures::{Stream, StreamExt};
use grpc_kit::{Patience, Transport};
use tokio::time::Instant;
use tonic::Status;

/// How long a run may stay out of reach before it is given up, if its deadline does not come first.
const OUT_OF_REACH: Duration = Duration::from_secs(10 * 60);

/// One thing that a run shows.
#[derive(Debug)]
pub enum Followed {
    /// An event of the run or of one below it.
    Event(Box<RunEvent>),
    /// The run has ended. Nothing comes after it.
    Ended(Box<Run>),
}

/// Follows a run after the sequence `after_sequence` until it has ended. A broken connection is resumed where it
/// broke. The stream ends with an error when the run does not exist or stays out of reach.
pub fn follow(
    client: RunServiceClient<Transport>,
    run_id: String,
    mut after_sequence: u64,
    deadline: Instant,
) -> impl Stream<Item = Result<Followed, Status>> + Send {
    async_stream::stream! {
        let mut patience = Patience::new(OUT_OF_REACH, deadline);
        loop {
            let request = WatchRunRequest { run_id: run_id.clone(), after_sequence };
            let broken = match client.clone().watch_run(request).await {
                Ok(stream) => {
                    let mut stream = stream.into_inner();
                    loop {
                        match read(stream.next().await) {
                            Read::Event(event) => {
                                after_sequence = event.sequence;
                                patience.reset();
                                yield Ok(Followed::Event(event));
                            }
                            Read::Ended(run) => {
                                yield Ok(Followed::Ended(run));
                                return;
                            }
                            Read::Nothing => {}
                            Read::Broken(status) => break status,
                        }
                    }
                }
                Err(status) => status,
            };
            if !patience.wait_after(&broken).await {
                yield Err(broken);
                return;
            }
        }
    }
}

/// Follows a run to its end and returns it.
///
/// # Errors
/// The run does not exist or stays out of reach.
pub async fn follow_to_the_end(
    client: RunServiceClient<Transport>,
    run_id: &str,
    deadline: Instant,
) -> Result<Run, Status> {
    let mut followed = Box::pin(follow(client, run_id.to_owned(), 0, deadline));
    while let Some(next) = followed.next().await {
        if let Followed::Ended(run) = next? {
            return Ok(*run);
        }
    }
    Err(Status::unavailable("the run can no longer be followed"))
}

enum Read {
    Event(Box<RunEvent>),
    Ended(Box<Run>),
    Nothing,
    Broken(Status),
}

fn read(next: Option<Result<WatchRunResponse, Status>>) -> Read {
    let gone = || Read::Broken(Status::unavailable("the watch ended before the run"));
    match next {
        Some(Ok(response)) => match contracts::watch::decode(response.record) {
            Ok(Some(Record::Event(event))) => Read::Event(Box::new(event)),
            Ok(Some(Record::Terminal(terminal))) => terminal
                .run
                .map_or_else(gone, |run| Read::Ended(Box::new(run))),
            // The server goes away: ask again, elsewhere or later.
            Ok(Some(Record::Drain(_))) => gone(),
            Ok(Some(Record::Heartbeat(_) | Record::Gap(_)) | None) => Read::Nothing,
            Err(status) => Read::Broken(status),
        },
        Some(Err(status)) => Read::Broken(status),
        None => gone(),
    }
}
