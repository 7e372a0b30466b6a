//! `/v1/conversations/{id}/files`: the files of a conversation, by the methods of `WorkspaceService`.
//!
//! Each answer is inert in a browser: it runs nothing, loads nothing and is of its declared type, and only text,
//! pictures and PDF are shown in place.
//!
//! - `list`: the files, as JSON.
//! - `read`: the content of a file, whole or a part of it.
//! - `write`: a file that is put or deleted; `upload` is the body of a request on its way.
//! - `conditions`: the headers that name a version.
//! - `range`: the part of a file that a request asks for.
//! - `served`: the headers of an answer that describe a file.
//! - `error`: statuses as this edge reports them.

mod conditions;
mod error;
mod list;
mod range;
mod read;
mod served;
mod upload;
mod write;

use axum::extract::Path;
use axum::extract::rejection::PathRejection;
use axum::response::Response;
use axum::routing::get;
use axum::{Router, middleware};
use grpc_kit::Failure;
use tonic::Status;

pub(super) use served::encoded;

/// Returns the routes.
pub(super) fn routes() -> Router {
    let of_file = get(read::content)
        .head(read::description)
        .put(write::put)
        .delete(write::delete);
    Router::new()
        .route("/v1/conversations/{id}/files", get(list::answer))
        .route("/v1/conversations/{id}/files/{*path}", of_file)
        .layer(middleware::map_response(inert))
}

/// Makes an answer inert, whatever it has.
async fn inert(mut response: Response) -> Response {
    response.headers_mut().extend(served::inert());
    response
}

/// The conversation and the path of a request's address, decoded.
type Address = Result<Path<(String, String)>, PathRejection>;

/// Returns the conversation and the path.
///
/// # Errors
/// `INVALID_FIELDS` for an address whose decoded form is not UTF-8.
fn place(address: Address) -> Result<(String, String), Status> {
    match address {
        Ok(Path(place)) => Ok(place),
        Err(_) => {
            let failure = Failure::invalid_fields();
            Err(failure.violation("path", "is not UTF-8").into())
        }
    }
}
