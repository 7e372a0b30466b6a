//! What a turn writes into its log, and when.

use contracts::tavern::common::v1::run_event::Kind;
use grpc_kit::Backoff;
use run_events::Recorder;
use run_log::AppendError;

use super::stop::TurnStop;

/// How often a commit is tried while the storage does not work.
const STORE_TRIES: u32 = 6;

/// Writes the events of a turn. What is noted is recorded with the next commit.
pub(super) struct TurnRecorder {
    recorder: Recorder,
    noted: Vec<Kind>,
}

impl TurnRecorder {
    pub(super) fn new(recorder: Recorder) -> Self {
        Self {
            recorder,
            noted: Vec::new(),
        }
    }

    /// Returns the run that is written.
    pub(super) fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    /// Notes events for the next commit.
    pub(super) fn note(&mut self, kinds: impl IntoIterator<Item = Kind>) {
        self.noted.extend(kinds);
    }

    /// Makes everything noted durable, in one commit.
    pub(super) async fn commit(&mut self) -> Result<(), TurnStop> {
        match self.noted.is_empty() {
            true => Ok(()),
            false => self.record().await.map(drop),
        }
    }

    /// Notes an event and makes everything noted durable. Returns its sequence.
    pub(super) async fn commit_with(&mut self, kind: Kind) -> Result<u64, TurnStop> {
        self.noted.push(kind);
        self.record().await
    }

    /// Submits everything noted, which is durable some time after.
    pub(super) async fn submit_noted(&mut self) -> Result<(), TurnStop> {
        let kinds = std::mem::take(&mut self.noted);
        let submitted = self.recorder.submit_all(kinds).await;
        submitted.map_err(TurnStop::Storage)
    }

    /// Submits an event that need not be durable before the turn continues.
    pub(super) async fn submit(&self, kind: Kind) -> Result<(), TurnStop> {
        self.recorder.submit(kind).await.map_err(TurnStop::Storage)
    }

    async fn record(&mut self) -> Result<u64, TurnStop> {
        let kinds = std::mem::take(&mut self.noted);
        let mut backoff = Backoff::default();
        for _ in 1..STORE_TRIES {
            match self.recorder.record(kinds.clone()).await {
                Ok(last) => return Ok(last),
                Err(AppendError::Storage(error)) => {
                    tracing::warn!(error = %error, "an event could not be stored yet");
                    tokio::time::sleep(backoff.next_wait()).await;
                }
                Err(error) => return Err(TurnStop::Storage(error)),
            }
        }
        self.recorder.record(kinds).await.map_err(TurnStop::Storage)
    }
}
