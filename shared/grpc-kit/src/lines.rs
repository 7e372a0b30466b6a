//! Repeated facts in the log: one line for each in an interval, with their number.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// The facts of a log. The first of each is logged at once, and then one line in an interval, however many there are.
#[derive(Debug, Default)]
pub(crate) struct Lines(HashMap<String, (Instant, u64)>);

impl Lines {
    /// Counts a fact and returns the number for the line that is due; `None` without such a line.
    pub(crate) fn count(&mut self, fact: &str, interval: Duration, now: Instant) -> Option<u64> {
        let Some((logged, unreported)) = self.0.get_mut(fact) else {
            self.0.insert(fact.to_owned(), (now, 0));
            return Some(1);
        };
        *unreported += 1;
        if now.saturating_duration_since(*logged) < interval {
            return None;
        }
        *logged = now;
        Some(std::mem::take(unreported))
    }

    /// Whether a fact was counted.
    pub(crate) fn has(&self, fact: &str) -> bool {
        self.0.contains_key(fact)
    }

    /// Returns the number of different facts.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fact_is_logged_at_once_and_then_together_with_its_repeats() {
        const INTERVAL: Duration = Duration::from_secs(10);
        let mut lines = Lines::default();
        let begin = Instant::now();
        let mut count = |fact, after| lines.count(fact, INTERVAL, begin + after);
        assert_eq!(count("a", Duration::ZERO), Some(1));
        assert_eq!(count("b", Duration::ZERO), Some(1));
        for _ in 0..9 {
            assert_eq!(count("a", Duration::ZERO), None);
        }
        assert_eq!(count("a", INTERVAL), Some(10));
        assert_eq!(count("a", INTERVAL), None);
    }
}
