//! Following a run by the watch convention.

use std::sync::Arc;
use std::time::Duration;

use async_stream::try_stream;
use bytes::Bytes;
use contracts::tavern::common::v1 as common;
use contracts::tavern::common::v1::watch_record::Record;
use contracts::watch::{encode, encode_event};
use core_types::Clock;
use futures::stream::BoxStream;
use grpc_kit::{CallContext, Drain, Failure};
use run_log::{Batch, Follower};
use tonic::Status;

use crate::codec::timestamp_to_proto;
use crate::failure::read_failure;
use crate::store::RunStore;

/// The time without events after which a watch sends a heartbeat.
const HEARTBEAT: Duration = Duration::from_secs(10);

/// The time that a follower shall wait before its next request after a drain.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The records of a watch, encoded.
pub type Records = BoxStream<'static, Result<Bytes, Status>>;

impl RunStore {
    /// Follows the run named `run_id` after the sequence `after`, until the run ends or the
    /// server drains. The records are encoded; [`contracts::watch::decode`] reads them.
    ///
    /// # Errors
    /// RUN_NOT_FOUND, or SEQUENCE_OUT_OF_RANGE when `after` lies beyond the end of the log.
    pub(crate) async fn watch(
        &self,
        context: CallContext,
        clock: Arc<dyn Clock>,
        run_id: &str,
        after: u64,
        drain: Drain,
    ) -> Result<Records, Status> {
        let summary = self.find(&context, run_id).await?;
        if after > summary.last_sequence {
            return Err(out_of_range(after, summary.last_sequence).into());
        }
        let follower = self.logs.follow(summary.id, after).await;
        let mut follower = follower.map_err(|error| read_failure(&error, run_id))?;
        let store = self.clone();
        let run_id = run_id.to_owned();
        let stream = try_stream! {
            let mut position = after;
            let mut admitted = 0;
            loop {
                match next(&mut follower, &drain, &run_id).await? {
                    Next::Events(events) => {
                        for stored in events {
                            // After the end, the log repeats the last event.
                            if stored.sequence <= position {
                                continue;
                            }
                            let (sequence, bytes) = (stored.sequence, stored.payload.len());
                            if admitted != sequence && !context.try_admit_message(bytes) {
                                // It is read again when there is room for it, not held until then.
                                drop(stored);
                                follower.rewind(position);
                                tokio::select! {
                                    () = context.admit_message(bytes) => admitted = sequence,
                                    () = drain.started() => {
                                        yield drained(position);
                                        return;
                                    }
                                }
                                break;
                            }
                            position = stored.sequence;
                            let record = encode_event(&stored.payload, sequence);
                            drop(stored);
                            yield record;
                        }
                    }
                    Next::Gap { next } => {
                        let gap = common::WatchGap { first_sequence: position + 1, last_sequence: next - 1 };
                        position = next - 1;
                        yield encode(Record::Gap(gap));
                    }
                    Next::Silence => {
                        let time = timestamp_to_proto(clock.now());
                        let high_water_sequence = follower.high_water();
                        yield encode(Record::Heartbeat(common::WatchHeartbeat {
                            high_water_sequence,
                            time: Some(time),
                        }));
                    }
                    Next::Drain => {
                        yield drained(position);
                        return;
                    }
                    Next::End => {
                        let run = Some(store.get(&context, &run_id).await?);
                        yield encode(Record::Terminal(common::WatchEnd { run }));
                        return;
                    }
                }
            }
        };
        Ok(Box::pin(stream))
    }
}

/// The next step of a watch.
enum Next {
    Events(Vec<run_log::Event>),
    Gap { next: u64 },
    Silence,
    Drain,
    End,
}

async fn next(follower: &mut Follower, drain: &Drain, run_id: &str) -> Result<Next, Failure> {
    tokio::select! {
        // Events first: a server that drains still sends the stored ones.
        biased;
        batch = follower.next_batch() => match batch {
            Ok(Some(Batch::Events(events))) => Ok(Next::Events(events)),
            Ok(Some(Batch::Gap { next })) => Ok(Next::Gap { next }),
            Ok(None) => Ok(Next::End),
            Err(error) => Err(read_failure(&error, run_id)),
        },
        () = drain.started() => Ok(Next::Drain),
        () = tokio::time::sleep(HEARTBEAT) => Ok(Next::Silence),
    }
}

fn drained(last_sequence: u64) -> Bytes {
    let retry_after = prost_types::Duration::try_from(RETRY_AFTER).ok();
    encode(Record::Drain(common::WatchDrain {
        retry_after,
        last_sequence,
    }))
}

fn out_of_range(after: u64, last: u64) -> Failure {
    let message = format!("after_sequence is {after}, but the log ends at {last}");
    Failure::new(
        tonic::Code::OutOfRange,
        common::ErrorReason::SequenceOutOfRange,
        message,
    )
    .metadata("last_sequence", last.to_string())
}
