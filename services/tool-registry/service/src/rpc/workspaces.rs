//! The files of conversations.

mod read;
mod watch;
mod write;

use call_outcome::{Category, Failure};
use contracts::tavern::{
    common::v1::ErrorReason,
    registry::v1::{
        DeleteFileRequest, DeleteFileResponse, File, ListFilesRequest, ListFilesResponse,
        MoveFileRequest, MoveFileResponse, ReadFileRequest, ReadFileResponse, StatFileRequest,
        StatFileResponse, WatchFilesRequest, WatchFilesResponse, WriteFileRequest,
        WriteFileResponse, workspace_service_server::WorkspaceService,
    },
};
use core_types::{ContentDigest, ConversationId, Timestamp};
use grpc_kit::{CallContext, Drain};
use tonic::{Code, Request, Response, Status, Streaming};
use tool_domain::path::WorkspacePath;
use workspace_store::{Condition, Workspace};

use run_events::timestamp_to_proto;

use super::{Answer, StreamOf, page::page_after};
use crate::conversation_files::{ConversationFiles, blocking};

/// Serves the files of conversations.
#[derive(Clone, Debug)]
pub(crate) struct WorkspaceRpc {
    files: ConversationFiles,
}

impl WorkspaceRpc {
    pub(crate) fn new(files: ConversationFiles) -> Self {
        Self { files }
    }

    /// Returns the workspace in which a file of this path has to be.
    async fn with_file(
        &self,
        context: &CallContext,
        conversation: &str,
        path: &WorkspacePath,
    ) -> Result<Workspace, Status> {
        let conversation = conversation_id(conversation)?;
        let found = self.files.find(context, &conversation).await;
        found.map_err(status)?.ok_or_else(|| no_such_file(path))
    }
}

#[tonic::async_trait]
impl WorkspaceService for WorkspaceRpc {
    async fn list_files(&self, request: Request<ListFilesRequest>) -> Answer<ListFilesResponse> {
        let context = CallContext::of(&request);
        let request = request.into_inner();
        let conversation = conversation_id(&request.conversation_id)?;
        let found = self.files.find(&context, &conversation).await;
        let most = self.files.all().limits().total_bytes as u64;
        let files = match found.map_err(status)? {
            Some(workspace) => blocking(move || workspace.files()).await.map_err(status)?,
            None => Vec::new(),
        };
        // A token of another conversation's list is invalid here.
        let list = format!("ListFiles {:?}", request.conversation_id);
        let (token, size) = (&request.page_token, request.page_size);
        let (page, next_page_token) = page_after(&list, token, size, &files, |file| &file.path)?;
        Ok(Response::new(ListFilesResponse {
            files: page.iter().map(file_to_proto).collect(),
            next_page_token,
            total_bytes: files.iter().map(|file| file.bytes).sum(),
            max_total_bytes: most,
        }))
    }

    async fn stat_file(&self, request: Request<StatFileRequest>) -> Answer<StatFileResponse> {
        let context = CallContext::of(&request);
        let request = request.into_inner();
        let path = path_of("path", &request.path)?;
        let workspace = self.with_file(&context, &request.conversation_id, &path);
        let workspace = workspace.await?;
        let opened = blocking(move || workspace.open(&path)).await;
        let file = Some(file_to_proto(&opened.map_err(status)?.file));
        Ok(Response::new(StatFileResponse { file }))
    }

    type ReadFileStream = StreamOf<ReadFileResponse>;

    async fn read_file(&self, request: Request<ReadFileRequest>) -> Answer<Self::ReadFileStream> {
        let context = CallContext::of(&request);
        let request = request.into_inner();
        let path = path_of("path", &request.path)?;
        let workspace = self.with_file(&context, &request.conversation_id, &path);
        let stream = read::pieces(workspace.await?, path, &request).await?;
        Ok(Response::new(Box::pin(stream)))
    }

    async fn write_file(
        &self,
        request: Request<Streaming<WriteFileRequest>>,
    ) -> Answer<WriteFileResponse> {
        let context = CallContext::of(&request);
        let written = write::write(&self.files, &context, request.into_inner()).await?;
        Ok(Response::new(written))
    }

    async fn move_file(&self, request: Request<MoveFileRequest>) -> Answer<MoveFileResponse> {
        let context = CallContext::of(&request);
        let request = request.into_inner();
        let (path, new) = (
            path_of("path", &request.path)?,
            path_of("new_path", &request.new_path)?,
        );
        let condition = condition_of("etag", &request.etag)?;
        let workspace = self.with_file(&context, &request.conversation_id, &path);
        let workspace = workspace.await?;
        let moved = blocking(move || workspace.rename(&path, &new, condition)).await;
        let moved = moved.map_err(|failure| match failure.code.as_str() {
            "path_taken" => invalid("new_path", &failure),
            _ => status(failure),
        })?;
        let file = Some(file_to_proto(&moved));
        Ok(Response::new(MoveFileResponse { file }))
    }

    async fn delete_file(&self, request: Request<DeleteFileRequest>) -> Answer<DeleteFileResponse> {
        let context = CallContext::of(&request);
        let request = request.into_inner();
        let path = path_of("path", &request.path)?;
        let condition = condition_of("etag", &request.etag)?;
        let workspace = self.with_file(&context, &request.conversation_id, &path);
        let workspace = workspace.await?;
        let removed = blocking(move || workspace.remove(&path, condition)).await;
        removed.map_err(status)?;
        Ok(Response::new(DeleteFileResponse {}))
    }

    type WatchFilesStream = StreamOf<WatchFilesResponse>;

    async fn watch_files(
        &self,
        request: Request<WatchFilesRequest>,
    ) -> Answer<Self::WatchFilesStream> {
        let (context, drain) = (CallContext::of(&request), Drain::of(&request));
        let conversation = conversation_id(&request.into_inner().conversation_id)?;
        // A conversation without files has a workspace as soon as a client waits for one.
        let found = self.files.find(&context, &conversation).await;
        let workspace = match found.map_err(status)? {
            Some(workspace) => workspace,
            None => {
                let opened = self.files.open(&context, &conversation).await;
                opened.map_err(status)?
            }
        };
        Ok(Response::new(Box::pin(watch::changes(workspace, drain))))
    }
}

fn conversation_id(text: &str) -> Result<ConversationId, Status> {
    ConversationId::new(text).map_err(|error| {
        grpc_kit::Failure::invalid_fields()
            .violation("conversation_id", error.to_string())
            .into_status()
    })
}

fn path_of(field: &str, text: &str) -> Result<WorkspacePath, Status> {
    WorkspacePath::exact(text).map_err(|failure| invalid(field, &failure))
}

/// Reads an etag; empty for any version.
fn condition_of(field: &str, text: &str) -> Result<Condition, Status> {
    match (text, ContentDigest::parse(text)) {
        ("", _) => Ok(Condition::Any),
        ("*", _) => Ok(Condition::Exists),
        (_, Some(digest)) => Ok(Condition::Is(digest)),
        (_, None) => Err(wrong(field, "must be the etag of a file, or `*`")),
    }
}

fn file_to_proto(file: &workspace_store::File) -> File {
    File {
        path: file.path.clone(),
        size_bytes: file.bytes,
        sha256: file.digest.to_string(),
        media_type: file.media_type.clone(),
        update_time: Some(timestamp_to_proto(Timestamp::from_unix_nanos(
            file.modified,
        ))),
    }
}

fn invalid(field: &str, failure: &Failure) -> Status {
    wrong(field, &failure.message)
}

fn wrong(field: &str, problem: &str) -> Status {
    grpc_kit::Failure::invalid_fields()
        .violation(field, problem)
        .into_status()
}

fn no_such_file(path: &WorkspacePath) -> Status {
    let message = format!("there is no file `{path}`; list the files first");
    grpc_kit::Failure::new(Code::NotFound, ErrorReason::FileNotFound, message)
        .metadata("path", path.to_string())
        .into_status()
}

/// Makes the status of a failure of files.
fn status(failure: Failure) -> Status {
    let about = |code, reason| grpc_kit::Failure::new(code, reason, failure.message.clone());
    let limit = |name: &str| {
        about(Code::ResourceExhausted, ErrorReason::LimitExceeded).metadata("limit", name)
    };
    let text = |name: &str| {
        let value = failure.details.get(name).and_then(|value| value.as_str());
        value.unwrap_or_default().to_owned()
    };
    match failure.code.as_str() {
        "no_such_conversation" => {
            let reason = ErrorReason::ConversationNotFound;
            let message = "no conversation has this id; ListConversations lists yours";
            grpc_kit::Failure::new(Code::NotFound, reason, message)
        }
        "file_not_found" => about(Code::NotFound, ErrorReason::FileNotFound),
        "etag_mismatch" => grpc_kit::Failure::etag_mismatch(text("etag")),
        "too_large" => limit("file_bytes"),
        "workspace_full" => limit("workspace_bytes"),
        "agent_unavailable" => grpc_kit::Failure::dependency_unavailable("agent-runtime"),
        "invalid_conversation_id" => return invalid("conversation_id", &failure),
        _ if failure.category == Category::Validation || failure.category == Category::Policy => {
            return invalid("path", &failure);
        }
        "is_a_directory" | "not_a_directory" => return invalid("path", &failure),
        "internal" => about(Code::Internal, ErrorReason::Internal),
        _ => about(Code::Unavailable, ErrorReason::StorageUnavailable),
    }
    .into_status()
}
