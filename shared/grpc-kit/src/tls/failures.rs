//! The log of handshakes that fail and of services that are refused: one line for a reason and minute, with their
//! number.

use std::{
    io,
    net::SocketAddr,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use http::Uri;
use rustls::{CertificateError, Error};

use crate::{failure, lines::Lines};

/// The shortest time between two lines about one reason.
const INTERVAL: Duration = Duration::from_secs(60);

/// The most reasons that have lines of their own.
const MAX_REASONS: usize = 64;

/// The reason in the line for all others.
const OTHER: &str = "other reasons";

/// Failures, counted by their reason.
#[derive(Debug, Default)]
pub(crate) struct Failures(Mutex<Lines>);

impl Failures {
    /// Counts a handshake that failed, and logs the line that is due. A reason has no part of a certificate or a key.
    pub(crate) fn record_handshake(&self, error: &io::Error, peer: SocketAddr) {
        if let Some((reason, failed)) = self.count(reason_of(error), Instant::now()) {
            tracing::warn!(%peer, reason, failed, "TLS handshakes failed");
        }
    }

    /// Counts a server that was not believed, and logs the line that is due.
    pub(crate) fn record_server(&self, error: &io::Error, address: &Uri) {
        if let Some((reason, failed)) = self.count(reason_of(error), Instant::now()) {
            tracing::warn!(%address, reason, failed, "TLS handshakes with a server failed");
        }
    }

    /// Counts a call that was refused, and logs the line that is due.
    pub(crate) fn record_call(&self, reason: String, peer: Option<SocketAddr>) {
        if let Some((reason, refused)) = self.count(reason, Instant::now()) {
            let peer = peer.map(tracing::field::display);
            tracing::warn!(peer, reason, refused, "calls of services were refused");
        }
    }

    /// Counts a failure, and returns the reason and the number for the line that is due.
    fn count(&self, reason: String, now: Instant) -> Option<(String, u64)> {
        let mut reasons = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let has_own_line = reasons.len() < MAX_REASONS || reasons.has(&reason);
        let reason = match has_own_line {
            true => reason,
            false => OTHER.to_owned(),
        };
        let count = reasons.count(&reason, INTERVAL, now);
        count.map(|count| (reason, count))
    }
}

/// Returns the reason for which the certificate of a server was refused, from the error of a call; `None` for any other
/// error.
pub fn refused_certificate(error: &(dyn std::error::Error + 'static)) -> Option<String> {
    let mut causes = failure::causes(error).filter_map(|cause| cause.downcast_ref::<io::Error>());
    let refused = causes.find(|error| {
        let tls = error.get_ref().and_then(|inner| inner.downcast_ref());
        matches!(tls, Some(Error::InvalidCertificate(_)))
    });
    refused.map(reason_of)
}

/// Returns the reason for which a handshake failed, which is the same text for the same reason.
fn reason_of(error: &io::Error) -> String {
    let tls = error.get_ref().and_then(|inner| inner.downcast_ref());
    let Some(Error::InvalidCertificate(refused)) = tls else {
        return failure::chain(error);
    };
    let reason = match refused {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "the certificate expired"
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "the certificate is not valid yet"
        }
        CertificateError::UnknownIssuer => "the certificate is not signed by a trusted CA",
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "the certificate names another host or service"
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "the certificate is for another use"
        }
        CertificateError::Other(reason) => return reason.0.to_string(),
        other => return format!("the certificate is refused: {other:?}"),
    };
    reason.to_owned()
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::UnixTime;

    use super::*;

    #[test]
    fn an_expired_certificate_is_one_reason_at_all_times() {
        let at = |seconds| UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        let reasons = [1, 2].map(|seconds| {
            let expired = CertificateError::ExpiredContext {
                time: at(seconds),
                not_after: at(0),
            };
            reason_of(&io::Error::other(Error::from(expired)))
        });
        assert_eq!(
            reasons,
            ["the certificate expired", "the certificate expired"]
        );
    }

    #[test]
    fn a_reason_has_one_line_a_minute() {
        let failures = Failures::default();
        let begin = Instant::now();
        let count = |reason: &str, now| failures.count(reason.to_owned(), now);
        let line = |reason: &str, failed| Some((reason.to_owned(), failed));
        assert_eq!(count("expired", begin), line("expired", 1));
        assert_eq!(count("unknown", begin), line("unknown", 1));
        for _ in 0..9 {
            assert_eq!(count("expired", begin), None);
        }
        assert_eq!(count("expired", begin + INTERVAL), line("expired", 10));
    }

    #[test]
    fn reasons_beyond_a_bound_share_a_line() {
        let failures = Failures::default();
        let begin = Instant::now();
        for number in 0..10 * MAX_REASONS {
            failures.count(format!("reason {number}"), begin);
        }
        assert_eq!(failures.0.lock().unwrap().len(), MAX_REASONS + 1);
    }
}
