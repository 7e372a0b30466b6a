//! Admits scripts whose callers talk with them.

use std::sync::Arc;

use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};
use tracing::Instrument;

use super::Sandbox;
use crate::{
    audit::{Record, What},
    domain::{limits::Limits, request::Script},
    error::Refusal,
    run,
    stream::{Happening, Input, Talk, left, outbox::Outbox, talker::Talker},
};

impl Sandbox {
    /// The limits that a streamed request takes that names none, and the most that it can ask for.
    pub fn streamed_limits(&self) -> (Limits, Limits) {
        let (default, maximum) = self.limits();
        let output = self.settings.maximum_streamed_output;
        (default, Limits { output, ..maximum })
    }

    /// Starts a script and lets its caller talk with it. It ends with the talk, and at the deadline.
    ///
    /// # Errors
    /// When the request is refused; nothing was run then.
    pub async fn execute_stream(
        &self,
        script: Script,
        input: mpsc::Receiver<Input>,
        deadline: Instant,
    ) -> Result<Talk<Happening>, Refusal> {
        let record = Record::of_script(What::Stream, "", &script);
        let (tools, job, slot, record) = self.admit(script, record).await?;
        let outbox = Outbox::new();
        let (talk, mut gone) = Talk::new(outbox.clone());
        let talker = Talker {
            runtime: job.profile.name.clone(),
            isolation: tools.backend.level(),
            outbox: outbox.clone(),
            input,
        };
        let (cancel, cancelled) = oneshot::channel();
        let span = tracing::info_span!("sandbox.script.stream", runtime = job.profile.name);
        let running = async move {
            let outcome = run::run(&tools, job, Box::new(talker), cancelled).await;
            drop(slot);
            record.ended(&outcome);
            outbox.put(Happening::Ended(Arc::new(outcome)));
            outbox.close();
        };
        let running = tokio::spawn(running.instrument(span));
        let told_to_end = self.told_to_end();
        tokio::spawn(async move {
            tokio::select! {
                () = left(&mut gone, deadline) => {}
                () = told_to_end => {}
                _ = running => {}
            }
            drop(cancel);
        });
        Ok(talk)
    }
}
