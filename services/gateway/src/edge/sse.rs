//! Server-sent events: the records of a run for an `EventSource`.

use std::convert::Infallible;
use std::time::Duration;

use async_stream::stream;
use axum::body::{Body, Bytes};
use axum::response::{IntoResponse, Response};
use futures::Stream;
use http::{HeaderName, StatusCode, header};

use super::connect::{Written, error_to_json, http_error};
use super::watch::{END, Follow, Form, Record, Watch};

/// The time that a stream is silent before a comment keeps its connection open.
pub(super) const SILENCE: Duration = Duration::from_secs(10);

/// The pause of a client before it reconnects, in milliseconds: the default of browsers is seconds.
const RETRY: &str = "retry: 500\n\n";

/// Answers with the records as events. `event` is the kind of the record, `data` its JSON, `id` the
/// sequence to resume after.
pub(super) async fn answer(follow: Follow) -> Response {
    let mut last = follow.after;
    let watch = Watch::start(
        follow.calls,
        follow.metadata,
        follow.run_id,
        last,
        Form::Content,
    );
    let mut watch = match watch.await {
        Ok(watch) => watch,
        Err(status) => return http_error(&status),
    };
    let pieces = stream! {
        yield Ok::<_, Infallible>(Bytes::from_static(RETRY.as_bytes()));
        loop {
            match watch.next().await {
                Ok(Some(record)) => {
                    last = record.sequence.unwrap_or(last);
                    let Record { kind, sequence, text, bounded } = record;
                    let event = print(&kind, sequence, text, last);
                    yield Ok(Written::until_sent(event, bounded));
                }
                Ok(None) => return,
                Err(status) => {
                    let failure = format!("event: failure\ndata: {}\n\n", error_to_json(&status));
                    yield Ok(failure.into());
                    return;
                }
            }
        }
    };
    respond(pieces)
}

/// Answers with server-sent events, as their pieces arrive.
pub(super) fn respond<P: Into<Bytes>>(
    pieces: impl Stream<Item = Result<P, Infallible>> + Send + 'static,
) -> Response {
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-store"),
        // Proxies such as nginx would hold the pieces back.
        (HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    (headers, Body::from_stream(pieces)).into_response()
}

/// Answers a client that has received everything: it does not reconnect after this status.
pub(super) fn ended() -> Response {
    StatusCode::NO_CONTENT.into_response()
}

/// Prints a record. JSON has no line breaks outside of strings, and none inside.
fn print(kind: &str, sequence: Option<u64>, data: String, last: u64) -> String {
    match kind {
        // A comment keeps the connection open and reaches no script.
        "heartbeat" => format!(": {data}\n\n"),
        "terminal" => format!("event: {kind}\nid: {last}{END}\ndata: {data}\n\n"),
        _ => match sequence {
            Some(sequence) => format!("event: {kind}\nid: {sequence}\ndata: {data}\n\n"),
            None => format!("event: {kind}\ndata: {data}\n\n"),
        },
    }
}
