//! The clock of leases, which also counts the time while the machine is suspended, and the offset of this machine's time
//! of day from the database's.

use core_types::Timestamp;
use rustix::time::{ClockId, clock_gettime};

/// The offset above which a process warns, in milliseconds.
const WARNED: u64 = 1_000;

/// The offset above which a process does not start, in milliseconds.
const REFUSED: u64 = 5_000;

/// Returns the milliseconds since the machine started.
pub(crate) fn now() -> u64 {
    let time = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    let millis = u64::try_from(time.tv_nsec / 1_000_000).unwrap_or_default();
    seconds * 1000 + millis
}

/// The time by which the clock of this machine is ahead of the database's, in milliseconds; negative if it is behind. It
/// is a lower bound: the way to the database and back hides the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClockOffset(pub(crate) i64);

impl ClockOffset {
    /// Compares the time of the database, in milliseconds since the epoch, with those at which it was asked for and
    /// received.
    pub(crate) fn of(asked: Timestamp, database: i64, received: Timestamp) -> Self {
        let millis = |time: Timestamp| time.unix_nanos() / 1_000_000;
        let (asked, received) = (millis(asked), millis(received));
        Self(database.clamp(asked, received.max(asked)) - database)
    }

    /// Whether times of this process are so far from those of others that it must not start.
    pub(crate) fn is_refused(self) -> bool {
        self.0.unsigned_abs() > REFUSED
    }

    /// Whether an operator should set the clock.
    pub(crate) fn is_warned(self) -> bool {
        self.0.unsigned_abs() > WARNED
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offset_is_what_the_way_to_the_database_and_back_cannot_explain() {
        let at = |millis: i64| Timestamp::from_unix_nanos(millis * 1_000_000);
        for (database, offset, is_warned, is_refused) in [
            (20_000, 0, false, false),
            (20_400, 0, false, false),
            (19_000, 1_000, false, false),
            (18_999, 1_001, true, false),
            (25_400, -5_000, true, false),
            (25_401, -5_001, true, true),
            (14_999, 5_001, true, true),
        ] {
            let found = ClockOffset::of(at(20_000), database, at(20_400));
            assert_eq!(found, ClockOffset(offset), "{database}");
            assert_eq!(found.is_warned(), is_warned, "{database}");
            assert_eq!(found.is_refused(), is_refused, "{database}");
        }
    }
}
