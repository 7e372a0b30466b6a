//! Which hosts a gRPC server may be registered on.

use std::{
    net::IpAddr,
    path::PathBuf,
    sync::{Arc, OnceLock},
};

use core_types::Tenant;
use grpc_kit::tls::{ClientTls, Connector, TlsError};

/// The hosts that the operator lists, and loopback for the tenants that are the operator's own: at loopback, a caller
/// of another tenant would reach every port of the machine.
#[derive(Clone, Debug, Default)]
pub struct AllowedHosts {
    listed: Arc<[String]>,
    tls: ClientTls,
    /// Made once: it reads the CAs.
    connector: Arc<OnceLock<Connector>>,
}

impl AllowedHosts {
    /// Takes the hosts of the settings, each as `host` for every port or as `host:port`.
    pub fn new(listed: &[String]) -> Self {
        Self {
            listed: listed
                .iter()
                .map(|host| host.to_ascii_lowercase())
                .collect(),
            tls: ClientTls::default(),
            connector: Arc::default(),
        }
    }

    /// Sets the CAs of hosts at `https` addresses, in place of those of this machine.
    #[must_use]
    pub fn believing(mut self, ca: PathBuf) -> Self {
        self.tls.ca = ca;
        self
    }

    /// Returns the maker of connections to hosts at `https` addresses.
    ///
    /// # Errors
    /// The CAs cannot be used.
    pub(crate) fn connector(&self) -> Result<Connector, TlsError> {
        if let Some(made) = self.connector.get() {
            return Ok(made.clone());
        }
        let made = Connector::new(&self.tls)?;
        Ok(self.connector.get_or_init(|| made).clone())
    }

    /// Whether an entry of the settings can match anything.
    pub fn is_valid(entry: &str) -> bool {
        let authority = entry.parse::<http::uri::Authority>();
        authority.is_ok_and(|authority| !authority.host().is_empty() && !entry.contains('@'))
    }

    /// Whether a tenant may dial loopback without an entry of the settings.
    pub(super) fn has_loopback(tenant: Tenant) -> bool {
        [Tenant::DEFAULT, Tenant::SYSTEM].contains(&tenant)
    }

    /// Whether a host, as it stands in an address, may be dialled for a tenant.
    pub(super) fn allow(&self, tenant: Tenant, host: &str, port: u16) -> bool {
        let host = host.to_ascii_lowercase();
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let address: Option<IpAddr> = bare.parse().ok();
        let is_loopback = host == "localhost"
            || address.is_some_and(|address| address.to_canonical().is_loopback());
        if is_loopback && Self::has_loopback(tenant) {
            return true;
        }
        let with_port = format!("{host}:{port}");
        self.listed
            .iter()
            .any(|listed| *listed == host || *listed == with_port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_and_listed_hosts_are_allowed_and_nothing_else() {
        let listed = ["Tools.internal", "10.0.0.5:50051"].map(String::from);
        let allowed = AllowedHosts::new(&listed);
        for (host, port, expected) in [
            ("127.0.0.1", 1, true),
            ("127.9.9.9", 1, true),
            ("LOCALHOST", 1, true),
            ("[::1]", 1, true),
            ("[::ffff:127.0.0.1]", 1, true),
            ("tools.internal", 7, true),
            ("10.0.0.5", 50051, true),
            ("10.0.0.5", 50052, false),
            ("x.tools.internal", 7, false),
            ("169.254.169.254", 80, false),
            ("0.0.0.0", 80, false),
            ("localhost.evil", 80, false),
        ] {
            for tenant in [Tenant::DEFAULT, Tenant::SYSTEM] {
                let is_allowed = allowed.allow(tenant, host, port);
                assert_eq!(is_allowed, expected, "{tenant} {host}:{port}");
            }
        }
        assert!(AllowedHosts::is_valid("tools.internal:50051") && AllowedHosts::is_valid("[::2]"));
        assert!(!AllowedHosts::is_valid("http://x") && !AllowedHosts::is_valid("a@b"));
    }

    #[test]
    fn another_tenant_reaches_loopback_only_where_the_settings_list_it() {
        let (acme, listed) = (Tenant::new("acme").unwrap(), ["127.0.0.1:7".to_owned()]);
        for (listed, host, port, expected) in [
            (&[][..], "localhost", 7, false),
            (&[], "127.0.0.1", 7, false),
            (&[], "[::1]", 7, false),
            (&[], "[::ffff:127.0.0.1]", 7, false),
            (&listed, "127.0.0.1", 7, true),
            (&listed, "127.0.0.1", 8, false),
        ] {
            let allowed = AllowedHosts::new(listed);
            assert_eq!(allowed.allow(acme, host, port), expected, "{host}:{port}");
        }
    }
}
