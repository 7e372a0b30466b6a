//! The machine's clock, moved by the amount that a test sets.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use core_types::{Clock, SystemClock, Timestamp};

/// The machine's clock, moved.
#[derive(Clone, Debug, Default)]
pub(crate) struct MovedClock {
    seconds: Arc<AtomicU64>,
}

impl MovedClock {
    /// Moves the clock forward. Running sleeps do not notice.
    pub(crate) fn advance(&self, seconds: u64) {
        self.seconds.fetch_add(seconds, Ordering::SeqCst);
    }
}

impl Clock for MovedClock {
    fn now(&self) -> Timestamp {
        let moved = Duration::from_secs(self.seconds.load(Ordering::SeqCst));
        SystemClock.now().plus(moved)
    }
}
