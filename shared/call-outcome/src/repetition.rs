//! Detects a model that repeats the same calls with the same results (rule G706).

use std::collections::VecDeque;

use sha2::{Digest, Sha256};

/// The occurrence of which the model is informed.
pub const REMARKED: usize = 3;
/// The occurrence that ends the turn.
pub const ENDED: usize = 5;
/// The most calls that a cycle has.
const LONGEST_CYCLE: usize = 3;

/// The newest calls of a turn, or of a workflow that works for an agent, with their results.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Repetition {
    recent: VecDeque<[u8; 32]>,
}

impl Repetition {
    /// Adds a call and the text that the model read about it.
    pub fn take(&mut self, tool_id: &str, arguments_json: &str, read: &str) {
        let arguments = serde_json::from_str(arguments_json);
        let arguments = arguments.map_or_else(
            |_| arguments_json.to_owned(),
            |arguments| canonical_json::to_string(&arguments),
        );
        let mut hasher = Sha256::new();
        for part in [tool_id, &arguments, read] {
            // Lengths keep one part from running into the next.
            hasher.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
            hasher.update(part);
        }
        self.recent.push_back(hasher.finalize().into());
        if self.recent.len() > LONGEST_CYCLE * ENDED {
            self.recent.pop_front();
        }
    }

    /// Returns the number of times that the newest calls follow each other: one call, or a cycle of
    /// two or three.
    pub fn count(&self) -> usize {
        let newest: Vec<_> = self.recent.iter().rev().collect();
        let times = |length: usize| {
            let mut cycles = newest.chunks_exact(length);
            let first = cycles.next();
            first.map_or(0, |first| {
                1 + cycles.take_while(|cycle| *cycle == first).count()
            })
        };
        (1..=LONGEST_CYCLE).map(times).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Adds a call for each letter, whose result is the letter, and counts.
    fn count(letters: &str) -> usize {
        let mut repetition = Repetition::default();
        for letter in letters.chars() {
            repetition.take("look", "{}", &letter.to_string());
        }
        repetition.count()
    }

    #[test]
    fn g706_equal_calls_and_cycles_of_two_and_three_are_counted_from_the_newest() {
        for (letters, expected) in [
            ("", 0),
            ("a", 1),
            ("aa", 2),
            ("baaa", 3),
            ("aaaaa", 5),
            ("aaaaab", 1),
            ("ababab", 3),
            ("xababababab", 5),
            ("abcabcabc", 3),
            ("abcabcabcabcabc", 5),
            ("abcdabcdabcd", 1),
        ] {
            assert_eq!(count(letters), expected, "{letters}");
        }
    }

    #[test]
    fn g706_the_spelling_of_arguments_makes_no_difference_and_another_result_does() {
        let mut repetition = Repetition::default();
        repetition.take("look", r#"{"a":1,"b":2.0}"#, "mist");
        repetition.take("look", r#"{ "b": 2, "a": 1 }"#, "mist");
        assert_eq!(repetition.count(), 2);
        repetition.take("look", r#"{"a":1,"b":2}"#, "sun");
        assert_eq!(repetition.count(), 1);
    }
}
