//! Names as records have them, and the HMAC of everything else.

use std::sync::Arc;

use core_types::{Principal, Tenant};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// The longest text that can be a name, in bytes.
const MAX_NAME_BYTES: usize = 128;

/// The beginnings of credentials, which are no names wherever they stand.
const CREDENTIALS: [&str; 4] = ["tvk_", "tvs_", "tvt_", "eyJ"];

/// Makes HMACs (SHA-256) under the key of the audit. Clone, cheap.
#[derive(Clone)]
pub(crate) struct Hmacs {
    key: Arc<[u8; 32]>,
}

impl Hmacs {
    /// Makes HMACs under a key.
    pub(crate) fn under(key: [u8; 32]) -> Self {
        Self { key: Arc::new(key) }
    }

    /// Returns the HMAC of a text.
    pub(crate) fn of(&self, text: &[u8]) -> String {
        let mac = Hmac::<Sha256>::new_from_slice(&*self.key);
        let mut mac = mac.expect("an HMAC takes a key of any length");
        mac.update(text);
        format!("hmac:{}", hex::encode(mac.finalize().into_bytes()))
    }

    /// Returns the name of an issued principal as it is, and every other text as [`Hmacs::name`] does.
    pub(crate) fn principal(&self, text: &str) -> String {
        let read = Principal::of(Tenant::DEFAULT, text).ok();
        let is_issued = read.is_some_and(|name| name.issuer_and_subject().is_some());
        match is_issued && !CREDENTIALS.iter().any(|begin| text.contains(begin)) {
            true => text.to_owned(),
            false => self.name(text),
        }
    }

    /// Returns a name as it is, and the HMAC of a text that is none: it may be a secret in the wrong place.
    pub(crate) fn name(&self, text: &str) -> String {
        let plain = |byte: u8| {
            byte.is_ascii_alphanumeric()
                || matches!(byte, b'.' | b'_' | b'-' | b':' | b'/' | b'@' | b'*')
        };
        let is_name = !text.is_empty()
            && text.len() <= MAX_NAME_BYTES
            && text.bytes().all(plain)
            && !is_long_random(text)
            && !CREDENTIALS.iter().any(|begin| text.contains(begin));
        match is_name {
            true => text.to_owned(),
            false => self.of(text.as_bytes()),
        }
    }
}

/// Whether a text has a part that looks like a key: 32 hexadecimal digits or more in a row.
fn is_long_random(text: &str) -> bool {
    let mut parts = text.split(|character: char| !character.is_ascii_hexdigit());
    parts.any(|part| part.len() >= 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_recorded_and_a_secret_in_its_place_is_not() {
        let hmacs = Hmacs {
            key: Arc::new([7; 32]),
        };
        for name in [
            "ada",
            "core:read-file",
            "ops@example.com",
            "core:*",
            "a/b_c.d",
        ] {
            assert_eq!(hmacs.name(name), name);
        }
        let secret = "0123456789abcdef".repeat(4);
        let key = format!("tvk_0011223344556677_{secret}_00112233");
        for text in [
            "",
            "two words",
            &secret,
            &key,
            &"a".repeat(129),
            "eyJhbGciOi.x",
            "tvs_1",
        ] {
            let recorded = hmacs.name(text);
            assert!(
                recorded.starts_with("hmac:") && recorded.len() == 69,
                "{text}: {recorded}"
            );
        }
    }

    #[test]
    fn an_issued_principal_is_recorded_whatever_its_subject() {
        let hmacs = Hmacs {
            key: Arc::new([7; 32]),
        };
        let hex = "0123456789abcdef".repeat(2);
        for subject in ["ada", "auth0|5f7c", "a+b=c@d", &hex, &"s".repeat(240)] {
            let name = Principal::issued(Tenant::DEFAULT, "company", subject).unwrap();
            assert_eq!(hmacs.principal(name.name()), name.name());
        }
        for text in ["company:tvk_1", "eyJ:x", &hex, "two words"] {
            assert!(hmacs.principal(text).starts_with("hmac:"), "{text}");
        }
    }
}
