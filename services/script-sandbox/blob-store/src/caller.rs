//! The owner of a blob.

use crate::digest::BlobDigest;

/// The owner of blobs, in a form that is a valid file name whatever the caller's name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Caller(String);

impl Caller {
    /// The number of characters of the name's digest that distinguish callers.
    const CHARACTERS: usize = 40;

    /// The caller of this name; the empty name is a caller like any other.
    pub fn named(name: &str) -> Self {
        let mut text = BlobDigest::of(name.as_bytes()).to_string();
        text.truncate(Self::CHARACTERS);
        Self(text)
    }

    /// Parses the name of a caller's directory.
    pub(crate) fn from_directory(name: &str) -> Option<Self> {
        let plain = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        (name.len() == Self::CHARACTERS && name.bytes().all(plain)).then(|| Self(name.to_owned()))
    }

    /// The name of the caller's directory.
    pub(crate) fn directory(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_caller_has_a_directory_that_is_a_plain_name() {
        for name in ["", "..", "a/b", "alice", "Alice", &"x".repeat(10_000)] {
            let caller = Caller::named(name);
            let again = Caller::from_directory(caller.directory());
            assert_eq!(again, Some(caller), "{name}");
        }
        assert_ne!(Caller::named("alice"), Caller::named("Alice"));
        assert_eq!(Caller::from_directory("incoming"), None);
    }
}
