//! The clock of leases, which also counts the time while the machine is suspended, and the difference between the clocks
//! of this machine and the database's.

use core_types::{Clock, Timestamp};
use rustix::time::{ClockId, clock_gettime};

/// The difference at which a process warns, in milliseconds.
const WARNED: u64 = 1_000;

/// The difference at which a process does not start, in milliseconds.
const REFUSED: u64 = 5_000;

/// The query for the present time of the database, in milliseconds since the epoch.
pub(crate) const DATABASE_NOW: &str = "(1000 * extract(epoch FROM clock_timestamp()))::bigint";

/// Returns the milliseconds since the machine started.
pub(crate) fn now() -> u64 {
    let time = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    let millis = u64::try_from(time.tv_nsec / 1_000_000).unwrap_or_default();
    seconds * 1000 + millis
}

/// The difference between two clocks, in milliseconds, as far as the way to the database and back lets it be known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ahead(pub(crate) i64);

impl Ahead {
    /// Compares the time of the database with the times at which it was asked for and received.
    pub(crate) fn of(asked: Timestamp, database: i64, clock: &dyn Clock) -> Self {
        let millis = |time: Timestamp| time.unix_nanos() / 1_000_000;
        let received = millis(clock.now());
        Self(match millis(asked) {
            asked if database < asked => asked - database,
            _ if database > received => received - database,
            _ => 0,
        })
    }

    /// Whether times of this process are so far from those of others that it must not start.
    pub(crate) fn is_refused(self) -> bool {
        self.0.unsigned_abs() > REFUSED
    }

    /// Whether an operator should know of it.
    pub(crate) fn is_warned(self) -> bool {
        self.0.unsigned_abs() > WARNED
    }
}
