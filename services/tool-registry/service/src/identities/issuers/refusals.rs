//! Refused tokens in the log: for each issuer and reason at most one line a minute, with the number since the line
//! before.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use core_types::Timestamp;
use tool_domain::identity::TokenFault;

/// The time between two lines of a kind.
const WINDOW: Duration = Duration::from_secs(60);

/// The last line of each kind, and the number of refusals since: as many as there are issuers and reasons.
#[derive(Debug, Default)]
pub(super) struct Refusals(Mutex<HashMap<(String, TokenFault), Line>>);

#[derive(Debug)]
struct Line {
    written: Timestamp,
    since: u64,
}

impl Refusals {
    /// Records a refusal. `issuer` is empty where it is unknown.
    pub(super) fn record(&self, issuer: &str, fault: TokenFault, now: Timestamp) {
        if let Some(count) = self.count(issuer, fault, now) {
            tracing::warn!(issuer, reason = %fault, count, "tokens were refused");
        }
    }

    /// Counts a refusal, and returns the number since the last line if there is to be a line.
    fn count(&self, issuer: &str, fault: TokenFault, now: Timestamp) -> Option<u64> {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(line) = lines.get_mut(&(issuer.to_owned(), fault)) else {
            let line = Line {
                written: now,
                since: 0,
            };
            lines.insert((issuer.to_owned(), fault), line);
            return Some(1);
        };
        line.since += 1;
        if now < line.written.plus(WINDOW) {
            return None;
        }
        line.written = now;
        Some(std::mem::take(&mut line.since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_of_refusal_has_a_line_a_minute() {
        let (refusals, now) = (Refusals::default(), Timestamp::default());
        let key = TokenFault::Key;
        assert_eq!(refusals.count("a", key, now), Some(1));
        assert_eq!(refusals.count("a", key, now), None);
        assert_eq!(refusals.count("a", TokenFault::Early, now), Some(1));
        assert_eq!(refusals.count("b", key, now), Some(1));
        assert_eq!(refusals.count("a", key, now.plus(WINDOW)), Some(2));
        assert_eq!(refusals.count("a", key, now.plus(WINDOW)), None);
    }
}
