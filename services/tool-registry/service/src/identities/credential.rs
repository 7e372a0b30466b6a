//! The texts of credentials: keys, tokens of logins, and tickets.
//!
//! Every comparison with a secret takes the same time wherever two texts differ.

use core_types::{Timestamp, secret_bytes};
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::store::identities::SealingKey;

/// The prefix of keys.
const KEY: &str = "tvk_";
/// The prefix of the tokens of logins.
const TOKEN: &str = "tvs_";
/// The prefix of tickets.
const TICKET: &str = "tvt_";

/// The lengths of the id, the secret and the checksum of a key, in characters.
const KEY_PARTS: [usize; 3] = [16, 64, 8];

/// A key that was just made.
pub(crate) struct NewKey {
    /// The key with its secret, which is shown once and stored nowhere.
    pub(crate) text: String,
    /// The id, and the SHA-256 of the secret.
    pub(crate) stored: (String, String),
}

/// Makes a key.
pub(crate) fn new_key() -> NewKey {
    let (id, secret) = (new_id(), hex::encode(secret_bytes::<32>()));
    let unchecked = format!("{KEY}{id}_{secret}");
    NewKey {
        text: format!("{unchecked}_{}", checksum(&unchecked)),
        stored: (id, digest(&secret)),
    }
}

/// Makes the id of a key.
pub(crate) fn new_id() -> String {
    hex::encode(secret_bytes::<8>())
}

/// Makes a ticket.
pub(crate) fn new_ticket() -> String {
    format!("{TICKET}{}", hex::encode(secret_bytes::<32>()))
}

/// Whether a text is a ticket by its shape.
pub(crate) fn is_ticket(text: &str) -> bool {
    text.starts_with(TICKET)
}

/// Reads a key of its own shape: the id and the secret. `None` for every other text, a key with a typing error
/// among them.
pub(crate) fn read_key(text: &str) -> Option<(&str, &str)> {
    let (unchecked, written) = text.rsplit_once('_')?;
    let (id, secret) = unchecked.strip_prefix(KEY)?.split_once('_')?;
    let is_key = [id, secret, written].map(str::len) == KEY_PARTS && written == checksum(unchecked);
    is_key.then_some((id, secret))
}

/// Makes the token that stands for a prover until a time, in whole seconds. The text of the prover has no `_`.
pub(crate) fn seal(sealing_key: &SealingKey, prover: &str, expires: Timestamp) -> String {
    let (seconds, _) = expires.seconds_and_nanos();
    let unsealed = format!("{TOKEN}{prover}_{seconds}");
    let seal = seal_of(sealing_key, &unsealed);
    format!("{unsealed}_{seal}")
}

/// Reads a token that [`seal`] made: the prover, and the time until which it stands for it.
pub(crate) fn unseal<'a>(sealing_key: &SealingKey, text: &'a str) -> Option<(&'a str, Timestamp)> {
    let (unsealed, written) = text.rsplit_once('_')?;
    let (prover, seconds) = unsealed.strip_prefix(TOKEN)?.split_once('_')?;
    if !is_equal(written, &seal_of(sealing_key, unsealed)) {
        return None;
    }
    let expires = Timestamp::from_seconds_and_nanos(seconds.parse().ok()?, 0)?;
    Some((prover, expires))
}

/// Returns the SHA-256 of a text in lower-case hexadecimal digits.
pub(crate) fn digest(text: &str) -> String {
    hex::encode(Sha256::digest(text))
}

/// Whether two digests or seals are equal.
pub(crate) fn is_equal(one: &str, other: &str) -> bool {
    one.as_bytes().ct_eq(other.as_bytes()).into()
}

/// Returns the checksum by which a typing error in a key is seen without a store.
fn checksum(unchecked: &str) -> String {
    hex::encode(&Sha256::digest(unchecked)[..KEY_PARTS[2] / 2])
}

fn seal_of(sealing_key: &SealingKey, unsealed: &str) -> String {
    let mut mac =
        Hmac::<Sha256>::new_from_slice(sealing_key).expect("a MAC has keys of any length");
    mac.update(unsealed.as_bytes());
    hex::encode(mac.finalize().into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_read_back_and_no_other_text_is_a_key() {
        let key = new_key();
        let (id, secret) = read_key(&key.text).unwrap();
        assert_eq!(key.stored, (id.to_owned(), digest(secret)));
        assert!(key.text.len() <= 128 && key.text.is_ascii());
        let shorter = &key.text[..key.text.len() - 1];
        let upper = key.text.to_uppercase();
        for text in [
            "",
            "_",
            "tvk_",
            "tvk___",
            "tvk_a_b_c",
            shorter,
            &upper,
            &key.text[1..],
        ] {
            assert_eq!(read_key(text), None, "{text}");
        }
    }

    #[test]
    fn every_typing_error_in_a_key_is_seen() {
        let key = new_key().text;
        for place in 0..key.len() {
            for typed in ['0', 'f', '_', 'A', 'é'] {
                let mut mistyped: Vec<char> = key.chars().collect();
                mistyped[place] = typed;
                let mistyped: String = mistyped.into_iter().collect();
                assert!(mistyped == key || read_key(&mistyped).is_none(), "{place}");
            }
        }
    }

    #[test]
    fn a_token_is_read_with_the_sealing_key_that_made_it() {
        let (own, other) = ([1; 32], [2; 32]);
        let expires = Timestamp::from_unix_nanos(7_000_000_000);
        let token = seal(&own, "0123456789abcdef", expires);
        assert_eq!(unseal(&own, &token), Some(("0123456789abcdef", expires)));
        assert_eq!(unseal(&other, &token), None);
        assert_eq!(unseal(&own, &token.to_uppercase()), None);
        assert_eq!(unseal(&own, &token.replace("_7_", "_8_")), None);
    }
}
