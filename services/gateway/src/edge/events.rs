//! `/v1/runs/{id}/events`: the records of a run, by server-sent events or WebSocket.

use axum::Extension;
use axum::extract::rejection::QueryRejection;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::{Path, Query, WebSocketUpgrade};
use axum::response::{IntoResponse, Response};
use grpc_kit::{Calls, Failure};
use http::{HeaderMap, HeaderName, header};
use serde::Deserialize;

use super::connect::http_error;
use super::watch::{END, Follow, METHOD};
use super::{call, sse, websocket};

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// The query parameters.
#[derive(Debug, Deserialize)]
pub(super) struct Parameters {
    #[serde(default)]
    after_sequence: u64,
}

/// Follows a run. A client that reconnects keeps its address, so its last event id comes before the
/// parameter.
pub(super) async fn answer(
    Path(run_id): Path<String>,
    parameters: Result<Query<Parameters>, QueryRejection>,
    Extension(calls): Extension<Calls>,
    headers: HeaderMap,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Response {
    let invalid = async |field: &str| {
        let refused = calls.enter(METHOD, &headers).await.err();
        http_error(&refused.unwrap_or_else(|| {
            let what = "is not a sequence; give a whole number from 0";
            Failure::invalid_fields().violation(field, what).into()
        }))
    };
    let Ok(Query(Parameters { mut after_sequence })) = parameters else {
        return invalid("after_sequence").await;
    };
    if let Some(id) = headers.get(LAST_EVENT_ID) {
        let id = id.to_str().unwrap_or_default();
        if id.ends_with(END) {
            return sse::ended();
        }
        match id.parse() {
            Ok(sequence) => after_sequence = sequence,
            // A client without one sends an empty one.
            Err(_) if id.is_empty() => {}
            Err(_) => return invalid("metadata.last-event-id").await,
        }
    }
    let follow = Follow {
        calls,
        metadata: call::metadata(&headers),
        run_id,
        after: after_sequence,
    };
    match upgrade {
        Ok(upgrade) => websocket::answer(upgrade, follow),
        Err(rejection) if headers.contains_key(header::UPGRADE) => rejection.into_response(),
        Err(_) => sse::answer(follow).await,
    }
}
