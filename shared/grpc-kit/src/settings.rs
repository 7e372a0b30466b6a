//! What an operator can choose about servers and clients.

use std::{net::SocketAddr, time::Duration};

use ::settings::Problems;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Whose trace context becomes the parent of our spans. Of any other peer it becomes a link.
/// Calls in process are always accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TraceTrust {
    /// None that comes over a socket.
    None,
    /// That of peers on this machine.
    #[default]
    Loopback,
    /// That of every peer.
    Anyone,
}

/// Where the contract can be read through server reflection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Reflection {
    /// Nowhere.
    Off,
    /// On servers that listen on a loopback address.
    #[default]
    Loopback,
    /// Everywhere.
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
    /// Connections at once; one more is closed at once. Default 1,024, lowered at start to what
    /// the limit of open files leaves.
    pub max_connections: usize,
    /// Connections at once from one address (from one /64 network with IPv6); one more is closed
    /// at once. Default 64.
    pub max_connections_per_peer: usize,
    /// Lifts the limits per peer for peers on this machine. Default false.
    pub unlimited_connections_from_loopback: bool,
    /// Files that connections leave to everything else in the process. Default 128.
    pub reserved_files: usize,
    /// Calls and streams at once on one connection; one more waits at the client. Default 256.
    pub max_concurrent_streams: u32,
    /// Server streams at once on one connection; one more is refused with `RESOURCE_EXHAUSTED`. Less
    /// than `max_concurrent_streams`, so that calls always have room beside them. Default 192.
    pub max_streams_per_connection: usize,
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
    /// The largest message that is sent. Default `4MiB`.
    #[serde(with = "::settings::SizeText")]
    pub max_response_message: usize,
    /// The largest list of headers of a request. Default `8KiB`.
    #[serde(with = "::settings::SizeText")]
    pub max_header_list: usize,
    /// PING, SETTINGS and other control frames that a connection may send beyond one per second
    /// and a few per message; then it is closed. Default 256.
    pub max_control_frames: u32,
    /// How long a new connection may take for its first bytes (HTTP/1: for its headers).
    /// Default `5s`.
    #[serde(with = "::settings::DurationText")]
    pub first_bytes_timeout: Duration,
    /// How often a connection is pinged. Default `20s`.
    #[serde(with = "::settings::DurationText")]
    pub keepalive_interval: Duration,
    /// How long a connection may take to answer a ping. Default `10s`.
    #[serde(with = "::settings::DurationText")]
    pub keepalive_timeout: Duration,
    /// The age at which a connection is asked to close. Default `30m`.
    #[serde(with = "::settings::DurationText")]
    pub max_connection_age: Duration,
    /// How long it may then take to finish what it has begun, while it takes no new calls. Default
    /// `1d`, as every call has a limit of its own.
    #[serde(with = "::settings::DurationText")]
    pub connection_age_grace: Duration,
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
    /// How long a server that has to end continues accepting while its health reports that it is
    /// not serving, so that balancers notice. Nothing is waited for on loopback. Default `2s`.
    #[serde(with = "::settings::DurationText")]
    pub drain_notice: Duration,
    /// How long what was begun may then take to finish. Default `30s`.
    #[serde(with = "::settings::DurationText")]
    pub drain_grace: Duration,
    /// Whose trace context is continued. Default `loopback`.
    pub trace_trust: TraceTrust,
    /// Where reflection answers. Default `loopback`.
    pub reflection: Reflection,
}

impl Default for ServerSettings {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            serve_without_authentication_beyond_loopback: false,
            max_connections: 1_024,
            max_connections_per_peer: 64,
            unlimited_connections_from_loopback: false,
            reserved_files: 128,
            max_concurrent_streams: 256,
            max_streams_per_connection: 192,
            max_streams_per_peer: 512,
            max_calls: 1_024,
            max_streams: 1_024,
            max_request_message: 4 << 20,
            max_response_message: 4 << 20,
            max_header_list: 8 << 10,
            max_control_frames: 256,
            first_bytes_timeout: Duration::from_secs(5),
            keepalive_interval: Duration::from_secs(20),
            keepalive_timeout: Duration::from_secs(10),
            max_connection_age: Duration::from_secs(30 * 60),
            connection_age_grace: Duration::from_secs(24 * 60 * 60),
            call_timeout: Duration::from_secs(30),
            stream_timeout: Duration::from_secs(24 * 60 * 60),
            stream_idle_timeout: Duration::from_secs(5 * 60),
            drain_notice: Duration::from_secs(2),
            drain_grace: Duration::from_secs(30),
            trace_trust: TraceTrust::Loopback,
            reflection: Reflection::Loopback,
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
            ("first_bytes_timeout", self.first_bytes_timeout),
            ("keepalive_interval", self.keepalive_interval),
            ("keepalive_timeout", self.keepalive_timeout),
            ("max_connection_age", self.max_connection_age),
            ("connection_age_grace", self.connection_age_grace),
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
            (
                "max_concurrent_streams",
                self.max_concurrent_streams as usize,
                10_000,
            ),
            ("max_calls", self.max_calls, 1_000_000),
            (
                "max_streams_per_connection",
                self.max_streams_per_connection,
                10_000,
            ),
            ("max_streams_per_peer", self.max_streams_per_peer, 1_000_000),
            ("max_streams", self.max_streams, 1_000_000),
            (
                "max_control_frames",
                self.max_control_frames as usize,
                1_000_000,
            ),
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
        if self.max_streams_per_connection >= self.max_concurrent_streams as usize {
            problems.add(
                format!("{key}.max_streams_per_connection"),
                format!("is {}", self.max_streams_per_connection),
                "give a number below max_concurrent_streams, so that calls have room beside streams",
            );
        }
    }

    fn check_sizes(&self, key: &str, problems: &mut Problems) {
        let sizes = [
            (
                "max_request_message",
                self.max_request_message,
                1 << 10,
                256 << 20,
            ),
            (
                "max_response_message",
                self.max_response_message,
                1 << 10,
                256 << 20,
            ),
            ("max_header_list", self.max_header_list, 4 << 10, 1 << 20),
        ];
        for (name, value, minimum, maximum) in sizes {
            if !(minimum..=maximum).contains(&value) {
                let print = ::settings::size::print;
                problems.add(
                    format!("{key}.{name}"),
                    format!("is {}", print(value)),
                    format!("give a size from {} to {}", print(minimum), print(maximum)),
                );
            }
        }
    }
}

/// Settings of the way to one remote service.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ClientSettings {
    /// The address of the service, such as `http://127.0.0.1:7402`. An empty one is refused where the
    /// service is needed.
    pub uri: String,
    /// How long connecting may take. Default `5s`.
    #[serde(with = "::settings::DurationText")]
    pub connect_timeout: Duration,
    /// How often the service is pinged. Default `20s`.
    #[serde(with = "::settings::DurationText")]
    pub keepalive_interval: Duration,
    /// How long it may take to answer a ping. Default `10s`.
    #[serde(with = "::settings::DurationText")]
    pub keepalive_timeout: Duration,
}

impl Default for ClientSettings {
    fn default() -> Self {
        Self {
            uri: String::new(),
            connect_timeout: Duration::from_secs(5),
            keepalive_interval: Duration::from_secs(20),
            keepalive_timeout: Duration::from_secs(10),
        }
    }
}

/// An address is not valid.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// Nothing is there.
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

    /// Returns the settings for the service at `uri`, everything else as by default.
    pub fn to(uri: impl Into<String>) -> Self {
        Self {
            uri: uri.into(),
            ..Self::default()
        }
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
        let durations = [
            ("connect_timeout", self.connect_timeout),
            ("keepalive_interval", self.keepalive_interval),
            ("keepalive_timeout", self.keepalive_timeout),
        ];
        check_durations(key, &durations, problems);
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
