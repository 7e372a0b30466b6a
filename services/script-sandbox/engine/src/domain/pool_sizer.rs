//! Decides which scripts a waiting interpreter fits, and computes the number that should wait.

use std::time::{Duration, Instant};

use super::limits::Limits;

/// The time for which leftovers are counted before fewer interpreters are kept.
const WINDOW: Duration = Duration::from_secs(10);

/// The time without demand after which none are kept.
const IDLE: Duration = Duration::from_secs(180);

/// The number of interpreters of one kind that should wait, learnt from the demand.
///
/// Each time a script finds none waiting, the number doubles. Of the interpreters left over
/// throughout a window, half are given up. After a long time without demand it is zero.
#[derive(Clone, Debug)]
pub struct PoolSizer {
    most: u32,
    target: u32,
    /// The number of unsuccessful requests before the first interpreter is kept.
    hesitation: u32,
    /// The fewest that waited in this window.
    left_over: u32,
    window_began: Instant,
    asked: Instant,
}

impl PoolSizer {
    /// Makes a sizer without demand. At most `most` will wait, the first after `hesitation`
    /// unsuccessful requests.
    pub fn new(most: u32, hesitation: u32, now: Instant) -> Self {
        Self {
            most,
            target: 0,
            hesitation,
            left_over: u32::MAX,
            window_began: now,
            asked: now,
        }
    }

    /// Records the request of a script while so many waited.
    pub fn asked(&mut self, waiting: u32, now: Instant) {
        self.asked = now;
        self.left_over = self.left_over.min(waiting.saturating_sub(1));
        if waiting > 0 {
            return;
        }
        self.hesitation = self.hesitation.saturating_sub(1);
        if self.hesitation == 0 {
            self.target = (self.target * 2).clamp(1, self.most.max(1)).min(self.most);
        }
    }

    /// Adjusts the number as time passes while so many wait.
    pub fn tick(&mut self, waiting: u32, now: Instant) {
        if now.saturating_duration_since(self.asked) >= IDLE {
            self.target = 0;
        }
        if now.saturating_duration_since(self.window_began) >= WINDOW {
            let left_over = self.left_over.min(waiting);
            // One leftover is what makes the next start quick.
            if self.target > 1 && left_over > 1 {
                self.target = (self.target - left_over / 2).max(1);
            }
            self.left_over = waiting;
            self.window_began = now;
        }
    }

    /// The number that should wait.
    pub fn target(&self) -> u32 {
        self.target
    }

    /// The time of the last request.
    pub fn last_asked(&self) -> Instant {
        self.asked
    }
}

/// Returns whether an interpreter that was made for some limits fits a script with others.
///
/// Limits that the service itself enforces may differ. Limits that the kernel has fixed for the
/// processes and their files must be equal. Of processor time, where the kernel's limit only backs
/// the service's, a script may request less. The limits of a cgroup can be lowered at any time, so
/// with one memory and processes may be less.
pub fn fits(made: &Limits, asked: &Limits, cgroup: bool) -> bool {
    let files = |limits: &Limits| {
        (
            limits.file,
            limits.disk,
            limits.disk_files,
            limits.open_files,
        )
    };
    let counted = |limits: &Limits| (limits.memory, limits.processes);
    files(made) == files(asked)
        && asked.cpu_time <= made.cpu_time
        && if cgroup {
            asked.memory <= made.memory && asked.processes <= made.processes
        } else {
            counted(made) == counted(asked)
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(begin: Instant, seconds: u64) -> Instant {
        begin + Duration::from_secs(seconds)
    }

    #[test]
    fn none_waits_before_one_was_asked_for() {
        let begin = Instant::now();
        let mut demand = PoolSizer::new(4, 1, begin);
        demand.tick(0, after(begin, 60));
        assert_eq!(demand.target(), 0);
        demand.asked(0, begin);
        assert_eq!(demand.target(), 1);
    }

    #[test]
    fn a_rare_kind_has_to_be_asked_for_twice() {
        let begin = Instant::now();
        let mut demand = PoolSizer::new(4, 2, begin);
        demand.asked(0, begin);
        assert_eq!(demand.target(), 0);
        demand.asked(0, begin);
        assert_eq!(demand.target(), 1);
    }

    #[test]
    fn the_number_doubles_up_to_the_most_and_never_beyond() {
        let begin = Instant::now();
        let mut demand = PoolSizer::new(6, 1, begin);
        let targets = [(); 5].map(|()| {
            demand.asked(0, begin);
            demand.target()
        });
        assert_eq!(targets, [1, 2, 4, 6, 6]);
        let mut none = PoolSizer::new(0, 1, begin);
        none.asked(0, begin);
        assert_eq!(none.target(), 0);
    }

    #[test]
    fn what_is_left_over_goes_and_one_stays_until_none_is_asked_for() {
        let begin = Instant::now();
        let mut demand = PoolSizer::new(8, 1, begin);
        for _ in 0..4 {
            demand.asked(0, begin);
        }
        assert_eq!(demand.target(), 8);
        for window in 1..10 {
            demand.asked(demand.target(), after(begin, window * 10));
            demand.tick(demand.target(), after(begin, window * 10));
        }
        assert!((1..=2).contains(&demand.target()), "{}", demand.target());
        demand.tick(demand.target(), after(begin, 90 + 179));
        assert!(demand.target() >= 1);
        demand.tick(demand.target(), after(begin, 90 + 181));
        assert_eq!(demand.target(), 0);
    }

    #[test]
    fn only_what_the_kernel_has_fixed_must_be_the_same() {
        let made = Limits::DEFAULT;
        let check = |change: fn(&mut Limits), with_cgroup, without| {
            let mut asked = made;
            change(&mut asked);
            assert_eq!(fits(&made, &asked, true), with_cgroup, "{asked:?}");
            assert_eq!(fits(&made, &asked, false), without, "{asked:?}");
        };
        check(|_| {}, true, true);
        check(|limits| limits.wall_time *= 2, true, true);
        check(|limits| limits.output /= 2, true, true);
        check(|limits| limits.result *= 2, true, true);
        check(|limits| limits.cpu_time /= 2, true, true);
        check(|limits| limits.cpu_time *= 2, false, false);
        check(|limits| limits.memory /= 2, true, false);
        check(|limits| limits.memory *= 2, false, false);
        check(|limits| limits.processes /= 2, true, false);
        check(|limits| limits.processes *= 2, false, false);
        check(|limits| limits.file /= 2, false, false);
        check(|limits| limits.disk /= 2, false, false);
        check(|limits| limits.disk_files /= 2, false, false);
        check(|limits| limits.open_files /= 2, false, false);
    }
}
