//! The headers by which a request names the version that it is for.

use contracts::tavern::registry::v1::File;
use grpc_kit::Failure;
use http::{HeaderMap, HeaderName, header};
use tonic::Status;

use super::served::etag;

/// The digits of a version.
const DIGITS: usize = 64;

/// A request to read, by the version that a file has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    /// It is answered.
    Wanted,
    /// The client has this version.
    Known,
    /// The client asks for another version.
    Other,
}

/// The version that a change replaces.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Replaced {
    /// A version, or `*` for any that exists; empty for any, or none.
    pub(super) etag: String,
    /// Whether the file must be new.
    pub(super) must_be_new: bool,
}

impl Reading {
    /// Compares the headers of a request with a file.
    pub(super) fn of(headers: &HeaderMap, file: &File) -> Self {
        let etag = etag(file);
        let names = |name: &HeaderName, weak: bool| {
            let mut lines = headers.get_all(name).iter().peekable();
            lines.peek()?;
            let lines = lines.filter_map(|line| line.to_str().ok());
            let mut named = lines.flat_map(|line| line.split(',')).map(str::trim);
            Some(named.any(|named| {
                let strong = if weak {
                    named.trim_start_matches("W/")
                } else {
                    named
                };
                strong == "*" || strong == etag
            }))
        };
        if names(&header::IF_MATCH, false) == Some(false) {
            return Self::Other;
        }
        match names(&header::IF_NONE_MATCH, true) {
            Some(true) => Self::Known,
            _ => Self::Wanted,
        }
    }
}

impl Replaced {
    /// Reads the headers of a change.
    ///
    /// # Errors
    /// `INVALID_FIELDS` for a condition that no change has, and `ETAG_MISMATCH` for the version of something else.
    pub(super) fn of(headers: &HeaderMap) -> Result<Self, Status> {
        let must_be_new = match only(headers, &header::IF_NONE_MATCH)? {
            None => false,
            Some("*") => true,
            Some(_) => return Err(wrong(&header::IF_NONE_MATCH, "must be `*` in a change")),
        };
        let etag = match only(headers, &header::IF_MATCH)? {
            None => "",
            Some("*") => "*",
            Some(quoted) => opaque(quoted)?,
        };
        if must_be_new && !etag.is_empty() {
            let what = "cannot stand beside if-none-match";
            return Err(wrong(&header::IF_MATCH, what));
        }
        Ok(Self {
            etag: etag.to_owned(),
            must_be_new,
        })
    }
}

/// Returns the version in quotes.
fn opaque(quoted: &str) -> Result<&str, Status> {
    let opaque = quoted
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'));
    let is_ours = |opaque: &&str| {
        let mut digits = opaque.bytes();
        opaque.len() == DIGITS && digits.all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
    };
    match opaque {
        Some(opaque) if opaque.contains('"') => {
            Err(wrong(&header::IF_MATCH, "must be one version, in a change"))
        }
        Some(opaque) => Some(opaque)
            .filter(is_ours)
            .ok_or_else(|| Failure::etag_mismatch("").into()),
        // A weak version is the same as none.
        None if quoted.starts_with("W/\"") => Err(Failure::etag_mismatch("").into()),
        None => Err(wrong(
            &header::IF_MATCH,
            "must be a version in quotes, or `*`",
        )),
    }
}

/// Returns the only value of a header.
fn only<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Result<Option<&'h str>, Status> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => {
            let text = value.to_str().map_err(|_| wrong(name, "is not text"))?;
            Ok(Some(text.trim()))
        }
        (Some(_), Some(_)) => Err(wrong(name, "must stand in a change at most once")),
    }
}

fn wrong(name: &HeaderName, what: &str) -> Status {
    let failure = Failure::invalid_fields();
    failure.violation(format!("metadata.{name}"), what).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;
    use tonic::Code;

    fn headers(fields: &[(&HeaderName, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(*name, HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    #[test]
    fn a_request_to_read_names_versions() {
        let file = File {
            sha256: "ab".to_owned(),
            ..File::default()
        };
        let (same, none) = (&header::IF_MATCH, &header::IF_NONE_MATCH);
        for (fields, expected) in [
            (&[][..], Reading::Wanted),
            (&[(same, "\"ab\"")], Reading::Wanted),
            (&[(same, "*")], Reading::Wanted),
            (&[(same, "\"x\", \"ab\"")], Reading::Wanted),
            (&[(same, "W/\"ab\"")], Reading::Other),
            (&[(same, "\"x\"")], Reading::Other),
            (&[(none, "\"x\"")], Reading::Wanted),
            (&[(none, "\"x\",W/\"ab\"")], Reading::Known),
            (&[(none, "\"x\""), (none, "\"ab\"")], Reading::Known),
            (&[(none, "*")], Reading::Known),
            (&[(same, "\"x\""), (none, "\"ab\"")], Reading::Other),
        ] {
            assert_eq!(Reading::of(&headers(fields), &file), expected, "{fields:?}");
        }
    }

    #[test]
    fn a_change_names_one_version_or_none() {
        let version = "0123456789abcdef".repeat(4);
        let quoted = format!("\"{version}\"");
        let (same, none) = (&header::IF_MATCH, &header::IF_NONE_MATCH);
        let replaced = |etag: &str, must_be_new| {
            Ok(Replaced {
                etag: etag.to_owned(),
                must_be_new,
            })
        };
        for (fields, expected) in [
            (&[][..], replaced("", false)),
            (&[(same, &*quoted)], replaced(&version, false)),
            (&[(same, "*")], replaced("*", false)),
            (&[(none, "*")], replaced("", true)),
            (&[(same, "\"other\"")], Err(Code::Aborted)),
            (&[(same, "W/\"ab\"")], Err(Code::Aborted)),
            (&[(same, "ab")], Err(Code::InvalidArgument)),
            (&[(same, "\"a\", \"b\"")], Err(Code::InvalidArgument)),
            (&[(none, &*quoted)], Err(Code::InvalidArgument)),
            (&[(none, "*"), (same, "*")], Err(Code::InvalidArgument)),
            (&[(same, "*"), (same, "*")], Err(Code::InvalidArgument)),
        ] {
            let read = Replaced::of(&headers(fields)).map_err(|status| status.code());
            assert_eq!(read, expected, "{fields:?}");
        }
    }
}
