//! The public keys of an issuer.

use std::collections::{HashMap, HashSet};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents,
    UnparsedPublicKey,
};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use super::{IssuerToken, TokenFault};

/// The largest set of keys, in bytes.
pub const MAX_KEY_SET_BYTES: usize = 256 << 10;

/// The most keys of a set.
const MAX_KEYS: usize = 256;

/// The bits that the modulus of an RSA key may have. A longer one would cost each token too much.
const RSA_BITS: std::ops::RangeInclusive<usize> = 2_048..=4_096;

/// An algorithm of signatures. Each has its own kind of key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Algorithm {
    EdDsa,
    Es256,
    Rs256,
}

/// The public keys of an issuer by their ids.
#[derive(Clone, Debug)]
pub struct KeySet {
    keys: HashMap<String, PublicKey>,
    left_out: usize,
}

/// A key with which a signature is checked.
#[derive(Clone, Debug)]
enum PublicKey {
    Ed25519(Vec<u8>),
    P256(Vec<u8>),
    Rsa(RsaPublicKeyComponents<Vec<u8>>),
}

/// The reason for which a set of keys is refused, so that the earlier one stays in force.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeySetFault {
    /// It is not `{"keys": [...]}`.
    #[error("it is no JSON object with a list `keys` of objects")]
    Form,
    /// It is larger than [`MAX_KEY_SET_BYTES`].
    #[error("it has more than {MAX_KEY_SET_BYTES} bytes")]
    Large,
    /// It has too many keys.
    #[error("it has more than {MAX_KEYS} keys")]
    Many,
    /// Several keys have an id.
    #[error("it has several keys with the `kid` {0:?}")]
    Duplicate(String),
    /// It has a private key.
    #[error("it has a private or secret key; the issuer must replace this key")]
    Private,
    /// It has no key that can prove a token.
    #[error(
        "it has no key with a `kid` for EdDSA (Ed25519), ES256 (P-256) or RS256 (2,048 to 4,096 bits)"
    )]
    Empty,
}

#[derive(Deserialize)]
struct SetText {
    keys: Vec<Value>,
}

/// A key as it is written. Members that are not named here mean nothing.
#[derive(Deserialize)]
struct KeyText {
    kty: String,
    kid: Option<String>,
    #[serde(rename = "use")]
    purpose: Option<String>,
    key_ops: Option<Vec<String>>,
    alg: Option<String>,
    crv: Option<String>,
    x: Option<String>,
    y: Option<String>,
    n: Option<String>,
    e: Option<String>,
}

/// The members of a key that no public key has.
#[derive(Deserialize)]
struct SecretParts {
    d: Option<IgnoredAny>,
    k: Option<IgnoredAny>,
}

impl Algorithm {
    const ALL: [Self; 3] = [Self::EdDsa, Self::Es256, Self::Rs256];

    pub(super) fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.name() == name)
    }

    fn name(self) -> &'static str {
        match self {
            Self::EdDsa => "EdDSA",
            Self::Es256 => "ES256",
            Self::Rs256 => "RS256",
        }
    }
}

impl KeySet {
    /// Reads a set of keys. Keys for other purposes and algorithms are left out, as are those without an id.
    ///
    /// # Errors
    /// [`KeySetFault`].
    pub fn read(json: &[u8]) -> Result<Self, KeySetFault> {
        if json.len() > MAX_KEY_SET_BYTES {
            return Err(KeySetFault::Large);
        }
        let set: SetText = serde_json::from_slice(json).map_err(|_| KeySetFault::Form)?;
        if set.keys.len() > MAX_KEYS {
            return Err(KeySetFault::Many);
        }
        let (mut ids, mut keys, all) = (HashSet::new(), HashMap::new(), set.keys.len());
        for written in set.keys {
            let secret = SecretParts::deserialize(&written).map_err(|_| KeySetFault::Form)?;
            if secret.d.is_some() || secret.k.is_some() {
                return Err(KeySetFault::Private);
            }
            if let Some(id) = written.get("kid").and_then(Value::as_str)
                && !ids.insert(id.to_owned())
            {
                return Err(KeySetFault::Duplicate(id.chars().take(64).collect()));
            }
            if let Ok(written) = KeyText::deserialize(written)
                && let Some(key) = PublicKey::of(&written)
                && let Some(id) = written.kid
            {
                keys.insert(id, key);
            }
        }
        let left_out = all - keys.len();
        match keys.is_empty() {
            true => Err(KeySetFault::Empty),
            false => Ok(Self { keys, left_out }),
        }
    }

    /// Returns the number of keys that were left out.
    pub fn left_out(&self) -> usize {
        self.left_out
    }

    /// Returns the number of keys that can prove a token.
    pub fn usable(&self) -> usize {
        self.keys.len()
    }

    /// Whether it has a key with an id.
    pub fn has(&self, id: &str) -> bool {
        self.keys.contains_key(id)
    }

    /// Checks the signature of a token.
    ///
    /// # Errors
    /// [`TokenFault`].
    pub fn verify(&self, token: &IssuerToken<'_>) -> Result<(), TokenFault> {
        let key = self.keys.get(token.key_id()).ok_or(TokenFault::Key)?;
        if key.algorithm() != token.algorithm() {
            return Err(TokenFault::OtherAlgorithm);
        }
        let (signed, signature) = token.signed();
        let verified = match key {
            PublicKey::Ed25519(key) => {
                UnparsedPublicKey::new(&ED25519, key).verify(signed, signature)
            }
            PublicKey::P256(key) => {
                UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, key).verify(signed, signature)
            }
            PublicKey::Rsa(key) => key.verify(&RSA_PKCS1_2048_8192_SHA256, signed, signature),
        };
        verified.map_err(|_| TokenFault::Signature)
    }
}

impl PublicKey {
    /// Returns the key of a text; `None` for one of another kind, algorithm or purpose.
    fn of(written: &KeyText) -> Option<Self> {
        let key = match (written.kty.as_str(), written.crv.as_deref()) {
            ("OKP", Some("Ed25519")) => Self::Ed25519(bytes_of::<32>(written.x.as_ref())?),
            ("EC", Some("P-256")) => {
                // The form of a point that is not compressed.
                let mut point = vec![4];
                point.extend(bytes_of::<32>(written.x.as_ref())?);
                point.extend(bytes_of::<32>(written.y.as_ref())?);
                Self::P256(point)
            }
            ("RSA", None) => Self::rsa(written)?,
            _ => return None,
        };
        let is_for_it = |named: &String| named == key.algorithm().name();
        let is_to_sign = |purpose: &String| purpose == "sig";
        let verifies = |operations: &Vec<String>| operations.iter().any(|it| it == "verify");
        let fits = written.alg.as_ref().is_none_or(is_for_it)
            && written.purpose.as_ref().is_none_or(is_to_sign)
            && written.key_ops.as_ref().is_none_or(verifies);
        fits.then_some(key)
    }

    fn rsa(written: &KeyText) -> Option<Self> {
        let number = |text: &Option<String>| {
            let bytes = URL_SAFE_NO_PAD.decode(text.as_ref()?).ok()?;
            let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
            Some(bytes[zeros..].to_vec())
        };
        let (n, e) = (number(&written.n)?, number(&written.e)?);
        let first = n.first()?;
        let bits = n.len() * 8 - first.leading_zeros() as usize;
        let is_short = (1..=4).contains(&e.len());
        (RSA_BITS.contains(&bits) && is_short).then_some(Self::Rsa(RsaPublicKeyComponents { n, e }))
    }

    fn algorithm(&self) -> Algorithm {
        match self {
            Self::Ed25519(_) => Algorithm::EdDsa,
            Self::P256(_) => Algorithm::Es256,
            Self::Rsa(_) => Algorithm::Rs256,
        }
    }
}

/// Returns the bytes of a text in base64, if they are so many.
fn bytes_of<const LENGTH: usize>(text: Option<&String>) -> Option<Vec<u8>> {
    let bytes = URL_SAFE_NO_PAD.decode(text?).ok()?;
    (bytes.len() == LENGTH).then_some(bytes)
}
