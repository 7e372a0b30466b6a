//! The clock of leases, which also counts the time while the machine is suspended.

use rustix::time::{ClockId, clock_gettime};

/// Returns the milliseconds since the machine started.
pub(crate) fn now() -> u64 {
    let time = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    let millis = u64::try_from(time.tv_nsec / 1_000_000).unwrap_or_default();
    seconds * 1000 + millis
}
