//! The policies for a time while an earlier run continues.

/// The most times that are buffered for one schedule.
const MAX_BUFFERED: usize = 100;

/// The policy for a time at which an earlier run has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overlap {
    /// The time is not run.
    Skip,
    /// The earliest such time is buffered.
    BufferOne,
    /// Up to a hundred such times are buffered.
    BufferAll,
    /// The earlier run is cancelled, and the latest time is run.
    CancelOther,
    /// The runs continue side by side.
    Allow,
}

/// The decision about a buffered time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Its run is started.
    Start,
    /// It stays buffered.
    Keep,
    /// It is not run, because an earlier run has not ended.
    Overlapped,
    /// It is not run, because the buffer is full.
    BufferFull,
}

/// The decisions about a schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settled {
    /// The decision about each buffered time, in their order.
    pub decisions: Vec<Decision>,
    /// Whether the runs that continue are to be cancelled.
    pub cancel: bool,
}

/// Decides on `buffered` times, the earliest first, while earlier runs continue or not.
pub fn settle(overlap: Overlap, running: bool, buffered: usize) -> Settled {
    let decision = |index: usize| match overlap {
        Overlap::Allow if index < MAX_BUFFERED => Decision::Start,
        Overlap::Allow => Decision::BufferFull,
        Overlap::CancelOther if index + 1 < buffered => Decision::Overlapped,
        Overlap::CancelOther if running => Decision::Keep,
        Overlap::CancelOther => Decision::Start,
        _ if index == 0 && !running => Decision::Start,
        Overlap::Skip => Decision::Overlapped,
        // A started time leaves the buffer.
        Overlap::BufferOne => keep(index - usize::from(!running), 1, Decision::Overlapped),
        Overlap::BufferAll => keep(
            index - usize::from(!running),
            MAX_BUFFERED,
            Decision::BufferFull,
        ),
    };
    Settled {
        decisions: (0..buffered).map(decision).collect(),
        cancel: overlap == Overlap::CancelOther && running && buffered > 0,
    }
}

fn keep(place: usize, most: usize, otherwise: Decision) -> Decision {
    match place < most {
        true => Decision::Keep,
        false => otherwise,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Decision::{BufferFull, Keep, Overlapped, Start};
    use super::*;

    const ALL: [Overlap; 5] = [
        Overlap::Skip,
        Overlap::BufferOne,
        Overlap::BufferAll,
        Overlap::CancelOther,
        Overlap::Allow,
    ];

    #[test]
    fn each_policy_has_its_verdicts() {
        let cases = [
            (Overlap::Skip, true, vec![Overlapped; 3]),
            (Overlap::Skip, false, vec![Start, Overlapped, Overlapped]),
            (Overlap::BufferOne, true, vec![Keep, Overlapped, Overlapped]),
            (Overlap::BufferOne, false, vec![Start, Keep, Overlapped]),
            (Overlap::BufferAll, true, vec![Keep; 3]),
            (Overlap::BufferAll, false, vec![Start, Keep, Keep]),
            (
                Overlap::CancelOther,
                true,
                vec![Overlapped, Overlapped, Keep],
            ),
            (
                Overlap::CancelOther,
                false,
                vec![Overlapped, Overlapped, Start],
            ),
            (Overlap::Allow, true, vec![Start; 3]),
        ];
        for (overlap, running, decisions) in cases {
            let settled = settle(overlap, running, 3);
            assert_eq!(settled.decisions, decisions, "{overlap:?}, {running}");
            assert_eq!(settled.cancel, overlap == Overlap::CancelOther && running);
        }
    }

    #[test]
    fn a_buffer_takes_a_hundred_times() {
        let settled = settle(Overlap::BufferAll, true, 101);
        assert_eq!(settled.decisions[99], Keep);
        assert_eq!(settled.decisions[100], BufferFull);
    }

    proptest! {
        #[test]
        fn runs_are_side_by_side_only_where_that_is_allowed(running: bool, buffered in 0_usize..300) {
            for overlap in ALL {
                let settled = settle(overlap, running, buffered);
                prop_assert_eq!(settled.decisions.len(), buffered);
                let started = settled.decisions.iter().filter(|decision| **decision == Start).count();
                prop_assert!(overlap == Overlap::Allow || started + usize::from(running) <= 1);
                // A schedule at rest starts a run.
                prop_assert!(running || buffered == 0 || started > 0);
                let kept = settled.decisions.iter().filter(|decision| **decision == Keep).count();
                prop_assert!(kept <= MAX_BUFFERED);
            }
        }
    }
}
