//! The message of a request by GET, which is part of its address.

use axum::body::Bytes;
use axum::extract::Query;
use base64::Engine;
use base64::alphabet::URL_SAFE;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use grpc_kit::Failure;
use http::Uri;
use serde::Deserialize;
use tonic::Status;

use super::{Encoding, compression};

/// URL-safe base64, with padding or without.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &URL_SAFE,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

#[derive(Deserialize)]
struct CallParameters {
    #[serde(default)]
    encoding: String,
    #[serde(default)]
    message: String,
    #[serde(default)]
    base64: String,
    #[serde(default)]
    compression: String,
}

/// Returns the message and its encoding.
///
/// # Errors
/// `INVALID_FIELDS` with the parameter that is wrong, or a message of more than `maximum` bytes.
pub(super) fn read(uri: &Uri, maximum: usize) -> Result<(Encoding, Bytes), Status> {
    let invalid = |parameter: &str, problem: &str| {
        Status::from(Failure::invalid_fields().violation(parameter, problem))
    };
    let parameters = Query::<CallParameters>::try_from_uri(uri)
        .map_err(|error| invalid("", &format!("the query cannot be read: {error}")))?;
    let CallParameters {
        encoding,
        message,
        base64,
        compression,
    } = parameters.0;
    let encoding = match encoding.as_str() {
        "json" => Encoding::Json,
        "proto" => Encoding::Proto,
        _ => return Err(invalid("encoding", "is neither json nor proto")),
    };
    let bytes: Bytes = match base64.as_str() {
        "1" => BASE64
            .decode(message)
            .map_err(|error| invalid("message", &format!("is not URL-safe base64: {error}")))?
            .into(),
        _ => message.into_bytes().into(),
    };
    let bytes = match compression.as_str() {
        "" | "identity" => bytes,
        "gzip" => compression::decompress(bytes, maximum)?,
        _ => return Err(invalid("compression", "is neither gzip nor identity")),
    };
    match bytes.len() > maximum {
        true => Err(Failure::limit_exceeded("message bytes", maximum, bytes.len()).into()),
        false => Ok((encoding, bytes)),
    }
}
