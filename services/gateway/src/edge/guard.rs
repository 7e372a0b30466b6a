//! The hosts and origins that may call.
//!
//! A browser sends requests for any page that it shows, and a page can give a name of its own to
//! the address of this server. So a request is refused unless its host is a name of this server,
//! and its page, if it comes from one, is a page of this server or listed. CORS alone would let
//! simple requests, WebSockets and event streams through.

use std::{collections::HashSet, sync::Arc};

use axum::{
    extract::{Request, State},
    middleware::Next,
    response::{IntoResponse, Response},
};
use grpc_kit::{Calls, Proxies};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};

use super::public::PublicAddress;
use crate::settings::HttpSettings;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const SEC_FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");

/// Headers that scripts of listed origins may send.
const ALLOWED_HEADERS: &str = "content-type, authorization, connect-protocol-version, \
    connect-timeout-ms, grpc-timeout, x-grpc-web, x-user-agent, last-event-id, traceparent, \
    if-match, if-none-match, range";

/// Headers that scripts of listed origins may read.
const EXPOSED_HEADERS: &str = "grpc-status, grpc-message, grpc-status-details-bin, \
    etag, content-range, content-disposition";

/// The hosts and origins that may call.
#[derive(Debug)]
pub(super) struct Guard {
    hosts: HashSet<String>,
    origins: HashSet<String>,
    proxies: Proxies,
}

/// The refusal of a request.
#[derive(Debug, PartialEq, Eq)]
struct Refusal {
    status: StatusCode,
    line: &'static str,
}

/// The page that an admitted request comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Page {
    /// No page, or a page of this server.
    Own,
    /// A page of a listed origin.
    Listed(HeaderValue),
}

impl Guard {
    pub(super) fn new(settings: &HttpSettings) -> Self {
        let lower = |names: &[String]| names.iter().map(|name| name.to_lowercase()).collect();
        Self {
            hosts: lower(&settings.hosts),
            origins: lower(&settings.origins),
            proxies: Proxies::new(&settings.proxies),
        }
    }

    fn check(&self, request: &Request) -> Result<(Page, PublicAddress), Refusal> {
        let calls = request.extensions().get::<Calls>();
        let is_encrypted = calls.is_some_and(Calls::is_encrypted);
        let is_proxied = calls.is_some_and(Calls::is_proxied);
        let peer = calls.and_then(Calls::peer);
        let is_trusted = is_proxied || peer.is_some_and(|peer| self.proxies.include(peer));
        let address = PublicAddress::of(request, is_encrypted, is_trusted);
        let address = address.map_err(|line| Refusal {
            status: StatusCode::BAD_REQUEST,
            line,
        })?;
        let host = address.host();
        if !address.is_loopback() && !self.hosts.contains(&host) {
            return Err(Refusal {
                status: StatusCode::MISDIRECTED_REQUEST,
                line: "this host is not a name of the server; the setting http.hosts lists names\n",
            });
        }
        let foreign = Refusal {
            status: StatusCode::FORBIDDEN,
            line: "pages of this origin may not call; the setting http.origins lists origins\n",
        };
        let mut origins = request.headers().get_all(header::ORIGIN).iter();
        let Some(origin) = origins.next() else {
            let site = request.headers().get(SEC_FETCH_SITE);
            let from_page = site.is_some_and(|site| site == "cross-site" || site == "same-site");
            return match from_page && !is_visit(request) {
                true => Err(foreign),
                false => Ok((Page::Own, address)),
            };
        };
        let text = origin.to_str().unwrap_or_default().to_lowercase();
        if origins.next().is_none() && text == address.to_string() {
            Ok((Page::Own, address))
        } else if self.origins.contains(&text) {
            Ok((Page::Listed(origin.clone()), address))
        } else {
            Err(foreign)
        }
    }
}

/// Refuses a request, or passes it on and names in the answer the page that may read it.
pub(super) async fn admit(
    State(guard): State<Arc<Guard>>,
    mut request: Request,
    next: Next,
) -> Response {
    let (mut response, page, is_kept_encrypted) = match guard.check(&request) {
        Err(Refusal { status, line }) => ((status, line).into_response(), Page::Own, false),
        Ok((page, _)) if is_preflight(&request) => (preflight(&page), page, false),
        Ok((page, address)) => {
            let is_kept_encrypted = address.is_kept_encrypted();
            request.extensions_mut().insert(address);
            request.extensions_mut().insert(page.clone());
            (next.run(request).await, page, is_kept_encrypted)
        }
    };
    let status = response.status();
    let headers = response.headers_mut();
    headers.append(header::VARY, HeaderValue::from_static("origin"));
    let nosniff = HeaderValue::from_static("nosniff");
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, nosniff);
    if is_kept_encrypted {
        let year = HeaderValue::from_static("max-age=31536000");
        headers.insert(header::STRICT_TRANSPORT_SECURITY, year);
    }
    if status == StatusCode::UNAUTHORIZED {
        headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    if let Page::Listed(origin) = page {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        let exposed = HeaderValue::from_static(EXPOSED_HEADERS);
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, exposed);
    }
    response
}

/// Whether the request is a person's navigation to a page.
fn is_visit(request: &Request) -> bool {
    let mode = request.headers().get(SEC_FETCH_MODE);
    request.method() == Method::GET
        && matches!(request.uri().path(), "/" | "/console")
        && mode.is_some_and(|mode| mode == "navigate")
}

fn is_preflight(request: &Request) -> bool {
    let asks = |headers: &HeaderMap| headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
    request.method() == Method::OPTIONS && asks(request.headers())
}

fn preflight(page: &Page) -> Response {
    let mut response = StatusCode::NO_CONTENT.into_response();
    if let Page::Listed(_) = page {
        for (name, value) in [
            (
                header::ACCESS_CONTROL_ALLOW_METHODS,
                "GET, POST, PUT, DELETE",
            ),
            (header::ACCESS_CONTROL_ALLOW_HEADERS, ALLOWED_HEADERS),
            (header::ACCESS_CONTROL_MAX_AGE, "7200"),
        ] {
            let headers = response.headers_mut();
            headers.insert(name, HeaderValue::from_static(value));
        }
    }
    response
}
