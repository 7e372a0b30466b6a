//! A file that arrives in pieces.

use contracts::tavern::registry::v1::{
    WriteFileHeader, WriteFileRequest, WriteFileResponse, write_file_request::Part,
};
use core_types::ContentDigest;
use grpc_kit::CallContext;
use tonic::{Status, Streaming};
use workspace_store::{Condition, Staged};

use super::{condition_of, conversation_id, file_to_proto, path_of, status, wrong};
use crate::conversation_files::{ConversationFiles, blocking};

/// Receives a file, and puts it in its place once all of it is there.
pub(super) async fn write(
    files: &ConversationFiles,
    context: &CallContext,
    mut pieces: Streaming<WriteFileRequest>,
) -> Result<WriteFileResponse, Status> {
    let first = pieces.message().await?;
    let Some(Part::Header(header)) = first.and_then(|first| first.part) else {
        return Err(wrong("header", "must be the first message"));
    };
    let conversation = conversation_id(&header.conversation_id)?;
    let path = path_of("header.path", &header.path)?;
    let condition = match (
        condition_of("header.etag", &header.etag)?,
        header.must_be_new,
    ) {
        (condition, false) => condition,
        (Condition::Any, true) => Condition::IsNew,
        (_, true) => {
            return Err(wrong(
                "header.etag",
                "must be empty where the file must be new",
            ));
        }
    };
    let most = files.all().limits().file_bytes;
    if header.size_bytes.is_some_and(|size| size > most as u64) {
        let observed = header
            .size_bytes
            .and_then(|size| usize::try_from(size).ok());
        let failure =
            grpc_kit::Failure::limit_exceeded("file_bytes", most, observed.unwrap_or(usize::MAX));
        return Err(failure.into_status());
    }
    let workspace = files.open(context, &conversation).await.map_err(status)?;
    let staged = take_in(files, &mut pieces, &header).await?;
    let put = blocking(move || workspace.put(&path, staged, condition)).await;
    let (file, created) = put.map_err(status)?;
    Ok(WriteFileResponse {
        file: Some(file_to_proto(&file)),
        created,
    })
}

async fn take_in(
    files: &ConversationFiles,
    pieces: &mut Streaming<WriteFileRequest>,
    header: &WriteFileHeader,
) -> Result<Staged, Status> {
    let expected =
        match header.sha256.as_str() {
            "" => None,
            text => Some(ContentDigest::parse(text).ok_or_else(|| {
                wrong("header.sha256", "must be 64 lower-case hexadecimal digits")
            })?),
        };
    let workspaces = files.all().clone();
    let mut staging = blocking(move || workspaces.stage()).await.map_err(status)?;
    while let Some(message) = pieces.message().await? {
        let Some(Part::Chunk(piece)) = message.part else {
            return Err(wrong("chunk", "must be in every message but the first"));
        };
        let more = blocking(move || staging.write(&piece).map(|()| staging)).await;
        staging = more.map_err(status)?;
    }
    if header
        .size_bytes
        .is_some_and(|size| size != staging.bytes())
    {
        let problem = format!("must be the size of the content, {} bytes", staging.bytes());
        return Err(wrong("header.size_bytes", &problem));
    }
    let staged = blocking(move || staging.finish()).await.map_err(status)?;
    if expected.is_some_and(|digest| digest != staged.digest()) {
        let problem = format!("must be the digest of the content, {}", staged.digest());
        return Err(wrong("header.sha256", &problem));
    }
    Ok(staged)
}
