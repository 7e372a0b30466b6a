//! The settings of servers and clients.

use std::{net::SocketAddr, time::Duration};

use ::settings::Problems;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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
    /// The address to listen on; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Allows listening beyond loopback although no caller is authenticated: whichever client
    /// reaches the address may then call everything. Default false.
    pub serve_without_authentication_beyond_loopback: bool,
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
    /// Bounds of a connection that no operator sets.
    #[serde(skip)]
    pub connection: ConnectionBounds,
}

/// Bounds of a connection that are no settings: an operator has nothing to judge them by. Tests change them.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionBounds {
    /// The number of files that connections leave to everything else in the process: 128.
    pub reserved_files: usize,
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
            serve_without_authentication_beyond_loopback: false,
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
            connection: ConnectionBounds::default(),
        }
    }
}

/// An address beyond loopback was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("is {address}, which other hosts can reach, although no caller is authenticated")]
pub struct Exposed {
    /// The address.
    pub address: SocketAddr,
}

impl ServerSettings {
    /// Refuses an address that other hosts reach while no caller is authenticated.
    pub(crate) fn check_exposure(&self, address: SocketAddr) -> Result<(), Exposed> {
        let loopback = address.ip().to_canonical().is_loopback();
        if loopback || self.serve_without_authentication_beyond_loopback {
            Ok(())
        } else {
            Err(Exposed { address })
        }
    }

    /// Adds everything that is wrong, with keys below `key`. No limit may be zero or absurd:
    /// zero never means "unlimited".
    pub fn check(&self, key: &str, problems: &mut Problems) {
        if let Err(error) = self.check_exposure(self.listen) {
            problems.add(
                format!("{key}.listen"),
                error.to_string(),
                "listen on a loopback address, or set \
                 serve_without_authentication_beyond_loopback",
            );
        }
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
    /// The address of the service, such as `http://127.0.0.1:7402`. An empty one is refused where the
    /// service is needed.
    pub uri: String,
}

/// An address is not valid.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// It is empty.
    #[error("the address of the service is empty")]
    Empty,
    /// Not an address with `http` and a host.
    #[error("`{uri}` is not a valid service address")]
    Address {
        /// The text.
        uri: String,
    },
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
        if uri.scheme_str() != Some("http") || uri.host().is_none_or(str::is_empty) {
            return Err(bad());
        }
        Ok(uri)
    }

    /// Returns the settings for the service at `uri`.
    pub fn to(uri: impl Into<String>) -> Self {
        Self { uri: uri.into() }
    }

    /// Adds everything that is wrong, with keys below `key`.
    pub fn check(&self, key: &str, problems: &mut Problems) {
        if let Err(error) = self.address() {
            problems.add(
                format!("{key}.uri"),
                error.to_string(),
                "give the address of the service such as http://127.0.0.1:7402",
            );
        }
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
