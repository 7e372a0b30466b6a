//! gzip, the one compression that is supported.

use std::io::{Read, Write};

use axum::body::Bytes;
use contracts::tavern::common::v1::ErrorReason;
use flate2::{Compression, read::MultiGzDecoder, write::GzEncoder};
use grpc_kit::Failure;
use http::{HeaderMap, HeaderName, HeaderValue};
use tonic::{Code, Status};

/// The name of gzip in headers.
pub(super) const GZIP: HeaderValue = HeaderValue::from_static("gzip");

/// The size below which compressing is not worth it, in bytes.
const WORTHWHILE: usize = 1 << 10;

/// Whether the messages of a request are compressed, by the header `name`.
///
/// # Errors
/// A compression other than gzip.
pub(super) fn is_used(headers: &HeaderMap, name: &HeaderName) -> Result<bool, Status> {
    match headers.get(name).map(HeaderValue::as_bytes) {
        None | Some(b"identity") => Ok(false),
        Some(b"gzip") => Ok(true),
        Some(_) => Err(Failure::new(
            Code::Unimplemented,
            ErrorReason::InvalidFields,
            "the compression is not supported; send gzip or none",
        )
        .metadata("header", name.as_str())
        .into()),
    }
}

/// Whether the client reads gzip, by the header `name`.
pub(super) fn is_accepted(headers: &HeaderMap, name: &HeaderName) -> bool {
    let values = headers.get_all(name).iter();
    let names = values.filter_map(|value| value.to_str().ok());
    names
        .flat_map(|names| names.split(','))
        .any(|name| name.trim().split(';').next() == Some("gzip"))
}

/// Returns the decompressed bytes, if they are no longer than `maximum`. An empty body is never
/// compressed.
///
/// # Errors
/// Bytes that are not gzip, or more than `maximum` of them.
pub(super) fn decompress(bytes: Bytes, maximum: usize) -> Result<Bytes, Status> {
    if bytes.is_empty() {
        return Ok(bytes);
    }
    let mut out = Vec::new();
    let limit = maximum as u64 + 1;
    let read = MultiGzDecoder::new(&*bytes)
        .take(limit)
        .read_to_end(&mut out);
    if read.is_err() {
        return Err(Failure::invalid_fields()
            .violation("", "is not valid gzip")
            .into());
    }
    if out.len() > maximum {
        return Err(Failure::limit_exceeded("message bytes", maximum, out.len()).into());
    }
    Ok(out.into())
}

/// Compresses a message if it is long enough.
pub(super) fn compress(bytes: &[u8]) -> Option<Bytes> {
    if bytes.len() < WORTHWHILE {
        return None;
    }
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).ok()?;
    encoder.finish().ok().map(Bytes::from)
}
