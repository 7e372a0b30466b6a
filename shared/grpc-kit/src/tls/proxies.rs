//! Proxies in front of a server, and the clients that they state.

use std::net::IpAddr;

use ::settings::Problems;
use http::{HeaderMap, HeaderName, header};
use ipnet::IpNet;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The most proxies that a request may have passed.
const MAX_HOPS: usize = 32;

/// Proxies, by address or network.
#[derive(Clone, Debug, Default)]
pub struct Proxies(Vec<IpNet>);

/// Reads a network, or an address as the network that holds it alone.
fn network(text: &str) -> Option<IpNet> {
    let alone = || {
        let address = text.parse::<IpAddr>();
        address.map(|address| IpNet::from(address.to_canonical()))
    };
    text.parse().or_else(|_| alone()).ok()
}

/// Adds a problem for each entry of a setting that is neither an address nor a network.
pub fn check(key: &str, listed: &[String], problems: &mut Problems) {
    for (index, proxy) in listed.iter().enumerate() {
        if network(proxy).is_none() {
            let what = "is neither an address nor a network";
            let remedy = "give an address such as 127.0.0.1 or a network such as 10.0.0.0/8";
            problems.add(format!("{key}[{index}]"), what, remedy);
        }
    }
}

impl Proxies {
    /// Reads a setting, whose entries were checked when it was loaded.
    pub fn new(listed: &[String]) -> Self {
        Self(listed.iter().filter_map(|text| network(text)).collect())
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a peer is one of them.
    pub fn include(&self, peer: IpAddr) -> bool {
        let peer = peer.to_canonical();
        self.0.iter().any(|network| network.contains(&peer))
    }

    /// Returns the client of a request that a proxy has sent: of the addresses that proxies have appended, the last
    /// that is none of theirs. `None` where they state none, where the client is on the machine of a proxy, and for a
    /// request with both headers: a proxy appends to one, and the other may be the client's own.
    pub(crate) fn client_of(&self, headers: &HeaderMap) -> Option<IpAddr> {
        let has = |name: &HeaderName| headers.contains_key(name);
        let hops = match (has(&header::FORWARDED), has(&X_FORWARDED_FOR)) {
            (true, true) => return None,
            (true, false) => hops(headers, &header::FORWARDED, forwarded),
            (false, _) => hops(headers, &X_FORWARDED_FOR, address),
        };
        let last = hops.into_iter().rev().take(MAX_HOPS);
        let mut strangers = last.filter(|hop| hop.is_none_or(|hop| !self.include(hop)));
        strangers.next().flatten().filter(|hop| !hop.is_loopback())
    }
}

/// Returns the addresses in a list that may be spread over several lines; `None` for one that is not an address.
fn hops(
    headers: &HeaderMap,
    name: &HeaderName,
    read: fn(&str) -> Option<IpAddr>,
) -> Vec<Option<IpAddr>> {
    let mut hops = Vec::new();
    for line in headers.get_all(name) {
        match line.to_str() {
            Ok(line) => hops.extend(line.split(',').map(|hop| read(hop.trim()))),
            Err(_) => hops.push(None),
        }
    }
    hops
}

/// Reads the address of an element such as `for=192.0.2.1;proto=https` or `for="[2001:db8::1]:4711"`.
fn forwarded(element: &str) -> Option<IpAddr> {
    let mut pairs = element.split(';').map(str::trim);
    let node = pairs.find_map(|pair| {
        let (name, node) = pair.split_once('=')?;
        name.eq_ignore_ascii_case("for").then_some(node)
    })?;
    address(node.trim_matches('"'))
}

/// Reads an address with or without a port.
fn address(text: &str) -> Option<IpAddr> {
    let with_port = || text.parse().map(|socket: std::net::SocketAddr| socket.ip());
    let bracketed = || text.strip_prefix('[')?.strip_suffix(']')?.parse().ok();
    let address = text.parse().or_else(|_| with_port()).ok();
    let address: IpAddr = address.or_else(bracketed)?;
    Some(address.to_canonical())
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn the_client_is_the_last_address_that_is_no_proxy() {
        let proxies = Proxies::new(&["10.0.0.0/8".to_owned(), "127.0.0.1".to_owned()]);
        let (forwarded, for_) = ("forwarded", "x-forwarded-for");
        for (headers, client) in [
            (&[][..], None),
            (&[(for_, "192.0.2.1")], Some("192.0.2.1")),
            (&[(for_, "192.0.2.1:4711")], Some("192.0.2.1")),
            (&[(for_, "2001:db8::1")], Some("2001:db8::1")),
            (&[(for_, "::ffff:192.0.2.1")], Some("192.0.2.1")),
            (
                &[(for_, "198.51.100.7, 192.0.2.1, 10.0.0.2")],
                Some("192.0.2.1"),
            ),
            (
                &[(for_, "198.51.100.7"), (for_, "192.0.2.1")],
                Some("192.0.2.1"),
            ),
            // Addresses that the client itself has written are before those of the proxies.
            (&[(for_, "127.0.0.1, 192.0.2.1")], Some("192.0.2.1")),
            (&[(for_, "192.0.2.1, nonsense")], None),
            (&[(for_, "192.0.2.1, ")], None),
            (&[(for_, "10.0.0.2")], None),
            (&[(for_, "::1")], None),
            (&[(forwarded, "for=192.0.2.1")], Some("192.0.2.1")),
            (
                &[(
                    forwarded,
                    "for=198.51.100.7, proto=https;For=\"[2001:db8::1]:4711\"",
                )],
                Some("2001:db8::1"),
            ),
            (&[(forwarded, "for=unknown")], None),
            (&[(forwarded, "by=10.0.0.2")], None),
            (
                &[(forwarded, "for=192.0.2.1"), (for_, "198.51.100.7")],
                None,
            ),
        ] {
            let mut map = HeaderMap::new();
            for (name, value) in headers {
                map.append(*name, HeaderValue::from_static(value));
            }
            let client = client.map(|client: &str| client.parse().unwrap());
            assert_eq!(proxies.client_of(&map), client, "{headers:?}");
        }
    }
}
