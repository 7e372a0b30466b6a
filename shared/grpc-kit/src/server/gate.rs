//! The limits of connections, in all and of one peer.

use std::{
    collections::{HashMap, hash_map::Entry},
    net::{IpAddr, Ipv6Addr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Semaphore;

use super::ServeError;
use crate::{settings::ServerSettings, share::PeerShare, tls::Proxies};

/// Counts connections and refuses connections beyond the limits.
#[derive(Clone, Debug)]
pub(super) struct Gate(Arc<Counted>);

#[derive(Debug)]
struct Counted {
    maximum: usize,
    per_peer: usize,
    streams_per_peer: usize,
    unlimited_loopback: bool,
    /// The only peers, where there are any.
    proxies: Proxies,
    /// Locked for a moment at the begin and end of a connection, never across an await.
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    total: usize,
    /// Has an entry only for peers with connections, so it is no larger than `total`.
    by_peer: HashMap<IpAddr, (usize, Arc<PeerShare>)>,
}

/// Permits one connection; returned when dropped.
#[derive(Debug)]
pub(crate) struct ConnectionPermit {
    gate: Gate,
    peer: IpAddr,
    /// The share that the connections of the peer have in common.
    pub(super) share: Arc<PeerShare>,
}

/// A connection was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refused {
    /// The setting that refuses it.
    pub(super) setting: &'static str,
    /// Its limit; `None` for a peer that is no proxy of the server.
    pub(super) maximum: Option<usize>,
}

impl Gate {
    pub(super) fn new(settings: &ServerSettings) -> Result<Self, ServeError> {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let mut maximum = settings.max_connections;
        if let Some(limit) = limit {
            let left = limit.saturating_sub(settings.connection.reserved_files as u64);
            if left == 0 {
                return Err(ServeError::TooFewFiles {
                    limit,
                    reserved: settings.connection.reserved_files,
                });
            }
            maximum = maximum.min(usize::try_from(left).unwrap_or(usize::MAX));
        }
        Ok(Self(Arc::new(Counted {
            maximum,
            per_peer: settings.max_connections_per_peer,
            streams_per_peer: settings.max_streams_per_peer,
            unlimited_loopback: settings.unlimited_connections_from_loopback,
            proxies: Proxies::new(&settings.tls.terminated_by_proxy),
            open: Mutex::default(),
        })))
    }

    pub(super) fn enter(&self, address: SocketAddr) -> Result<ConnectionPermit, Refused> {
        let counted = &*self.0;
        let address = address.ip().to_canonical();
        let peer = network_of(address);
        let is_proxied = !counted.proxies.is_empty();
        if is_proxied && !counted.proxies.include(address) {
            return Err(Refused {
                setting: "tls.terminated_by_proxy",
                maximum: None,
            });
        }
        // The clients of a proxy are counted one by one, by their calls.
        let unlimited = is_proxied || counted.unlimited_loopback && address.is_loopback();
        let mut open = self.open();
        if open.total >= counted.maximum {
            return Err(Refused {
                setting: "max_connections",
                maximum: Some(counted.maximum),
            });
        }
        let (from_peer, share) = open.by_peer.entry(peer).or_insert_with(|| {
            let streams = if unlimited {
                Semaphore::MAX_PERMITS
            } else {
                counted.streams_per_peer
            };
            (0, Arc::new(PeerShare::new(streams)))
        });
        if *from_peer >= counted.per_peer && !unlimited {
            return Err(Refused {
                setting: "max_connections_per_peer",
                maximum: Some(counted.per_peer),
            });
        }
        *from_peer += 1;
        let share = share.clone();
        open.total += 1;
        Ok(ConnectionPermit {
            gate: self.clone(),
            peer,
            share,
        })
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        // The counts are right even if a holder panicked: nothing between them can.
        self.0.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut open = self.gate.open();
        open.total = open.total.saturating_sub(1);
        if let Entry::Occupied(mut entry) = open.by_peer.entry(self.peer) {
            let (from_peer, _) = entry.get_mut();
            *from_peer = from_peer.saturating_sub(1);
            if *from_peer == 0 {
                entry.remove();
            }
        }
    }
}

/// Returns the network of one peer: an IPv4 address, or an IPv6 network as one customer gets it.
pub(super) fn network_of(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(
            address.to_bits() & !u128::from(u64::MAX),
        )),
    }
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
        assert!(first.is_ok() && second.is_ok());
        let full = gate.enter(peer("192.0.2.1")).unwrap_err();
        assert_eq!(full.setting, "max_connections_per_peer");
        assert!(gate.enter(peer("192.0.2.2")).is_ok());
        drop(first);
        assert!(gate.enter(peer("192.0.2.1")).is_ok());
        drop(second);
        assert!(gate.open().by_peer.is_empty());
    }

    #[test]
    fn behind_proxies_only_they_connect() {
        let mut settings = ServerSettings {
            max_connections_per_peer: 1,
            ..ServerSettings::default()
        };
        settings.tls.terminated_by_proxy = vec!["192.0.2.0/28".to_owned()];
        let gate = Gate::new(&settings).unwrap();
        for stranger in ["192.0.2.16", "127.0.0.1", "2001:db8::1"] {
            let refused = gate.enter(peer(stranger)).unwrap_err();
            assert_eq!(refused.setting, "tls.terminated_by_proxy", "{stranger}");
        }
        let both = [(); 2].map(|()| gate.enter(peer("::ffff:192.0.2.1")));
        assert!(both.iter().all(Result::is_ok));
    }

    #[test]
    fn an_ipv6_network_is_one_peer() {
        let gate = gate(10, 1);
        let _held = gate.enter(peer("2001:db8::1")).unwrap();
        assert!(gate.enter(peer("2001:db8::2")).is_err());
        assert!(gate.enter(peer("2001:db8:0:1::2")).is_ok());
    }

    #[test]
    fn the_total_is_bounded_even_where_peers_are_not() {
        let gate = gate(2, 1);
        let held: Vec<_> = (0..2)
            .map(|_| gate.enter(peer("127.0.0.1")).unwrap())
            .collect();
        let full = gate.enter(peer("127.0.0.1")).unwrap_err();
        assert_eq!(full.setting, "max_connections");
        drop(held);
    }
}
