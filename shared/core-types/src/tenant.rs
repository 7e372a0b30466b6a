//! The customer that stored values belong to.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The longest name of a tenant, in bytes.
pub const MAX_TENANT_BYTES: usize = 63;

/// The customer that stored values belong to. It leads each key that a client can name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Tenant {
    /// The name, filled up with zeros.
    bytes: [u8; MAX_TENANT_BYTES],
    len: u8,
}

/// A text is not the name of a tenant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must have 1 to {MAX_TENANT_BYTES} characters of a-z, 0-9, `-` and begin with a letter")]
pub struct TenantError;

impl Tenant {
    /// The tenant of an installation that has made no other.
    pub const DEFAULT: Self = Self::known("default");

    /// The tenant of the operators. Each tenant reads its documents.
    pub const SYSTEM: Self = Self::known("system");

    /// Reads a name.
    ///
    /// # Errors
    /// [`TenantError`] when the text is no name.
    pub fn new(name: &str) -> Result<Self, TenantError> {
        let mut bytes = name.bytes();
        let first = bytes.next().is_some_and(|first| first.is_ascii_lowercase());
        let others =
            bytes.all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
        match first && others && name.len() <= MAX_TENANT_BYTES {
            true => Ok(Self::known(name)),
            false => Err(TenantError),
        }
    }

    /// Takes a text that is a name.
    const fn known(name: &str) -> Self {
        let (name, mut bytes) = (name.as_bytes(), [0; MAX_TENANT_BYTES]);
        let mut at = 0;
        while at < name.len() {
            bytes[at] = name[at];
            at += 1;
        }
        let len = name.len() as u8;
        Self { bytes, len }
    }

    /// Returns the name.
    pub fn as_str(&self) -> &str {
        let name = &self.bytes[..usize::from(self.len)];
        std::str::from_utf8(name).unwrap_or_default()
    }

    /// Whether it is [`Tenant::DEFAULT`].
    pub fn is_default(&self) -> bool {
        *self == Self::DEFAULT
    }
}

impl Default for Tenant {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl fmt::Debug for Tenant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tenant({self})")
    }
}

impl fmt::Display for Tenant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl TryFrom<String> for Tenant {
    type Error = TenantError;

    fn try_from(name: String) -> Result<Self, TenantError> {
        Self::new(&name)
    }
}

impl From<Tenant> for String {
    fn from(tenant: Tenant) -> Self {
        tenant.as_str().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_short_plain_text() {
        let longest = "a".repeat(MAX_TENANT_BYTES);
        for name in ["acme", "a", "a-1", "default", "system", &longest] {
            assert_eq!(Tenant::new(name).unwrap().as_str(), name);
        }
        let long = "a".repeat(MAX_TENANT_BYTES + 1);
        for text in ["", "1a", "-a", "Acme", "a_b", "a.b", "a/b", "é", &long] {
            assert_eq!(Tenant::new(text), Err(TenantError), "{text}");
        }
    }
}
