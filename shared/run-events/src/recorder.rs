//! Writes the events of one run.

use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use contracts::tavern::common::v1 as common;
use contracts::tavern::common::v1::run_event::Kind;
use core_types::{CallPath, Clock, Durability, Principal, RunId, Timestamp};
use grpc_kit::CallContext;
use prost::Message;
use run_log::{AppendError, NewEvent, RunWriter};

use crate::call_waits::CallWaits;
use crate::children::Children;
use crate::codec::{encode, kind_number, timestamp_to_proto};
use crate::control::StartGuard;
use crate::forwarded_sequences::ForwardedSequences;
use crate::meta::Starter;
use crate::phase;

/// The number of events between two checkpoints.
pub const EVENTS_PER_CHECKPOINT: u64 = 4_096;

/// Writes the events of one run, each stamped with time and trace.
#[derive(Clone)]
pub struct Recorder {
    inner: Arc<Inner>,
}

struct Inner {
    writer: RunWriter,
    stamp: Stamp,
    durability: Durability,
    deadline: Timestamp,
    /// The phase of the run when this process took it over.
    first_phase: i32,
    /// The phase of the run while it is not paused and no call of it waits for people.
    unpaused_phase: AtomicI32,
    /// The phase of the run while only calls that wait for people are in flight; running otherwise.
    call_phase: AtomicI32,
    /// The last event that a checkpoint covers.
    checkpointed: AtomicU64,
    /// Locked for a look-up or a change, never across an await.
    forwarded: Mutex<ForwardedSequences>,
    children: Children,
    call_waits: CallWaits,
    /// Called once the end of the run is recorded. Locked to take or to replace it.
    when_finished: Mutex<Option<WhenFinished>>,
}

/// The work that follows the recorded end of a run.
type WhenFinished = Box<dyn FnOnce(CallContext, &common::RunOutcome) + Send>;

/// The data that every event of a run carries.
#[derive(Clone)]
pub(crate) struct Stamp {
    pub(crate) run: RunId,
    starter: Starter,
    clock: Arc<dyn Clock>,
    /// The fields that are the same in every event of the run, encoded.
    same: Vec<u8>,
}

impl Stamp {
    pub(crate) fn new(run: RunId, starter: Starter, clock: Arc<dyn Clock>) -> Self {
        let same = common::RunEvent {
            run_id: run.to_string(),
            parent_path: starter.path.clone(),
            ..common::RunEvent::default()
        };
        Self {
            run,
            starter,
            clock,
            same: same.encode_to_vec(),
        }
    }

    /// Encodes events that happen now, in the present span.
    pub(crate) fn encode(&self, kinds: impl IntoIterator<Item = Kind>) -> Vec<NewEvent> {
        let now = self.clock.now();
        let (trace_id, span_id) = telemetry::context::current_ids();
        let mut event = common::RunEvent {
            time: Some(timestamp_to_proto(now)),
            trace_id,
            span_id,
            ..common::RunEvent::default()
        };
        let encoded = |kind| {
            let number = kind_number(&kind);
            event.kind = Some(kind);
            let mut payload = Vec::with_capacity(self.same.len() + event.encoded_len());
            payload.extend_from_slice(&self.same);
            event.encode_raw(&mut payload);
            NewEvent::new(now, number, payload)
        };
        kinds.into_iter().map(encoded).collect()
    }
}

impl Recorder {
    pub(crate) fn new(
        writer: RunWriter,
        stamp: Stamp,
        durability: Durability,
        deadline: Timestamp,
        first_phase: i32,
    ) -> Self {
        let forwarded = Mutex::new(ForwardedSequences::new(stamp.run));
        let children = Children::new(stamp.run);
        let call_waits = CallWaits::new(stamp.run);
        Self {
            inner: Arc::new(Inner {
                writer,
                stamp,
                durability,
                deadline,
                first_phase,
                unpaused_phase: AtomicI32::new(match first_phase {
                    phase::PAUSED | phase::IN_DOUBT | phase::APPROVAL => phase::RUNNING,
                    phase => phase,
                }),
                call_phase: AtomicI32::new(match first_phase {
                    phase::IN_DOUBT | phase::APPROVAL => first_phase,
                    _ => phase::RUNNING,
                }),
                checkpointed: AtomicU64::new(0),
                forwarded,
                children,
                call_waits,
                when_finished: Mutex::default(),
            }),
        }
    }

    /// Restores from the events of a resumed run the sequences that the runs below have forwarded,
    /// and whether it is queued.
    pub(crate) fn learn(&self, events: &[common::RunEvent]) {
        let mut forwarded = self.forwarded();
        let run_id = self.run_id().to_string();
        for event in events {
            forwarded.note(event);
            self.inner.children.note(event);
            self.inner.call_waits.note(event);
            let phase = match &event.kind {
                Some(Kind::RunQueued(_)) => phase::QUEUED,
                Some(Kind::RunDequeued(_)) => phase::RUNNING,
                _ => continue,
            };
            if event.run_id == run_id {
                self.inner.unpaused_phase.store(phase, Ordering::Relaxed);
            }
        }
    }

    /// Sets the work that follows once the end of the run is recorded, with the context of the run. It must not wait.
    pub fn when_finished(
        &self,
        work: impl FnOnce(CallContext, &common::RunOutcome) + Send + 'static,
    ) {
        *self.following() = Some(Box::new(work));
    }

    /// Does the work that follows the recorded end of the run.
    pub(crate) fn finished(&self, outcome: &common::RunOutcome) {
        let work = self.following().take();
        if let Some(work) = work {
            work(self.context_below(), outcome);
        }
    }

    fn following(&self) -> MutexGuard<'_, Option<WhenFinished>> {
        let following = self.inner.when_finished.lock();
        following.unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the run whose events are written.
    pub fn run_id(&self) -> RunId {
        self.inner.stamp.run
    }

    /// Returns the principal to which the run belongs.
    pub fn owner(&self) -> &Principal {
        &self.inner.stamp.starter.principal
    }

    /// Returns the runs above, outermost first.
    pub fn path(&self) -> &[String] {
        &self.inner.stamp.starter.path
    }

    /// Returns the path that the children of this run see: the runs above and this one.
    pub fn path_below(&self) -> Vec<String> {
        let mut path = self.inner.stamp.starter.path.clone();
        path.push(self.run_id().to_string());
        path
    }

    /// Returns the context of the calls that the run makes: for its starter, below itself.
    pub(crate) fn context_below(&self) -> CallContext {
        let path = CallPath::from_steps(self.path_below()).unwrap_or_default();
        let starter = &self.inner.stamp.starter;
        CallContext::new(starter.principal.clone(), path).reaching(starter.reach)
    }

    /// Returns the durability of the run's log.
    pub fn durability(&self) -> Durability {
        self.inner.durability
    }

    /// Returns the time at which the run is ended if it has not ended by itself.
    pub fn deadline(&self) -> Timestamp {
        self.inner.deadline
    }

    /// Returns the time.
    pub fn now(&self) -> Timestamp {
        self.inner.stamp.clock.now()
    }

    /// Returns the time until the deadline of the run.
    pub fn remaining(&self) -> std::time::Duration {
        self.inner.deadline.since(self.now())
    }

    /// Records events together and returns once they are durable, with the last sequence.
    ///
    /// # Errors
    /// [`AppendError`] when nothing was stored, or that is not known.
    pub async fn record(&self, kinds: Vec<Kind>) -> Result<u64, AppendError> {
        self.inner.call_waits.note_own(&kinds);
        let events = self.inner.stamp.encode(kinds);
        self.inner.writer.append(events).await
    }

    /// Records events together, and returns once they are durable; in a batched run, which may lose
    /// them, as soon as they are handed over.
    ///
    /// # Errors
    /// [`AppendError`] when nothing was stored, or that is not known.
    pub async fn record_in_batch(&self, kinds: Vec<Kind>) -> Result<u64, AppendError> {
        if self.inner.durability != Durability::Batched {
            return self.record(kinds).await;
        }
        self.inner.call_waits.note_own(&kinds);
        let events = self.inner.stamp.encode(kinds);
        self.inner.writer.submit_all(events).await
    }

    /// Records an event that rides on the next commit; waits only for room in the queue.
    ///
    /// # Errors
    /// [`AppendError`] when the event cannot be taken.
    pub async fn submit(&self, kind: Kind) -> Result<(), AppendError> {
        self.submit_all(vec![kind]).await
    }

    /// Records events together that ride on the next commit; waits only for room in the queue.
    ///
    /// # Errors
    /// [`AppendError`] when the events cannot be taken.
    pub async fn submit_all(&self, kinds: Vec<Kind>) -> Result<(), AppendError> {
        self.inner.call_waits.note_own(&kinds);
        let events = self.inner.stamp.encode(kinds);
        self.inner.writer.submit_all(events).await.map(drop)
    }

    /// Records an event of a run below as it is, at a place of its own in this log, which keeps
    /// the place that it had. An event that this log has already is skipped: a call that is joined
    /// again, in this process or the next, reports everything from its beginning.
    ///
    /// # Errors
    /// [`AppendError`] when the event cannot be taken.
    pub async fn submit_child(&self, event: common::RunEvent) -> Result<(), AppendError> {
        self.inner.children.note(&event);
        if !self.inner.call_waits.note(&event) {
            return Ok(());
        }
        let Some(event) = self.forwarded().unrecorded(event) else {
            return Ok(());
        };
        let stored = encode(&event, self.inner.stamp.clock.now());
        self.inner.writer.submit(stored).await?;
        self.forwarded().note(&event);
        Ok(())
    }

    /// Waits until everything submitted is durable.
    ///
    /// # Errors
    /// [`AppendError`] when it cannot be stored.
    pub async fn flush(&self) -> Result<u64, AppendError> {
        self.inner.writer.flush().await
    }

    /// Returns the runs directly below.
    pub(crate) fn children(&self) -> &Children {
        &self.inner.children
    }

    fn forwarded(&self) -> MutexGuard<'_, ForwardedSequences> {
        self.inner
            .forwarded
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether the run was paused when this process took it over.
    pub(crate) fn was_paused(&self) -> bool {
        self.inner.first_phase == phase::PAUSED
    }

    /// Returns the phase of the run while it is not paused.
    pub(crate) fn unpaused_phase(&self) -> i32 {
        match self.inner.call_phase.load(Ordering::Relaxed) {
            phase::RUNNING => self.inner.unpaused_phase.load(Ordering::Relaxed),
            waiting => waiting,
        }
    }

    /// Returns the calls that wait for people.
    pub(crate) fn call_waits(&self) -> &CallWaits {
        &self.inner.call_waits
    }

    /// Whether the log shows that calls of the run waited for people at its takeover.
    pub(crate) fn was_left_waiting(&self) -> bool {
        matches!(self.inner.first_phase, phase::IN_DOUBT | phase::APPROVAL)
    }

    /// Returns whether the run waits for its turn.
    pub fn is_queued(&self) -> bool {
        self.unpaused_phase() == phase::QUEUED
    }

    /// Records that the run waits for its turn. To be called before the run is executed.
    ///
    /// # Errors
    /// [`AppendError`] when it was not stored.
    pub async fn enqueue(&self) -> Result<(), AppendError> {
        self.enter_unpaused(phase::QUEUED, Kind::RunQueued(common::RunQueued {}))
            .await
    }

    /// Records that the turn of a queued run came.
    ///
    /// # Errors
    /// [`AppendError`] when it was not stored.
    pub async fn dequeue(&self, _not_paused: StartGuard<'_>) -> Result<(), AppendError> {
        self.enter_unpaused(phase::RUNNING, Kind::RunDequeued(common::RunDequeued {}))
            .await
    }

    async fn enter_unpaused(&self, phase: i32, event: Kind) -> Result<(), AppendError> {
        self.inner.unpaused_phase.store(phase, Ordering::Relaxed);
        self.enter(phase, event).await.map(drop)
    }

    /// Notes whether only waits of the run are in progress, which a pause hides.
    ///
    /// # Errors
    /// [`AppendError`] when it was not stored.
    pub async fn note_only_waits(
        &self,
        not_paused: Option<&StartGuard<'_>>,
        only_waits: bool,
    ) -> Result<(), AppendError> {
        let phase = match only_waits {
            true => phase::WAITING,
            false => phase::RUNNING,
        };
        self.show_phase(&self.inner.unpaused_phase, phase, not_paused)
            .await
    }

    /// Notes whether only calls that wait for people are in flight, which a pause hides.
    pub(crate) async fn note_call_waits(
        &self,
        not_paused: Option<&StartGuard<'_>>,
        phase: i32,
    ) -> Result<(), AppendError> {
        self.show_phase(&self.inner.call_phase, phase, not_paused)
            .await
    }

    /// Changes one of the phases, and shows the resulting phase of the run in the log.
    async fn show_phase(
        &self,
        of: &AtomicI32,
        phase: i32,
        not_paused: Option<&StartGuard<'_>>,
    ) -> Result<(), AppendError> {
        let before = self.unpaused_phase();
        of.store(phase, Ordering::Relaxed);
        let shown = self.unpaused_phase();
        if before == shown || not_paused.is_none() {
            return Ok(());
        }
        let entered = self.inner.writer.enter(shown, Vec::new());
        entered.await.map(drop)
    }

    /// Notes that the run rests until `due`, once everything submitted is durable, and whether it waits for
    /// a person; it is as before if that is not known.
    pub(crate) async fn rest(&self, due: Timestamp, asks: Option<bool>) -> Result<(), AppendError> {
        let phase = match asks {
            Some(true) => phase::ASKING,
            Some(false) => phase::WAITING,
            None if self.inner.first_phase == phase::ASKING => phase::ASKING,
            None => phase::WAITING,
        };
        self.inner.writer.rest(phase, due).await.map(drop)
    }

    /// Returns the sequence of the last event that is known to be stored.
    pub(crate) fn last_sequence(&self) -> u64 {
        self.inner.writer.last_sequence()
    }

    /// Whether so many events were stored since the last checkpoint that another is due. A run in memory
    /// is never continued.
    pub fn is_checkpoint_due(&self) -> bool {
        let last = self.inner.checkpointed.load(Ordering::Relaxed);
        self.inner.durability != Durability::Memory
            && self.last_sequence().saturating_sub(last) >= EVENTS_PER_CHECKPOINT
    }

    /// Notes the last event that a checkpoint of the run covers.
    pub(crate) fn note_checkpoint(&self, through: u64) {
        self.inner.checkpointed.store(through, Ordering::Relaxed);
    }

    /// Records an event with which the run enters a phase.
    pub(crate) async fn enter(&self, phase: i32, kind: Kind) -> Result<u64, AppendError> {
        let events = self.inner.stamp.encode([kind]);
        self.inner.writer.enter(phase, events).await
    }

    /// Ends the run with its last event.
    pub(crate) async fn finish(&self, outcome: common::RunOutcome) -> Result<u64, AppendError> {
        let state = outcome.state;
        let last = Kind::RunFinished(common::RunFinished {
            outcome: Some(outcome),
        });
        self.inner
            .writer
            .finish(state, self.inner.stamp.encode([last]))
            .await
    }
}

impl std::fmt::Debug for Recorder {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Recorder")
            .field("run", &self.run_id())
            .finish_non_exhaustive()
    }
}
