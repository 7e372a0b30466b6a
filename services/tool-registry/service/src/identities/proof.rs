//! Proofs of callers: the ends of credentials, and the keys or tokens behind them.

use core_types::{Principal, Timestamp};

/// The beginning of the text of an issued principal in the token of a login, with which no id of a key begins.
const ISSUED: char = 'p';

/// The beginning of the id that stands for the token of an issuer, with which no id of a key begins.
const UNTIL: &str = "until-";

/// The prover for which a credential stands, and the time until which it does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Proof {
    pub(crate) by: Prover,
    pub(crate) expires: Timestamp,
}

/// The key or the principal for which a credential stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Prover {
    /// A key, by its id.
    Key(String),
    /// A token of an issuer, by its principal.
    Token(Principal),
}

impl Prover {
    /// Returns the text that the token of a login has for it, without a `_`.
    pub(super) fn sealed(&self) -> String {
        match self {
            Self::Key(id) => id.clone(),
            Self::Token(principal) => format!("{ISSUED}{}", hex::encode(principal.as_str())),
        }
    }

    /// Reads the text that the token of a login has.
    pub(super) fn unsealed(text: &str) -> Option<Self> {
        let Some(issued) = text.strip_prefix(ISSUED) else {
            return Some(Self::Key(text.to_owned()));
        };
        let name = String::from_utf8(hex::decode(issued).ok()?).ok()?;
        Principal::new(&name).ok().map(Self::Token)
    }
}

/// Returns the id that stands for a token until its end, where a key has its id. The end is all that ends it.
pub(super) fn id_of_token(ends: Timestamp) -> String {
    let (seconds, _) = ends.seconds_and_nanos();
    format!("{UNTIL}{seconds}")
}

/// Reads the end of a token from such an id.
pub(super) fn end_of_token(id: &str) -> Option<Timestamp> {
    let seconds = id.strip_prefix(UNTIL)?.parse().ok()?;
    Timestamp::from_seconds_and_nanos(seconds, 0)
}
