//! The identity that a call acts for.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The longest name of a principal, in bytes.
pub const MAX_PRINCIPAL_BYTES: usize = 64;

/// The identity that a call acts for: a person or a program, by its name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Principal(Name);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Name {
    Local,
    Given(Arc<str>),
}

/// A text is not the name of a principal.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "must have 1 to {MAX_PRINCIPAL_BYTES} characters of a-z, 0-9, `.`, `_`, `-` and begin with a letter or \
     a digit"
)]
pub struct PrincipalError;

impl Principal {
    /// The principal of every caller while no credential exists, and of a program's own work.
    pub const LOCAL: Self = Self(Name::Local);

    /// Reads a name.
    ///
    /// # Errors
    /// [`PrincipalError`] when the text is no name.
    pub fn new(name: &str) -> Result<Self, PrincipalError> {
        if name == Self::LOCAL.as_str() {
            return Ok(Self::LOCAL);
        }
        let letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let bytes = name.as_bytes();
        let first = bytes.first().is_some_and(|first| letter(*first));
        let all = bytes
            .iter()
            .all(|byte| letter(*byte) || b"._-".contains(byte));
        match first && all && bytes.len() <= MAX_PRINCIPAL_BYTES {
            true => Ok(Self(Name::Given(name.into()))),
            false => Err(PrincipalError),
        }
    }

    /// Returns the name.
    pub fn as_str(&self) -> &str {
        match &self.0 {
            Name::Local => "local",
            Name::Given(name) => name,
        }
    }

    /// Returns the name for a record that leaves `local` out: empty for it.
    pub fn recorded(&self) -> &str {
        match &self.0 {
            Name::Local => "",
            Name::Given(name) => name,
        }
    }

    /// Whether it is [`Principal::LOCAL`].
    pub fn is_local(&self) -> bool {
        self.0 == Name::Local
    }
}

impl Default for Principal {
    fn default() -> Self {
        Self::LOCAL
    }
}

impl TryFrom<String> for Principal {
    type Error = PrincipalError;

    fn try_from(name: String) -> Result<Self, PrincipalError> {
        Self::new(&name)
    }
}

impl From<Principal> for String {
    fn from(principal: Principal) -> Self {
        principal.as_str().to_owned()
    }
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_short_plain_text() {
        for name in ["ada", "ci-bot.2", "0", "a_b", "local"] {
            assert_eq!(Principal::new(name).unwrap().as_str(), name);
        }
        let long = "a".repeat(MAX_PRINCIPAL_BYTES + 1);
        for text in ["", "Ada", "-a", ".a", "a b", "a,b", "é", &long] {
            assert_eq!(Principal::new(text), Err(PrincipalError), "{text}");
        }
    }

    #[test]
    fn local_is_one_principal_however_it_is_made() {
        assert_eq!(Principal::new("local"), Ok(Principal::LOCAL));
        assert!(Principal::LOCAL.is_local());
    }
}
