//! `network`: the hosts that a plugin may reach.

use super::Reader;
use crate::{
    permissions::{DEFAULT_PORT, MAX_HOSTS, permission::Permission},
    section::Section,
};

/// The longest name of a host, in bytes, by the rules of DNS.
const MAX_HOST_BYTES: usize = 253;

impl Reader<'_> {
    pub(super) fn hosts(&mut self, section: &mut Section<'_>) {
        let place = section.place("network");
        let entries = self.entries(section, "network", "host");
        if entries.len() > MAX_HOSTS {
            let message = format!(
                "asks for {} hosts; at most {MAX_HOSTS}: remove some",
                entries.len()
            );
            self.wrong(&place, "limit_exceeded", message);
        }
        for mut entry in entries {
            let digits = |port: &str| !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
            let (host, written) = match entry.name.rsplit_once(':') {
                Some((host, port)) if entry.rest.is_none() && digits(port) => {
                    (host.to_owned(), Some(port.parse().unwrap_or_default()))
                }
                _ => (entry.name.clone(), None),
            };
            let port = match &mut entry.rest {
                Some(rest) => rest
                    .whole("port", 1..=i64::from(u16::MAX), self.findings)
                    .and_then(|port| u16::try_from(port).ok()),
                None => written,
            };
            match (host_name(&host), port.unwrap_or(DEFAULT_PORT)) {
                (Ok(host), port) if port > 0 => {
                    self.ask(&entry, Permission::Network { host, port })
                }
                (Ok(_), _) => {
                    let message = format!("'{}' has no port from 1 to 65535", entry.name);
                    self.wrong(&entry.pointer, "out_of_range", message);
                }
                (Err(problem), _) => {
                    let message = format!("'{}' {problem}", entry.name);
                    self.wrong(&entry.pointer, "invalid_host", message);
                }
            }
            self.close(entry);
        }
    }
}

/// Returns a host name in lower case.
fn host_name(written: &str) -> Result<String, &'static str> {
    let host = written.to_ascii_lowercase();
    if host.contains('*') {
        return Err("has a wildcard; name each host");
    }
    let label = |label: &str| {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
        (1..=63).contains(&label.len())
            && label.chars().all(plain)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    if host.len() > MAX_HOST_BYTES || !host.split('.').all(label) {
        return Err(
            "is not a host name; write it without scheme and path, such as api.example.com",
        );
    }
    let last = host.rsplit('.').next().unwrap_or_default();
    if last.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err("is an address, which no certificate names; write the host's name");
    }
    Ok(host)
}
