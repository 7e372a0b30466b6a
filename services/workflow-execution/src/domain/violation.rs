//! What is wrong with a definition or with run inputs, all of it at once.

use std::borrow::Cow;

use json_schema::JsonError;

use super::limits::{MAX_SUGGESTED, MAX_SUGGESTION_NAMES, MAX_VIOLATIONS};

/// One thing that is wrong, with its place and its remedy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Violation {
    /// Where: a JSON pointer; empty for the whole.
    pub pointer: String,
    /// What, as a stable code.
    pub code: Cow<'static, str>,
    /// The same as one sentence for a person.
    pub message: String,
    /// What was expected; empty if the code says it all.
    pub expected: String,
    /// What was found, cut; empty if nothing was.
    pub received: String,
    /// Up to three names that may have been meant, the nearest first.
    pub suggestions: Vec<String>,
}

impl Violation {
    /// Makes a violation that needs no more than a sentence.
    pub fn new(
        pointer: impl Into<String>,
        code: impl Into<Cow<'static, str>>,
        message: impl Into<String>,
    ) -> Self {
        Self {
            pointer: pointer.into(),
            code: code.into(),
            message: message.into(),
            ..Self::default()
        }
    }

    /// Says what was expected and what was found.
    pub fn found(mut self, expected: impl Into<String>, received: &str) -> Self {
        self.expected = expected.into();
        self.received = cut(received);
        self
    }

    /// Adds the nearest of the `known` names to the message, if `suggest` says so.
    pub fn nearest_if<'a>(
        self,
        suggest: bool,
        given: &str,
        known: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        if suggest {
            self.nearest(given, known)
        } else {
            self.found("", given)
        }
    }

    /// Adds the nearest of the `known` names to the message. Looks at a bounded number of them.
    pub fn nearest<'a>(mut self, given: &str, known: impl IntoIterator<Item = &'a str>) -> Self {
        self.received = cut(given);
        let known = known.into_iter().take(MAX_SUGGESTION_NAMES);
        self.suggestions = json_schema::nearest_names(given, known);
        if let Some(first) = self.suggestions.first() {
            self.message.push_str(&format!("; did you mean `{first}`?"));
        }
        self
    }
}

impl std::fmt::Display for Violation {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}: {}", self.pointer, self.message)
    }
}

/// Collects violations up to [`MAX_VIOLATIONS`].
#[derive(Debug, Default)]
pub struct Violations {
    list: Vec<Violation>,
}

impl Violations {
    /// Adds one, unless the list is full.
    pub fn add(&mut self, violation: Violation) {
        if self.list.len() < MAX_VIOLATIONS {
            self.list.push(violation);
        }
    }

    /// Adds several.
    pub fn extend(&mut self, violations: impl IntoIterator<Item = Violation>) {
        for violation in violations {
            self.add(violation);
        }
    }

    /// Says whether the next violation may come with suggestions. A text with tens of thousands of
    /// wrong names must not cost a comparison with as many others each.
    pub fn may_suggest(&self) -> bool {
        self.list.len() < MAX_SUGGESTED
    }

    /// Says whether nothing is wrong.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Returns what was collected.
    pub fn into_vec(self) -> Vec<Violation> {
        self.list
    }
}

/// Turns what is wrong with a JSON text into violations.
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

/// Appends one step to a JSON pointer.
pub fn join(pointer: &str, step: &str) -> String {
    format!("{pointer}/{}", step.replace('~', "~0").replace('/', "~1"))
}

/// Cuts a text for a message.
pub fn cut(text: &str) -> String {
    const MOST: usize = 200;
    match text.char_indices().nth(MOST) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pointer_step_is_escaped() {
        assert_eq!(join("/nodes/0", "a/b~c"), "/nodes/0/a~1b~0c");
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        assert_eq!(cut(&"字".repeat(300)), format!("{}…", "字".repeat(200)));
        assert_eq!(cut("short"), "short");
    }

    #[test]
    fn the_list_is_bounded() {
        let mut violations = Violations::default();
        violations
            .extend((0..MAX_VIOLATIONS + 5).map(|n| Violation::new(format!("/{n}"), "x", "y")));
        assert_eq!(violations.into_vec().len(), MAX_VIOLATIONS);
    }
}
