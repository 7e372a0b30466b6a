//! The waits of the nodes of a run: for timers, signals and answers of people.
//!
//! A wait is an event of the run, and so is its wake-up: of several events that could wake a wait,
//! the first in the log counts. [`RecordedWaits`] is the state that results from the events, before
//! a restart and after it; [`Waits`] changes it, an event at a time.

mod board;
mod deliver;
mod list;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use contracts::tavern::common::v1::run_event::Kind;
use contracts::tavern::common::v1::{self as common, WaitKind, WakeCause};
use core_types::Timestamp;
use run_log::AppendError;
use serde_json::Value;
use tokio::sync::{Mutex, oneshot};

use crate::codec::timestamp_to_proto;
use crate::control::{Leaving, RunControl};
use crate::recorder::Recorder;
use crate::rest::Departure;
use board::woken_by_signal;

pub(crate) use board::asked;
pub use board::{RecordedWaits, Woken};

/// The longest sleep before the clock is read again: it can be set while a wait sleeps.
const LONGEST_SLEEP: Duration = Duration::from_secs(60);

/// The schemas of the payloads of each signal that nodes of a run wait for; null accepts any payload.
pub type DeclaredSignals = HashMap<String, Vec<Value>>;

/// The waits of one run. Cheap to clone.
#[derive(Clone)]
pub struct Waits {
    inner: Arc<Inner>,
}

struct Inner {
    recorder: Recorder,
    declared: DeclaredSignals,
    /// Held while an event is recorded, so that the order here is the order in the log.
    board: Mutex<RecordedWaits>,
    /// The number of nodes that await their wake-up.
    awaited: Arc<AtomicUsize>,
}

/// A wait that a node has begun, or continues after a restart.
#[derive(Debug)]
pub struct BegunWait {
    wait_id: String,
    due: Option<Timestamp>,
    woken: oneshot::Receiver<Woken>,
    begun: Timestamp,
    is_new: bool,
    awaited: Awaited,
}

impl BegunWait {
    /// Returns the start time of the wait, which may lie before a restart.
    pub fn begun(&self) -> Timestamp {
        self.begun
    }

    /// Returns the time at which it is due.
    pub fn due(&self) -> Option<Timestamp> {
        self.due
    }

    /// Whether the wait began now, rather than before a restart or before the run left memory.
    pub fn is_new(&self) -> bool {
        self.is_new
    }
}

/// Counts a node that awaits its wake-up.
#[derive(Debug)]
struct Awaited(Arc<AtomicUsize>);

impl Awaited {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(count))
    }
}

impl Drop for Awaited {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Waits {
    /// Makes the waits of a run from their recorded state.
    pub fn new(recorder: Recorder, recorded: RecordedWaits, declared: DeclaredSignals) -> Self {
        let inner = Inner {
            recorder,
            declared,
            board: Mutex::new(recorded),
            awaited: Arc::default(),
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// Begins a wait, or continues the recorded wait with its id, which keeps the time at which it
    /// is due. The event rides on the next commit.
    ///
    /// # Errors
    /// [`AppendError`] when the event cannot be taken.
    pub async fn begin(
        &self,
        wait: common::Wait,
        due: Option<Timestamp>,
    ) -> Result<BegunWait, AppendError> {
        let (sender, woken) = oneshot::channel();
        let (wait_id, kind, name) = (wait.wait_id.clone(), wait.kind(), wait.name.clone());
        let mut board = self.inner.board.lock().await;
        board.forget_dropped();
        let now = self.inner.recorder.now();
        let (begun, due, is_new) = match board.attach(&wait_id, sender) {
            Ok((begun, due)) => (begun.unwrap_or(now), due, false),
            Err(sender) => {
                let wait = common::Wait {
                    due: due.map(timestamp_to_proto),
                    create_time: Some(timestamp_to_proto(now)),
                    ..wait
                };
                let waiting = common::NodeWaiting {
                    wait: Some(wait.clone()),
                };
                let waiting = Kind::NodeWaiting(waiting);
                self.inner.recorder.submit(waiting).await?;
                board.open(wait, now, due, Some(sender));
                (now, due, true)
            }
        };
        // A signal may have arrived before the wait began, or while no process executed the run.
        if kind == WaitKind::Signal
            && let Some(signal) = board.first_signal(&name)
            && let Some(wait) = board.find(&wait_id)
        {
            let woken = woken_by_signal(wait, signal);
            let event = Kind::NodeWoken(woken.clone());
            self.inner.recorder.submit(event).await?;
            board.wake(&woken);
        }
        Ok(BegunWait {
            wait_id,
            due,
            woken,
            begun,
            is_new,
            awaited: Awaited::new(&self.inner.awaited),
        })
    }

    /// Waits until a wait is woken, at the latest by the time at which it is due.
    ///
    /// # Errors
    /// [`AppendError`] when the wake-up cannot be recorded.
    pub async fn woken(self, begun: BegunWait) -> Result<Woken, AppendError> {
        let BegunWait {
            wait_id,
            due,
            mut woken,
            awaited: _awaited,
            ..
        } = begun;
        tokio::select! {
            // A wake-up that was recorded before the time came counts.
            biased;
            woken = &mut woken => return woken.map_err(|_| AppendError::Fenced),
            () = self.until(due) => {}
        }
        self.fall_due(&wait_id).await?;
        woken.await.map_err(|_| AppendError::Fenced)
    }

    /// Refuses signals from now on, because the run is about to end; returns the signals that no
    /// wait has consumed, by name.
    pub async fn close(&self) -> Vec<common::UnconsumedSignals> {
        let mut board = self.inner.board.lock().await;
        let unconsumed = board.close().into_iter();
        let unconsumed = unconsumed.map(|(name, count)| common::UnconsumedSignals {
            name: name.to_owned(),
            count,
        });
        unconsumed.collect()
    }

    /// Lets the run leave memory, if all that its nodes await is open and the first of it is due later than
    /// in `shortest`. The caller must not let the run continue meanwhile. Once it has left, its task is to
    /// end with [`End::Rests`](crate::End::Rests).
    ///
    /// # Errors
    /// [`AppendError`] when that was not stored, or events that were submitted before were lost.
    pub async fn leave(
        &self,
        leaving: Leaving,
        control: &RunControl,
        shortest: Duration,
    ) -> Result<Option<Departure>, AppendError> {
        if control.is_cancelled() {
            return Ok(None);
        }
        // A wait that is about to record that it is due holds the lock.
        let awaited = self.inner.awaited.load(Ordering::SeqCst);
        let board = self.inner.board.try_lock();
        let known = board.ok().and_then(|mut board| {
            let earliest = board.earliest_of(awaited)?;
            Some((earliest, !board.asked().is_empty()))
        });
        let Some((earliest, asks)) = known else {
            return Ok(None);
        };
        let deadline = self.inner.recorder.deadline();
        let due = earliest.map_or(deadline, |due| due.min(deadline));
        if due.since(self.inner.recorder.now()) <= shortest {
            return Ok(None);
        }
        self.inner.recorder.rest(due, Some(asks)).await?;
        Ok(Some(Departure::new(due, leaving)))
    }

    /// Returns the open waits for people.
    pub(crate) async fn asked(&self) -> Vec<common::Wait> {
        let mut board = self.inner.board.lock().await;
        board.forget_dropped();
        board.asked()
    }

    /// Returns the waits for people that nothing has ended, also those whose nodes wait no longer.
    pub async fn open_questions(&self) -> Vec<common::Wait> {
        self.inner.board.lock().await.asked()
    }

    async fn until(&self, due: Option<Timestamp>) {
        let Some(due) = due else {
            return std::future::pending().await;
        };
        loop {
            let left = due.since(self.inner.recorder.now());
            if left.is_zero() {
                return;
            }
            tokio::time::sleep(left.min(LONGEST_SLEEP)).await;
        }
    }

    /// Wakes a wait because its time came, unless it was woken before.
    async fn fall_due(&self, wait_id: &str) -> Result<(), AppendError> {
        let mut board = self.inner.board.lock().await;
        let Some(wait) = board.find(wait_id) else {
            return Ok(());
        };
        let woken = common::NodeWoken {
            wait_id: wait.wait_id.clone(),
            node_id: wait.node_id.clone(),
            cause: WakeCause::Due.into(),
            ..common::NodeWoken::default()
        };
        let event = Kind::NodeWoken(woken.clone());
        self.inner.recorder.submit(event).await?;
        board.wake(&woken);
        Ok(())
    }
}

impl std::fmt::Debug for Waits {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Waits")
            .field("run", &self.inner.recorder.run_id())
            .finish_non_exhaustive()
    }
}
