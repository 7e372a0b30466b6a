//! Turns that wait for the end of earlier ones in their conversation (rule G407).

use std::time::Duration;

use contracts::tavern::common::v1::{self as common, watch_record::Record};
use contracts::watch::decode;
use futures::StreamExt;
use grpc_kit::{CallContext, Drain};
use run_events::Runs;

use super::{Driver, stop::TurnStop};

/// The pause before another look at a turn that could not be followed.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

impl Driver {
    /// Waits until every turn before this one has ended.
    pub(super) async fn await_turns_before(&mut self) -> Result<(), TurnStop> {
        let (conversation, own) = (
            self.meta.conversation_id.clone(),
            self.log.recorder().run_id(),
        );
        // A turn of another principal may be among them.
        let tenant = self.meta.principal.tenant();
        loop {
            let conversations = &self.shared.conversations;
            let before = conversations.turn_before(tenant, &conversation, own);
            let before = before.await.unwrap_or_else(|failure| {
                let error = failure.into_status();
                tracing::warn!(
                    error = error.message(),
                    "the turns of a conversation cannot be read"
                );
                Some(common::Run::default())
            });
            let Some(before) = before else { return Ok(()) };
            let (runs, control) = (self.shared.runs.clone(), self.control.clone());
            let ended = until_ended(&runs, CallContext::of_tenant(tenant), &before);
            tokio::select! {
                () = control.cancelled() => {}
                () = ended => {}
                directive = self.inbox.next() => {
                    self.obey(directive).await?;
                }
            }
            if let Some(reason) = self.control.why() {
                return Err(TurnStop::Cancelled(reason));
            }
        }
    }

    /// Records that the turn of a queued run came; a paused run is resumed first.
    pub(super) async fn dequeue(&mut self) -> Result<(), TurnStop> {
        while self.log.recorder().is_queued() {
            let control = self.control.clone();
            match control.admit_start().await {
                Some(not_paused) => {
                    let recorder = self.log.recorder().clone();
                    let dequeued = recorder.dequeue(not_paused).await;
                    dequeued.map_err(TurnStop::Storage)?;
                }
                None => self.until_resumed().await?,
            }
        }
        Ok(())
    }
}

/// Waits until a run has ended, or cannot be followed.
async fn until_ended(runs: &Runs, context: CallContext, run: &common::Run) {
    match runs
        .watch(context, &run.run_id, run.last_sequence, Drain::never())
        .await
    {
        Ok(mut records) => {
            while let Some(Ok(record)) = records.next().await {
                if matches!(decode(record), Ok(Some(Record::Terminal(_)))) {
                    return;
                }
            }
        }
        Err(status) => {
            tracing::debug!(error = status.message(), "a turn cannot be followed");
        }
    }
    tokio::time::sleep(LOOK_AGAIN).await;
}
