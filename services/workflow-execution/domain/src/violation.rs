//! The problems of a definition or of run inputs, all of them at once.

use call_outcome::Violation;
use json_schema::JsonError;

use super::limits::{MAX_SUGGESTED, MAX_VIOLATIONS};

/// Collects violations up to [`MAX_VIOLATIONS`].
#[derive(Debug, Default)]
pub struct Violations {
    list: Vec<Violation>,
}

impl Violations {
    /// Adds a violation, unless the list is full.
    pub fn add(&mut self, violation: Violation) {
        if self.list.len() < MAX_VIOLATIONS {
            self.list.push(violation);
        }
    }

    /// Adds several violations.
    pub fn extend(&mut self, violations: impl IntoIterator<Item = Violation>) {
        for violation in violations {
            self.add(violation);
        }
    }

    /// Returns whether there is a violation at exactly this place.
    pub fn has(&self, pointer: &str) -> bool {
        self.list
            .iter()
            .any(|violation| violation.pointer == pointer)
    }

    /// Returns whether the next violation may come with suggestions. A text with tens of thousands of
    /// wrong names must not cost a comparison with as many others each.
    pub fn may_suggest(&self) -> bool {
        self.list.len() < MAX_SUGGESTED
    }

    /// Returns whether there is no violation.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Returns the collected violations.
    pub fn into_vec(self) -> Vec<Violation> {
        self.list
    }
}

/// Turns the problems of a JSON text into violations.
pub fn of_json(error: &JsonError) -> Vec<Violation> {
    error
        .problems
        .iter()
        .map(|problem| {
            let place = format!("line {}, column {}", problem.line, problem.column);
            Violation::new(
                problem.pointer.clone(),
                "not_json",
                format!("{} ({place})", problem.kind),
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_bounded() {
        let mut violations = Violations::default();
        violations
            .extend((0..MAX_VIOLATIONS + 5).map(|n| Violation::new(format!("/{n}"), "x", "y")));
        assert_eq!(violations.into_vec().len(), MAX_VIOLATIONS);
    }
}
