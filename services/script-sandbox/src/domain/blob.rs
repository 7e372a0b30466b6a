//! What a blob is called, and whose it is.

use std::fmt;

use sha2::{Digest as _, Sha256};

/// The SHA-256 of a content.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlobDigest([u8; 32]);

impl BlobDigest {
    /// The digest of a content that is at hand.
    pub fn of(content: &[u8]) -> Self {
        Self(Sha256::digest(content).into())
    }

    /// What a hasher has come to.
    pub(crate) fn finished(hasher: Sha256) -> Self {
        Self(hasher.finalize().into())
    }

    /// Reads 64 lower-case hexadecimal digits; `None` if the text is anything else.
    pub fn parse(text: &str) -> Option<Self> {
        let digit = |byte: u8| match byte {
            b'0'..=b'9' => Some(byte - b'0'),
            b'a'..=b'f' => Some(byte - b'a' + 10),
            _ => None,
        };
        let text: &[u8; 64] = text.as_bytes().try_into().ok()?;
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
            *byte = digit(pair[0])? << 4 | digit(pair[1])?;
        }
        Some(Self(bytes))
    }
}

impl fmt::Display for BlobDigest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for BlobDigest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{self}")
    }
}

/// Whose blobs are meant, in a form that is a file name whatever the caller is called.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Caller(String);

impl Caller {
    /// How many characters of the digest of the name tell callers apart.
    const CHARACTERS: usize = 40;

    /// The caller of this name; the empty one is a caller like any other.
    pub fn named(name: &str) -> Self {
        let mut text = BlobDigest::of(name.as_bytes()).to_string();
        text.truncate(Self::CHARACTERS);
        Self(text)
    }

    /// Reads the name of a caller's directory.
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
    fn a_digest_is_64_lower_case_hexadecimal_digits() {
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(BlobDigest::of(b"").to_string(), empty);
        assert_eq!(BlobDigest::parse(empty), Some(BlobDigest::of(b"")));
        for wrong in ["", &empty[1..], &empty.to_uppercase(), &format!("{empty}0")] {
            assert_eq!(BlobDigest::parse(wrong), None, "{wrong}");
        }
        assert_eq!(BlobDigest::parse(&"é".repeat(32)), None);
    }

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
