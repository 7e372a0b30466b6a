//! The claims that each token has, and its times.

use std::time::Duration;

use core_types::Timestamp;
use serde_json::{Map, Value};

use super::TokenFault;

/// The time by which the clocks of an issuer and of this installation may differ.
pub const SKEW: Duration = Duration::from_secs(60);

/// The longest time from now to the end of a token.
pub const MAX_LIFE: Duration = Duration::from_secs(24 * 60 * 60);

/// The claims of a token.
#[derive(Debug)]
pub(super) struct Claims {
    issuer: String,
    subject: String,
    expires: Timestamp,
    not_before: Option<Timestamp>,
    issued: Option<Timestamp>,
    all: Map<String, Value>,
}

impl Claims {
    pub(super) fn read(json: &[u8]) -> Result<Self, TokenFault> {
        let all: Map<String, Value> = serde_json::from_slice(json).map_err(|_| TokenFault::Form)?;
        let text = |name: &str| all.get(name).and_then(Value::as_str).map(str::to_owned);
        let time = |name: &str| match all.get(name) {
            None => Ok(None),
            Some(value) => of_seconds(value).map(Some).ok_or(TokenFault::Claims),
        };
        Ok(Self {
            issuer: text("iss").ok_or(TokenFault::Claims)?,
            subject: text("sub").ok_or(TokenFault::Claims)?,
            expires: time("exp")?.ok_or(TokenFault::Claims)?,
            not_before: time("nbf")?,
            issued: time("iat")?,
            all,
        })
    }

    /// Checks that the claims are for one of the audiences, and for this time.
    pub(super) fn check(&self, audiences: &[String], now: Timestamp) -> Result<(), TokenFault> {
        let is_ours = |value: &Value| audiences.iter().any(|ours| value.as_str() == Some(ours));
        let is_for_us = match self.all.get("aud") {
            None => return Err(TokenFault::Claims),
            Some(Value::Array(several)) => several.iter().any(is_ours),
            Some(one) => is_ours(one),
        };
        let begins = self.not_before.max(self.issued).unwrap_or_default();
        match () {
            () if !is_for_us => Err(TokenFault::Audience),
            () if now >= self.end() => Err(TokenFault::Expired),
            () if self.expires > now.plus(MAX_LIFE + SKEW) => Err(TokenFault::Lasting),
            () if begins > now.plus(SKEW) => Err(TokenFault::Early),
            () => Ok(()),
        }
    }

    pub(super) fn issuer(&self) -> &str {
        &self.issuer
    }

    pub(super) fn subject(&self) -> &str {
        &self.subject
    }

    /// Returns the time of the issue; the epoch if it is not stated.
    pub(super) fn issued(&self) -> Timestamp {
        self.issued.or(self.not_before).unwrap_or_default()
    }

    /// Returns the time from which the token proves no one.
    pub(super) fn end(&self) -> Timestamp {
        self.expires.plus(SKEW)
    }

    pub(super) fn all(&self) -> &Map<String, Value> {
        &self.all
    }
}

/// Reads seconds since the epoch, which may have a fraction.
fn of_seconds(value: &Value) -> Option<Timestamp> {
    // Years up to 9999; the conversion of anything else loses the number.
    let seconds = value
        .as_f64()
        .filter(|it| (0.0..253_402_300_800.0).contains(it))?;
    #[expect(clippy::cast_possible_truncation, reason = "it is in the range above")]
    let seconds = seconds as i64;
    Some(
        Timestamp::from_seconds_and_nanos(seconds, 0)
            .unwrap_or(Timestamp::from_unix_nanos(i64::MAX)),
    )
}
