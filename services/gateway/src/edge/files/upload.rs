//! The body of a request that puts a file, on its way to the registry.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use async_stream::stream;
use axum::body::{Body, Bytes, HttpBody};
use contracts::tavern::registry::v1::write_file_request::Part;
use contracts::tavern::registry::v1::{WriteFileHeader, WriteFileRequest};
use grpc_kit::Failure;
use http::HeaderMap;
use http::header;
use http_body::Frame;
use http_body_util::StreamBody;
use prost::Message;
use tonic::Status;

use crate::edge::frames;

/// The largest piece that is sent on, in bytes.
const PIECE: usize = 64 << 10;

/// The longest pause of a client between two pieces.
const SILENCE: Duration = Duration::from_secs(60);

/// The bytes and the time for which the rest of a refused body is read, and the longest pause in it.
const REST: usize = 256 << 20;
const REST_TIME: Duration = Duration::from_secs(10);
const REST_SILENCE: Duration = Duration::from_secs(1);

/// The body of a request. The call reads it; if it is refused, the edge reads the rest, as most clients look for an
/// answer only when they have sent all.
#[derive(Clone, Debug)]
pub(super) struct Upload {
    /// Locked for a moment, never across an await.
    content: Arc<Mutex<UploadedContent>>,
    /// The number of bytes, where the client has stated it.
    size: Option<u64>,
}

#[derive(Debug)]
struct UploadedContent {
    /// Missing once the call must read it no longer.
    body: Option<Body>,
    /// Whether the call has begun to read it, so that a client that waits for this has begun to send.
    is_begun: bool,
}

impl Upload {
    pub(super) fn of(body: Body) -> Self {
        Self {
            size: body.size_hint().exact(),
            content: Arc::new(Mutex::new(UploadedContent {
                body: Some(body),
                is_begun: false,
            })),
        }
    }

    /// Returns the number of bytes, where the client has stated it.
    pub(super) fn size(&self) -> Option<u64> {
        self.size
    }

    /// Returns the messages of a call, as the content arrives. A content that breaks off breaks the call off: its
    /// end would mean that all has arrived.
    pub(super) fn messages(&self, header: WriteFileHeader) -> tonic::body::Body {
        let upload = self.clone();
        let messages = stream! {
            yield message(Part::Header(header));
            loop {
                match tokio::time::timeout(SILENCE, upload.next()).await {
                    Ok(Some(Ok(mut data))) => {
                        while !data.is_empty() {
                            let piece = data.split_to(data.len().min(PIECE));
                            yield message(Part::Chunk(piece.into()));
                        }
                    }
                    Ok(None) => return,
                    Ok(Some(Err(status))) => {
                        yield Err(status);
                        return;
                    }
                    Err(_silent) => {
                        yield Err(Failure::deadline_exceeded().into());
                        return;
                    }
                }
            }
        };
        tonic::body::Body::new(StreamBody::new(messages))
    }

    /// Reads the rest of a body that was refused, so that its client comes to the answer. A client that still waits
    /// for the answer before it sends has nothing to be read.
    pub(super) async fn discard(&self, headers: &HeaderMap) {
        let waits = headers.contains_key(header::EXPECT);
        let rest = self.lock(|content| {
            let body = content.body.take();
            body.filter(|_| content.is_begun || !waits)
        });
        let Some(rest) = rest.map(Self::of) else {
            return;
        };
        let read = async {
            let mut left = REST;
            while let Ok(Some(Ok(data))) = tokio::time::timeout(REST_SILENCE, rest.next()).await {
                left = left.saturating_sub(data.len());
                if left == 0 {
                    break;
                }
            }
        };
        // The answer is sent then, whether the client reads it or not.
        let _ = tokio::time::timeout(REST_TIME, read).await;
    }

    /// Returns the next bytes; `None` at the end.
    async fn next(&self) -> Option<Result<Bytes, Status>> {
        loop {
            let frame = poll_fn(|context| self.lock(|content| content.poll(context))).await?;
            match frame.map(Frame::into_data) {
                Ok(Ok(data)) => return Some(Ok(data)),
                // Trailers are no content.
                Ok(Err(_)) => {}
                Err(status) => return Some(Err(status)),
            }
        }
    }

    fn lock<T>(&self, work: impl FnOnce(&mut UploadedContent) -> T) -> T {
        work(&mut self.content.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl UploadedContent {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        self.is_begun = true;
        match &mut self.body {
            Some(body) => {
                let polled = Pin::new(body).poll_frame(context);
                polled.map(|frame| frame.map(|frame| frame.map_err(|_| broken())))
            }
            None => Poll::Ready(Some(Err(broken()))),
        }
    }
}

/// The failure of a body that breaks off. It is not `CANCELLED`, which a handler reads as the end of all messages.
fn broken() -> Status {
    let failure = Failure::invalid_fields();
    failure.violation("", "the content broke off").into()
}

/// Makes a message of the call.
fn message(part: Part) -> Result<Frame<Bytes>, Status> {
    let message = WriteFileRequest { part: Some(part) };
    frames::frame(0, &message.encode_to_vec()).map(Frame::data)
}
