//! The parts of a key that is no command: its step number and the control keys (T21, T28).

use call_catalogue::{Dialect, names};

/// One way to cut a step number off a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Suffix {
    /// Bytes of the key that are left.
    pub(super) stem: usize,
    pub(super) number: u32,
    /// Whether it is written `x_1`: the underscore form is preferred (T22).
    pub(super) underscore: bool,
}

/// Every way to cut a step number off a key, the longest number first.
pub(super) fn suffixes(key: &str) -> impl Iterator<Item = Suffix> + '_ {
    const MOST_DIGITS: usize = 6;
    let digits = key.bytes().rev().take_while(u8::is_ascii_digit).count();
    (1..=digits.min(MOST_DIGITS)).rev().filter_map(|width| {
        let (head, tail) = key.split_at(key.len() - width);
        let joint = |byte: &u8| matches!(byte, b'_' | b'-' | b' ');
        let joints = head.bytes().rev().take_while(|byte| joint(byte)).count();
        let stem = &head[..head.len() - joints];
        Some(Suffix {
            stem: stem.len(),
            number: tail.parse().ok().filter(|_| !stem.is_empty())?,
            underscore: head.ends_with('_'),
        })
    })
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
        // Most keys are none of these, by their first letter.
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
    fn the_longest_number_is_tried_first() {
        let numbers: Vec<u32> = suffixes("filePath11").map(|suffix| suffix.number).collect();
        assert_eq!(numbers, [11, 1]);
        assert!(suffixes("x_1").all(|suffix| suffix.underscore && suffix.stem == 1));
    }
}
