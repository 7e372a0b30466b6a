//! Refusals of requests by endpoints.

use std::time::{Duration, SystemTime};

use call_catalogue::names::squash;
use reqwest::header::HeaderMap;
use serde_json::Value;

use crate::{ModelError, error::Refusal};

/// The most characters of a vendor's message that are passed on.
const MAX_VENDOR_MESSAGE: usize = 500;

/// Reads a refusal from its status, headers and body.
pub(crate) fn read(status: u16, headers: &HeaderMap, body: &str, now: SystemTime) -> ModelError {
    let header = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let value: Value = serde_json::from_str(body).unwrap_or_else(|_| body.into());
    ModelError::Refused(Refusal {
        retry_after: retry_after(header("retry-after-ms"), header("retry-after"), now),
        should_retry: header("x-should-retry").and_then(|text| text.trim().parse().ok()),
        ..of_status(status, &value)
    })
}

/// Reads an error that arrived with status 200, in a stream or in a body, after `released` bytes of
/// its answer: before any of them it is a refusal with the status that it implies.
pub(crate) fn in_answer(value: &Value, released: usize) -> ModelError {
    let refusal = of_status(status_in(value), value);
    match released {
        0 => ModelError::Refused(refusal),
        _ => ModelError::Vendor { refusal, released },
    }
}

/// Whether an event or a body is an error instead of an answer.
pub(crate) fn is_error(value: &Value) -> bool {
    let kind = |key: &str| value.get(key).and_then(Value::as_str) == Some("error");
    value.get("error").is_some_and(|error| !error.is_null()) || kind("type") || kind("object")
}

fn of_status(status: u16, value: &Value) -> Refusal {
    Refusal {
        status,
        message: vendor_message(value),
        quota_exhausted: is_quota_exhausted(value),
        context_exceeded: status != 429 && is_context_exceeded(value),
        ..Refusal::default()
    }
}

/// The statuses of errors that are named by a word, which is compared without case and punctuation.
const STATUSES: [(&str, u16); 22] = [
    ("invalidrequesterror", 400),
    ("badrequesterror", 400),
    ("invalidargument", 400),
    ("contextlengthexceeded", 400),
    ("exceedcontextsizeerror", 400),
    ("authenticationerror", 401),
    ("invalidapikey", 401),
    ("unauthenticated", 401),
    ("billingerror", 402),
    ("permissionerror", 403),
    ("permissiondenied", 403),
    ("notfounderror", 404),
    ("modelnotfound", 404),
    ("requesttoolarge", 413),
    ("insufficientquota", 429),
    ("ratelimiterror", 429),
    ("ratelimitexceeded", 429),
    ("resourceexhausted", 429),
    ("serviceunavailable", 503),
    ("unavailable", 503),
    ("timeouterror", 504),
    ("overloadederror", 529),
];

/// Returns the status that an error implies by a number or a word of its own; an internal failure
/// if it has neither.
fn status_in(value: &Value) -> u16 {
    let error = value.get("error").filter(|error| error.is_object());
    let error = error.unwrap_or(value);
    let named = ["code", "status", "status_code", "type"]
        .into_iter()
        .filter_map(|key| error.get(key));
    let number = |named: &Value| {
        let number = named
            .as_u64()
            .or_else(|| named.as_str()?.trim().parse().ok())?;
        let number = u16::try_from(number).ok();
        number.filter(|number| (400..600).contains(number))
    };
    let word = |named: &Value| {
        let named = squash(named.as_str()?);
        let known = STATUSES.iter().find(|(word, _)| *word == named);
        known.map(|(_, status)| *status)
    };
    let by_number = named.clone().find_map(number);
    by_number
        .or_else(|| named.clone().find_map(word))
        .unwrap_or(500)
}

/// Parts of vendors' messages about a request that is too long, in lower case.
const TOO_LONG: [&str; 16] = [
    "prompt is too long",
    "input is too long",
    "maximum context length",
    "maximum model length",
    "maximum prompt length",
    "maximum number of tokens allowed",
    "exceed context limit",
    "exceeds the context window",
    "exceeds the context size",
    "exceeds context size",
    "exceeds the available context",
    "exceeds the model's context",
    "longer than the model's context length",
    "than the context length",
    "maximum context of",
    "context length exceeded",
];

/// Whether the request is too long for the model, by the code or the words of a vendor.
fn is_context_exceeded(body: &Value) -> bool {
    const CODES: [&str; 2] = ["context_length_exceeded", "exceed_context_size_error"];
    let codes = ["/error/code", "/error/type", "/code", "/type"];
    let text = |place: &&str| body.pointer(place).and_then(Value::as_str);
    let by_code = codes
        .iter()
        .filter_map(text)
        .any(|code| CODES.contains(&code));
    let message = vendor_message(body).to_lowercase();
    by_code || TOO_LONG.iter().any(|words| message.contains(words))
}

/// Whether the quota of the account is used up, which no wait changes.
fn is_quota_exhausted(body: &Value) -> bool {
    [
        ("/error/code", "insufficient_quota"),
        ("/error/type", "insufficient_quota"),
        ("/error/details/error_code", "enforced_spend_limit_reached"),
        ("/details/error_code", "enforced_spend_limit_reached"),
    ]
    .iter()
    .any(|(pointer, code)| body.pointer(pointer).and_then(Value::as_str) == Some(code))
}

/// Returns the vendor's message in the body of an error, cut.
pub(crate) fn vendor_message(body: &Value) -> String {
    let places = ["/error/message", "/error", "/message", "/detail"];
    let said = places
        .iter()
        .find_map(|place| body.pointer(place).and_then(Value::as_str))
        .map_or_else(
            || match body {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            },
            str::to_owned,
        );
    let said = match said.trim() {
        "" => "it gave no reason",
        said => said,
    };
    let printable = said.chars().map(|character| {
        if character.is_control() {
            ' '
        } else {
            character
        }
    });
    printable.take(MAX_VENDOR_MESSAGE).collect()
}

/// Reads the wait before a retry: `retry-after-ms`, or `retry-after` as seconds or as a date.
fn retry_after(
    milliseconds: Option<&str>,
    header: Option<&str>,
    now: SystemTime,
) -> Option<Duration> {
    if let Some(milliseconds) = milliseconds.and_then(|text| text.trim().parse::<f64>().ok()) {
        return Duration::try_from_secs_f64(milliseconds / 1_000.0).ok();
    }
    let header = header?.trim();
    if let Ok(seconds) = header.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let at = httpdate::parse_http_date(header).ok()?;
    Some(at.duration_since(now).unwrap_or_default())
}

#[cfg(test)]
mod tests;
