//! Encoding and decoding of messages.

mod rules;

use std::marker::PhantomData;

use bytes::Buf;
use prost::{Message, Name};
use tonic::{
    Status,
    codec::{BufferSettings, Codec, DecodeBuf, Decoder, EncodeBuf, Encoder},
};

/// The first size of a buffer, and the bytes of small messages that make one frame. A stream whose
/// reader is slow holds a few of each, so they are far smaller than the library has them. The decoder of
/// a frame makes room for its next message in addition to its present content, so that two messages
/// in one frame cost the room of four.
const BUFFERS: (usize, usize) = (1 << 10, 1 << 10);

/// Protobuf with small buffers, and with requests that keep the rules of their fields.
#[derive(Debug)]
pub struct ProstCodec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for ProstCodec<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T, U> Codec for ProstCodec<T, U>
where
    T: Message + Send + 'static,
    U: Message + Name + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = ProstEncoder<T>;
    type Decoder = ProstDecoder<U>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstEncoder(PhantomData)
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstDecoder {
            inner: tonic_prost::ProstDecoder::new(buffers()),
            rules: rules::of_request(&U::full_name()),
        }
    }
}

/// Writes messages.
#[derive(Debug)]
pub struct ProstEncoder<T>(PhantomData<T>);

impl<T: Message> Encoder for ProstEncoder<T> {
    type Item = T;
    type Error = Status;

    fn encode(&mut self, item: T, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        // At once, so that a large message does not leave a buffer of twice its size behind.
        buffer.reserve(item.encoded_len());
        item.encode_raw(buffer);
        Ok(())
    }

    fn buffer_settings(&self) -> BufferSettings {
        buffers()
    }
}

/// Reads messages.
#[derive(Debug)]
pub struct ProstDecoder<U> {
    inner: tonic_prost::ProstDecoder<U>,
    /// The rules of the message if it is a request; answers may have values that this program does
    /// not know yet.
    rules: Option<&'static rules::Message>,
}

impl<U: Message + Default> Decoder for ProstDecoder<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        if let Some(rules) = self.rules {
            rules::check(rules, buffer.chunk())?;
        }
        self.inner.decode(buffer)
    }

    fn buffer_settings(&self) -> BufferSettings {
        buffers()
    }
}

fn buffers() -> BufferSettings {
    BufferSettings::new(BUFFERS.0, BUFFERS.1)
}
