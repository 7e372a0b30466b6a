//! Admits streamed scripts.

use std::sync::Arc;

use sandbox_engine::{
    domain::{limits::Limits, script::Script},
    run,
};
use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};
use tracing::Instrument;

use super::Sandbox;
use crate::{
    audit::{Record, STREAM},
    error::Refusal,
    runner::streaming::{
        Input, StreamEvent, StreamHandle, left, output_queue::OutputQueue, stream_io::StreamIo,
    },
};

/// The most output of a script that is streamed, in bytes on each stream. The limits of the
/// settings bound the output that is kept.
const MAXIMUM_OUTPUT: usize = 64 << 20;

impl Sandbox {
    /// The limits of a streamed request that names none, and the greatest that it can choose.
    pub fn streamed_limits(&self) -> (Limits, Limits) {
        let (default, maximum) = self.limits();
        let output = MAXIMUM_OUTPUT;
        (default, Limits { output, ..maximum })
    }

    /// Starts a script and streams its events. It ends with the handle, and at the deadline.
    ///
    /// # Errors
    /// Fails when the request is refused; no script ran then.
    pub async fn execute_stream(
        &self,
        script: Script,
        input: mpsc::Receiver<Input>,
        deadline: Instant,
    ) -> Result<StreamHandle<StreamEvent>, Refusal> {
        let record = Record::of_script(STREAM, &script);
        let tenant = script.owner.principal().tenant();
        let (tools, job, slot, record) = self.admit(script, record).await?;
        let queue = OutputQueue::new();
        let (stream, mut gone) = StreamHandle::new(queue.clone());
        let stream_io = StreamIo {
            runtime: job.profile.name.clone(),
            isolation: tools.backend.level,
            queue: queue.clone(),
            input,
        };
        let (cancel, cancelled) = oneshot::channel();
        let span = tracing::info_span!("sandbox.script.stream", runtime = job.profile.name);
        let running = async move {
            let outcome = run::run(&tools, job, Box::new(stream_io), cancelled).await;
            slot.share.spend(outcome.usage.wall_time);
            drop(slot);
            record.ended(&outcome);
            queue.put(StreamEvent::Ended(Arc::new(outcome)));
            queue.close();
        };
        let running = tokio::spawn(running.instrument(span));
        let asked_to_end = self.asked_to_end(tenant);
        tokio::spawn(async move {
            tokio::select! {
                () = left(&mut gone, deadline) => {}
                () = asked_to_end => {}
                _ = running => {}
            }
            drop(cancel);
        });
        Ok(stream)
    }
}
