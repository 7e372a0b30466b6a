//! The page at `/console`, as `make console` built it.

use std::sync::LazyLock;

use axum::response::{IntoResponse, Redirect};
use base64::{Engine, engine::general_purpose::STANDARD};
use http::header;
use sha2::{Digest, Sha256};

/// The style of the documents that the page shows in frames. It stands in each of them, where the policy of the page
/// allows no other.
const FRAME_STYLE: &str = include_str!("../../../../console/static/frame.css");

/// The page loads everything from this server, and no page may embed it. It makes pictures of its own out of results
/// (`blob:`), and the frames in it, whose documents have no address, are under the same policy.
static POLICY: LazyLock<String> = LazyLock::new(|| {
    let frame_style = STANDARD.encode(Sha256::digest(FRAME_STYLE));
    format!(
        "default-src 'none'; script-src 'self'; style-src 'self' 'sha256-{frame_style}'; img-src 'self' blob:; \
         connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
});

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

pub(super) async fn frame_style() -> impl IntoResponse {
    asset("text/css", FRAME_STYLE)
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
        (header::CONTENT_SECURITY_POLICY, POLICY.clone()),
        (header::REFERRER_POLICY, "no-referrer".to_owned()),
        // A newer server has a newer page.
        (header::CACHE_CONTROL, "no-cache".to_owned()),
    ];
    (headers, content)
}
