//! Keeps a hostile or broken endpoint from filling memory.

use std::pin::Pin;

use async_stream::try_stream;
use bytes::{Bytes, BytesMut};
use futures::{Stream, StreamExt};

use crate::ModelError;

/// The longest line of a stream that is read, in bytes.
pub(crate) const MAX_LINE_BYTES: usize = 1 << 20;
/// The most bytes that are read of one answer. Framing makes an answer some times longer.
pub(crate) const MAX_BODY_BYTES: usize = 16 << 20;

/// The reason for which the bytes of a stream ended early.
#[derive(Debug)]
pub enum ReadError {
    /// The connection failed.
    Connection(reqwest::Error),
    /// The bytes cannot be an answer.
    Bound(ModelError),
}

impl std::fmt::Display for ReadError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Connection(error) => error.fmt(formatter),
            Self::Bound(error) => error.fmt(formatter),
        }
    }
}

/// Passes bytes on line by line, until a line or the whole is longer than it may be, or the first
/// line belongs to a web page.
///
/// Whole lines, because the reader of events starts an unfinished line anew with every chunk: a
/// long line in small chunks would cost the square of its length.
pub fn lines(
    bytes: impl Stream<Item = reqwest::Result<Bytes>> + Send + 'static,
) -> Pin<Box<dyn Stream<Item = Result<Bytes, ReadError>> + Send>> {
    Box::pin(try_stream! {
        let mut bytes = std::pin::pin!(bytes);
        let mut line = BytesMut::new();
        let mut whole = 0_usize;
        while let Some(chunk) = bytes.next().await {
            let chunk = chunk.map_err(ReadError::Connection)?;
            if whole == 0 && chunk.trim_ascii_start().starts_with(b"<") {
                Err(ReadError::Bound(ModelError::NotAnApi))?;
            }
            whole += chunk.len();
            if whole > MAX_BODY_BYTES {
                Err(too_large("a body", MAX_BODY_BYTES))?;
            }
            for part in chunk.split_inclusive(|byte| *byte == b'\n') {
                if line.len() + part.len() > MAX_LINE_BYTES {
                    Err(too_large("a line", MAX_LINE_BYTES))?;
                }
                line.extend_from_slice(part);
                if part.ends_with(b"\n") {
                    yield without_mark(line.split().freeze());
                }
            }
        }
        if !line.is_empty() {
            yield without_mark(line.freeze());
        }
    })
}

/// The byte order mark, which some servers send first.
pub(crate) const BYTE_ORDER_MARK: &str = "\u{feff}";

/// Removes the byte order mark from a line; the reader of events fails on a mark before the first
/// event.
fn without_mark(line: Bytes) -> Bytes {
    match line.starts_with(BYTE_ORDER_MARK.as_bytes()) {
        true => line.slice(BYTE_ORDER_MARK.len()..),
        false => line,
    }
}

fn too_large(what: &'static str, limit: usize) -> ReadError {
    ReadError::Bound(ModelError::TooLarge { what, limit })
}
