//! The page at `/console`, as `make console` built it.

use axum::response::{IntoResponse, Redirect};
use http::header;

/// The page loads everything from this server, and no page may embed it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
    connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

pub(super) async fn page() -> impl IntoResponse {
    asset(
        "text/html",
        include_str!("../../../../console/static/index.html"),
    )
}

/// Redirects an address that ends with a slash to the page.
pub(super) async fn moved() -> impl IntoResponse {
    Redirect::permanent("/console")
}

pub(super) async fn script() -> impl IntoResponse {
    asset("text/javascript", include_str!("../../console/console.js"))
}

pub(super) async fn style() -> impl IntoResponse {
    asset(
        "text/css",
        include_str!("../../../../console/static/console.css"),
    )
}

pub(super) async fn icon() -> impl IntoResponse {
    asset(
        "image/svg+xml",
        include_str!("../../../../console/static/icon.svg"),
    )
}

fn asset(kind: &str, content: &'static str) -> impl IntoResponse + use<> {
    let headers = [
        (header::CONTENT_TYPE, format!("{kind}; charset=utf-8")),
        (header::CONTENT_SECURITY_POLICY, POLICY.to_owned()),
        (header::REFERRER_POLICY, "no-referrer".to_owned()),
        // A newer server has a newer page.
        (header::CACHE_CONTROL, "no-cache".to_owned()),
    ];
    (headers, content)
}
