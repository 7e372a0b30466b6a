//! The content of a file, in pieces.

use std::io::{Read, Seek, SeekFrom};

use call_outcome::Failure;
use contracts::tavern::registry::v1::{
    ReadFileRequest, ReadFileResponse, read_file_response::Part,
};
use futures::{Stream, stream};
use tonic::Status;
use tool_domain::path::WorkspacePath;
use workspace_store::{Condition, Workspace};

use super::{condition_of, file_to_proto, status, wrong};
use crate::conversation_files::blocking;

/// The size of a piece, in bytes.
const PIECE: u64 = 256 << 10;

/// Opens a file, and returns its description and the pieces of its content.
pub(super) async fn pieces(
    workspace: Workspace,
    path: WorkspacePath,
    request: &ReadFileRequest,
) -> Result<impl Stream<Item = Result<ReadFileResponse, Status>> + use<>, Status> {
    let condition = condition_of("etag", &request.etag)?;
    let opened = blocking(move || workspace.open(&path)).await;
    let opened = opened.map_err(status)?;
    if let Condition::Is(digest) = condition
        && opened.file.digest != digest
    {
        let etag = opened.file.digest.to_string();
        return Err(grpc_kit::Failure::etag_mismatch(etag).into_status());
    }
    let (offset, size) = (request.offset_bytes, opened.file.bytes);
    if offset > size {
        let problem = format!("must be at most the size, {size}");
        return Err(wrong("offset_bytes", &problem));
    }
    let left = request.length_bytes.unwrap_or(u64::MAX).min(size - offset);
    let head = ReadFileResponse {
        part: Some(Part::File(file_to_proto(&opened.file))),
    };
    let mut content = opened.content;
    let content = blocking(move || {
        let moved = content.seek(SeekFrom::Start(offset)).map(|_| content);
        moved.map_err(|error| unreadable(&error))
    });
    let content = content.await.map_err(status)?;
    let rest = stream::try_unfold((content, left), |(mut content, left)| async move {
        if left == 0 {
            return Ok(None);
        }
        let (content, piece) = blocking(move || {
            let mut piece = vec![0; usize::try_from(left.min(PIECE)).unwrap_or(0)];
            let read = content.read_exact(&mut piece);
            read.map_err(|error| unreadable(&error))?;
            Ok((content, piece))
        })
        .await
        .map_err(status)?;
        let left = left - piece.len() as u64;
        let part = Some(Part::Chunk(piece));
        Ok(Some((ReadFileResponse { part }, (content, left))))
    });
    Ok(futures::StreamExt::chain(stream::iter([Ok(head)]), rest))
}

fn unreadable(error: &std::io::Error) -> Failure {
    let message = format!("the file cannot be read: {error}");
    Failure::new(
        call_outcome::Category::Dependency,
        "storage_failed",
        message,
    )
}
