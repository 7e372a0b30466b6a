//! `/v1/login`, `/v1/logout` and `/v1/ticket`: credentials that a browser can hold.

use std::sync::Arc;

use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use contracts::tavern::registry::v1::{IssueTicketResponse, LoginResponse};
use core_types::{Clock, SystemClock};
use grpc_kit::{Calls, Failure};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use prost_types::Timestamp;
use serde::Deserialize;
use serde_json::json;

use super::body;
use super::connect::http_error;
use super::credential::COOKIE;
use super::guard::Page;
use super::method::content_type;
use super::public::PublicAddress;
use crate::door::{ClientDoor, credential};

/// The largest request of a login: a token of an issuer and the JSON around it.
const MAX_LOGIN: usize = 12 << 10;

/// The largest other request.
const MAX_REQUEST: usize = 4 << 10;

/// The body of a login.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Login {
    key: String,
}

/// `POST /v1/login`: exchanges a key for a cookie.
pub(super) async fn login(
    Extension(door): Extension<Arc<ClientDoor>>,
    Extension(calls): Extension<Calls>,
    Extension(page): Extension<Page>,
    Extension(address): Extension<PublicAddress>,
    request: Request,
) -> Response {
    let bytes = match read(&page, request, MAX_LOGIN).await {
        Ok(bytes) => bytes,
        Err(refusal) => return refusal,
    };
    let Ok(Login { key }) = serde_json::from_slice(&bytes) else {
        // The message of the parser would show the key.
        let failure = Failure::invalid_fields();
        let what = "must be an object with `key`, a text, and nothing beside it";
        return http_error(&failure.violation("", what).into());
    };
    match door.login(&key, calls.peer()).await {
        Ok(login) => no_content(cookie_of(&login, &address)),
        Err(status) => http_error(&status),
    }
}

/// `POST /v1/logout`: takes the cookie back.
pub(super) async fn logout(
    Extension(page): Extension<Page>,
    Extension(address): Extension<PublicAddress>,
    request: Request,
) -> Response {
    match read(&page, request, MAX_REQUEST).await {
        Ok(_) => no_content(cookie("", 0, &address)),
        Err(refusal) => refusal,
    }
}

/// `POST /v1/ticket`: makes a ticket for the address of a WebSocket or an `EventSource`.
pub(super) async fn ticket(
    Extension(door): Extension<Arc<ClientDoor>>,
    Extension(calls): Extension<Calls>,
    request: Request,
) -> Response {
    let headers = request.headers().clone();
    if let Some(refusal) = refusal(&Page::Own, &headers) {
        return refusal;
    }
    let issued = async {
        calls.knock("/v1/ticket", &headers).await?;
        body::read(request.into_body(), MAX_REQUEST).await?;
        let held = credential::of(&headers)?;
        door.issue_ticket(held, calls.peer()).await
    };
    match issued.await {
        Ok(IssueTicketResponse {
            ticket,
            expire_time,
        }) => {
            let expires = expire_time.map(|time| time.to_string());
            let answer = Json(json!({"ticket": ticket, "expireTime": expires}));
            ([(header::CACHE_CONTROL, "no-store")], answer).into_response()
        }
        Err(status) => http_error(&status),
    }
}

/// Reads the body of a request that is not refused by its head.
async fn read(
    page: &Page,
    request: Request,
    largest: usize,
) -> Result<axum::body::Bytes, Response> {
    if let Some(refusal) = refusal(page, request.headers()) {
        return Err(refusal);
    }
    let bytes = body::read(request.into_body(), largest).await;
    bytes.map_err(|status| http_error(&status))
}

/// Refuses a request that a form can send, and one from a page of another origin.
fn refusal(page: &Page, headers: &HeaderMap) -> Option<Response> {
    if *page != Page::Own {
        let line = "pages of other origins have no login here; send a key as `authorization: Bearer KEY`\n";
        return Some((StatusCode::FORBIDDEN, line).into_response());
    }
    let is_json =
        !headers.contains_key(header::CONTENT_TYPE) || content_type(headers) == "application/json";
    match is_json {
        true => None,
        false => {
            let line = "a form may come from any web page; send JSON: curl --json '{...}'\n";
            Some((StatusCode::UNSUPPORTED_MEDIA_TYPE, line).into_response())
        }
    }
}

/// Answers with a cookie; with none while no key exists, as no login is needed then.
fn no_content(cookie: Option<HeaderValue>) -> Response {
    let mut response = StatusCode::NO_CONTENT.into_response();
    if let Some(cookie) = cookie {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    response
}

fn cookie_of(login: &LoginResponse, address: &PublicAddress) -> Option<HeaderValue> {
    let expires = login.caller.as_ref().and_then(|caller| caller.expire_time);
    let age = expires.map_or(0, |expires| seconds_until(&expires));
    let is_login = !login.token.is_empty();
    is_login.then(|| cookie(&login.token, age, address))?
}

fn cookie(token: &str, age: u64, address: &PublicAddress) -> Option<HeaderValue> {
    // A browser on this machine may have no other way than plain HTTP.
    let secure = match address.is_plain_loopback() {
        true => "",
        false => "; Secure",
    };
    let cookie =
        format!("{COOKIE}={token}; Path=/; Max-Age={age}; HttpOnly; SameSite=Strict{secure}");
    let mut cookie = HeaderValue::try_from(cookie).ok()?;
    cookie.set_sensitive(true);
    Some(cookie)
}

fn seconds_until(time: &Timestamp) -> u64 {
    let (now, _) = SystemClock.now().seconds_and_nanos();
    u64::try_from(time.seconds.saturating_sub(now)).unwrap_or_default()
}
