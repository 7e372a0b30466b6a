//! The names of issued principals, whom tokens of an issuer prove: `issuer:subject`.
//!
//! The subject is in the escapes of addresses (`%7C`), so that the name is plain text for headers, files and
//! terminals. Each subject has one name, and each name one subject.

use std::borrow::Cow;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// The longest name of an issued principal within its tenant, in bytes.
pub const MAX_ISSUED_NAME_BYTES: usize = 256;

/// The longest name of an issuer, in bytes.
pub const MAX_ISSUER_BYTES: usize = 32;

/// The characters of a subject that are escaped.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'.')
    .remove(b'_')
    .remove(b'-')
    .remove(b'@')
    .remove(b'+')
    .remove(b'=')
    .remove(b':');

/// A text is not the name of an issued principal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IssuedNameError {
    /// The part before the colon is malformed.
    #[error(
        "before the colon: must have 1 to {MAX_ISSUER_BYTES} characters of a-z, 0-9, `-` and begin with a letter"
    )]
    Issuer,
    /// The part after the colon is no subject as it is written in names.
    #[error(
        "after the colon: must be a subject of at least one character, in which all but letters, digits, `.`, `_`, \
         `-`, `@`, `+`, `=` and `:` are escaped, as `%7C`"
    )]
    Subject,
    /// The whole is too long.
    #[error(
        "must have at most {MAX_ISSUED_NAME_BYTES} bytes with the issuer, the colon and all escapes"
    )]
    TooLong,
}

/// Whether a text can be the name of an issuer.
pub fn is_issuer(name: &str) -> bool {
    let all = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    name.starts_with(|first: char| first.is_ascii_lowercase())
        && name.bytes().all(all)
        && name.len() <= MAX_ISSUER_BYTES
}

/// Returns the name of a subject of an issuer.
pub(crate) fn of(issuer: &str, subject: &str) -> Result<String, IssuedNameError> {
    if !is_issuer(issuer) {
        return Err(IssuedNameError::Issuer);
    }
    if subject.is_empty() {
        return Err(IssuedNameError::Subject);
    }
    // The length comes first: nothing escapes a subject of any length.
    if issuer.len() + 1 + subject.len() > MAX_ISSUED_NAME_BYTES {
        return Err(IssuedNameError::TooLong);
    }
    let name = format!("{issuer}:{}", utf8_percent_encode(subject, ESCAPED));
    match name.len() <= MAX_ISSUED_NAME_BYTES {
        true => Ok(name),
        false => Err(IssuedNameError::TooLong),
    }
}

/// Returns the issuer and the subject of a name; `None` if it is no name of an issued principal.
pub(crate) fn read(name: &str) -> Option<(&str, Cow<'_, str>)> {
    let (issuer, written) = name.split_once(':')?;
    let subject = percent_decode_str(written).decode_utf8().ok()?;
    Some((issuer, subject))
}

/// Checks that a text is the one name of a subject.
pub(crate) fn check(name: &str) -> Result<(), IssuedNameError> {
    if name.len() > MAX_ISSUED_NAME_BYTES {
        return Err(IssuedNameError::TooLong);
    }
    let (issuer, subject) = read(name).ok_or(IssuedNameError::Subject)?;
    match of(issuer, &subject)? == name {
        true => Ok(()),
        false => Err(IssuedNameError::Subject),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Principal, Tenant};

    #[test]
    fn each_subject_has_one_name_and_each_name_one_subject() {
        let acme = Tenant::new("acme").unwrap();
        for (subject, name) in [
            ("ada", "idp:ada"),
            ("Ada@Example.com", "idp:Ada@Example.com"),
            ("auth0|5f7c", "idp:auth0%7C5f7c"),
            ("system:serviceaccount:a:b", "idp:system:serviceaccount:a:b"),
            ("a/b", "idp:a%2Fb"),
            ("100%", "idp:100%25"),
            ("%2F", "idp:%252F"),
            (" ", "idp:%20"),
            ("zoë\n", "idp:zo%C3%AB%0A"),
            ("local", "idp:local"),
        ] {
            for (tenant, before) in [(Tenant::DEFAULT, ""), (acme, "acme/")] {
                let principal = Principal::issued(tenant, "idp", subject).unwrap();
                assert_eq!(principal.as_str(), format!("{before}{name}"));
                assert_eq!(Principal::new(principal.as_str()).unwrap(), principal);
                let read = principal.issuer_and_subject().unwrap();
                assert_eq!((read.0, &*read.1), ("idp", subject));
                assert!(!principal.is_nameless());
                assert_eq!((principal.name(), principal.tenant()), (name, tenant));
            }
        }
        assert_eq!(Principal::new("ada").unwrap().issuer_and_subject(), None);
    }

    #[test]
    fn other_texts_with_a_colon_are_no_principals() {
        let long = format!("idp:{}", "a".repeat(MAX_ISSUED_NAME_BYTES));
        for (text, fault) in [
            (":ada", IssuedNameError::Issuer),
            ("Idp:ada", IssuedNameError::Issuer),
            ("1dp:ada", IssuedNameError::Issuer),
            ("i.p:ada", IssuedNameError::Issuer),
            ("idp:", IssuedNameError::Subject),
            ("idp:a b", IssuedNameError::Subject),
            ("idp:a|b", IssuedNameError::Subject),
            ("idp:%61", IssuedNameError::Subject),
            ("idp:%7c", IssuedNameError::Subject),
            ("idp:%", IssuedNameError::Subject),
            ("idp:%FF", IssuedNameError::Subject),
            ("idp:zoë", IssuedNameError::Subject),
            (&long, IssuedNameError::TooLong),
        ] {
            assert_eq!(Principal::new(text), Err(fault.into()), "{text}");
        }
        let subject = "|".repeat(MAX_ISSUED_NAME_BYTES / 3);
        let refused = Principal::issued(Tenant::DEFAULT, "idp", &subject);
        assert_eq!(refused, Err(IssuedNameError::TooLong.into()));
    }
}
