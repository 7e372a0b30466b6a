//! Messages in a body: gRPC and Connect put the same head before each, one byte of flags and four of
//! length.

use axum::body::Bytes;
use bytes::{BufMut, BytesMut};
use grpc_kit::Failure;
use http::HeaderMap;
use http_body_util::BodyExt;
use tonic::{Status, body::Body};

/// The bytes of a head.
const HEAD: usize = 5;

/// A message is compressed.
pub(super) const COMPRESSED: u8 = 1;

/// The messages of a body, as they arrive.
#[derive(Debug)]
pub(super) struct Frames {
    body: Body,
    /// Bytes that have arrived and are not cut into messages yet, still in one piece with their
    /// origin.
    whole: Bytes,
    /// The beginning of a message that has arrived in several pieces.
    partial: BytesMut,
    maximum: usize,
    trailers: HeaderMap,
}

impl Frames {
    /// Reads messages of up to `maximum` bytes.
    pub(super) fn new(body: Body, maximum: usize) -> Self {
        Self {
            body,
            whole: Bytes::new(),
            partial: BytesMut::new(),
            maximum,
            trailers: HeaderMap::new(),
        }
    }

    /// Returns the flags and bytes of the next message; `None` at the end of the body.
    ///
    /// # Errors
    /// A message that is too long, or a body that breaks off.
    pub(super) async fn next(&mut self) -> Result<Option<(u8, Bytes)>, Status> {
        loop {
            if let Some(message) = self.cut()? {
                return Ok(Some(message));
            }
            let Some(frame) = self.body.frame().await.transpose()? else {
                return match self.whole.is_empty() && self.partial.is_empty() {
                    true => Ok(None),
                    false => {
                        let failure = Failure::invalid_fields();
                        Err(failure
                            .violation("", "the last message is incomplete")
                            .into())
                    }
                };
            };
            match frame.into_data() {
                Ok(data) => self.push(data),
                Err(frame) => {
                    if let Ok(trailers) = frame.into_trailers() {
                        self.trailers = trailers;
                    }
                }
            }
        }
    }

    /// Returns the trailers; there are none before the end of the body.
    pub(super) fn trailers(&self) -> &HeaderMap {
        &self.trailers
    }

    fn push(&mut self, data: Bytes) {
        if self.partial.is_empty() && self.whole.is_empty() {
            self.whole = data;
        } else {
            self.partial.extend_from_slice(&self.whole);
            self.partial.extend_from_slice(&data);
            self.whole = Bytes::new();
        }
    }

    fn cut(&mut self) -> Result<Option<(u8, Bytes)>, Status> {
        if !self.partial.is_empty() && self.length(&self.partial)?.is_some() {
            self.whole = self.partial.split().freeze();
        }
        let Some(length) = self.length(&self.whole)? else {
            return Ok(None);
        };
        let mut message = self.whole.split_to(length);
        let flags = message[0];
        let _ = message.split_to(HEAD);
        Ok(Some((flags, message)))
    }

    /// Returns the length of the message at the start of `bytes`, its head included, if it is
    /// complete.
    fn length(&self, bytes: &[u8]) -> Result<Option<usize>, Status> {
        let Some((&[_, a, b, c, d], _)) = bytes.split_first_chunk() else {
            return Ok(None);
        };
        let length = u32::from_be_bytes([a, b, c, d]) as usize;
        if length > self.maximum {
            return Err(Failure::limit_exceeded("message bytes", self.maximum, length).into());
        }
        Ok((bytes.len() >= HEAD + length).then_some(HEAD + length))
    }
}

/// Returns the head of a message.
pub(super) fn head(flags: u8, length: usize) -> Result<Bytes, Status> {
    let Ok(declared) = u32::try_from(length) else {
        return Err(Failure::limit_exceeded("message bytes", u32::MAX as usize, length).into());
    };
    let mut head = BytesMut::with_capacity(HEAD);
    head.put_u8(flags);
    head.put_u32(declared);
    Ok(head.freeze())
}

/// Returns a message with its head before it.
pub(super) fn frame(flags: u8, message: &[u8]) -> Result<Bytes, Status> {
    let mut frame = BytesMut::with_capacity(HEAD + message.len());
    frame.put(head(flags, message.len())?);
    frame.put(message);
    Ok(frame.freeze())
}
