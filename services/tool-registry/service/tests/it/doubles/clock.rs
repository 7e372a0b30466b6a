//! The system's clock, which breaks on demand.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use core_types::{Clock, SystemClock, Timestamp};

/// A clock that panics at the first question after it was broken, as a fault of the service would.
#[derive(Clone, Debug, Default)]
pub(crate) struct FragileClock {
    broken: Arc<AtomicBool>,
}

impl FragileClock {
    /// Makes the next question for the time panic.
    pub(crate) fn break_once(&self) {
        self.broken.store(true, Ordering::SeqCst);
    }
}

impl Clock for FragileClock {
    fn now(&self) -> Timestamp {
        assert!(
            !self.broken.swap(false, Ordering::SeqCst),
            "the clock is broken"
        );
        SystemClock.now()
    }
}
