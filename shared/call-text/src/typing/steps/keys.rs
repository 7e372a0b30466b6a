//! What a key says: its stem, its step number, and the control keys (T20, T21, T28).

use crate::{Dialect, names};

/// A key without its number.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Key {
    /// Squashed: lower case, letters and digits only.
    pub(super) stem: String,
    pub(super) number: Option<u32>,
}

impl Key {
    pub(super) fn read(written: &str) -> Self {
        let squashed = names::squash(written);
        let stem = squashed.trim_end_matches(|c: char| c.is_ascii_digit());
        let number = squashed[stem.len()..].parse().ok();
        Self {
            stem: stem.to_owned(),
            number,
        }
    }

    /// Whether the key names a tool; beside `tool_name`, `command` is a sub-command.
    pub(super) fn is_command(&self, vcp_reading: bool) -> bool {
        self.stem == if vcp_reading { "toolname" } else { "command" }
    }
}

/// One way to cut a step number off a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Suffix {
    pub(super) stem: String,
    pub(super) number: u32,
    /// Written `x_1`: the underscore form is preferred (T22).
    pub(super) underscore: bool,
}

/// Every way to cut a step number off a key, the longest number first.
pub(super) fn suffixes(key: &str) -> Vec<Suffix> {
    const MOST_DIGITS: usize = 6;
    let digits = key.len() - key.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    let mut found = Vec::new();
    for width in (1..=digits.min(MOST_DIGITS)).rev() {
        let (head, tail) = key.split_at(key.len() - width);
        let stem = head.trim_end_matches(['_', '-', ' ']);
        if let (false, Ok(number)) = (stem.is_empty(), tail.parse()) {
            found.push(Suffix {
                stem: stem.to_owned(),
                number,
                underscore: head.ends_with('_'),
            });
        }
    }
    found
}

/// A key with a meaning of its own.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Control {
    /// Belongs to the block.
    Block(String),
    OnError,
    Retry,
    TypeHint(String),
    Uri(String),
    /// A value for every step that declares it.
    Common(String),
    Archery,
    Metadata(String),
}

impl Control {
    pub(super) fn read(key: &str, dialect: Dialect) -> Option<Self> {
        // Most keys are none of these, as their first letter tells.
        let first = key.chars().find(|c| c.is_alphanumeric())?;
        if first.is_ascii() && !b"rcoatumvi".contains(&(first.to_ascii_lowercase() as u8)) {
            return None;
        }
        let lowered = key.to_lowercase();
        match names::squash(key).as_str() {
            "requestid" => return Some(Self::Block("request_id".to_owned())),
            "comment" => return Some(Self::Block("comment".to_owned())),
            "onerror" => return Some(Self::OnError),
            "retry" => return Some(Self::Retry),
            "archery" => return Some(Self::Archery),
            "maid" | "valet" | "ink" | "river" | "vref" | "timelycontact" | "toolpassword"
                if dialect == Dialect::Vcp =>
            {
                return Some(Self::Metadata(lowered));
            }
            _ => {}
        }
        for (prefix, make) in [
            ("type_hint_", Self::TypeHint as fn(String) -> Self),
            ("uri_", Self::Uri as fn(String) -> Self),
            ("common_", Self::Common as fn(String) -> Self),
        ] {
            if lowered.starts_with(prefix) && key.len() > prefix.len() {
                return key.get(prefix.len()..).map(|rest| make(rest.to_owned()));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_spellings_of_a_step_mean_the_same() {
        for written in ["command1", "command_1", "Command 1", "COMMAND-01"] {
            assert_eq!(
                Key::read(written),
                Key {
                    stem: "command".to_owned(),
                    number: Some(1)
                },
                "{written}"
            );
        }
    }

    #[test]
    fn the_longest_number_is_tried_first() {
        let numbers: Vec<u32> = suffixes("filePath11")
            .iter()
            .map(|suffix| suffix.number)
            .collect();
        assert_eq!(numbers, [11, 1]);
        assert!(suffixes("x_1")[0].underscore);
    }
}
