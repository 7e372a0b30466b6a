//! The clients of proxies that end TLS.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex, PoisonError, Weak},
};

use http::HeaderMap;

use super::gate::network_of;
use crate::{settings::ServerSettings, share::PeerShare, tls::Proxies};

/// The number of clients from which on those without open calls are looked for.
const FIRST_SWEEP: usize = 1_024;

/// The clients that are behind the proxies of a server.
#[derive(Debug)]
pub(super) struct Proxied {
    proxies: Proxies,
    streams_per_client: usize,
    /// Locked for a moment at the begin of a call, never across an await.
    clients: Mutex<Clients>,
}

#[derive(Debug)]
struct Clients {
    /// The share of each client that has an open call.
    shares: HashMap<IpAddr, Weak<PeerShare>>,
    /// The number of entries at which those without open calls are removed.
    sweep_at: usize,
}

impl Proxied {
    /// Returns `None` for a server that has no such proxies.
    pub(super) fn new(settings: &ServerSettings) -> Option<Self> {
        let proxies = Proxies::new(&settings.tls.terminated_by_proxy);
        (!proxies.is_empty()).then(|| Self {
            proxies,
            streams_per_client: settings.max_streams_per_peer,
            clients: Mutex::new(Clients {
                shares: HashMap::new(),
                sweep_at: FIRST_SWEEP,
            }),
        })
    }

    /// Returns the address of the client of a request, or one that no client has, and the share of all its calls. It is
    /// never this machine, whose programs have no need of a proxy.
    pub(super) fn client(&self, headers: &HeaderMap) -> (SocketAddr, Arc<PeerShare>) {
        let stated = self.proxies.client_of(headers);
        let address = stated.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        let share = self.share(network_of(address));
        (SocketAddr::new(address, 0), share)
    }

    fn share(&self, client: IpAddr) -> Arc<PeerShare> {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(share) = clients.shares.get(&client).and_then(Weak::upgrade) {
            return share;
        }
        if clients.shares.len() >= clients.sweep_at {
            clients.shares.retain(|_, share| share.strong_count() > 0);
            clients.sweep_at = FIRST_SWEEP.max(2 * clients.shares.len());
        }
        let share = Arc::new(PeerShare::new(self.streams_per_client));
        clients.shares.insert(client, Arc::downgrade(&share));
        share
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_without_open_calls_are_forgotten() {
        let mut settings = ServerSettings::default();
        settings.tls.terminated_by_proxy = vec!["127.0.0.1".to_owned()];
        let proxied = Proxied::new(&settings).unwrap();
        let address = |number: u32| IpAddr::V4(Ipv4Addr::from_bits(number));
        let held = proxied.share(address(1));
        for number in 2..100_000 {
            proxied.share(address(number));
        }
        assert!(Arc::ptr_eq(&held, &proxied.share(address(1))));
        assert!(proxied.clients.lock().unwrap().shares.len() <= FIRST_SWEEP);
    }
}
