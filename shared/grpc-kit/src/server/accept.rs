//! Who may connect, how many at once, and going on when files run out.

use std::{
    collections::HashMap,
    io,
    net::{IpAddr, Ipv6Addr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::net::TcpListener;
use tokio_util::task::TaskTracker;

use super::{ServeError, connection, connection::Endpoint};
use crate::settings::ServerSettings;

/// How long accepting pauses when the system has no files or memory left for a connection.
const PAUSE: Duration = Duration::from_millis(100);

/// Counts connections and refuses those beyond the limits.
#[derive(Clone, Debug)]
pub(super) struct Gate(Arc<Counted>);

#[derive(Debug)]
struct Counted {
    maximum: usize,
    per_peer: usize,
    unlimited_loopback: bool,
    /// Locked for a moment at the begin and end of a connection, never across an await.
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    total: usize,
    /// Has an entry only for peers with connections, so it is no larger than `total`.
    by_peer: HashMap<IpAddr, usize>,
}

/// A place among the connections, free again when dropped.
#[derive(Debug)]
pub(super) struct Place {
    gate: Gate,
    peer: IpAddr,
}

impl Gate {
    pub(super) fn new(settings: &ServerSettings) -> Result<Self, ServeError> {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let mut maximum = settings.max_connections;
        if let Some(limit) = limit {
            let left = limit.saturating_sub(settings.reserved_files as u64);
            if left == 0 {
                return Err(ServeError::TooFewFiles {
                    limit,
                    reserved: settings.reserved_files,
                });
            }
            maximum = maximum.min(usize::try_from(left).unwrap_or(usize::MAX));
        }
        Ok(Self(Arc::new(Counted {
            maximum,
            per_peer: settings.max_connections_per_peer,
            unlimited_loopback: settings.unlimited_connections_from_loopback,
            open: Mutex::default(),
        })))
    }

    fn enter(&self, address: SocketAddr) -> Option<Place> {
        let address = address.ip().to_canonical();
        let peer = network_of(address);
        let unlimited = self.0.unlimited_loopback && address.is_loopback();
        let mut open = self.open();
        let from_peer = open.by_peer.get(&peer).copied().unwrap_or(0);
        if open.total >= self.0.maximum || (from_peer >= self.0.per_peer && !unlimited) {
            return None;
        }
        open.total += 1;
        open.by_peer.insert(peer, from_peer + 1);
        Some(Place {
            gate: self.clone(),
            peer,
        })
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        // The counts are right even if a holder panicked: nothing between them can.
        self.0.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = self.gate.open();
        open.total = open.total.saturating_sub(1);
        let left = open
            .by_peer
            .get(&self.peer)
            .copied()
            .unwrap_or(0)
            .saturating_sub(1);
        if left == 0 {
            open.by_peer.remove(&self.peer);
        } else {
            open.by_peer.insert(self.peer, left);
        }
    }
}

/// What counts as one peer: an IPv4 address, or an IPv6 network as one customer gets it.
fn network_of(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(
            address.to_bits() & !u128::from(u64::MAX),
        )),
    }
}

/// Accepts connections for ever; each becomes a task of `connections`.
pub(super) async fn run(
    listener: TcpListener,
    gate: Gate,
    endpoint: Arc<Endpoint>,
    connections: TaskTracker,
) {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => match gate.enter(peer) {
                Some(place) => {
                    connections.spawn(connection::run(endpoint.clone(), stream, peer, place));
                }
                None => tracing::debug!(%peer, "connection refused: too many are open"),
            },
            Err(error) if is_of_one_connection(&error) => {}
            Err(error) => {
                tracing::warn!(%error, "accepting pauses");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// Says whether an error concerns only the connection that was about to be accepted.
fn is_of_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::Interrupted
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate(maximum: usize, per_peer: usize) -> Gate {
        Gate::new(&ServerSettings {
            max_connections: maximum,
            max_connections_per_peer: per_peer,
            unlimited_connections_from_loopback: true,
            ..ServerSettings::default()
        })
        .unwrap()
    }

    fn peer(text: &str) -> SocketAddr {
        SocketAddr::new(text.parse().unwrap(), 1)
    }

    #[test]
    fn a_peer_has_its_share_and_gets_it_back() {
        let gate = gate(10, 2);
        let first = gate.enter(peer("192.0.2.1"));
        let second = gate.enter(peer("::ffff:192.0.2.1"));
        assert!(first.is_some() && second.is_some());
        assert!(gate.enter(peer("192.0.2.1")).is_none());
        assert!(gate.enter(peer("192.0.2.2")).is_some());
        drop(first);
        assert!(gate.enter(peer("192.0.2.1")).is_some());
        drop(second);
        assert!(gate.open().by_peer.is_empty());
    }

    #[test]
    fn an_ipv6_network_is_one_peer() {
        let gate = gate(10, 1);
        let _held = gate.enter(peer("2001:db8::1")).unwrap();
        assert!(gate.enter(peer("2001:db8::2")).is_none());
        assert!(gate.enter(peer("2001:db8:0:1::2")).is_some());
    }

    #[test]
    fn the_total_is_bounded_even_where_peers_are_not() {
        let gate = gate(2, 1);
        let held: Vec<_> = (0..2)
            .map(|_| gate.enter(peer("127.0.0.1")).unwrap())
            .collect();
        assert!(gate.enter(peer("127.0.0.1")).is_none());
        drop(held);
    }
}
