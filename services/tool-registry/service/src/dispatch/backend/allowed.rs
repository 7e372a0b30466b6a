//! Which hosts a gRPC server may be registered on.

use std::{net::IpAddr, sync::Arc};

/// Loopback, and the hosts that the operator lists.
#[derive(Clone, Debug, Default)]
pub struct AllowedHosts {
    listed: Arc<[String]>,
}

impl AllowedHosts {
    /// Takes the hosts of the settings, each as `host` for every port or as `host:port`.
    pub fn new(listed: &[String]) -> Self {
        Self {
            listed: listed
                .iter()
                .map(|host| host.to_ascii_lowercase())
                .collect(),
        }
    }

    /// Whether an entry of the settings can match anything.
    pub fn is_valid(entry: &str) -> bool {
        let authority = entry.parse::<http::uri::Authority>();
        authority.is_ok_and(|authority| !authority.host().is_empty() && !entry.contains('@'))
    }

    /// Whether a host, as it stands in an address, may be dialled.
    pub(super) fn allow(&self, host: &str, port: u16) -> bool {
        let host = host.to_ascii_lowercase();
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let address: Option<IpAddr> = bare.parse().ok();
        if host == "localhost"
            || address.is_some_and(|address| address.to_canonical().is_loopback())
        {
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
            assert_eq!(allowed.allow(host, port), expected, "{host}:{port}");
        }
        assert!(AllowedHosts::is_valid("tools.internal:50051") && AllowedHosts::is_valid("[::2]"));
        assert!(!AllowedHosts::is_valid("http://x") && !AllowedHosts::is_valid("a@b"));
    }
}
