//! The remarks of the parser: tolerances, warnings, hints and errors, each with a rule and a place.

use serde::{Deserialize, Serialize};

use crate::{Class, Rule, Span};

/// The severity of a diagnostic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Worth knowing; the reading did not change.
    Hint,
    /// Read with a tolerance, or something was left out.
    Warning,
    /// A block or call cannot run.
    Error,
}

/// One remark on the message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Diagnostic {
    /// The rule that decided the case.
    pub rule: Rule,
    /// The extent of the tolerance; `None` for a remark that is no tolerance.
    pub class: Option<Class>,
    /// The severity.
    pub severity: Severity,
    /// Stable machine-readable code in snake case, for instance `later_blocks_ignored`.
    pub code: String,
    /// The place in the message.
    pub span: Span,
    /// The finding, one sentence fragment.
    pub message: String,
    /// The text to write instead; empty if there is no advice.
    pub hint: String,
}

/// A deviation that was read all the same (G2): the text as written and as read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tolerance {
    /// The rule that allows it.
    pub rule: Rule,
    /// The extent of the deviation; [`Class::Repair`] and [`Class::Doubt`] require confirmation.
    pub class: Class,
    /// Stable machine-readable code in snake case.
    pub code: String,
    /// The place in the message.
    pub span: Span,
    /// The text as written (cut to 200 bytes).
    pub before: String,
    /// The text as read (cut to 200 bytes).
    pub after: String,
}

impl Tolerance {
    /// Creates the record of a deviation; both texts are cut to 200 bytes.
    pub fn new(
        rule: Rule,
        class: Class,
        code: &str,
        span: Span,
        before: &str,
        after: &str,
    ) -> Self {
        Self {
            rule,
            class,
            code: code.to_owned(),
            span,
            before: cut(before),
            after: cut(after),
        }
    }

    /// The same remark as a diagnostic.
    pub fn to_diagnostic(&self) -> Diagnostic {
        let severity = if self.class == Class::Verbatim {
            Severity::Hint
        } else {
            Severity::Warning
        };
        Diagnostic {
            rule: self.rule,
            class: Some(self.class),
            severity,
            code: self.code.clone(),
            span: self.span,
            message: self.words(&self.before),
            hint: String::new(),
        }
    }

    /// Returns the words for the deviation. `before` is the written text in the form that the reader may see.
    pub fn words(&self, before: &str) -> String {
        match (self.code.as_str(), before.trim(), self.after.trim()) {
            (MARK_INSIDE_VALUE, mark, _) => {
                format!("'{mark}' stands inside a value and was read as a part of it")
            }
            (COLON_MISSING, key, _) => {
                format!("'{key}' has no colon before its value, and the field was left out")
            }
            (TRAINED_FORMAT, _, format) => format!("a call in the trained format {format}"),
            ("two_blocks_in_one", mark, _) => {
                format!("'{mark}' stands inside a value: fields of two blocks seem to be mixed")
            }
            ("cdata_mark_missing", text, _) => {
                format!("a mark of CDATA without its other half was read as text in '{text}'")
            }
            ("last_value_wins", ..) => {
                "a parameter is given more than once and its last value was taken".to_owned()
            }
            ("empty_value", "", "absent") => "an empty value was left out".to_owned(),
            ("empty_value", "", after) => format!("an empty value was read as {after}"),
            (_, "", "") => "a parameter is given more than once".to_owned(),
            (_, "", after) => format!("{after} was missing and was supplied"),
            (_, before, "") => format!("'{before}' was left out"),
            (_, before, after) => format!("'{before}' was read as '{after}'"),
        }
    }
}

/// Cuts a text for a message: at most 200 bytes, at a character boundary, with a mark.
pub fn cut(text: &str) -> String {
    const MOST: usize = 200;
    if text.len() <= MOST {
        return text.to_owned();
    }
    let mut end = MOST;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}...", &text[..end])
}

/// The code of a field that was left out as its key and its value have no colon between them.
pub const COLON_MISSING: &str = "colon_missing";

/// The code of a value that holds a mark which may have been meant to end it.
pub const MARK_INSIDE_VALUE: &str = "mark_inside_value";

/// The code of the remark on a block in a format of trained models.
pub const TRAINED_FORMAT: &str = "trained_format";

/// The code of the remark on a block in a code fence that is never closed.
pub const FENCE_NOT_CLOSED: &str = "fence_not_closed";

/// The code of the remark on a closing mark that closes no block.
pub const LONE_CLOSE: &str = "closing_mark_without_block";

/// The code of the remark on a marker that resembles one.
pub const NEAR_MISS: &str = "near_miss_marker";
