//! The check of the settings of TLS, which reads the files.

use std::path::Path;

use ::settings::Problems;

use super::{
    client,
    error::TlsError,
    leaf, proxies, server,
    settings::{ClientTls, ServerTls, is_none},
};
use crate::{ServiceName, TrustDomain, failure};

impl ServerTls {
    /// Adds the fault of a certificate by which `service` cannot prove itself.
    pub(crate) fn check_service(&self, key: &str, service: ServiceName, problems: &mut Problems) {
        // Files that cannot be used have another fault.
        if self.proves_peers()
            && let Err(error @ TlsError::OtherService { .. }) = leaf::check(self, service)
        {
            add_error(&format!("{key}.cert"), &error, problems);
        }
    }

    /// Adds everything that is wrong, with keys below `key`.
    pub(crate) fn check(&self, key: &str, problems: &mut Problems) {
        proxies::check(
            &format!("{key}.terminated_by_proxy"),
            &self.terminated_by_proxy,
            problems,
        );
        if self.is_on() && !self.terminated_by_proxy.is_empty() {
            let what = "names proxies that end TLS, which the server ends itself";
            let remedy = "set either terminated_by_proxy, or cert and key";
            problems.add(format!("{key}.terminated_by_proxy"), what, remedy);
        }
        let is_whole = check_pair(key, &self.cert, &self.key, problems);
        if let Err(error) = self.domain.parse::<TrustDomain>() {
            let remedy = "give the domain that `tavern certs show` prints";
            problems.add(format!("{key}.domain"), error.to_string(), remedy);
        } else if is_whole && let Err(error) = server::check(self) {
            add_error(key, &error, problems);
        }
    }
}

impl ClientTls {
    /// Adds everything that is wrong, with keys below `key`.
    pub(crate) fn check(&self, key: &str, problems: &mut Problems) {
        let is_whole = check_pair(key, &self.cert, &self.key, problems);
        if is_whole && let Err(error) = client::check(self) {
            add_error(key, &error, problems);
        }
    }
}

/// Whether a certificate and its key are both named, or neither.
fn check_pair(key: &str, cert: &Path, private: &Path, problems: &mut Problems) -> bool {
    let missing = match (is_none(cert), is_none(private)) {
        (false, true) => "key",
        (true, false) => "cert",
        _ => return true,
    };
    let remedy = "name both files, or neither";
    problems.add(format!("{key}.{missing}"), "is missing", remedy);
    false
}

fn add_error(key: &str, error: &TlsError, problems: &mut Problems) {
    let remedy = error.remedy();
    problems.add(key, failure::chain(error), remedy);
}
