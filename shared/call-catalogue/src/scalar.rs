//! From text to numbers, booleans and enum values (C3 to C6, C10).

use std::borrow::Cow;
use std::str::FromStr;

use serde_json::{Number, Value};

/// An integer with every digit kept, and whether another spelling was tolerated.
pub fn integer(text: &str) -> Option<(Value, bool)> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    if !unsigned.is_empty() && unsigned.bytes().all(|byte| byte.is_ascii_digit()) {
        let digits = unsigned.trim_start_matches('0');
        let digits = if digits.is_empty() { "0" } else { digits };
        let sign = if text.starts_with('-') && digits != "0" {
            "-"
        } else {
            ""
        };
        let exact = text.len() == sign.len() + digits.len();
        let plain = match exact {
            true => Cow::Borrowed(text),
            false => Cow::Owned(format!("{sign}{digits}")),
        };
        let number = match plain.parse::<i64>() {
            Ok(small) => Number::from(small),
            Err(_) => Number::from_str(&plain).ok()?,
        };
        return Some((Value::Number(number), !exact));
    }
    integral(text)
        .and_then(|plain| Number::from_str(&plain).ok())
        .map(|number| (Value::Number(number), true))
}

/// The plain digits of a decimal number with integral value, for instance `5` of `5e0`.
fn integral(text: &str) -> Option<String> {
    if !is_json_number(text) {
        return None;
    }
    let (sign, rest) = text
        .strip_prefix('-')
        .map_or(("", text), |rest| ("-", rest));
    let (mantissa, exponent) = match rest.find(['e', 'E']) {
        Some(at) => (&rest[..at], rest[at + 1..].parse::<i32>().ok()?),
        None => (rest, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    // A huge exponent would write a huge number.
    if !(-400..=400).contains(&exponent) {
        return None;
    }
    let mut digits = format!("{whole}{fraction}");
    let mut point = whole.len() as i64 + i64::from(exponent);
    if point < 0 {
        return digits
            .bytes()
            .all(|byte| byte == b'0')
            .then(|| "0".to_owned());
    }
    while (digits.len() as i64) < point {
        digits.push('0');
    }
    point = point.min(digits.len() as i64);
    let (whole, fraction) = digits.split_at(point as usize);
    if fraction.bytes().any(|byte| byte != b'0') {
        return None;
    }
    let whole = whole.trim_start_matches('0');
    if whole.is_empty() {
        return Some("0".to_owned());
    }
    Some(format!("{sign}{whole}"))
}

/// Whether a JSON number has an integral value.
pub(crate) fn is_integral(text: &str) -> bool {
    integral(text).is_some()
}

/// A JSON number, also with a leading `+` or point; and whether that was tolerated.
pub fn number(text: &str) -> Option<(Value, bool)> {
    let plain = text.strip_prefix('+').unwrap_or(text);
    let (sign, unsigned) = plain
        .strip_prefix('-')
        .map_or(("", plain), |rest| ("-", rest));
    let spelled = if unsigned.starts_with('.') {
        format!("{sign}0{unsigned}")
    } else {
        plain.to_owned()
    };
    if !is_json_number(&spelled) || !is_representable(&spelled) {
        return None;
    }
    Number::from_str(&spelled)
        .ok()
        .map(|number| (Value::Number(number), spelled != text))
}

/// Whether the text follows the JSON grammar of numbers but does not fit any finite double (X6).
pub fn is_out_of_range(text: &str) -> bool {
    is_json_number(text) && !is_representable(text)
}

fn is_representable(text: &str) -> bool {
    text.parse::<f64>().is_ok_and(f64::is_finite)
}

fn is_json_number(text: &str) -> bool {
    let unsigned = text.strip_prefix('-').unwrap_or(text);
    let (mantissa, exponent) = match unsigned.find(['e', 'E']) {
        Some(at) => (&unsigned[..at], Some(&unsigned[at + 1..])),
        None => (unsigned, None),
    };
    let (whole, fraction) = match mantissa.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (mantissa, None),
    };
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    digits(whole)
        && (whole.len() == 1 || !whole.starts_with('0'))
        && fraction.is_none_or(digits)
        && exponent
            .is_none_or(|exponent| digits(exponent.strip_prefix(['+', '-']).unwrap_or(exponent)))
}

/// A boolean, and whether another spelling than `true` and `false` was tolerated.
pub fn boolean(text: &str) -> Option<(bool, bool)> {
    let is = |word: &&str| text.eq_ignore_ascii_case(word);
    if ["true", "1", "yes", "on"].iter().any(is) {
        Some((true, text != "true"))
    } else if ["false", "0", "no", "off"].iter().any(is) {
        Some((false, text != "false"))
    } else {
        None
    }
}

/// The way in which a text matches an allowed value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// As written, or as the number, boolean or null that it spells.
    Exact,
    /// Without the white space round it.
    Trimmed,
    /// In another letter case.
    CaseFolded,
}

/// The allowed value that a text means (C10).
pub fn choose<'v>(text: &str, allowed: &[&'v Value]) -> Option<(&'v Value, Choice)> {
    let strings = || {
        allowed
            .iter()
            .filter_map(|value| value.as_str().map(|string| (*value, string)))
    };
    if let Some((value, _)) = strings().find(|(_, string)| *string == text) {
        return Some((value, Choice::Exact));
    }
    let trimmed = text.trim();
    if let Some((value, _)) = strings().find(|(_, string)| *string == trimmed) {
        return Some((value, Choice::Trimmed));
    }
    let numeric = allowed.iter().find(|value| match value {
        Value::Number(wanted) => {
            let wanted = wanted.to_string();
            number(trimmed).is_some_and(|(given, _)| given == ***value)
                || (integral(&wanted).is_some()
                    && integer(trimmed).map(|(given, _)| given.to_string()) == integral(&wanted))
        }
        Value::Bool(wanted) => boolean(trimmed).is_some_and(|(given, _)| given == *wanted),
        Value::Null => trimmed == "null",
        _ => false,
    });
    if let Some(value) = numeric {
        return Some((value, Choice::Exact));
    }
    let lowered = trimmed.to_lowercase();
    let mut folded = strings().filter(|(_, string)| string.to_lowercase() == lowered);
    match (folded.next(), folded.next()) {
        (Some((value, _)), None) => Some((value, Choice::CaseFolded)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_keep_every_digit_and_refuse_guesses() {
        for (text, expected) in [
            ("5", Some("5")),
            ("+5", Some("5")),
            ("-0", Some("0")),
            ("007", Some("7")),
            ("5.0", Some("5")),
            ("5e0", Some("5")),
            ("1.5e1", Some("15")),
            ("9007199254740993", Some("9007199254740993")),
            (
                "123456789012345678901234567890",
                Some("123456789012345678901234567890"),
            ),
            ("5.5", None),
            ("0x10", None),
            ("1_000", None),
            ("1,000", None),
            ("1e999", None),
            ("", None),
            ("NaN", None),
        ] {
            assert_eq!(
                integer(text).map(|(value, _)| value.to_string()).as_deref(),
                expected,
                "{text}"
            );
        }
    }

    #[test]
    fn numbers_follow_the_json_grammar_with_two_exceptions() {
        for (text, expected) in [
            ("1.10", Some("1.10")),
            ("+.5", Some("0.5")),
            ("-.5", Some("-0.5")),
            ("1e999", None),
            ("NaN", None),
            ("Infinity", None),
            ("01", None),
            ("1.", None),
        ] {
            assert_eq!(
                number(text).map(|(value, _)| value.to_string()).as_deref(),
                expected,
                "{text}"
            );
        }
    }
}
