//! The credential of a call, among its headers.

use std::fmt;

use grpc_kit::Failure;
use http::{HeaderMap, HeaderValue, header};
use sha2::{Digest, Sha256};
use tonic::Status;

/// The longest credential that is looked at, in bytes: a token of an issuer.
pub(crate) const MAX_CREDENTIAL: usize = 8 << 10;

/// The longest one that is no token of an issuer.
const MAX_OTHER: usize = 1 << 10;

/// The beginning of the tokens of issuers: a JSON object in base64.
const ISSUER_TOKEN: &str = "eyJ";

/// The beginning of a ticket, which proves its caller once.
pub(crate) const TICKET: &str = "tvt_";

/// The beginnings of the credentials that prove their caller again and again.
const LASTING: [&[u8]; 2] = [b"tvk_", b"tvs_"];

/// The shortest text after such a beginning that makes a credential of it, in bytes.
const MIN_SECRET: usize = 8;

const SCHEME: &str = "bearer";

/// The SHA-256 of a credential, which stands for it in memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct CredentialHash([u8; 32]);

impl CredentialHash {
    pub(crate) fn of(credential: &str) -> Self {
        Self(Sha256::digest(credential.as_bytes()).into())
    }
}

impl fmt::Debug for CredentialHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CredentialHash")
    }
}

/// Returns the credential of a call. It is empty where there is none, and where the header is not the bearer
/// of one: too long, another scheme, no text. No such header proves anyone, and while no key exists every
/// header passes.
///
/// # Errors
/// `INVALID_FIELDS` for more than one credential.
pub(crate) fn of(headers: &HeaderMap) -> Result<&str, Status> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(""),
        (Some(value), None) => Ok(bearer(value).unwrap_or_default()),
        (Some(_), Some(_)) => Err(two()),
    }
}

/// The refusal of a call with two credentials.
pub(crate) fn two() -> Status {
    let what = "the call has more than one credential; send one key, or the cookie of a login, or a ticket";
    let failure = Failure::invalid_fields().violation("metadata.authorization", what);
    failure.into_status()
}

/// Makes the header of a credential.
pub(crate) fn header_of(credential: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::try_from(format!("Bearer {credential}")).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// Whether an address has a credential in it, which servers and proxies on the way would log.
pub(crate) fn is_in(address: &str) -> bool {
    let bytes: Vec<u8> = percent_encoding::percent_decode_str(address).collect();
    let of_text = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    let mut before = None;
    for (place, byte) in bytes.iter().enumerate() {
        let begins = !before.is_some_and(of_text);
        before = Some(*byte);
        let rest = &bytes[place..];
        if begins && is_issuer_token(rest) {
            return true;
        }
        if begins && let Some(beginning) = LASTING.iter().find(|known| rest.starts_with(known)) {
            let secret = rest[beginning.len()..].iter();
            if secret.take_while(|byte| of_text(**byte)).count() >= MIN_SECRET {
                return true;
            }
        }
    }
    false
}

/// Whether a text begins with a token of an issuer: a header and claims, both of them JSON in base64.
fn is_issuer_token(text: &[u8]) -> bool {
    let header = text.split(|byte| *byte == b'.').next().unwrap_or_default();
    let is_base64 = |byte: &u8| byte.is_ascii_alphanumeric() || b"_-".contains(byte);
    let is_header = header.starts_with(ISSUER_TOKEN.as_bytes()) && header.iter().all(is_base64);
    let claims = text.get(header.len() + 1..).unwrap_or_default();
    is_header && claims.starts_with(ISSUER_TOKEN.as_bytes())
}

fn bearer(value: &HeaderValue) -> Option<&str> {
    // The length comes first: nothing reads a header of any length.
    if value.len() > SCHEME.len() + 1 + MAX_CREDENTIAL {
        return None;
    }
    let (scheme, credential) = value.to_str().ok()?.split_once(' ')?;
    let credential = credential.trim_matches(' ');
    let is_looked_at = credential.len() <= MAX_OTHER || credential.starts_with(ISSUER_TOKEN);
    (is_looked_at && scheme.eq_ignore_ascii_case(SCHEME)).then_some(credential)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(values: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(header::AUTHORIZATION, HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    #[test]
    fn a_credential_is_the_one_bearer() {
        let long = format!("Bearer {}", "a".repeat(MAX_OTHER + 1));
        let longest = format!("Bearer {}", "a".repeat(MAX_OTHER));
        let token = format!("Bearer eyJ{}", "a".repeat(MAX_CREDENTIAL - 3));
        let long_token = format!("{token}a");
        for (value, credential) in [
            ("Bearer abc", "abc"),
            ("bearer abc", "abc"),
            ("BEARER  abc ", "abc"),
            ("Bearer ", ""),
            ("Bearer", ""),
            ("Basic abc", ""),
            ("abc", ""),
            (&long, ""),
            (&longest, &longest["Bearer ".len()..]),
            (&token, &token["Bearer ".len()..]),
            (&long_token, ""),
        ] {
            assert_eq!(of(&headers(&[value])).unwrap(), credential, "{value}");
        }
        assert_eq!(of(&headers(&[])).unwrap(), "");
        let two = of(&headers(&["Bearer a", "Bearer a"])).unwrap_err();
        assert_eq!(grpc_kit::violations(&two)[0].0, "metadata.authorization");
    }

    #[test]
    fn a_key_is_found_anywhere_in_an_address() {
        for address in [
            "/v1/models?key=tvk_ab12_0123456789abcdef_12345678",
            "/tvk_ab12_0123456789",
            "/a/tvs_0123456789/b",
            "/a?x=%74vk%5Fab12_0123456789",
            "/a?x=Bearer%20tvk_ab12_0123456789",
            "/a?x=Bearer+tvk_ab12_0123456789",
            "/a?access_token=eyJhbGciOiJFZERTQSJ9.eyJpc3MiOiJhIn0.c2ln",
            "/eyJhbGciOiJFZERTQSJ9.eyJpc3MiOiJhIn0.",
        ] {
            assert!(is_in(address), "{address}");
        }
        for address in [
            "/",
            "/v1/runs/turn_1/events?ticket=tvt_0123456789abcdef",
            "/a?message=AAtvk_ab12_0123456789",
            "/a?message=AAeyJhbGciOiJFZERTQSJ9.eyJpc3MiOiJhIn0.c2ln",
            "/a?cursor=eyJhbGciOiJFZERTQSJ9",
            "/eyJ/a.eyJ",
            "/a?prefix=tvk_",
            "/a?x=%",
            "/a?x=%7",
            "/a?x=%zz",
        ] {
            assert!(!is_in(address), "{address}");
        }
    }

    #[test]
    fn a_header_and_a_hash_show_no_secret() {
        let value = header_of("tvk_secret").unwrap();
        let shown = format!("{value:?} {:?}", CredentialHash::of("tvk_secret"));
        assert!(!shown.contains("secret"), "{shown}");
    }
}
