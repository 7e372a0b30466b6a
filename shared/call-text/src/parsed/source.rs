//! Text of a block, shared by all pieces that were cut out of it.

use std::ops::Deref;
use std::sync::Arc;

use call_catalogue::Span;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A piece of model text. The pieces of one block share its memory, so that keeping the
/// source of every argument costs one copy of the block. Reads as a `str`.
#[derive(Clone)]
pub struct SourceText {
    shared: Arc<str>,
    /// Lies within `shared`, at character boundaries.
    range: Span,
}

impl SourceText {
    /// The part of `shared` at `range`; empty if there is no such part.
    pub(crate) fn of(shared: &Arc<str>, range: Span) -> Self {
        let fits = shared.get(range.start..range.end).is_some();
        Self {
            shared: Arc::clone(shared),
            range: if fits { range } else { Span::default() },
        }
    }

    /// The text itself.
    pub fn as_str(&self) -> &str {
        self.range.of(&self.shared)
    }
}

impl Deref for SourceText {
    type Target = str;

    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl From<&str> for SourceText {
    fn from(text: &str) -> Self {
        Self {
            shared: text.into(),
            range: Span::new(0, text.len()),
        }
    }
}

impl std::fmt::Debug for SourceText {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.as_str().fmt(formatter)
    }
}

impl PartialEq for SourceText {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for SourceText {}

impl Serialize for SourceText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self)
    }
}

impl<'de> Deserialize<'de> for SourceText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(String::deserialize(deserializer)?.as_str().into())
    }
}
