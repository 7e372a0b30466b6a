//! The timeout that a client sets for a call.

use grpc_kit::Failure;
use http::{HeaderMap, HeaderName, HeaderValue};
use tonic::Status;

const CONNECT_TIMEOUT: HeaderName = HeaderName::from_static("connect-timeout-ms");
const GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");

/// The largest number of milliseconds that gRPC can express in that unit.
const MOST_MILLISECONDS: u64 = 99_999_999;

/// Translates the timeout of a Connect request to gRPC's.
///
/// # Errors
/// `INVALID_FIELDS` for a header that is not a timeout.
pub(super) fn translate(headers: &HeaderMap, metadata: &mut HeaderMap) -> Result<(), Status> {
    let Some(value) = headers.get(CONNECT_TIMEOUT) else {
        return Ok(());
    };
    let timeout = value.to_str().ok().and_then(parse).ok_or_else(|| {
        let what = "is not a timeout; give up to 10 digits of milliseconds";
        Failure::invalid_fields().violation("metadata.connect-timeout-ms", what)
    })?;
    metadata.insert(GRPC_TIMEOUT, timeout);
    Ok(())
}

fn parse(text: &str) -> Option<HeaderValue> {
    let wellformed = (1..=10).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
    let milliseconds: u64 = wellformed.then(|| text.parse().ok()).flatten()?;
    let timeout = match milliseconds {
        0..=MOST_MILLISECONDS => format!("{milliseconds}m"),
        _ => format!("{}S", milliseconds / 1_000),
    };
    HeaderValue::try_from(timeout).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_are_written_in_a_unit_in_which_they_fit() {
        for (text, timeout) in [
            ("1", Some("1m")),
            ("99999999", Some("99999999m")),
            ("100000000", Some("100000S")),
            ("9999999999", Some("9999999S")),
            ("10000000000", None),
            ("", None),
            ("-1", None),
            ("1.5", None),
        ] {
            let parsed = parse(text);
            let parsed = parsed.as_ref().and_then(|value| value.to_str().ok());
            assert_eq!(parsed, timeout, "{text}");
        }
    }
}
