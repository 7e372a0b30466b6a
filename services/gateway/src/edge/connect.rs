//! The Connect protocol: methods as plain HTTP, in JSON or protobuf.
//!
//! - `unary`: one request, one answer, both the bare bodies.
//! - `stream`: messages with heads, and the status as the last of them.
//! - `error`: statuses as Connect JSON.
//! - `query`: the message in the address of a request by GET.
//! - `compression`, `timeout`: the headers of these names.

mod compression;
mod error;
mod query;
mod stream;
mod timeout;
mod unary;

use axum::body::Bytes;
use grpc_kit::Failure;
use json_schema::JsonLimits;
use prost_reflect::prost::Message;
use prost_reflect::{DynamicMessage, MessageDescriptor};
use serde_json::Value;
use tonic::Status;

use super::contract;
pub(super) use error::{code_name, details, http_error, http_status, to_json as error_to_json};
pub(super) use stream::answer as stream;
pub(super) use unary::{answer as unary, visit, without_message};

/// Limits of a message in JSON, above all its depth; its size is bounded before it is read.
const JSON_LIMITS: JsonLimits = JsonLimits {
    max_bytes: usize::MAX,
    max_depth: 128,
    max_number_chars: 1_024,
};

/// The form in which messages are written.
#[derive(Clone, Copy, Debug)]
pub(super) enum Encoding {
    /// Proto3 JSON.
    Json,
    /// Protobuf.
    Proto,
}

impl Encoding {
    /// Converts a message as it arrived to protobuf.
    fn read(self, descriptor: &MessageDescriptor, bytes: Bytes) -> Result<Bytes, Status> {
        match self {
            Self::Proto => Ok(bytes),
            Self::Json => read_value(descriptor, &parse_json(&bytes)?),
        }
    }

    /// Converts a message to the client's encoding. The bound on `bytes` is released when the
    /// answer is sent.
    pub(super) fn write(
        self,
        descriptor: &MessageDescriptor,
        bytes: Bytes,
    ) -> Result<Bytes, Status> {
        match self {
            Self::Proto => Ok(bytes),
            Self::Json => {
                let message = DynamicMessage::decode(descriptor.clone(), bytes.clone());
                let message = message.map_err(|error| grpc_kit::internal(&error))?;
                let text = proto_json::to_text(&message);
                let text = text.map_err(|error| grpc_kit::internal(&error))?;
                Ok(Written::until_sent(text, bytes))
            }
        }
    }
}

/// A message as JSON, with the bytes that count against the share of its peer.
pub(super) struct Written {
    text: String,
    _bounded: Bytes,
}

impl Written {
    /// Keeps the message of a text until the text is sent.
    pub(super) fn until_sent(text: String, message: Bytes) -> Bytes {
        Bytes::from_owner(Self {
            text,
            _bounded: message,
        })
    }
}

impl AsRef<[u8]> for Written {
    fn as_ref(&self) -> &[u8] {
        self.text.as_bytes()
    }
}

/// Parses JSON.
///
/// # Errors
/// `INVALID_FIELDS` for text that is not JSON, names a key twice or is nested too deep.
pub(super) fn parse_json(bytes: &[u8]) -> Result<Value, Status> {
    let invalid = |problem: String| Status::from(Failure::invalid_fields().violation("", problem));
    let text =
        std::str::from_utf8(bytes).map_err(|error| invalid(format!("it is not UTF-8: {error}")))?;
    json_schema::parse_json_strict_with(text, &JSON_LIMITS)
        .map_err(|error| invalid(format!("it is not valid JSON: {error}")))
}

/// Converts a JSON value to protobuf.
///
/// # Errors
/// `INVALID_FIELDS` with every field that is wrong, by its path.
pub(super) fn read_value(descriptor: &MessageDescriptor, value: &Value) -> Result<Bytes, Status> {
    let read = match contract::ignores_unknown_fields(descriptor) {
        true => proto_json::to_message_without_unknown(descriptor, value),
        false => proto_json::to_message(descriptor, value),
    };
    match read {
        Ok(message) => Ok(message.encode_to_vec().into()),
        Err(violations) => {
            let mut failure = Failure::invalid_fields();
            for violation in violations {
                let path = proto_json::field_path(descriptor, &violation.pointer);
                failure.add_violation(path, violation.message);
            }
            Err(failure.into())
        }
    }
}
