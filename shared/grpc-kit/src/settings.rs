//! The settings of servers and clients.

use std::{net::SocketAddr, time::Duration};

use ::settings::Problems;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    ServiceName,
    tls::{ClientTls, ServerTls, TlsError},
};

/// The time between two pings of a connection, on both of its sides.
pub(crate) const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(20);
/// The time that a peer may take to answer a ping.
pub(crate) const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);

/// The peers whose trace context becomes the parent of our spans. The context of any other peer
/// becomes a link. Calls in process are always accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TraceTrust {
    /// No peer over a socket.
    None,
    /// Peers on this machine.
    #[default]
    Loopback,
    /// Every peer.
    Anyone,
}

/// The servers on which reflection offers the contract.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Reflection {
    /// No server.
    Off,
    /// Servers that listen on a loopback address.
    #[default]
    Loopback,
    /// Every server.
    On,
}

/// Settings of one server.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ServerSettings {
    /// The address to listen on; port 0 takes a free one. One that other hosts can reach needs `tls`.
    pub listen: SocketAddr,
    /// Connections at once; one more is closed at once. Default 1,024, lowered at start to the
    /// number that the limit of open files allows.
    pub max_connections: usize,
    /// Connections at once from one address (from one /64 network with IPv6); one more is closed
    /// at once. Default 64.
    pub max_connections_per_peer: usize,
    /// Lifts the limits per peer for peers on this machine. Default false.
    pub unlimited_connections_from_loopback: bool,
    /// Server streams at once of one address (of one /64 network with IPv6); one more is refused with
    /// `RESOURCE_EXHAUSTED`. Default 512.
    pub max_streams_per_peer: usize,
    /// Calls at once in the whole server, streams not counted; one more is refused with
    /// `RESOURCE_EXHAUSTED`. Default 1,024.
    pub max_calls: usize,
    /// Server streams at once in the whole server; one more is refused with
    /// `RESOURCE_EXHAUSTED`. Default 1,024.
    pub max_streams: usize,
    /// The largest message that is read. Default `4MiB`.
    #[serde(with = "::settings::SizeText")]
    pub max_request_message: usize,
    /// The age at which a connection is asked to close. Default `30m`.
    #[serde(with = "::settings::DurationText")]
    pub max_connection_age: Duration,
    /// The longest that a call with one answer may take, where its method has no limit of its
    /// own. A caller's shorter deadline is kept. Default `30s`.
    #[serde(with = "::settings::DurationText")]
    pub call_timeout: Duration,
    /// The longest that a server stream may last. Default `1d`.
    #[serde(with = "::settings::DurationText")]
    pub stream_timeout: Duration,
    /// The longest pause between two messages of a server stream. Default `5m`.
    #[serde(with = "::settings::DurationText")]
    pub stream_idle_timeout: Duration,
    /// The time that open calls and streams may take to finish at a shutdown. Default `30s`.
    #[serde(with = "::settings::DurationText")]
    pub drain_grace: Duration,
    /// The peers whose trace context is continued. Default `loopback`.
    pub trace_trust: TraceTrust,
    /// The servers on which reflection answers. Default `loopback`.
    pub reflection: Reflection,
    /// Encryption, and the certificates of callers.
    pub tls: ServerTls,
    /// Bounds of a connection that no operator sets.
    #[serde(skip)]
    pub connection: ConnectionBounds,
}

/// Bounds of a connection that are no settings: an operator has nothing to judge them by. Tests change them.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionBounds {
    /// The number of files that connections leave to everything else in the process: 128.
    pub reserved_files: usize,
    /// The time that a TLS handshake may take: 10 s.
    pub handshake: Duration,
    /// The time between two looks at the files of TLS: 5 s.
    pub certificates: Duration,
    /// The time that a new connection may take for its first bytes (HTTP/1: for its headers): 5 s.
    pub first_bytes: Duration,
    /// The time between two pings of a connection: 20 s.
    pub keepalive_interval: Duration,
    /// The time that a connection may take to answer a ping: 10 s.
    pub keepalive_timeout: Duration,
    /// The time that a connection of the highest age may take to finish its open calls, while it
    /// accepts no new ones: 1 d, as every call has a limit of its own.
    pub age_grace: Duration,
}

impl Default for ConnectionBounds {
    fn default() -> Self {
        Self {
            reserved_files: 128,
            handshake: Duration::from_secs(10),
            certificates: Duration::from_secs(5),
            first_bytes: Duration::from_secs(5),
            keepalive_interval: KEEPALIVE_INTERVAL,
            keepalive_timeout: KEEPALIVE_TIMEOUT,
            age_grace: Duration::from_secs(24 * 60 * 60),
        }
    }
}

impl Default for ServerSettings {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            max_connections: 1_024,
            max_connections_per_peer: 64,
            unlimited_connections_from_loopback: false,
            max_streams_per_peer: 512,
            max_calls: 1_024,
            max_streams: 1_024,
            max_request_message: 4 << 20,
            max_connection_age: Duration::from_secs(30 * 60),
            call_timeout: Duration::from_secs(30),
            stream_timeout: Duration::from_secs(24 * 60 * 60),
            stream_idle_timeout: Duration::from_secs(5 * 60),
            drain_grace: Duration::from_secs(30),
            trace_trust: TraceTrust::Loopback,
            reflection: Reflection::Loopback,
            tls: ServerTls::default(),
            connection: ConnectionBounds::default(),
        }
    }
}

/// The callers of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Callers {
    /// Clients, who prove themselves at its door by a credential.
    Clients,
    /// Services, which prove themselves by a certificate.
    Services,
}

/// The keys of earlier versions in the settings of a service, with the remedies.
pub const REPLACED: &[(&str, &str)] = &[(
    "server.serve_without_authentication_beyond_loopback",
    "remove it, and set server.tls.cert and server.tls.key (`tavern certs` makes them), or \
     server.tls.terminated_by_proxy; clients then need a key (`tavern keys bootstrap`), and services \
     server.tls.peer_ca",
)];

/// An address beyond loopback was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Exposed {
    /// Its connections would not be encrypted.
    #[error("is {0}, which other hosts can reach, and connections are not encrypted")]
    Unencrypted(SocketAddr),
    /// Its callers, which are services, would not be proven.
    #[error("is {0}, which other hosts can reach, and no service that calls has to prove itself")]
    Unproven(SocketAddr),
}

impl Exposed {
    /// Returns the way out, for people.
    pub const fn remedy(&self) -> &'static str {
        match self {
            Self::Unencrypted(_) => {
                "listen on a loopback address, or set tls.cert and tls.key, or tls.terminated_by_proxy"
            }
            Self::Unproven(_) => {
                "listen on a loopback address, or set tls.cert, tls.key and tls.peer_ca"
            }
        }
    }
}

impl ServerSettings {
    /// Refuses an address that other hosts reach where connections are not encrypted, or services not proven.
    pub(crate) fn check_exposure(
        &self,
        address: SocketAddr,
        callers: Callers,
    ) -> Result<(), Exposed> {
        if address.ip().to_canonical().is_loopback() {
            return Ok(());
        }
        let tls = &self.tls;
        match callers {
            Callers::Services if !tls.proves_peers() => Err(Exposed::Unproven(address)),
            _ if !tls.is_on() && tls.terminated_by_proxy.is_empty() => {
                Err(Exposed::Unencrypted(address))
            }
            _ => Ok(()),
        }
    }

    /// Whether clients of other hosts reach the server, directly or by a proxy, so that none of them is `local`.
    pub fn is_exposed(&self) -> bool {
        let is_near = self.listen.ip().to_canonical().is_loopback();
        !is_near || !self.tls.terminated_by_proxy.is_empty()
    }

    /// Adds everything that is wrong, with keys below `key`. No limit may be zero or absurd:
    /// zero never means "unlimited".
    pub fn check(&self, key: &str, callers: Callers, problems: &mut Problems) {
        if let Err(error) = self.check_exposure(self.listen, callers) {
            problems.add(format!("{key}.listen"), error.to_string(), error.remedy());
        }
        if callers == Callers::Services && !self.tls.terminated_by_proxy.is_empty() {
            let what = "is for servers that clients call";
            let remedy = "remove it: services prove themselves by tls.peer_ca";
            problems.add(format!("{key}.tls.terminated_by_proxy"), what, remedy);
        }
        self.tls.check(&format!("{key}.tls"), problems);
        self.check_counts(key, problems);
        self.check_sizes(key, problems);
        let durations = [
            ("max_connection_age", self.max_connection_age),
            ("call_timeout", self.call_timeout),
            ("stream_timeout", self.stream_timeout),
            ("stream_idle_timeout", self.stream_idle_timeout),
            ("drain_grace", self.drain_grace),
        ];
        check_durations(key, &durations, problems);
    }

    /// Adds everything that is wrong with the server of `service`, with keys below `key`.
    pub fn check_service(&self, key: &str, service: ServiceName, problems: &mut Problems) {
        let callers = match service {
            ServiceName::Gateway => Callers::Clients,
            _ => Callers::Services,
        };
        self.check(key, callers, problems);
        self.tls
            .check_service(&format!("{key}.tls"), service, problems);
    }

    fn check_counts(&self, key: &str, problems: &mut Problems) {
        let counts = [
            ("max_connections", self.max_connections, 100_000),
            (
                "max_connections_per_peer",
                self.max_connections_per_peer,
                100_000,
            ),
            ("max_calls", self.max_calls, 1_000_000),
            ("max_streams_per_peer", self.max_streams_per_peer, 1_000_000),
            ("max_streams", self.max_streams, 1_000_000),
        ];
        for (name, value, maximum) in counts {
            if !(1..=maximum).contains(&value) {
                problems.add(
                    format!("{key}.{name}"),
                    format!("is {value}"),
                    format!("give a number from 1 to {maximum}"),
                );
            }
        }
    }

    fn check_sizes(&self, key: &str, problems: &mut Problems) {
        let (least, most) = (1 << 10, 256 << 20);
        if !(least..=most).contains(&self.max_request_message) {
            let print = ::settings::size::print;
            problems.add(
                format!("{key}.max_request_message"),
                format!("is {}", print(self.max_request_message)),
                format!("give a size from {} to {}", print(least), print(most)),
            );
        }
    }
}

/// Settings of the way to one remote service.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ClientSettings {
    /// The address of the service, such as `http://127.0.0.1:7402`, or `https://…` for TLS. An empty one is refused
    /// where the service is needed.
    pub uri: String,
    /// The certificates of an `https` address.
    pub tls: ClientTls,
}

/// A service cannot be reached by its settings.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// The address is empty.
    #[error("the address of the service is empty")]
    Empty,
    /// Not an address with `http` or `https` and a host.
    #[error("`{uri}` is not a valid service address")]
    Address {
        /// The text.
        uri: String,
    },
    /// The certificates cannot be used.
    #[error("TLS cannot be used")]
    Tls(#[from] TlsError),
}

impl ClientSettings {
    /// Reads the address.
    pub(crate) fn address(&self) -> Result<http::Uri, TransportError> {
        if self.uri.is_empty() {
            return Err(TransportError::Empty);
        }
        let bad = || TransportError::Address {
            uri: self.uri.clone(),
        };
        let uri: http::Uri = self.uri.parse().map_err(|_| bad())?;
        let is_http = matches!(uri.scheme_str(), Some("http" | "https"));
        if !is_http || uri.host().is_none_or(str::is_empty) {
            return Err(bad());
        }
        Ok(uri)
    }

    /// Returns the settings for the service at `uri`.
    pub fn to(uri: impl Into<String>) -> Self {
        Self {
            uri: uri.into(),
            tls: ClientTls::default(),
        }
    }

    /// Returns the settings for calls of `service` by the one with `server`: whatever of TLS is not set is as the
    /// service has it for its own callers, and where it proves itself, the other one has to as well.
    #[must_use]
    pub fn beside(&self, server: &ServerSettings, service: ServiceName) -> Self {
        let mut own = self.clone();
        if own.is_encrypted() {
            own.tls.complete(&server.tls, service);
        }
        own
    }

    /// Whether the service that calls proves itself by a certificate.
    pub fn proves_caller(&self) -> bool {
        self.is_encrypted() && self.tls.has_certificate()
    }

    /// Adds everything that is wrong with the way to `service` of the one with `server`, with keys below `key`.
    pub fn check_beside(
        &self,
        key: &str,
        (server, service): (&ServerSettings, ServiceName),
        problems: &mut Problems,
    ) {
        // Without settings of its own it has those of the server, which are checked already.
        match self.tls.is_empty() {
            true => self.check(key, problems),
            false => self.beside(server, service).check(key, problems),
        }
        let is_plain = self.address().is_ok() && !self.is_encrypted();
        if is_plain && server.tls.proves_peers() {
            problems.add(
                format!("{key}.uri"),
                format!("is {}, where no service proves itself", self.uri),
                "give an address with https, or take server.tls.peer_ca away",
            );
        }
    }

    /// Whether the address is one with TLS.
    fn is_encrypted(&self) -> bool {
        self.address()
            .is_ok_and(|address| address.scheme_str() == Some("https"))
    }

    /// Adds everything that is wrong, with keys below `key`.
    pub fn check(&self, key: &str, problems: &mut Problems) {
        if let Err(error) = self.address() {
            problems.add(
                format!("{key}.uri"),
                error.to_string(),
                "give the address of the service such as http://127.0.0.1:7402",
            );
        } else if !self.is_encrypted() && !self.tls.is_empty() {
            let what = "has certificates for an address without TLS";
            problems.add(format!("{key}.tls"), what, "give an address with https");
        }
        self.tls.check(&format!("{key}.tls"), problems);
    }
}

fn check_durations(key: &str, durations: &[(&str, Duration)], problems: &mut Problems) {
    for (name, value) in durations {
        if value.is_zero() || *value > Duration::from_secs(7 * 24 * 60 * 60) {
            problems.add(
                format!("{key}.{name}"),
                format!("is {}", ::settings::duration::print(*value)),
                "give a duration from 1ms to 7d",
            );
        }
    }
}
