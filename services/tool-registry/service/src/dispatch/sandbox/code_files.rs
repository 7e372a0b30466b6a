//! The files of a conversation, as code in the sandbox works on them.
//!
//! Before code runs, the sandbox gets the names and digests of all files, and the content of those that it lacks.
//! Afterwards it names the changes, and the content of changed files comes back. Content travels as blobs.

use std::sync::Arc;

use call_outcome::{Category, Failure};
use contracts::tavern::sandbox::v1::{
    ChangedFile, DownloadBlobRequest, Limits, RefusedFile, StatBlobsRequest, UploadBlobHeader,
    UploadBlobRequest, Workspace as Wanted, WorkspaceChanges, WorkspaceFile,
    blob_service_client::BlobServiceClient, upload_blob_request::Part,
};
use core_types::{ContentDigest, ConversationId};
use futures::stream;
use grpc_kit::{CallContext, Outbound, Transport};
use tonic::Status;
use tool_domain::path::WorkspacePath;
use workspace_store::{
    Change, Condition, File, Made, MadeKind, OpenFile, Staged, Taken, Workspace, Workspaces,
};

use super::{Sandbox, portable};
use crate::conversation_files::{ConversationFiles, blocking};

/// The size of a piece of a file, in bytes.
const PIECE: usize = 256 << 10;

/// The most digests of one question for blobs.
const ASKED: usize = 1_000;

/// The files of a conversation for one call.
#[derive(Clone, Debug)]
pub(in crate::dispatch) struct CodeFiles {
    sandbox: Transport,
    context: CallContext,
    /// The name under which the sandbox keeps blobs.
    caller: String,
    workspaces: Workspaces,
    workspace: Arc<Workspace>,
}

/// The changes that code made to the files.
#[derive(Debug, Default)]
pub(in crate::dispatch) struct LeftFiles {
    /// The changes that were made, by path.
    pub(in crate::dispatch) made: Vec<Made>,
    /// Entries that are no files, and files that no workspace can hold: the path and the reason of each.
    pub(in crate::dispatch) refused: Vec<(String, String)>,
    /// The number of all of them.
    pub(in crate::dispatch) refused_count: u64,
}

impl CodeFiles {
    /// Opens the workspace of a conversation, for code in the sandbox.
    ///
    /// # Errors
    /// As [`ConversationFiles::open`].
    pub(in crate::dispatch) async fn open(
        files: &ConversationFiles,
        sandbox: &Sandbox,
        context: &CallContext,
        conversation: &ConversationId,
    ) -> Result<Self, Failure> {
        let workspace = files.open(context, conversation).await?;
        let caller = portable(conversation.as_str());
        Ok(Self::of((files.all(), workspace), sandbox, context, caller))
    }

    /// Takes a workspace. The sandbox keeps its blobs under the name `caller`.
    pub(in crate::dispatch) fn of(
        (workspaces, workspace): (&Workspaces, Workspace),
        sandbox: &Sandbox,
        context: &CallContext,
        caller: String,
    ) -> Self {
        Self {
            sandbox: sandbox.sandbox.clone(),
            context: context.clone(),
            caller,
            workspaces: workspaces.clone(),
            workspace: Arc::new(workspace),
        }
    }

    /// The workspace.
    pub(in crate::dispatch) fn workspace(&self) -> &Workspace {
        &self.workspace
    }

    /// The name under which the sandbox keeps blobs.
    pub(in crate::dispatch) fn caller(&self) -> &str {
        &self.caller
    }

    /// Returns the files, as the sandbox is to have them.
    ///
    /// # Errors
    /// The disk fails.
    pub(in crate::dispatch) async fn wanted(&self) -> Result<Wanted, Failure> {
        let workspace = Arc::clone(&self.workspace);
        let files = blocking(move || workspace.files()).await?;
        let limits = self.workspace.limits();
        let file = |file: File| WorkspaceFile {
            path: file.path,
            sha256: file.digest.to_string(),
            size_bytes: file.bytes,
        };
        Ok(Wanted {
            files: files.into_iter().map(file).collect(),
            max_file_bytes: Some(limits.file_bytes as u64),
            max_total_bytes: Some(limits.total_bytes as u64),
            max_entries: u32::try_from(limits.entries).ok(),
            ..Wanted::default()
        })
    }

    /// Returns the last changes that were taken from interpreters of a runtime.
    ///
    /// # Errors
    /// The disk fails.
    pub(in crate::dispatch) async fn taken(&self, runtime: &str) -> Result<Taken, Failure> {
        let (workspace, runtime) = (Arc::clone(&self.workspace), runtime.to_owned());
        blocking(move || workspace.taken(&runtime)).await
    }

    /// Takes the changes of a cell, as [`Self::take`] does, and records it for the interpreter.
    ///
    /// # Errors
    /// As there; the interpreter then keeps its changes for the next cell.
    pub(in crate::dispatch) async fn take_of_cell(
        &self,
        changes: WorkspaceChanges,
        (session, cell): (&str, u64),
        runtime: &str,
    ) -> Result<LeftFiles, Failure> {
        let has_changes = !changes.changed.is_empty() || !changes.removed.is_empty();
        let left = self.take(changes, &format!("cell {cell}")).await?;
        if has_changes {
            let taken = Taken {
                session: session.to_owned(),
                cell,
                not_taken: left.not_taken(),
            };
            let (workspace, runtime) = (Arc::clone(&self.workspace), runtime.to_owned());
            let recorded = blocking(move || workspace.record_taken(&runtime, &taken)).await;
            if let Err(failure) = recorded {
                // They are reported again, and are the same then.
                tracing::warn!(failure = failure.message, "taken changes are not recorded");
            }
        }
        Ok(left)
    }

    /// Sends the sandbox the content that it lacks. A file that has changed meanwhile is left out.
    ///
    /// # Errors
    /// The sandbox, or the disk, fails.
    pub(in crate::dispatch) async fn send_missing(&self, wanted: &Wanted) -> Result<(), Status> {
        for files in wanted.files.chunks(ASKED) {
            let asked = StatBlobsRequest {
                caller_id: self.caller.clone(),
                sha256: files.iter().map(|file| file.sha256.clone()).collect(),
            };
            let known = self.blobs().stat_blobs(asked).await?.into_inner().blobs;
            let missing = files.iter().zip(known).filter(|(_, known)| !known.exists);
            for (file, _) in missing {
                self.send(file).await?;
            }
        }
        Ok(())
    }

    async fn send(&self, file: &WorkspaceFile) -> Result<(), Status> {
        let unreadable = |failure: Failure| Status::unavailable(failure.message.clone());
        let path = WorkspacePath::file(&file.path).map_err(unreadable)?;
        let workspace = Arc::clone(&self.workspace);
        let opened = blocking(move || workspace.open(&path)).await;
        let opened = match opened {
            Ok(opened) if opened.file.digest.to_string() == file.sha256 => opened,
            Ok(_) => return Ok(()),
            Err(failure) if failure.code == "file_not_found" => return Ok(()),
            Err(failure) => return Err(unreadable(failure)),
        };
        let header = Part::Header(UploadBlobHeader {
            caller_id: self.caller.clone(),
            size_bytes: Some(file.size_bytes),
            sha256: file.sha256.clone(),
        });
        let pieces = stream::unfold((Some(header), opened), |(header, mut opened)| async move {
            if let Some(header) = header {
                return Some((header, (None, opened)));
            }
            let read = blocking(move || Ok(next_piece(&mut opened).map(|piece| (piece, opened))));
            let (piece, opened) = read.await.ok()??;
            Some((Part::Chunk(piece), (None, opened)))
        });
        let requests =
            futures::StreamExt::map(pieces, |part| UploadBlobRequest { part: Some(part) });
        self.blobs().upload_blob(requests).await.map(drop)
    }

    /// Takes the changes of code into the workspace. `origin` names the code where both sides changed a file.
    ///
    /// # Errors
    /// The files do not fit into the workspace, and none was taken; or the sandbox, or the disk, fails.
    pub(in crate::dispatch) async fn take(
        &self,
        changes: WorkspaceChanges,
        origin: &str,
    ) -> Result<LeftFiles, Failure> {
        if let Some(overflow) = changes.overflow {
            let limits = self.workspace.limits();
            let problem = format!(
                "the code left {} files and directories of {} bytes together, and no change was taken: a workspace \
                 holds {} of {} bytes, and files of at most {} bytes",
                overflow.entries,
                overflow.total_bytes,
                limits.entries,
                limits.total_bytes,
                limits.file_bytes
            );
            let largest: Vec<(String, u64)> = overflow
                .largest
                .into_iter()
                .map(|file| (file.path, file.size_bytes))
                .collect();
            return Err(workspace_store::failure::full(&problem, &largest));
        }
        let mut left = LeftFiles {
            refused_count: changes.refused_count,
            ..LeftFiles::default()
        };
        for file in &changes.refused {
            left.refused.push((file.path.clone(), reason_of(file)));
        }
        let mut taken = Vec::new();
        for file in changes.removed {
            let base = ContentDigest::parse(&file.base_sha256);
            taken.extend(left.known(&file.path).map(|path| Change {
                path,
                base,
                content: None,
            }));
        }
        for file in changes.changed {
            let Some(path) = left.known(&file.path) else {
                continue;
            };
            taken.push(Change {
                path,
                base: ContentDigest::parse(&file.base_sha256),
                content: Some(self.fetch_file(&file).await?),
            });
        }
        let (workspace, origin) = (Arc::clone(&self.workspace), origin.to_owned());
        for made in blocking(move || workspace.make(taken, &origin)).await? {
            match made.kind {
                MadeKind::Refused(failure) => left.refuse(made.path, failure.message.clone()),
                _ => left.made.push(made),
            }
        }
        Ok(left)
    }

    async fn fetch_file(&self, file: &ChangedFile) -> Result<Staged, Failure> {
        let staged = self.fetch(&file.sha256).await;
        staged.map_err(|status| {
            tracing::warn!(%status, path = file.path, "a changed file cannot be read from the sandbox");
            let message = format!("the changed file '{}' was lost with the sandbox", file.path);
            Failure::new(Category::Dependency, "files_lost", message)
        })
    }

    /// Fetches a blob.
    async fn fetch(&self, sha256: &str) -> Result<Staged, Status> {
        let failed = |failure: Failure| Status::unavailable(failure.message.clone());
        let workspaces = self.workspaces.clone();
        let mut staging = blocking(move || workspaces.stage()).await.map_err(failed)?;
        let request = DownloadBlobRequest {
            caller_id: self.caller.clone(),
            sha256: sha256.to_owned(),
            offset_bytes: 0,
        };
        let mut pieces = self.blobs().download_blob(request).await?.into_inner();
        while let Some(piece) = pieces.message().await? {
            let more = move || staging.write(&piece.chunk).map(|()| staging);
            staging = blocking(more).await.map_err(failed)?;
        }
        blocking(move || staging.finish()).await.map_err(failed)
    }

    /// Keeps a blob as a file of the workspace. A file of this path with other content stays as it is.
    ///
    /// # Errors
    /// The workspace has no room; or the sandbox, or the disk, fails.
    pub(in crate::dispatch) async fn keep_blob(
        &self,
        sha256: &str,
        path: &WorkspacePath,
    ) -> Result<File, Failure> {
        let lost = |_| Failure::new(Category::Dependency, "files_lost", "the result was lost");
        let staged = self.fetch(sha256).await.map_err(lost)?;
        self.keep(staged, path).await
    }

    /// Keeps content as a file of the workspace, as [`Self::keep_blob`] does.
    ///
    /// # Errors
    /// As there.
    pub(in crate::dispatch) async fn keep_bytes(
        &self,
        content: Vec<u8>,
        path: &WorkspacePath,
    ) -> Result<File, Failure> {
        let workspaces = self.workspaces.clone();
        let staged = blocking(move || {
            let mut staging = workspaces.stage()?;
            staging.write(&content)?;
            staging.finish()
        });
        self.keep(staged.await?, path).await
    }

    async fn keep(&self, staged: Staged, path: &WorkspacePath) -> Result<File, Failure> {
        let (workspace, mut path) = (Arc::clone(&self.workspace), path.clone());
        blocking(move || {
            match workspace.open(&path) {
                Ok(kept) if kept.file.digest == staged.digest() => return Ok(kept.file),
                // The file was changed since, and stays as it is.
                Ok(_) => path = path.with_suffix(&staged.digest().to_string()),
                Err(_) => {}
            }
            let put = workspace.put(&path, staged, Condition::Any);
            put.map(|(file, _)| file)
        })
        .await
    }

    fn blobs(&self) -> BlobServiceClient<Outbound> {
        BlobServiceClient::new(self.sandbox.with(&self.context))
    }
}

impl LeftFiles {
    /// Returns the path of a file as the workspace has it; one that it cannot have is refused.
    fn known(&mut self, path: &str) -> Option<WorkspacePath> {
        match WorkspacePath::exact(path) {
            Ok(path) => Some(path),
            Err(_) => {
                self.refuse(path.to_owned(), "name".to_owned());
                None
            }
        }
    }

    fn refuse(&mut self, path: String, reason: String) {
        self.refused.push((path, reason));
        self.refused_count += 1;
    }

    /// The paths of changes that were not taken.
    fn not_taken(&self) -> Vec<String> {
        /// The most paths.
        const MOST: usize = 1_000;
        let paths = self.refused.iter().map(|(path, _)| path);
        let named = paths.filter(|path| !path.is_empty());
        named.take(MOST).cloned().collect()
    }
}

/// Returns the reason for which the sandbox did not collect an entry, as a model reads it.
pub(in crate::dispatch) fn reason_of(file: &RefusedFile) -> String {
    let reason = file.reason().as_str_name();
    let reason = reason.strip_prefix("REFUSED_REASON_").unwrap_or(reason);
    reason.to_lowercase()
}

fn next_piece(opened: &mut OpenFile) -> Option<Vec<u8>> {
    use std::io::Read;

    let mut piece = Vec::with_capacity(PIECE);
    let read = (&mut opened.content)
        .take(PIECE as u64)
        .read_to_end(&mut piece);
    match read {
        Ok(read) if read > 0 => Some(piece),
        // The receiver compares the size and the digest.
        _ => None,
    }
}

/// Raises the limits of code for the room that files take, where that is much.
pub(super) fn add_room(limits: &mut Limits, wanted: &Wanted) {
    /// The bytes of files for which the usual limits have room.
    const USUAL: u64 = 16 << 20;
    /// The room and the memory of code beside its files.
    const BESIDE: u64 = 256 << 20;
    let bytes: u64 = wanted.files.iter().map(|file| file.size_bytes).sum();
    if bytes > USUAL {
        limits.disk_bytes = limits.disk_bytes.or(Some(BESIDE + 2 * bytes));
        limits.memory_bytes = limits.memory_bytes.or(Some(BESIDE + 2 * bytes));
    }
    let entries = wanted.files.len() as u64;
    if entries > 1_000 {
        limits.disk_files = limits
            .disk_files
            .or(u32::try_from(10_000 + 2 * entries).ok());
    }
}
