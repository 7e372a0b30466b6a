//! The bodies of requests.

use std::time::Duration;

use axum::body::{Body, Bytes};
use grpc_kit::Failure;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use tonic::Status;

/// The longest time that a client may take to send a body that is read whole.
const LONGEST: Duration = Duration::from_secs(30);

/// Reads a body whole.
///
/// # Errors
/// A body that is longer than `maximum`, breaks off, or does not end in time.
pub(super) async fn read(body: Body, maximum: usize) -> Result<Bytes, Status> {
    let collected = Limited::new(body, maximum).collect();
    match tokio::time::timeout(LONGEST, collected).await {
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            Err(Failure::limit_exceeded("message bytes", maximum, maximum + 1).into())
        }
        Ok(Err(_)) => Err(Status::cancelled("the request broke off")),
        Err(_elapsed) => Err(Failure::deadline_exceeded().into()),
    }
}
