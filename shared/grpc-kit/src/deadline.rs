//! The `grpc-timeout` header.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};

/// The header.
pub(crate) const GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");

/// The largest number that the protocol allows in the header.
const MAX_NUMBER: u128 = 99_999_999;

/// Nanoseconds per unit, the finest first.
const UNITS: [(char, u128); 6] = [
    ('n', 1),
    ('u', 1_000),
    ('m', 1_000_000),
    ('S', 1_000_000_000),
    ('M', 60_000_000_000),
    ('H', 3_600_000_000_000),
];

/// A header that is not a timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// Reads the timeout; `None` if there is none.
pub(crate) fn read(headers: &HeaderMap) -> Result<Option<Duration>, Malformed> {
    let mut values = headers.get_all(GRPC_TIMEOUT).iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    let timeout = value.to_str().ok().and_then(parse).ok_or(Malformed)?;
    match values.next() {
        Some(_) => Err(Malformed),
        None => Ok(Some(timeout)),
    }
}

/// Writes the timeout, rounded down to a unit in which it fits.
pub(crate) fn write(headers: &mut HeaderMap, timeout: Duration) {
    if let Ok(value) = HeaderValue::try_from(print(timeout)) {
        headers.insert(GRPC_TIMEOUT, value);
    }
}

fn parse(text: &str) -> Option<Duration> {
    let unit = text.chars().next_back()?;
    let (_, nanos) = UNITS.iter().find(|(known, _)| *known == unit)?;
    let number = &text[..text.len() - unit.len_utf8()];
    let wellformed =
        (1..=8).contains(&number.len()) && number.bytes().all(|byte| byte.is_ascii_digit());
    let number: u64 = wellformed.then(|| number.parse().ok()).flatten()?;
    let nanos = u128::from(number) * nanos;
    let seconds = u64::try_from(nanos / 1_000_000_000).ok()?;
    let rest = u32::try_from(nanos % 1_000_000_000).ok()?;
    Some(Duration::new(seconds, rest))
}

fn print(timeout: Duration) -> String {
    let nanos = timeout.as_nanos();
    for (unit, size) in UNITS {
        if nanos / size <= MAX_NUMBER {
            return format!("{}{unit}", nanos / size);
        }
    }
    format!("{MAX_NUMBER}H")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_are_read_and_written() {
        for (text, nanos) in [
            ("1n", 1),
            ("99999999n", 99_999_999),
            ("100m", 100_000_000),
            ("30S", 30_000_000_000),
            ("2M", 120_000_000_000),
            ("10H", 36_000_000_000_000),
        ] {
            let timeout = Duration::from_nanos(nanos);
            assert_eq!(parse(text), Some(timeout), "{text}");
            assert_eq!(parse(&print(timeout)), Some(timeout), "{text}");
        }
        assert_eq!(print(Duration::MAX), "99999999H");
    }

    #[test]
    fn what_is_no_timeout_is_none() {
        for text in ["", "S", "1", "-1S", "+1S", "1.5S", "123456789S", "1s", "1é"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
