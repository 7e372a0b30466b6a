//! What an endpoint says when it refuses a request.

use std::time::{Duration, SystemTime};

use reqwest::header::HeaderMap;
use serde_json::Value;

use crate::{ModelError, error::Refusal};

/// How much of a vendor's message is passed on, in characters.
const MAX_VENDOR_MESSAGE: usize = 500;

/// Reads a refusal from its status, headers and body.
pub fn read(status: u16, headers: &HeaderMap, body: &str, now: SystemTime) -> ModelError {
    let header = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let value: Value = serde_json::from_str(body).unwrap_or_else(|_| body.into());
    ModelError::Refused(Refusal {
        status,
        message: vendor_message(&value),
        retry_after: retry_after(header("retry-after-ms"), header("retry-after"), now),
        should_retry: header("x-should-retry").and_then(|text| text.trim().parse().ok()),
        quota_exhausted: is_quota_exhausted(&value),
        context_exceeded: is_context_exceeded(&value),
    })
}

/// Whether the request is too long for the model, by the code of one vendor or the words of another.
fn is_context_exceeded(body: &Value) -> bool {
    let text = |place| body.pointer(place).and_then(Value::as_str);
    let message = text("/error/message").unwrap_or_default();
    text("/error/code") == Some("context_length_exceeded")
        || message.starts_with("prompt is too long")
}

/// Whether the account has nothing left, which no wait changes.
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

/// Returns what a vendor says in the body of an error, cut.
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

/// Reads when to ask again: `retry-after-ms`, or `retry-after` as seconds or as a date.
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
