//! The changes of files, as they happen.

use std::{collections::HashMap, sync::Arc};

use contracts::tavern::registry::v1::WatchFilesResponse;
use core_types::ContentDigest;
use futures::Stream;
use grpc_kit::Drain;
use prost::Message as _;
use tonic::Status;
use workspace_store::{File, Workspace};

use super::{file_to_proto, status};
use crate::conversation_files::blocking;

/// A report of more bytes is sent in two messages, each of which fits.
const LARGE: usize = 2 << 20;

/// Reports every file, and then the differences after each change, until the server drains.
pub(super) fn changes(
    workspace: Workspace,
    drain: Drain,
) -> impl Stream<Item = Result<WatchFilesResponse, Status>> + Send {
    async_stream::try_stream! {
        let mut versions = workspace.follow();
        let workspace = Arc::new(workspace);
        let mut known = HashMap::new();
        let mut is_first = true;
        loop {
            versions.mark_unchanged();
            let read = Arc::clone(&workspace);
            let files = blocking(move || read.files()).await.map_err(status)?;
            let mut changes = difference(&mut known, &files);
            if changes.encoded_len() > LARGE && !changes.changed.is_empty() {
                let removed = std::mem::take(&mut changes.removed);
                yield WatchFilesResponse { removed, ..WatchFilesResponse::default() };
            }
            if std::mem::take(&mut is_first) || changes != WatchFilesResponse::default() {
                yield changes;
            }
            tokio::select! {
                changed = versions.changed() => if changed.is_err() { return },
                () = drain.started() => return,
            }
        }
    }
}

/// Returns the differences between files and those that are known, which they become.
fn difference(known: &mut HashMap<String, ContentDigest>, files: &[File]) -> WatchFilesResponse {
    let present: HashMap<String, ContentDigest> = files
        .iter()
        .map(|file| (file.path.clone(), file.digest))
        .collect();
    let is_new = |file: &&File| known.get(&file.path) != Some(&file.digest);
    let changed = files.iter().filter(is_new).map(file_to_proto).collect();
    let gone = known.keys().filter(|path| !present.contains_key(*path));
    let mut removed: Vec<String> = gone.cloned().collect();
    removed.sort();
    *known = present;
    WatchFilesResponse { changed, removed }
}
