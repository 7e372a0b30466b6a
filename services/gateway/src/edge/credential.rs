//! The credential of a request, wherever a browser can put one.
//!
//! A page cannot read its cookie, nor set headers of a WebSocket or an `EventSource`. So the cookie of a login,
//! and the ticket in an address, become the header in which every edge has the credential of a call.

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use grpc_kit::Failure;
use http::{HeaderMap, StatusCode, Uri, header};
use tonic::Status;

use super::connect::http_error;
use super::guard::Page;
use crate::door::credential;

/// The cookie that holds the token of a login.
pub(super) const COOKIE: &str = "tavern_login";

/// The beginning of tokens.
const TOKEN: &str = "tvs_";

/// The parameter of an address that holds a ticket.
const PARAMETER: &str = "ticket=";

/// Refuses an address with a key, and a request with two credentials; passes any other on with its credential
/// in the header `authorization`.
pub(super) async fn take(mut request: Request, next: Next) -> Response {
    let address = request.uri().path_and_query();
    if address.is_some_and(|address| credential::is_in(address.as_str())) {
        let line = "an address must not have a key in it, as servers and proxies log addresses: revoke this \
            key, and send the next one as `authorization: Bearer KEY`\n";
        return (StatusCode::BAD_REQUEST, line).into_response();
    }
    let found = match found(&request) {
        Ok(found) => found.and_then(credential::header_of),
        Err(status) => return http_error(&status),
    };
    if let Some(value) = found {
        let headers = request.headers_mut();
        if headers.contains_key(header::AUTHORIZATION) {
            return http_error(&credential::two());
        }
        headers.insert(header::AUTHORIZATION, value);
    }
    next.run(request).await
}

/// Returns the credential that stands elsewhere than in the header.
fn found(request: &Request) -> Result<Option<&str>, Status> {
    let is_own = request.extensions().get::<Page>() == Some(&Page::Own);
    let cookie = match is_own {
        true => cookie(request.headers())?,
        false => None,
    };
    match (cookie, ticket(request.uri())?) {
        (Some(_), Some(_)) => Err(credential::two()),
        (cookie, ticket) => Ok(cookie.or(ticket)),
    }
}

/// Returns the token of a login. A cookie that is none has another origin, or none any more.
fn cookie(headers: &HeaderMap) -> Result<Option<&str>, Status> {
    let lines = headers.get_all(header::COOKIE).iter();
    let cookies = lines.filter_map(|line| line.to_str().ok());
    let cookies = cookies.flat_map(|line| line.split(';'));
    let mut tokens = cookies.filter_map(|cookie| {
        let (name, value) = cookie.trim().split_once('=')?;
        let is_token = value.starts_with(TOKEN) && value.len() <= credential::MAX_CREDENTIAL;
        (name == COOKIE && is_token).then_some(value)
    });
    match (tokens.next(), tokens.next()) {
        (token, None) => Ok(token),
        (_, Some(_)) => Err(credential::two()),
    }
}

/// Returns the ticket of an address that may have one.
fn ticket(address: &Uri) -> Result<Option<&str>, Status> {
    let path = address.path();
    let of_run = path.starts_with("/v1/runs/") && path.ends_with("/events");
    if !of_run && path != "/v1/session" {
        return Ok(None);
    }
    let parameters = address.query().unwrap_or_default().split('&');
    let mut tickets = parameters.filter_map(|parameter| parameter.strip_prefix(PARAMETER));
    match (tickets.next(), tickets.next()) {
        (None, _) => Ok(None),
        (Some(ticket), None) if ticket.starts_with(credential::TICKET) => Ok(Some(ticket)),
        (Some(_), None) => {
            let what = "is not a ticket; POST /v1/ticket makes one";
            Err(Failure::invalid_fields().violation("ticket", what).into())
        }
        (Some(_), Some(_)) => Err(credential::two()),
    }
}
