//! Appending to a run.

use std::sync::Arc;

use core_types::{Durability, RunId, Timestamp};
use tokio::sync::oneshot;

use crate::{
    AppendError, NewEvent, StorageError, Violation,
    cell::{Phase, Purpose, RunCell},
    limits,
    sink::Sink,
    step::{Step, StepError},
};

/// Appends to one run. Clones append to the same run, in the order of their calls.
///
/// Dropping the last clone leaves the run open; [`RunLogs::reopen`](crate::RunLogs::reopen) takes it
/// up again. Dropping the future of a call does not undo the call.
#[derive(Clone, Debug)]
pub struct RunWriter {
    cell: Arc<RunCell>,
    key: i64,
    lease: u64,
    sink: Sink,
    durability: Durability,
}

impl RunWriter {
    pub(crate) fn new(
        cell: Arc<RunCell>,
        key: i64,
        lease: u64,
        sink: Sink,
        durability: Durability,
    ) -> Self {
        Self {
            cell,
            key,
            lease,
            sink,
            durability,
        }
    }

    pub(crate) fn cell(&self) -> &Arc<RunCell> {
        &self.cell
    }

    pub(crate) fn key(&self) -> i64 {
        self.key
    }

    pub(crate) fn lease(&self) -> u64 {
        self.lease
    }

    /// Returns the run.
    pub fn run(&self) -> RunId {
        self.cell.id()
    }

    /// Returns the sequence of the last event that is known to be stored; zero for none.
    pub fn last_sequence(&self) -> u64 {
        self.cell.chain().durable().head.sequence
    }

    /// Returns whether the run has ended.
    pub fn is_finished(&self) -> bool {
        self.cell.chain().durable().ended
    }

    /// Appends events in one commit and returns the sequence of the last, once it is stored.
    ///
    /// # Errors
    /// [`AppendError`]; only after [`AppendError::Unknown`] may anything have been stored.
    pub async fn append(&self, events: Vec<NewEvent>) -> Result<u64, AppendError> {
        self.write(events, Purpose::Append).await
    }

    /// Queues an event that is stored with the next commit, and returns its sequence.
    ///
    /// It waits only while the queue is full. If the event is lost, the next call reports it. At
    /// [`Durability::Batched`] the commit comes within the log's window.
    ///
    /// # Errors
    /// [`AppendError`]; this event was then not accepted.
    pub async fn submit(&self, event: NewEvent) -> Result<u64, AppendError> {
        self.submit_all(vec![event]).await
    }

    /// Hands over events, as [`RunWriter::submit`] does one, that are stored together.
    ///
    /// # Errors
    /// [`AppendError`]; these events were then not accepted.
    pub async fn submit_all(&self, events: Vec<NewEvent>) -> Result<u64, AppendError> {
        let may_wait = self.durability == Durability::Batched;
        self.send(events, Purpose::Append, (None, may_wait)).await
    }

    /// Waits until everything submitted is stored and returns the last sequence.
    ///
    /// # Errors
    /// [`AppendError`] when something submitted was lost.
    pub async fn flush(&self) -> Result<u64, AppendError> {
        self.write(Vec::new(), Purpose::Flush).await
    }

    /// Appends events and sets the phase of the run in the same commit. Returns the sequence of the
    /// last event.
    ///
    /// # Errors
    /// [`AppendError`]; only after [`AppendError::Unknown`] may anything have been stored.
    pub async fn enter(&self, phase: i32, events: Vec<NewEvent>) -> Result<u64, AppendError> {
        let phase = Phase {
            code: phase,
            due: None,
        };
        self.write(events, Purpose::Enter(phase)).await
    }

    /// Sets the phase of the run and notes that it rests until `due`: [`RunLogs::due`](crate::RunLogs::due)
    /// lists it then. The next writer of the run ends its rest.
    ///
    /// # Errors
    /// [`AppendError`]; only after [`AppendError::Unknown`] may it have been stored.
    pub async fn rest(&self, phase: i32, due: Timestamp) -> Result<u64, AppendError> {
        let phase = Phase {
            code: phase,
            due: Some(due),
        };
        self.write(Vec::new(), Purpose::Enter(phase)).await
    }

    /// Ends the run: appends `events`, the last of which is the terminal one, and sets the state
    /// in the same commit. Returns the sequence of the terminal event.
    ///
    /// # Errors
    /// [`AppendError`]; without any event the call is invalid.
    pub async fn finish(&self, state: i32, events: Vec<NewEvent>) -> Result<u64, AppendError> {
        if events.is_empty() {
            return Err(without_events());
        }
        self.write(events, Purpose::Finish(state)).await
    }

    /// Queues the end of the run, whose commit may wait for others within the log's window. The
    /// returned value waits until it is stored.
    ///
    /// # Errors
    /// As [`RunWriter::finish`]; the end was then not accepted.
    pub async fn finish_in_batch(
        &self,
        state: i32,
        events: Vec<NewEvent>,
    ) -> Result<impl Future<Output = Result<(), AppendError>> + use<>, AppendError> {
        if events.is_empty() {
            return Err(without_events());
        }
        let (reply, answer) = oneshot::channel();
        let purpose = Purpose::Finish(state);
        self.send(events, purpose, (Some(reply), true)).await?;
        Ok(settled(answer))
    }

    async fn write(&self, events: Vec<NewEvent>, purpose: Purpose) -> Result<u64, AppendError> {
        let (reply, answer) = oneshot::channel();
        let sequence = self.send(events, purpose, (Some(reply), false)).await?;
        settled(answer).await.map(|()| sequence)
    }

    async fn send(
        &self,
        events: Vec<NewEvent>,
        purpose: Purpose,
        (reply, may_wait): (Option<oneshot::Sender<Result<(), StepError>>>, bool),
    ) -> Result<u64, AppendError> {
        let bytes = limits::check_events(&events).map_err(AppendError::Invalid)?;
        let slot = self
            .sink
            .reserve(bytes)
            .await
            .map_err(|error| self.refused(error))?;
        let mut chain = self.cell.chain();
        let assigned = chain.assign(self.lease, self.cell.id(), events, purpose)?;
        let sequence = assigned.place.head.sequence;
        let step = Step {
            cell: Arc::clone(&self.cell),
            key: self.key,
            epoch: assigned.epoch,
            create: None,
            events: assigned.events,
            finish: assigned.finish,
            phase: assigned.phase,
            takes_over: false,
            deletion: None,
            place: assigned.place,
            may_wait,
            reply,
            room: None,
        };
        slot.send(step, &mut chain);
        Ok(sequence)
    }

    /// A finished run is reported as such even when the log is closed.
    fn refused(&self, error: StorageError) -> AppendError {
        if self.is_finished() {
            AppendError::Finished
        } else {
            AppendError::Storage(error)
        }
    }
}

fn without_events() -> AppendError {
    let problem = "are missing; a run ends with a terminal event".to_owned();
    let place = "events".to_owned();
    AppendError::Invalid(vec![Violation { place, problem }])
}

/// Waits until a step is stored.
async fn settled(answer: oneshot::Receiver<Result<(), StepError>>) -> Result<(), AppendError> {
    match answer.await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(StepError::Append(error))) => Err(error),
        // Its run was not created, as its request had been answered before.
        Ok(Err(StepError::Duplicate | StepError::HeldElsewhere)) => Err(AppendError::Fenced),
        // The committing task died with the step in its hands.
        Err(_) => Err(AppendError::Unknown),
    }
}
