//! The common parts of all races: the count of each direction, and an aim that keeps both
//! directions occurring.
//!
//! A race that always goes the same way was none: its scenario fails.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use anyhow::ensure;

/// The count of each direction of a race.
#[derive(Clone, Debug)]
pub(crate) struct Tally(BTreeMap<&'static str, u64>);

impl Tally {
    /// None yet, of directions that all have to be seen.
    pub(crate) fn of(directions: &[&'static str]) -> Self {
        Self(directions.iter().map(|direction| (*direction, 0)).collect())
    }

    /// Counts one more try.
    pub(crate) fn add(&mut self, direction: &'static str) {
        self.add_many(direction, 1);
    }

    /// Counts more tries.
    pub(crate) fn add_many(&mut self, direction: &'static str, tries: u64) {
        *self.0.entry(direction).or_default() += tries;
    }

    /// The same, if every direction was seen.
    ///
    /// # Errors
    /// A direction that was not seen.
    pub(crate) fn hit(self) -> anyhow::Result<Self> {
        ensure!(
            self.0.values().all(|tries| *tries > 0),
            "the race was not hit in every direction: {self}"
        );
        Ok(self)
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} tries", self.0.values().sum::<u64>())?;
        for (direction, tries) in &self.0 {
            write!(formatter, ", {tries} {direction}")?;
        }
        Ok(())
    }
}

/// A time that moves to where both directions of a race are about as likely, however busy the machine
/// is.
#[derive(Debug)]
pub(crate) struct Aim(AtomicU64);

impl Aim {
    /// The divisor of the time for each step.
    const PART: u64 = 32;

    /// Begins here.
    pub(crate) fn at(time: Duration) -> Self {
        Self(AtomicU64::new(
            u64::try_from(time.as_micros()).unwrap_or(u64::MAX),
        ))
    }

    /// The time to wait.
    pub(crate) fn time(&self) -> Duration {
        Duration::from_micros(self.0.load(Ordering::Relaxed))
    }

    /// The next times are longer.
    pub(crate) fn later(&self) {
        self.0.fetch_add(self.step(), Ordering::Relaxed);
    }

    /// The next times are shorter.
    pub(crate) fn earlier(&self) {
        self.0.fetch_sub(self.step(), Ordering::Relaxed);
    }

    fn step(&self) -> u64 {
        self.0.load(Ordering::Relaxed) / Self::PART
    }
}

/// A thread that rearranges files for as long as this lives.
#[derive(Debug)]
pub(crate) struct Rearranger {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Rearranger {
    /// Repeats a function on a thread of its own. Its failures are part of the race: a loser tries
    /// again.
    pub(crate) fn start(mut rearrange: impl FnMut() + Send + 'static) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let stop = over.clone();
        let thread = std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                rearrange();
            }
        });
        Self {
            over,
            thread: Some(thread),
        }
    }
}

impl Drop for Rearranger {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has stopped rearranging, which the tally shows.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_race_that_goes_one_way_only_proves_nothing() {
        let mut tally = Tally::of(&["left", "right"]);
        tally.add("left");
        assert!(tally.clone().hit().is_err());
        tally.add_many("right", 2);
        let counted = tally.hit().map(|tally| tally.to_string());
        assert_eq!(counted.ok().as_deref(), Some("3 tries, 1 left, 2 right"));
    }

    #[test]
    fn an_aim_moves_and_stays_above_nothing() {
        let aim = Aim::at(Duration::from_micros(320));
        aim.later();
        assert_eq!(aim.time(), Duration::from_micros(330));
        for _ in 0..1000 {
            aim.earlier();
        }
        assert!(aim.time() > Duration::ZERO);
    }
}
