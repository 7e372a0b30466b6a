//! The content of a file, whole or a part of it.

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::response::{IntoResponse, Response};
use contracts::tavern::common::v1::ErrorReason;
use contracts::tavern::registry::v1::read_file_response::Part as Piece;
use contracts::tavern::registry::v1::workspace_service_client::WorkspaceServiceClient;
use contracts::tavern::registry::v1::{File, ReadFileRequest, ReadFileResponse, StatFileRequest};
use futures::{Stream, StreamExt};
use grpc_kit::{Calls, Failure};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use tonic::{Code, Status, Streaming};

use super::conditions::Reading;
use super::range::{FilePart, Range};
use super::{Address, error, place, served};
use crate::edge::call::with_metadata;

/// The method that reads a file.
const READ: &str = "/tavern.registry.v1.WorkspaceService/ReadFile";

/// The method that describes a file.
const DESCRIBE: &str = "/tavern.registry.v1.WorkspaceService/StatFile";

/// The times that a part is read where its file changes between the two requests for it.
const TRIES: usize = 3;

/// A request for a file.
struct FileRequest {
    calls: Calls,
    headers: HeaderMap,
    conversation_id: String,
    path: String,
}

/// `GET /v1/conversations/{id}/files/{path}`: the content.
pub(super) async fn content(
    address: Address,
    Extension(calls): Extension<Calls>,
    headers: HeaderMap,
) -> Response {
    let range = Range::of(&headers);
    let answered = async {
        let asked = FileRequest::of(READ, address, calls, headers).await?;
        match range {
            None => asked.whole().await,
            Some(range) => asked.part(range).await,
        }
    };
    answered
        .await
        .unwrap_or_else(|status| error::of_file(&status))
}

/// `HEAD /v1/conversations/{id}/files/{path}`: the headers of the content.
pub(super) async fn description(
    address: Address,
    Extension(calls): Extension<Calls>,
    headers: HeaderMap,
) -> Response {
    let answered = async {
        let asked = FileRequest::of(DESCRIBE, address, calls, headers).await?;
        let file = asked.describe().await?;
        Ok(match Reading::of(&asked.headers, &file) {
            Reading::Wanted => answer(&file, None, Body::empty()),
            reading => unread(reading, &file),
        })
    };
    answered
        .await
        .unwrap_or_else(|status: Status| error::of_file(&status))
}

impl FileRequest {
    /// Reads an address. An address that cannot be read is refused only to callers whom the door admits.
    async fn of(
        method: &str,
        address: Address,
        calls: Calls,
        headers: HeaderMap,
    ) -> Result<Self, Status> {
        let (conversation_id, path) = match place(address) {
            Ok(place) => place,
            Err(status) => {
                calls.enter(method, &headers).await?;
                return Err(status);
            }
        };
        Ok(Self {
            calls,
            headers,
            conversation_id,
            path,
        })
    }

    /// Answers with the whole content.
    async fn whole(&self) -> Result<Response, Status> {
        let (file, pieces) = self.read(None, "").await?;
        Ok(match Reading::of(&self.headers, &file) {
            Reading::Wanted => answer(&file, None, Body::from_stream(pieces)),
            reading => unread(reading, &file),
        })
    }

    /// Answers with a part of the content. The size of the file says which part that is, so it is described first.
    async fn part(&self, range: Range) -> Result<Response, Status> {
        let mut tries = TRIES;
        loop {
            let file = self.describe().await?;
            match Reading::of(&self.headers, &file) {
                Reading::Wanted if !Range::is_of(&self.headers, &file) => {
                    return self.whole().await;
                }
                Reading::Wanted => {}
                reading => return Ok(unread(reading, &file)),
            }
            let Some(part) = range.within(file.size_bytes) else {
                return Ok(error::no_such_part(file.size_bytes));
            };
            tries -= 1;
            match self.read(Some(part), &file.sha256).await {
                Ok((file, pieces)) => {
                    return Ok(answer(&file, Some(part), Body::from_stream(pieces)));
                }
                Err(status) if tries > 0 && has_changed(&status) => {}
                Err(status) => return Err(status),
            }
        }
    }

    async fn describe(&self) -> Result<File, Status> {
        let call = self.calls.enter(DESCRIBE, &self.headers).await?;
        let request = StatFileRequest {
            conversation_id: self.conversation_id.clone(),
            path: self.path.clone(),
        };
        let request = with_metadata(request, &self.headers);
        let described = WorkspaceServiceClient::new(call).stat_file(request).await?;
        described.into_inner().file.ok_or_else(nameless)
    }

    /// Reads a file, or a part of a version of it, up to its description.
    async fn read(
        &self,
        part: Option<FilePart>,
        etag: &str,
    ) -> Result<(File, impl Stream<Item = Result<Bytes, Status>> + use<>), Status> {
        let call = self.calls.enter(READ, &self.headers).await?;
        let request = ReadFileRequest {
            conversation_id: self.conversation_id.clone(),
            path: self.path.clone(),
            offset_bytes: part.map_or(0, |part| part.offset),
            length_bytes: part.map(|part| part.length),
            etag: etag.to_owned(),
        };
        let request = with_metadata(request, &self.headers);
        let pieces = WorkspaceServiceClient::new(call).read_file(request).await?;
        let mut pieces: Streaming<ReadFileResponse> = pieces.into_inner();
        let first = pieces.message().await?.and_then(|first| first.part);
        let Some(Piece::File(file)) = first else {
            return Err(nameless());
        };
        // A piece that fails cuts the answer off, which the client knows by its length.
        let pieces = pieces.map(|piece| match piece?.part {
            Some(Piece::Chunk(piece)) => Ok(Bytes::from(piece)),
            Some(Piece::File(_)) | None => Ok(Bytes::new()),
        });
        Ok((file, pieces))
    }
}

/// Answers with a file or a part of it.
fn answer(file: &File, part: Option<FilePart>, body: Body) -> Response {
    let status = match part {
        Some(_) => StatusCode::PARTIAL_CONTENT,
        None => StatusCode::OK,
    };
    let mut response = (status, served::describe(file), body).into_response();
    let length = part.map_or(file.size_bytes, |part| part.length);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_LENGTH, length.into());
    let part = part.map(|part| HeaderValue::try_from(part.of_file(file.size_bytes)));
    if let Some(Ok(part)) = part {
        headers.insert(header::CONTENT_RANGE, part);
    }
    response
}

/// Answers a request whose conditions the file does not meet.
fn unread(reading: Reading, file: &File) -> Response {
    if reading == Reading::Known {
        let mut headers = served::describe(file);
        headers.remove(header::CONTENT_TYPE);
        return (StatusCode::NOT_MODIFIED, headers).into_response();
    }
    error::of_file(&Failure::etag_mismatch(file.sha256.as_str()).into())
}

fn has_changed(status: &Status) -> bool {
    grpc_kit::reason(status) == Some(ErrorReason::EtagMismatch)
}

/// Reports an answer that describes no file.
fn nameless() -> Status {
    let what = "the answer describes no file";
    Failure::new(Code::Internal, ErrorReason::Internal, what).into()
}
