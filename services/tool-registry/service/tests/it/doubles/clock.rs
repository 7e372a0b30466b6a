//! The system's clock, which breaks and is set forward on demand.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use core_types::{Clock, SystemClock, Timestamp};

/// A clock that panics at the first question after it was broken, as a fault of the service would.
#[derive(Clone, Debug, Default)]
pub(crate) struct FragileClock {
    broken: Arc<AtomicBool>,
    /// The seconds by which it is ahead of the system's.
    ahead: Arc<AtomicU64>,
}

impl FragileClock {
    /// Makes the next question for the time panic.
    pub(crate) fn break_once(&self) {
        self.broken.store(true, Ordering::SeqCst);
    }

    /// Sets the clock forward.
    pub(crate) fn advance(&self, by: Duration) {
        self.ahead.fetch_add(by.as_secs(), Ordering::SeqCst);
    }
}

impl Clock for FragileClock {
    fn now(&self) -> Timestamp {
        assert!(
            !self.broken.swap(false, Ordering::SeqCst),
            "the clock is broken"
        );
        let ahead = Duration::from_secs(self.ahead.load(Ordering::SeqCst));
        SystemClock.now().plus(ahead)
    }
}
