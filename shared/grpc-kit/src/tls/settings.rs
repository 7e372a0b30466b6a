//! The settings of TLS.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{ServiceId, ServiceName, TrustDomain};

/// TLS of a server.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ServerTls {
    /// The PEM file with the certificate of the server, followed by those of intermediate CAs; empty for a server
    /// without TLS. It is read again when it changes, as are the other files. Default: none.
    pub cert: PathBuf,
    /// The PEM file with the private key of the certificate. Default: none.
    pub key: PathBuf,
    /// The PEM file with the CAs of services. A server that only services call then answers only those whose
    /// certificate names them, by the URI `spiffe://<domain>/tavern/<service>`; health checks need none. Two CAs
    /// may overlap. Default: none.
    pub peer_ca: PathBuf,
    /// The domain in the certificates of services. Default: `tavern.internal`.
    pub domain: String,
    /// Whether clients may speak TLS 1.2, besides 1.3. Default: false.
    pub allow_tls12: bool,
    /// The addresses of proxies that end TLS in front of a server without TLS, such as `10.0.0.2` or `10.0.0.0/8`.
    /// Only they can connect, health checks included. The client of a call is the one that they state in `forwarded`
    /// or `x-forwarded-for`, so they must append to these headers or overwrite them, and must overwrite
    /// `x-forwarded-proto` and `x-forwarded-host`. Default: none.
    pub terminated_by_proxy: Vec<String>,
}

impl Default for ServerTls {
    fn default() -> Self {
        Self {
            cert: PathBuf::new(),
            key: PathBuf::new(),
            peer_ca: PathBuf::new(),
            domain: TrustDomain::DEFAULT.to_owned(),
            allow_tls12: false,
            terminated_by_proxy: Vec::new(),
        }
    }
}

impl ServerTls {
    /// Whether connections are encrypted.
    pub fn is_on(&self) -> bool {
        !is_none(&self.cert)
    }

    /// Whether only services with a certificate are answered.
    pub fn proves_peers(&self) -> bool {
        self.is_on() && !is_none(&self.peer_ca)
    }
}

/// TLS of a client.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ClientTls {
    /// The PEM file with the CAs that are believed. It is read again when it changes, as are the other files.
    /// Default: the CAs of this machine.
    pub ca: PathBuf,
    /// The name in the certificate of the server: of a host, or the URI of a service such as
    /// `spiffe://tavern.internal/tavern/registry`. Default: the host of the address.
    pub name: String,
    /// The PEM file with the certificate by which the client proves itself. Default: none.
    pub cert: PathBuf,
    /// The PEM file with the private key of the certificate. Default: none.
    pub key: PathBuf,
}

impl ClientTls {
    /// Whether nothing is set.
    pub fn is_empty(&self) -> bool {
        is_none(&self.ca) && self.name.is_empty() && is_none(&self.cert) && is_none(&self.key)
    }

    /// Whether the client proves itself by a certificate.
    pub(crate) fn has_certificate(&self) -> bool {
        !is_none(&self.cert)
    }

    /// Takes whatever is not set from a server of the service that calls `service`. Where that proves itself, it
    /// expects the other one to be `service`.
    pub(crate) fn complete(&mut self, server: &ServerTls, service: ServiceName) {
        if is_none(&self.ca) {
            self.ca.clone_from(&server.peer_ca);
        }
        if is_none(&self.cert) {
            self.cert.clone_from(&server.cert);
            self.key.clone_from(&server.key);
        }
        if self.name.is_empty()
            && self.has_certificate()
            && !is_none(&self.ca)
            && let Ok(domain) = server.domain.parse()
        {
            self.name = ServiceId { domain, service }.to_string();
        }
    }
}

/// Whether a file is not set.
pub(super) fn is_none(path: &Path) -> bool {
    path.as_os_str().is_empty()
}

#[cfg(test)]
mod tests {
    use ::settings::Problems;

    use crate::{ClientSettings, ServerSettings};

    use super::*;

    fn server(peer_ca: &str) -> ServerSettings {
        ServerSettings {
            tls: ServerTls {
                cert: "own.pem".into(),
                key: "own.key".into(),
                peer_ca: peer_ca.into(),
                domain: "example.internal".to_owned(),
                ..ServerTls::default()
            },
            ..ServerSettings::default()
        }
    }

    #[test]
    fn a_service_that_proves_itself_expects_the_service_that_it_calls() {
        let own = server("ca.pem");
        let way = ClientSettings::to("https://a:1").beside(&own, ServiceName::Agent);
        let tls = &way.tls;
        let files = [&tls.ca, &tls.cert, &tls.key].map(|file| file.to_str().unwrap());
        assert_eq!(files, ["ca.pem", "own.pem", "own.key"]);
        assert_eq!(tls.name, "spiffe://example.internal/tavern/agent");
        assert!(way.proves_caller());
    }

    #[test]
    fn what_is_set_for_a_way_stays() {
        let mut set = ClientSettings::to("https://a:1");
        set.tls = ClientTls {
            ca: "other-ca.pem".into(),
            name: "a.example.com".to_owned(),
            cert: "other.pem".into(),
            key: "other.key".into(),
        };
        let way = set.beside(&server("ca.pem"), ServiceName::Agent);
        assert_eq!(format!("{:?}", way.tls), format!("{:?}", set.tls));
    }

    #[test]
    fn a_way_without_tls_proves_nothing_and_is_refused_where_services_prove_themselves() {
        let plain = ClientSettings::to("http://a:1");
        assert!(
            !plain
                .beside(&server("ca.pem"), ServiceName::Agent)
                .proves_caller()
        );
        for (peer_ca, is_refused) in [("", false), ("ca.pem", true)] {
            let mut problems = Problems::default();
            plain.check_beside(
                "agent",
                (&server(peer_ca), ServiceName::Agent),
                &mut problems,
            );
            assert_eq!(!problems.is_empty(), is_refused, "{peer_ca}");
        }
    }
}
