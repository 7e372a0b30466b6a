//! Issuers, whose tokens prove principals (rule S603).
//!
//! - `token`: the text of a token as its header, its claims and its signature.
//! - `claims`: the claims that each token has, and its times.
//! - `key_set`: the public keys of an issuer.
//! - `rule`: the tenant and the roles that claims give.

mod claims;
mod key_set;
mod rule;
#[cfg(test)]
mod tests;
mod token;

use core_types::{Principal, Timestamp};

pub use claims::{MAX_LIFE, SKEW};
pub use key_set::{KeySet, KeySetFault, MAX_KEY_SET_BYTES};
pub use rule::Rule;
pub use token::{IssuerToken, MAX_TOKEN_BYTES};

use super::issued::LastToken;

/// An issuer as the settings name it.
#[derive(Clone, Debug)]
pub struct Issuer {
    /// The name, with which the names of its principals begin.
    pub name: String,
    /// The claim `iss` of its tokens.
    pub iss: String,
    /// The values of the claim `aud`, of which a token must have one.
    pub audiences: Vec<String>,
    /// The rights that claims give.
    pub rules: Vec<Rule>,
}

/// The reason for which a token proves no one. A client never learns it; its text is for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum TokenFault {
    /// It is longer than [`MAX_TOKEN_BYTES`].
    #[error("it is too long")]
    Long,
    /// It is not three parts of base64 with JSON in the first two.
    #[error("it is malformed")]
    Form,
    /// Its header names a key by an address, has one in it, or states an extension.
    #[error("its header has `jku`, `x5u`, `jwk`, `x5c` or `crit`")]
    Header,
    /// Its header states a type of other tokens.
    #[error("it is a token of another type")]
    Type,
    /// Its algorithm is not one of the allowed ones.
    #[error("its algorithm is none of EdDSA, ES256 and RS256")]
    Algorithm,
    /// A claim is missing or has the wrong type.
    #[error("one of the claims `iss`, `aud`, `sub` and `exp` is missing or malformed")]
    Claims,
    /// No issuer of the settings has its `iss`.
    #[error("no issuer of the settings has its `iss`")]
    Issuer,
    /// It is for other recipients.
    #[error("it is for another audience")]
    Audience,
    /// Its time is over.
    #[error("it is expired")]
    Expired,
    /// Its time has not begun.
    #[error("it is not valid yet")]
    Early,
    /// Its end is too far away.
    #[error("its end is more than 24 h away")]
    Lasting,
    /// The keys of the issuer were not read for too long.
    #[error("the keys of the issuer could not be read for 24 h, or never")]
    NoKeys,
    /// The issuer has no key of its `kid`.
    #[error("the issuer has no key of its `kid`")]
    Key,
    /// The key is for another algorithm.
    #[error("its key is for another algorithm")]
    OtherAlgorithm,
    /// The signature is not the issuer's.
    #[error("its signature is wrong")]
    Signature,
    /// No rule gives its claims a tenant.
    #[error("no rule of the issuer maps its claims")]
    Unmapped,
    /// No principal can have its subject.
    #[error("its `sub` is empty or too long")]
    Subject,
    /// An administrator blocked the principal.
    #[error("its principal is blocked")]
    Blocked,
}

impl Issuer {
    /// Checks all of a token but its signature, which a key of the issuer proves.
    ///
    /// # Errors
    /// [`TokenFault`].
    pub fn check(&self, token: &IssuerToken<'_>, now: Timestamp) -> Result<(), TokenFault> {
        token.claims().check(&self.audiences, now)
    }

    /// Returns what a token, whose signature is proven, gives its principal.
    ///
    /// # Errors
    /// [`TokenFault`].
    pub fn admit(&self, token: &IssuerToken<'_>, now: Timestamp) -> Result<LastToken, TokenFault> {
        let claims = token.claims();
        let rights = rule::map(&self.rules, claims.all()).ok_or(TokenFault::Unmapped)?;
        let name = Principal::issued(rights.tenant, &self.name, claims.subject());
        let name = name.map_err(|_| TokenFault::Subject)?;
        let (issued, ends) = (claims.issued(), claims.end());
        let iss = self.iss.clone();
        Ok(LastToken::new(name, rights, (iss, issued, ends), now))
    }
}
