//! Messages whose type is known at run time only.

use bytes::Buf;
use prost::Message;
use prost_reflect::{DynamicMessage, MessageDescriptor};
use tonic::{
    Status,
    codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder},
};

/// Writes any message and reads messages of one type.
#[derive(Clone, Debug)]
pub(super) struct DynamicCodec {
    answer: MessageDescriptor,
}

impl DynamicCodec {
    pub(super) fn new(answer: MessageDescriptor) -> Self {
        Self { answer }
    }
}

impl Codec for DynamicCodec {
    type Encode = DynamicMessage;
    type Decode = DynamicMessage;
    type Encoder = DynamicEncoder;
    type Decoder = DynamicDecoder;

    fn encoder(&mut self) -> Self::Encoder {
        DynamicEncoder
    }

    fn decoder(&mut self) -> Self::Decoder {
        DynamicDecoder {
            answer: self.answer.clone(),
        }
    }
}

#[derive(Debug)]
pub(super) struct DynamicEncoder;

impl Encoder for DynamicEncoder {
    type Item = DynamicMessage;
    type Error = Status;

    fn encode(&mut self, item: DynamicMessage, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        item.encode(buffer)
            .map_err(|error| Status::internal(format!("the request does not fit: {error}")))
    }
}

#[derive(Debug)]
pub(super) struct DynamicDecoder {
    answer: MessageDescriptor,
}

impl Decoder for DynamicDecoder {
    type Item = DynamicMessage;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<DynamicMessage>, Status> {
        let bytes = buffer.copy_to_bytes(buffer.remaining());
        DynamicMessage::decode(self.answer.clone(), bytes)
            .map(Some)
            .map_err(|error| {
                Status::internal(format!(
                    "the answer is no {}: {error}",
                    self.answer.full_name()
                ))
            })
    }
}
