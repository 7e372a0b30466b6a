//! The address of the server as the client of a request knows it.
//!
//! Behind a proxy it differs from the address at which the request arrives. A trusted proxy states
//! it in `x-forwarded-proto` and `x-forwarded-host`; from other peers both headers are ignored.

use std::fmt;
use std::net::IpAddr;

use axum::extract::Request;
use http::uri::Authority;
use http::{HeaderMap, HeaderName, header};

const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// The scheme, the host and the port at which a client reached the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PublicAddress {
    scheme: Scheme,
    authority: Authority,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scheme {
    Http,
    Https,
}

impl PublicAddress {
    /// Reads the address from a request that came on a connection; a proxy that sent it `is_trusted`.
    ///
    /// # Errors
    /// The line that refuses a request whose address is missing or ambiguous.
    pub(super) fn of(
        request: &Request,
        is_encrypted: bool,
        is_trusted: bool,
    ) -> Result<Self, &'static str> {
        let authority = host(request)?;
        let own = match is_encrypted {
            true => Scheme::Https,
            false => Scheme::Http,
        };
        if !is_trusted {
            return Ok(Self {
                scheme: own,
                authority,
            });
        }
        let headers = request.headers();
        let scheme = match only(headers, &FORWARDED_PROTO) {
            Ok(None) => own,
            Ok(Some("http")) => Scheme::Http,
            Ok(Some("https")) => Scheme::Https,
            _ => return Err("x-forwarded-proto must be `http` or `https`, once\n"),
        };
        let authority = match only(headers, &FORWARDED_HOST) {
            Ok(None) => authority,
            Ok(Some(host)) => plain(Authority::try_from(host).ok())
                .ok_or("x-forwarded-host must be a host, with its port if it has one\n")?,
            Err(()) => return Err("x-forwarded-host must stand in the request at most once\n"),
        };
        Ok(Self { scheme, authority })
    }

    /// Whether its host is a name of this machine.
    pub(super) fn is_loopback(&self) -> bool {
        let host = self.host();
        let address = host.trim_start_matches('[').trim_end_matches(']');
        let address: Option<IpAddr> = address.parse().ok();
        host == "localhost" || address.is_some_and(|address| address.is_loopback())
    }

    /// Whether a client on this machine reached it without TLS.
    pub(super) fn is_plain_loopback(&self) -> bool {
        self.is_loopback() && matches!(self.scheme, Scheme::Http)
    }

    /// Whether a browser may keep to TLS at this host from now on. Programs on a developer's own machine share the names
    /// of loopback, so there it must not.
    pub(super) fn is_kept_encrypted(&self) -> bool {
        !self.is_loopback() && matches!(self.scheme, Scheme::Https)
    }

    /// Returns the host in lower case, without the port.
    pub(super) fn host(&self) -> String {
        self.authority.host().to_lowercase()
    }
}

impl fmt::Display for PublicAddress {
    /// Writes the origin of the pages at this address: in lower case, without the port of the scheme.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, port) = match self.scheme {
            Scheme::Http => ("http", ":80"),
            Scheme::Https => ("https", ":443"),
        };
        let authority = self.authority.as_str().to_lowercase();
        let authority = authority.strip_suffix(port).unwrap_or(&authority);
        write!(f, "{scheme}://{authority}")
    }
}

/// Returns the host and port of the request itself. HTTP/1.1 clients may send several hosts; then
/// it is unknown which of them a proxy on the way has used.
fn host(request: &Request) -> Result<Authority, &'static str> {
    let bad = "the request must have exactly one host\n";
    let host = only(request.headers(), &header::HOST).map_err(|()| bad)?;
    let authority = match request.uri().authority() {
        Some(authority) => Some(authority.clone()),
        None => host.and_then(|host| Authority::try_from(host).ok()),
    };
    plain(authority).ok_or(bad)
}

/// Returns an authority that has only a host and a port.
fn plain(authority: Option<Authority>) -> Option<Authority> {
    authority.filter(|authority| !authority.as_str().contains('@'))
}

/// Returns the only value of a header, if the header is present.
fn only<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Result<Option<&'h str>, ()> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => value.to_str().map(Some).map_err(drop),
        (Some(_), Some(_)) => Err(()),
    }
}
