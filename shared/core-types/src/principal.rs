//! The identity that a call acts for.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::Tenant;
use crate::issued_name::{self, IssuedNameError};
use crate::tenant::TenantError;

/// The longest name of a principal with keys within its tenant, in bytes.
pub const MAX_PRINCIPAL_BYTES: usize = 64;

/// The name of callers without a key.
const LOCAL: &str = "local";

/// The identity that a call acts for: a person or a program of a tenant, by its name. As a text it is the name, and
/// for tenants other than [`Tenant::DEFAULT`] `tenant/name`. The name of an issued principal, whom tokens of an issuer
/// prove, is `issuer:subject`, and no other name has a colon.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Principal(Name);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Name {
    Local,
    Given(Arc<Given>),
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Given {
    text: Box<str>,
    tenant: Tenant,
}

/// A text is not a principal.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PrincipalError {
    /// The name is malformed.
    #[error(
        "must have 1 to {MAX_PRINCIPAL_BYTES} characters of a-z, 0-9, `.`, `_`, `-` and begin with a letter \
         or a digit"
    )]
    Name,
    /// The name has a colon and is not that of an issued principal.
    #[error(transparent)]
    Issued(#[from] IssuedNameError),
    /// The tenant before the slash is malformed.
    #[error("before the slash: {0}")]
    Tenant(#[from] TenantError),
}

impl Principal {
    /// The principal of every caller while no credential exists, and of a program's own work.
    pub const LOCAL: Self = Self(Name::Local);

    /// Reads the text of a principal.
    ///
    /// # Errors
    /// [`PrincipalError`] when the text is malformed.
    pub fn new(text: &str) -> Result<Self, PrincipalError> {
        match text.split_once('/') {
            None => Self::of(Tenant::DEFAULT, text),
            Some((tenant, name)) => Self::of(Tenant::new(tenant)?, name),
        }
    }

    /// Reads the name of a principal of a tenant.
    ///
    /// # Errors
    /// [`PrincipalError`] when the name is malformed.
    pub fn of(tenant: Tenant, name: &str) -> Result<Self, PrincipalError> {
        if name.contains(':') {
            issued_name::check(name)?;
            return Ok(Self::known(tenant, name));
        }
        let letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let bytes = name.as_bytes();
        let first = bytes.first().is_some_and(|first| letter(*first));
        let all = bytes
            .iter()
            .all(|byte| letter(*byte) || b"._-".contains(byte));
        match first && all && bytes.len() <= MAX_PRINCIPAL_BYTES {
            true => Ok(Self::known(tenant, name)),
            false => Err(PrincipalError::Name),
        }
    }

    /// Returns the principal whom an issuer's tokens for a subject prove.
    ///
    /// # Errors
    /// [`PrincipalError::Issued`] when the subject is empty, or its name would be too long.
    pub fn issued(tenant: Tenant, issuer: &str, subject: &str) -> Result<Self, PrincipalError> {
        Ok(Self::known(tenant, &issued_name::of(issuer, subject)?))
    }

    /// Returns the name of the issuer, and the subject, of an issued principal; `None` for every other one.
    pub fn issuer_and_subject(&self) -> Option<(&str, Cow<'_, str>)> {
        issued_name::read(self.name())
    }

    /// Returns the principal of a program's own work for a tenant. It has no rights where keys exist.
    pub fn local_of(tenant: Tenant) -> Self {
        Self::known(tenant, LOCAL)
    }

    fn known(tenant: Tenant, name: &str) -> Self {
        let text = match tenant.is_default() {
            true if name == LOCAL => return Self::LOCAL,
            true => name.into(),
            false => format!("{tenant}/{name}").into(),
        };
        Self(Name::Given(Arc::new(Given { text, tenant })))
    }

    /// Returns the text: the name, after `tenant/` for tenants other than [`Tenant::DEFAULT`].
    pub fn as_str(&self) -> &str {
        match &self.0 {
            Name::Local => LOCAL,
            Name::Given(given) => &given.text,
        }
    }

    /// Returns the name within the tenant.
    pub fn name(&self) -> &str {
        let text = self.as_str();
        text.split_once('/').map_or(text, |(_, name)| name)
    }

    /// Returns the tenant.
    pub fn tenant(&self) -> Tenant {
        match &self.0 {
            Name::Local => Tenant::DEFAULT,
            Name::Given(given) => given.tenant,
        }
    }

    /// Returns the text for a record that leaves `local` out: empty for it.
    pub fn recorded(&self) -> &str {
        match &self.0 {
            Name::Local => "",
            Name::Given(given) => &given.text,
        }
    }

    /// Whether it is [`Principal::LOCAL`].
    pub fn is_local(&self) -> bool {
        self.0 == Name::Local
    }

    /// Whether it has the name of callers without a key, in any tenant.
    pub fn is_nameless(&self) -> bool {
        self.name() == LOCAL
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
        for name in [
            "ada",
            "ci-bot.2",
            "0",
            "a_b",
            "local",
            "acme/bob",
            "acme/local",
        ] {
            assert_eq!(Principal::new(name).unwrap().as_str(), name);
        }
        let long = "a".repeat(MAX_PRINCIPAL_BYTES + 1);
        for text in [
            "", "Ada", "-a", ".a", "a b", "a,b", "é", "acme/", "a/b/c", &long,
        ] {
            assert_eq!(Principal::new(text), Err(PrincipalError::Name), "{text}");
        }
        for text in ["/a", "A/a", "1/a"] {
            let refused = Principal::new(text).unwrap_err();
            assert!(matches!(refused, PrincipalError::Tenant(_)), "{text}");
        }
    }

    #[test]
    fn a_principal_belongs_to_its_tenant() {
        let bob = Principal::new("acme/bob").unwrap();
        assert_eq!((bob.tenant().as_str(), bob.name()), ("acme", "bob"));
        let own = Principal::new("bob").unwrap();
        assert_eq!((own.tenant(), own.name()), (Tenant::DEFAULT, "bob"));
        assert_ne!(bob, own);
        assert_eq!(Principal::new("default/bob"), Ok(own));
    }

    #[test]
    fn local_is_one_principal_however_it_is_made() {
        assert_eq!(Principal::new("local"), Ok(Principal::LOCAL));
        assert_eq!(Principal::local_of(Tenant::DEFAULT), Principal::LOCAL);
        assert!(Principal::LOCAL.is_local());
        let other = Principal::local_of(Tenant::SYSTEM);
        assert!(other.is_nameless() && !other.is_local());
    }
}
