//! Certificates, shown and judged.

use std::path::Path;
use std::process::ExitCode;

use serde_json::json;

use super::super::{print, print_table};
use super::authority::{CERTIFICATES, KEY, NEXT_KEY, in_words, now};
use super::certificate::{Certificate, read_key};
use super::directory::files;
use super::leaves;

/// The head of the table.
const HEAD: [&str; 7] = [
    "NAME", "IDENTITY", "HOSTS", "LEFT", "STATE", "ISSUER", "SERIAL",
];

/// The digits of a fingerprint in the table.
const FINGERPRINT: usize = 16;

/// The state of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Good,
    /// Less than a third of its time is left.
    Due,
    Expired,
    NotYetValid,
    /// No CA of `ca.pem` has signed it.
    UnknownIssuer,
    /// The file beside it holds another key.
    WrongKey,
}

impl State {
    const fn word(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Due => "due",
            Self::Expired => "EXPIRED",
            Self::NotYetValid => "NOT YET VALID",
            Self::UnknownIssuer => "UNKNOWN ISSUER",
            Self::WrongKey => "WRONG KEY",
        }
    }

    /// Judges by the time alone.
    fn of_time(certificate: &Certificate, now: i64) -> Self {
        let (begin, end) = certificate.validity;
        match () {
            () if end <= now => Self::Expired,
            () if now < begin => Self::NotYetValid,
            () if certificate.is_due(now) => Self::Due,
            () => Self::Good,
        }
    }
}

/// A certificate to show.
struct Row {
    name: String,
    certificate: Certificate,
    /// The fingerprint of the CA that has signed it.
    issuer: Option<String>,
    state: State,
}

/// Shows the certificates of a directory, and fails if any of them is not good.
pub(super) fn show(path: &Path, as_json: bool) -> anyhow::Result<ExitCode> {
    let now = now();
    let believed = Certificate::read(&path.join(CERTIFICATES))?;
    let mut rows: Vec<Row> = Vec::new();
    for certificate in &believed {
        rows.push(Row {
            name: role_of(path, certificate),
            issuer: Some(certificate.fingerprint()),
            state: State::of_time(certificate, now),
            certificate: certificate.clone(),
        });
    }
    for (name, certificate) in leaves(path)? {
        let issuer = believed.iter().find(|ca| certificate.is_signed_by(ca));
        let (_, key) = files(path, &name);
        // The key of another user cannot be read, and a client of the directory may have none.
        let is_wrong = read_key(&key).is_ok_and(|key| !certificate.has_key(&key));
        let state = match State::of_time(&certificate, now) {
            state @ (State::Expired | State::NotYetValid) => state,
            _ if issuer.is_none() => State::UnknownIssuer,
            _ if is_wrong => State::WrongKey,
            state => state,
        };
        rows.push(Row {
            name,
            issuer: issuer.map(Certificate::fingerprint),
            state,
            certificate,
        });
    }
    match as_json {
        true => rows.iter().for_each(|row| print(&row.json(now))),
        false => {
            let mut table = vec![HEAD.map(str::to_owned).to_vec()];
            table.extend(rows.iter().map(|row| row.cells(now).to_vec()));
            print_table(&table, None);
        }
    }
    let is_good = rows.iter().all(|row| row.state == State::Good);
    Ok(match is_good {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// Returns the name of a CA by its part in the directory.
fn role_of(path: &Path, certificate: &Certificate) -> String {
    let has = |name| read_key(&path.join(name)).is_ok_and(|key| certificate.has_key(&key));
    let role = match () {
        () if has(KEY) => "ca (signs)",
        () if has(NEXT_KEY) => "ca (next)",
        () => "ca",
    };
    role.to_owned()
}

impl Row {
    fn cells(&self, now: i64) -> [String; 7] {
        let certificate = &self.certificate;
        let hosts: Vec<_> = certificate.hosts.iter().map(ToString::to_string).collect();
        let issuer = self.issuer.as_deref().unwrap_or("unknown");
        [
            self.name.clone(),
            certificate.uris.join(" "),
            hosts.join(" "),
            left(certificate.validity.1 - now),
            self.state.word().to_owned(),
            issuer[..issuer.len().min(FINGERPRINT)].to_owned(),
            certificate.serial_digits().to_owned(),
        ]
    }

    /// Returns the row as one line.
    fn json(&self, now: i64) -> String {
        let certificate = &self.certificate;
        let hosts: Vec<_> = certificate.hosts.iter().map(ToString::to_string).collect();
        let (begin, end) = certificate.validity;
        let line = json!({
            "name": self.name,
            "uris": certificate.uris,
            "hosts": hosts,
            "serial": certificate.serial_digits(),
            "notBefore": in_words(begin),
            "notAfter": in_words(end),
            "secondsLeft": end - now,
            "state": self.state.word().to_lowercase().replace(' ', "_"),
            "sha256": certificate.fingerprint(),
            "issuerSha256": self.issuer,
        });
        format!("{line}\n")
    }
}

/// Returns a number of seconds as the two largest units.
fn left(seconds: i64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    match (days, hours) {
        _ if seconds <= 0 => "none".to_owned(),
        (0, 0) => format!("{minutes}min"),
        (0, _) => format!("{hours}h {minutes}min"),
        _ => format!("{days}d {hours}h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_that_is_left_has_its_two_largest_units() {
        for (seconds, expected) in [
            (-1, "none"),
            (0, "none"),
            (59, "0min"),
            (3_599, "59min"),
            (3_661, "1h 1min"),
            (30 * 86_400 - 1, "29d 23h"),
        ] {
            assert_eq!(left(seconds), expected);
        }
    }
}
