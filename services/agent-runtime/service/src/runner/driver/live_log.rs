//! A turn's log and state while it is carried out.

use agent_domain::turn::Turn;
use contracts::tavern::common::v1::{RunEvent, run_event::Kind};
use core_types::Timestamp;
use grpc_kit::Backoff;
use run_events::{Recorder, timestamp_to_proto};
use run_log::AppendError;
use turn_log::state::TurnState;

use super::stop::TurnStop;

/// The most attempts of a commit while the storage does not work.
const STORE_TRIES: u32 = 6;

/// The log and the state of a turn: nothing is written into the one that does not change the other.
pub(super) struct LiveLog {
    recorder: Recorder,
    state: TurnState,
    noted: Vec<Kind>,
}

impl LiveLog {
    pub(super) fn new(recorder: Recorder, state: TurnState) -> Self {
        Self {
            recorder,
            state,
            noted: Vec::new(),
        }
    }

    /// Returns the recorder of the run.
    pub(super) fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    /// Returns the state.
    pub(super) fn state(&self) -> &TurnState {
        &self.state
    }

    /// Returns the turn.
    pub(super) fn turn(&self) -> &Turn {
        self.state.turn()
    }

    /// Returns the time.
    pub(super) fn now(&self) -> Timestamp {
        self.recorder.now()
    }

    /// Continues after a time without work, as this process had not begun.
    pub(super) fn resume(&mut self) {
        self.state.resume_at(self.recorder.now());
    }

    /// Notes that the text of the caller was read to its end.
    pub(super) fn read_opening(&mut self) -> Result<(), TurnStop> {
        Ok(self.state.read_opening(self.recorder.now())?)
    }

    /// Applies an event: now to the turn, and to the log with the next commit.
    pub(super) fn note(&mut self, kind: Kind) -> Result<(), TurnStop> {
        let noted = self.apply(0, kind)?;
        self.noted.extend(noted);
        Ok(())
    }

    /// Lets something happen that need not be durable before the turn continues: it is submitted, behind
    /// everything noted before.
    pub(super) async fn submit(&mut self, kind: Kind) -> Result<(), TurnStop> {
        self.note(kind)?;
        self.submit_noted().await
    }

    /// Makes something durable with everything noted before, and then lets it happen. Returns its sequence.
    pub(super) async fn note_now(&mut self, kind: Kind) -> Result<u64, TurnStop> {
        self.noted.push(kind.clone());
        let sequence = self.record().await?;
        self.apply(sequence, kind)?;
        Ok(sequence)
    }

    /// Makes all noted events durable, in one commit.
    pub(super) async fn commit(&mut self) -> Result<(), TurnStop> {
        match self.noted.is_empty() {
            true => Ok(()),
            false => self.record().await.map(drop),
        }
    }

    /// Submits all noted events, which become durable later.
    pub(super) async fn submit_noted(&mut self) -> Result<(), TurnStop> {
        let kinds = std::mem::take(&mut self.noted);
        let submitted = self.recorder.submit_all(kinds).await;
        submitted.map_err(TurnStop::Storage)
    }

    fn apply(&mut self, sequence: u64, kind: Kind) -> Result<Option<Kind>, TurnStop> {
        let event = RunEvent {
            sequence,
            time: Some(timestamp_to_proto(self.recorder.now())),
            kind: Some(kind),
            ..RunEvent::default()
        };
        self.state.apply(&event)?;
        Ok(event.kind)
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
