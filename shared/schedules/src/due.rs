//! The times since the last look: due and missed ones.

use std::collections::VecDeque;
use std::time::Duration;

use core_types::Timestamp;

use crate::timing::Timing;

/// The age beyond which times are never run.
const WINDOW: Duration = Duration::from_secs(24 * 60 * 60);

/// The delay with which a time may be noticed without being missed.
const PUNCTUAL: Duration = Duration::from_secs(10);

/// The most missed times that are caught up on.
const MAX_CAUGHT_UP: usize = 100;

/// The policy for missed times: times that are noticed late, or when a later time is due too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CatchUp {
    /// The latest missed time is run.
    Latest,
    /// The latest hundred missed times are run.
    All,
    /// No missed time is run.
    None,
}

/// The times from the last look up to the present.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Due {
    /// The times to run, the earliest first.
    pub run: Vec<Timestamp>,
    /// The times that are not run, all before the times to run.
    pub missed: Option<Missed>,
}

/// Times in a row that are not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Missed {
    /// The first time.
    pub first: Timestamp,
    /// The last time; times more than 24 h ago end with the last second before.
    pub last: Timestamp,
}

/// Returns the times after `since` and up to `now`.
pub fn due(timing: &Timing, catch_up: CatchUp, since: Timestamp, now: Timestamp) -> Due {
    let mut due = Due::default();
    let Some(mut next) = timing.next_after(since).filter(|next| *next <= now) else {
        return due;
    };
    let opens = Timestamp::from_unix_nanos(
        now.unix_nanos()
            .saturating_sub(i64::try_from(WINDOW.as_nanos()).unwrap_or(i64::MAX)),
    );
    if next < opens {
        due.missed = Some(Missed {
            first: next,
            last: Timestamp::from_unix_nanos(opens.unix_nanos() - 1_000_000_000).max(next),
        });
        next = match timing.next_after(Timestamp::from_unix_nanos(opens.unix_nanos() - 1)) {
            Some(next) => next,
            None => return due,
        };
    }
    let most = match catch_up {
        CatchUp::Latest | CatchUp::None => 1,
        CatchUp::All => MAX_CAUGHT_UP,
    };
    let mut run = VecDeque::new();
    while next <= now {
        run.push_back(next);
        if run.len() > most {
            due.miss(run.pop_front());
        }
        match timing.next_after(next) {
            Some(following) => next = following,
            None => break,
        }
    }
    let late = |time: &Timestamp| now.since(*time) > PUNCTUAL;
    if catch_up == CatchUp::None && run.front().is_some_and(late) {
        due.miss(run.pop_front());
    }
    due.run = run.into();
    due
}

impl Due {
    fn miss(&mut self, time: Option<Timestamp>) {
        let Some(last) = time else { return };
        let first = self.missed.map_or(last, |missed| missed.first);
        self.missed = Some(Missed { first, last });
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HOUR: Timing = Timing::Interval(Duration::from_secs(60 * 60));

    fn hour(hours: i64) -> Timestamp {
        Timestamp::from_unix_nanos(hours * 60 * 60 * 1_000_000_000)
    }

    fn check(
        catch_up: CatchUp,
        since: i64,
        now: Timestamp,
        run: &[i64],
        missed: Option<(i64, i64)>,
    ) {
        let due = due(&HOUR, catch_up, hour(since), now);
        let run: Vec<_> = run.iter().copied().map(hour).collect();
        assert_eq!(due.run, run, "{catch_up:?} since {since}");
        let missed = missed.map(|(first, last)| (hour(first), hour(last)));
        let found = due.missed.map(|missed| (missed.first, missed.last));
        assert_eq!(found, missed, "{catch_up:?} since {since}");
    }

    #[test]
    fn a_time_is_due_once_it_has_come() {
        let before = Timestamp::from_unix_nanos(hour(101).unix_nanos() - 1);
        for catch_up in [CatchUp::Latest, CatchUp::All, CatchUp::None] {
            check(catch_up, 100, before, &[], None);
            check(catch_up, 100, hour(101), &[101], None);
        }
    }

    #[test]
    fn each_policy_catches_up_on_its_times() {
        let late = hour(103).plus(Duration::from_secs(11));
        check(CatchUp::Latest, 100, late, &[103], Some((101, 102)));
        check(CatchUp::All, 100, late, &[101, 102, 103], None);
        check(CatchUp::None, 100, late, &[], Some((101, 103)));
        check(CatchUp::None, 100, hour(103), &[103], Some((101, 102)));
    }

    #[test]
    fn times_of_the_day_before_are_missed_whatever_the_policy() {
        let due = due(&HOUR, CatchUp::All, hour(100), hour(1000));
        let run: Vec<_> = (976..=1000).map(hour).collect();
        assert_eq!(due.run, run);
        let missed = due.missed.expect("earlier times are missed");
        assert_eq!(missed.first, hour(101));
        assert!(missed.last < hour(976));
    }

    proptest! {
        #[test]
        fn a_time_is_run_once_however_often_one_looks(
            every in 1_u64..4_000,
            looks in prop::collection::vec(1_u64..200_000, 1..20),
        ) {
            let timing = Timing::Interval(Duration::from_secs(every));
            for catch_up in [CatchUp::Latest, CatchUp::All, CatchUp::None] {
                let mut since = hour(1);
                let mut last = since;
                for look in &looks {
                    let now = since.plus(Duration::from_secs(*look));
                    let due = due(&timing, catch_up, since, now);
                    prop_assert!(due.run.len() <= MAX_CAUGHT_UP);
                    for time in due.run {
                        prop_assert!(time > last && time <= now);
                        prop_assert!(due.missed.is_none_or(|missed| missed.last < time));
                        last = time;
                    }
                    since = now;
                }
            }
        }
    }
}
