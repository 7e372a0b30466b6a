//! The handle through which the work of a run learns that it must end or pause.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use contracts::tavern::common::v1::{PendingWork, WorkKind};
use grpc_kit::CallContext;
use tokio::sync::{
    Notify, OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock, RwLockReadGuard, watch,
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The reason for ending a run before its work is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CancelReason {
    /// A caller requested it, in these words.
    Requested(String),
    /// The run's deadline passed.
    Deadline,
}

/// Signals the work of a run to stop or pause, and tracks the work in flight.
#[derive(Clone, Debug)]
pub struct RunControl {
    inner: Arc<Inner>,
    /// Cancelled when the work with this control shall end: the run's token, or one below it.
    token: CancellationToken,
}

#[derive(Debug)]
struct Inner {
    reason: OnceLock<CancelReason>,
    paused: watch::Sender<bool>,
    /// Read while a step is recorded as started, written while a pause is recorded: no step starts
    /// after the pause in the log.
    starting: RwLock<()>,
    /// Whether the run has left memory. Locked for reading while a request reaches the run, for
    /// writing while it leaves.
    has_left: Arc<RwLock<bool>>,
    /// The work in flight. Locked for a push or a removal, never across an await.
    in_flight: Mutex<Vec<(u64, PendingWork)>>,
    next_ticket: std::sync::atomic::AtomicU64,
    /// Whether a task waits for changes of the work in flight.
    in_flight_watched: AtomicBool,
    in_flight_changed: Notify,
    context: CallContext,
}

/// Keeps the run from being paused while a step is recorded as started.
#[derive(Debug)]
pub struct StartGuard<'a> {
    _starting: RwLockReadGuard<'a, ()>,
}

/// Keeps the run in memory while a request reaches it.
#[derive(Debug)]
pub(crate) struct Presence {
    _stays: OwnedRwLockReadGuard<bool>,
}

/// The moment at which a run may leave memory: no request reaches it meanwhile.
#[derive(Debug)]
pub struct Leaving {
    has_left: OwnedRwLockWriteGuard<bool>,
}

impl Leaving {
    /// Notes that the run has left.
    pub(crate) fn leave(&mut self) {
        *self.has_left = true;
    }
}

/// Work in flight; it is forgotten when this is dropped.
#[derive(Debug)]
pub struct Tracked {
    control: Arc<Inner>,
    ticket: u64,
}

impl RunControl {
    /// Makes the control of a run whose calls have `context` and whose time ends in `remaining`.
    pub(crate) fn new(context: CallContext, remaining: Duration, paused: bool) -> Self {
        let context = context.with_deadline(Instant::now() + remaining);
        Self {
            inner: Arc::new(Inner {
                reason: OnceLock::new(),
                paused: watch::Sender::new(paused),
                starting: RwLock::default(),
                has_left: Arc::default(),
                in_flight: Mutex::new(Vec::new()),
                next_ticket: std::sync::atomic::AtomicU64::new(0),
                in_flight_watched: AtomicBool::new(false),
                in_flight_changed: Notify::new(),
                context,
            }),
            token: CancellationToken::new(),
        }
    }

    /// Makes a control for a part of the work, which can be ended by itself.
    pub fn child(&self) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
            token: self.token.child_token(),
        }
    }

    /// Ends the work with this control and with its children. The run continues, unless it is the
    /// control of the run itself.
    pub fn end(&self) {
        self.token.cancel();
    }

    /// Returns true once the run, or this part of it, shall end.
    pub fn is_cancelled(&self) -> bool {
        self.token.is_cancelled()
    }

    /// Waits until the run, or this part of it, shall end; for ever if it never shall.
    pub async fn cancelled(&self) {
        self.token.cancelled().await;
    }

    /// Returns the reason for ending the run; none while the whole run shall not end.
    pub fn why(&self) -> Option<CancelReason> {
        self.inner.reason.get().cloned()
    }

    /// Returns true while the run is paused.
    pub fn is_paused(&self) -> bool {
        *self.inner.paused.borrow()
    }

    /// Follows whether the run is paused.
    pub(crate) fn pauses(&self) -> watch::Receiver<bool> {
        self.inner.paused.subscribe()
    }

    /// Waits until the run is not paused.
    pub async fn until_resumed(&self) {
        let mut paused = self.inner.paused.subscribe();
        // It fails when the sender is gone, and this handle holds the sender.
        let _ = paused.wait_for(|paused| !paused).await;
    }

    /// Admits the start of a step, which is to be recorded while the guard lives; nothing while the
    /// run is paused or once it shall end.
    pub async fn admit_start(&self) -> Option<StartGuard<'_>> {
        let starting = self.inner.starting.read().await;
        (!self.is_paused() && !self.is_cancelled()).then_some(StartGuard {
            _starting: starting,
        })
    }

    /// Waits until the run may leave memory: it is not paused, and no request reaches it.
    pub async fn leaving(&self) -> Leaving {
        loop {
            self.until_resumed().await;
            let has_left = Arc::clone(&self.inner.has_left).write_owned().await;
            if !self.is_paused() {
                return Leaving { has_left };
            }
        }
    }

    /// Keeps the run in memory; none if it has left.
    pub(crate) async fn stay(&self) -> Option<Presence> {
        let has_left = Arc::clone(&self.inner.has_left).read_owned().await;
        (!*has_left).then_some(Presence { _stays: has_left })
    }

    /// Pauses or resumes the run once `recorded` has succeeded. Does nothing if the run is in that
    /// state already.
    pub(crate) async fn set_paused<E>(
        &self,
        paused: bool,
        recorded: impl Future<Output = Result<u64, E>>,
    ) -> Result<(), E> {
        let _no_start = self.inner.starting.write().await;
        if self.is_paused() != paused {
            recorded.await?;
            self.inner.paused.send_replace(paused);
        }
        Ok(())
    }

    /// Ends the run once `recorded` has succeeded. No step starts in between, so that none is recorded behind
    /// the cancel. Nothing happens if the run shall end already.
    pub(crate) async fn cancel_once<E>(
        &self,
        reason: CancelReason,
        recorded: impl Future<Output = Result<(), E>>,
    ) -> Result<(), E> {
        let _no_start = self.inner.starting.write().await;
        if !self.is_cancelled() {
            recorded.await?;
            self.cancel(reason);
        }
        Ok(())
    }

    /// Notes that this work is in flight until the returned value is dropped, so that a cancel can
    /// name the work that has not ended.
    pub fn track(&self, kind: WorkKind, id: impl Into<String>) -> Tracked {
        let ticket = self.inner.next_ticket.fetch_add(1, Ordering::Relaxed);
        let work = PendingWork {
            kind: kind.into(),
            id: id.into(),
        };
        self.inner.lock().push((ticket, work));
        self.inner.note_in_flight();
        Tracked {
            control: Arc::clone(&self.inner),
            ticket,
        }
    }

    /// Returns everything in flight.
    pub fn in_flight(&self) -> Vec<PendingWork> {
        self.inner
            .lock()
            .iter()
            .map(|(_, work)| work.clone())
            .collect()
    }

    /// Turns on notifications about changes of the work in flight.
    pub(crate) fn watch_in_flight(&self) {
        self.inner.in_flight_watched.store(true, Ordering::Relaxed);
    }

    /// Waits for a change of the work in flight since the last call. To be used by one task.
    pub(crate) async fn in_flight_changed(&self) {
        self.inner.in_flight_changed.notified().await;
    }

    /// Returns the context for calls to other services: the path below this run and its deadline.
    /// The work of a run already runs inside it; tasks that it spawns do not.
    pub fn call_context(&self) -> CallContext {
        self.inner.context.clone()
    }

    /// Ends the run; the first reason counts.
    pub(crate) fn cancel(&self, reason: CancelReason) {
        // A second cancel changes nothing, so its reason is not needed.
        let _ = self.inner.reason.set(reason);
        self.token.cancel();
    }
}

impl Inner {
    fn note_in_flight(&self) {
        if self.in_flight_watched.load(Ordering::Relaxed) {
            self.in_flight_changed.notify_one();
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<(u64, PendingWork)>> {
        self.in_flight
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Tracked {
    fn drop(&mut self) {
        self.control
            .lock()
            .retain(|(ticket, _)| *ticket != self.ticket);
        self.control.note_in_flight();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn control() -> RunControl {
        RunControl::new(CallContext::outermost(), Duration::from_secs(60), false)
    }

    #[test]
    fn what_is_in_flight_is_named_until_it_ends() {
        let control = control();
        let ids = || -> Vec<String> {
            let work = control.in_flight();
            work.into_iter().map(|work| work.id).collect()
        };
        let first = control.track(WorkKind::Call, "turn_1/2/0");
        let second = control.track(WorkKind::Run, "flow_7");
        assert_eq!(ids(), ["turn_1/2/0", "flow_7"]);
        drop(first);
        assert_eq!(ids(), ["flow_7"]);
        drop(second);
        assert!(control.in_flight().is_empty());
    }

    #[test]
    fn a_part_ends_with_the_run_or_by_itself() {
        let control = control();
        let (first, second) = (control.child(), control.child());
        first.end();
        assert!(first.child().is_cancelled() && !second.is_cancelled());
        assert!(!control.is_cancelled());
        control.cancel(CancelReason::Deadline);
        assert!(second.is_cancelled());
        assert_eq!(second.why(), Some(CancelReason::Deadline));
    }

    #[tokio::test]
    async fn no_step_starts_behind_a_cancel_that_is_recorded() {
        let control = control();
        let requested = || CancelReason::Requested("enough".into());
        let recorded = async {
            assert!(control.inner.starting.try_read().is_err());
            Ok::<(), ()>(())
        };
        assert!(control.admit_start().await.is_some());
        control.cancel_once(requested(), recorded).await.unwrap();
        assert_eq!(control.why(), Some(requested()));
        assert!(control.admit_start().await.is_none());
        // It is recorded once.
        let again = async { Err(()) };
        control.cancel_once(requested(), again).await.unwrap();
    }

    #[tokio::test]
    async fn a_cancel_that_is_not_recorded_ends_nothing() {
        let control = control();
        let failed = control.cancel_once(CancelReason::Deadline, async { Err(()) });
        assert_eq!(failed.await, Err(()));
        assert!(!control.is_cancelled() && control.admit_start().await.is_some());
    }

    #[tokio::test]
    async fn the_first_reason_counts() {
        let control = control();
        assert_eq!(control.why(), None);
        control.cancel(CancelReason::Deadline);
        control.cancel(CancelReason::Requested("late".into()));
        control.cancelled().await;
        assert_eq!(control.why(), Some(CancelReason::Deadline));
    }
}
