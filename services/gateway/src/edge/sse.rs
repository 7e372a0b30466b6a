//! Server-sent events: the records of a run for an `EventSource`.

use std::convert::Infallible;

use async_stream::stream;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::{StatusCode, header};

use super::connect::{error_to_json, http_error};
use super::watch::{END, Follow, Record, Watch};

/// How a client waits before it reconnects, in milliseconds: the default of browsers is seconds.
const RETRY: &str = "retry: 500\n\n";

/// Answers with the records as events. `event` is the kind of the record, `data` its JSON, `id` the
/// sequence to resume after.
pub(super) async fn answer(follow: Follow) -> Response {
    let mut last = follow.after;
    let watch = Watch::start(follow.calls, follow.metadata, follow.run_id, last);
    let mut watch = match watch.await {
        Ok(watch) => watch,
        Err(status) => return http_error(&status),
    };
    let pieces = stream! {
        yield Ok::<_, Infallible>(RETRY.to_owned());
        loop {
            match watch.next().await {
                Ok(Some(record)) => {
                    last = record.sequence.unwrap_or(last);
                    yield Ok(print(&record, last));
                }
                Ok(None) => return,
                Err(status) => {
                    yield Ok(format!("event: failure\ndata: {}\n\n", error_to_json(&status)));
                    return;
                }
            }
        }
    };
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    (headers, Body::from_stream(pieces)).into_response()
}

/// Answers a client that has everything: it does not ask again after this status.
pub(super) fn ended() -> Response {
    StatusCode::NO_CONTENT.into_response()
}

/// Prints a record. JSON has no line breaks outside of strings, and none inside.
fn print(record: &Record, last: u64) -> String {
    let (kind, data) = (&record.kind, record.content());
    match kind.as_str() {
        // A comment keeps the connection open and reaches no script.
        "heartbeat" => format!(": {data}\n\n"),
        "terminal" => format!("event: {kind}\nid: {last}{END}\ndata: {data}\n\n"),
        _ => match record.sequence {
            Some(sequence) => format!("event: {kind}\nid: {sequence}\ndata: {data}\n\n"),
            None => format!("event: {kind}\ndata: {data}\n\n"),
        },
    }
}
