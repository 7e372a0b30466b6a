//! The text of a token as its header, its claims and its signature.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::TokenFault;
use super::claims::Claims;
use super::key_set::Algorithm;

/// The longest token, in bytes.
pub const MAX_TOKEN_BYTES: usize = 8 << 10;

/// The types that a header may state: a token for access, or nothing special.
const TYPES: [&str; 3] = ["jwt", "at+jwt", "application/at+jwt"];

/// A token as it was read. Nothing of it is proven.
#[derive(Debug)]
pub struct IssuerToken<'a> {
    algorithm: Algorithm,
    key_id: String,
    claims: Claims,
    signed: &'a str,
    signature: Vec<u8>,
}

/// The header of a token. Members that are not named here mean nothing, and a name that stands twice is refused.
#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: String,
    #[serde(default)]
    typ: Option<String>,
    #[serde(default)]
    jku: Option<IgnoredAny>,
    #[serde(default)]
    x5u: Option<IgnoredAny>,
    #[serde(default)]
    jwk: Option<IgnoredAny>,
    #[serde(default)]
    x5c: Option<IgnoredAny>,
    /// No extension is known, so that every list of critical ones has an unknown one.
    #[serde(default)]
    crit: Option<IgnoredAny>,
}

impl<'a> IssuerToken<'a> {
    /// Whether a text is a token by its shape: a header of JSON in base64, which no key begins with.
    pub fn is_shape_of(text: &str) -> bool {
        text.starts_with("eyJ") && text.bytes().filter(|byte| *byte == b'.').count() == 2
    }

    /// Reads the text of a token.
    ///
    /// # Errors
    /// [`TokenFault`].
    pub fn read(text: &'a str) -> Result<Self, TokenFault> {
        if text.len() > MAX_TOKEN_BYTES {
            return Err(TokenFault::Long);
        }
        let (signed, signature) = text.rsplit_once('.').ok_or(TokenFault::Form)?;
        let (header, claims) = signed.split_once('.').ok_or(TokenFault::Form)?;
        let header: Header =
            serde_json::from_slice(&decoded(header)?).map_err(|_| TokenFault::Form)?;
        let algorithm = header.check()?;
        let claims = Claims::read(&decoded(claims)?)?;
        Ok(Self {
            algorithm,
            key_id: header.kid,
            claims,
            signed,
            signature: decoded(signature)?,
        })
    }

    /// Returns the issuer that it states.
    pub fn issuer(&self) -> &str {
        self.claims.issuer()
    }

    /// Returns the id of its key.
    pub fn key_id(&self) -> &str {
        &self.key_id
    }

    pub(super) fn claims(&self) -> &Claims {
        &self.claims
    }

    pub(super) fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Returns the text that is signed, and the signature.
    pub(super) fn signed(&self) -> (&[u8], &[u8]) {
        (self.signed.as_bytes(), &self.signature)
    }
}

impl Header {
    fn check(&self) -> Result<Algorithm, TokenFault> {
        let sources = [&self.jku, &self.x5u, &self.jwk, &self.x5c, &self.crit];
        if sources.iter().any(|source| source.is_some()) {
            return Err(TokenFault::Header);
        }
        let is_known = |typ: &String| TYPES.iter().any(|known| known.eq_ignore_ascii_case(typ));
        if !self.typ.as_ref().is_none_or(is_known) {
            return Err(TokenFault::Type);
        }
        Algorithm::of_name(&self.alg).ok_or(TokenFault::Algorithm)
    }
}

fn decoded(part: &str) -> Result<Vec<u8>, TokenFault> {
    URL_SAFE_NO_PAD.decode(part).map_err(|_| TokenFault::Form)
}
