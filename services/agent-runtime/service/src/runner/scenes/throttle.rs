//! The rate limit of publishers (rule G405).

use std::{collections::HashMap, time::Duration};

use agent_domain::event::Source;
use core_types::Timestamp;

/// The most events per second of one publisher.
pub(super) const PER_SECOND: f64 = 20.0;
/// The most events of one publisher at once.
const BURST: f64 = 50.0;
/// The most publishers that are known at once.
const MOST_PUBLISHERS: usize = 10_000;
/// The rates of publishers.
#[derive(Debug, Default)]
pub(super) struct Throttle {
    /// The remaining events of each publisher, and the time of that count.
    left: HashMap<String, (f64, Timestamp)>,
}

impl Throttle {
    /// Whether a publisher may publish one more event now.
    pub(super) fn admits(&mut self, publisher: &Source, now: Timestamp) -> bool {
        if self.left.len() >= MOST_PUBLISHERS {
            self.left.clear();
        }
        let key = format!("{}/{}", publisher.kind.as_str(), publisher.id);
        let (left, at) = self.left.entry(key).or_insert((BURST, now));
        let passed = now.unix_nanos().saturating_sub(at.unix_nanos());
        let passed = Duration::from_nanos(u64::try_from(passed).unwrap_or_default());
        *left = (*left + passed.as_secs_f64() * PER_SECOND).min(BURST);
        *at = now;
        let admits = *left >= 1.0;
        if admits {
            *left -= 1.0;
        }
        admits
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_domain::event::SourceKind;

    fn publisher(id: &str) -> Source {
        Source {
            kind: SourceKind::Caller,
            id: id.to_owned(),
            run_id: String::new(),
        }
    }

    #[test]
    fn g405_fifty_events_at_once_and_twenty_a_second_are_admitted_from_each_publisher() {
        let mut throttle = Throttle::default();
        let at = |millis| Timestamp::default().plus(Duration::from_millis(millis));
        let mut admitted = |id: &str, millis: u64| {
            let count = (0..100).filter(|_| throttle.admits(&publisher(id), at(millis)));
            count.count()
        };
        assert_eq!(admitted("mara", 0), 50);
        assert_eq!(admitted("mara", 49), 0);
        assert_eq!(admitted("other", 49), 50);
        assert_eq!(admitted("mara", 500), 10);
        assert_eq!(admitted("mara", 60_000), 50);
    }
}
