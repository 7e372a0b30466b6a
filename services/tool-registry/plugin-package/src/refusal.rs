//! The refusal of one name or one record.

use call_outcome::Violation;
use core_types::text::is_hidden;

/// The most characters of a name that are shown.
const MAX_SHOWN: usize = 120;

/// A violation of which only place, code and message are known, small enough to be the error of any function.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Refusal {
    place: String,
    code: &'static str,
    message: String,
}

impl Refusal {
    /// Makes the refusal of a name, which may be hostile; empty for the whole.
    pub(crate) fn new(name: &str, code: &'static str, message: impl Into<String>) -> Self {
        Self {
            place: shown(name),
            code,
            message: message.into(),
        }
    }

    /// Returns the same refusal of another name.
    pub(crate) fn at(self, name: &str) -> Self {
        Self {
            place: shown(name),
            ..self
        }
    }
}

impl From<Refusal> for Violation {
    fn from(refusal: Refusal) -> Self {
        Self::new(refusal.place, refusal.code, refusal.message)
    }
}

impl From<Refusal> for Vec<Violation> {
    fn from(refusal: Refusal) -> Self {
        vec![refusal.into()]
    }
}

/// Returns a name as a violation shows it: without characters that change the display, and not longer than a line.
pub(crate) fn shown(name: &str) -> String {
    let mut shown = String::new();
    for character in name.chars().take(MAX_SHOWN) {
        match is_hidden(character) {
            true => shown.extend(character.escape_unicode()),
            false => shown.push(character),
        }
    }
    if name.chars().nth(MAX_SHOWN).is_some() {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_shown_without_characters_that_change_the_display() {
        assert_eq!(shown("a\u{202e}b\n"), "a\\u{202e}b\\u{a}");
        assert_eq!(shown(&"字".repeat(200)), format!("{}…", "字".repeat(120)));
    }
}
