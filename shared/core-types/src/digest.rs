//! The name of content.

use std::fmt;

use sha2::{Digest as _, Sha256};

/// The SHA-256 of the content.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContentDigest([u8; 32]);

impl ContentDigest {
    /// Computes the digest of content in memory.
    pub fn of(content: &[u8]) -> Self {
        Self(Sha256::digest(content).into())
    }

    /// Takes the digest out of a hasher.
    pub fn finished(hasher: Sha256) -> Self {
        Self(hasher.finalize().into())
    }

    /// Parses 64 lower-case hexadecimal digits; `None` if the text is anything else.
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

impl fmt::Display for ContentDigest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for ContentDigest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_64_lower_case_hexadecimal_digits() {
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(ContentDigest::of(b"").to_string(), empty);
        assert_eq!(ContentDigest::parse(empty), Some(ContentDigest::of(b"")));
        for wrong in ["", &empty[1..], &empty.to_uppercase(), &format!("{empty}0")] {
            assert_eq!(ContentDigest::parse(wrong), None, "{wrong}");
        }
        assert_eq!(ContentDigest::parse(&"é".repeat(32)), None);
    }
}
