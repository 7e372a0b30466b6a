//! Time and randomness as parameters.
//!
//! Code that needs the time or a new identifier has a [`Clock`] or an [`IdSource`] as a parameter,
//! so that tests and replays decide both. Only this module reads them from the system.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::run_id::{RunId, RunOwner};

/// A point in time: nanoseconds since the Unix epoch, UTC.
///
/// Good from 1970 to the year 2262; earlier times are held as zero.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Timestamp(i64);

impl Timestamp {
    /// Wraps nanoseconds since the Unix epoch; a negative count becomes zero.
    pub const fn from_unix_nanos(nanos: i64) -> Self {
        // `max` is no constant function.
        Self(if nanos > 0 { nanos } else { 0 })
    }

    /// Returns nanoseconds since the Unix epoch.
    pub fn unix_nanos(self) -> i64 {
        self.0
    }

    /// Reads whole seconds since the epoch and the nanoseconds within that second; none if they are outside of
    /// the range. A time before the epoch is held there.
    pub fn from_seconds_and_nanos(seconds: i64, nanos: i32) -> Option<Self> {
        let nanos = i64::from(nanos);
        if !(0..1_000_000_000).contains(&nanos) {
            return None;
        }
        let nanos = seconds.checked_mul(1_000_000_000)?.checked_add(nanos)?;
        Some(Self::from_unix_nanos(nanos))
    }

    /// Returns whole seconds since the epoch and the nanoseconds within that second.
    pub fn seconds_and_nanos(self) -> (i64, i32) {
        let nanos = i32::try_from(self.0 % 1_000_000_000).expect("a remainder below 10^9 fits");
        (self.0 / 1_000_000_000, nanos)
    }

    /// Returns the point `delay` later, held at the end of the range.
    pub fn plus(self, delay: Duration) -> Self {
        let nanos = i64::try_from(delay.as_nanos()).unwrap_or(i64::MAX);
        Self(self.0.saturating_add(nanos))
    }

    /// Returns the point `delay` earlier, held at the epoch.
    pub fn minus(self, delay: Duration) -> Self {
        let nanos = i64::try_from(delay.as_nanos()).unwrap_or(i64::MAX);
        Self::from_unix_nanos(self.0.saturating_sub(nanos))
    }

    /// Returns the time since `earlier`; zero if `earlier` is later.
    pub fn since(self, earlier: Timestamp) -> Duration {
        let nanos = self.0.saturating_sub(earlier.0).max(0);
        Duration::from_nanos(u64::try_from(nanos).expect("held at zero above"))
    }
}

/// Returns the time.
pub trait Clock: Send + Sync + std::fmt::Debug {
    /// Returns the present time of day.
    fn now(&self) -> Timestamp;
}

/// Generates new identifiers.
pub trait IdSource: Send + Sync + std::fmt::Debug {
    /// Returns a new identifier that sorts by the time of its creation.
    fn next_uuid(&self) -> Uuid;

    /// Returns a new run identifier of `owner`.
    fn next_run(&self, owner: RunOwner) -> RunId {
        RunId::new(owner, self.next_uuid())
    }
}

/// The machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let since_epoch = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Timestamp(i64::try_from(since_epoch.as_nanos()).unwrap_or(i64::MAX))
    }
}

/// Random identifiers of UUID version 7.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemIds;

impl IdSource for SystemIds {
    fn next_uuid(&self) -> Uuid {
        Uuid::now_v7()
    }
}

/// Returns random bytes for a secret. No test decides them, so that none can be foreseen.
///
/// # Panics
/// The system has no randomness to give.
pub fn secret_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("a system that serves has randomness");
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timestamp_splits_into_seconds_and_nanoseconds() {
        let time = Timestamp::from_unix_nanos(1_500_000_001);
        assert_eq!(time.seconds_and_nanos(), (1, 500_000_001));
    }

    #[test]
    fn arithmetic_is_held_at_the_ends() {
        let end = Timestamp::from_unix_nanos(i64::MAX);
        assert_eq!(end.plus(Duration::from_secs(u64::MAX)), end);
        assert_eq!(Timestamp::default().since(end), Duration::ZERO);
    }
}
