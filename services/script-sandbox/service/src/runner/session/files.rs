//! The files of a session that are the same as those of its workspace.

use std::{
    os::fd::AsFd as _,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use blob_store::{BlobStore, Caller};
use sandbox_engine::{
    domain::{
        collect::RefusedReason,
        owner::Owner,
        workspace::{WorkspaceChanges, WorkspaceFile, WorkspaceSpec},
    },
    input_files::Placement,
    launcher::WorkDirectory,
    workspace::{SyncedFiles, WorkspaceDifference},
};

use super::channels::SessionChannels;
use crate::error::Refusal;

/// The longest time of placing the files of a cell.
const PLACING: Duration = Duration::from_secs(60);

/// The files of a session as they were when they were last the same. Locked to compare and to change them, by one cell
/// at a time.
pub(crate) type SharedFiles = Arc<Mutex<SyncedFiles>>;

/// The changes of earlier cells that have reached the workspace.
#[derive(Debug)]
pub(crate) struct TakenChanges {
    /// The last cell whose changes were taken; `None` if all were.
    pub(crate) cell: Option<u64>,
    /// The paths of those of its changes that were not.
    pub(crate) paths_not_taken: Vec<String>,
}

/// The files of a workspace for a cell, with the blobs of those that the session lacks.
#[derive(Debug)]
pub struct CellFiles {
    spec: WorkspaceSpec,
    difference: WorkspaceDifference,
    blobs: BlobStore,
    caller: Caller,
    held: Vec<Arc<blob_store::PinnedBlob>>,
    /// The files that could not be placed, with their sizes.
    unplaced: Vec<(String, u64)>,
}

impl CellFiles {
    /// Compares with the files of a session, once it is known which of its changes were taken, and holds the blobs of
    /// those that it lacks.
    pub(crate) fn held(
        (spec, taken): (WorkspaceSpec, TakenChanges),
        files: &SharedFiles,
        blobs: &BlobStore,
        owner: &Owner,
    ) -> Result<Self, Refusal> {
        let caller = Caller::named(owner.principal().tenant(), &owner.name());
        let mut files = files.lock().unwrap_or_else(PoisonError::into_inner);
        files.settle(taken.cell, &taken.paths_not_taken);
        let difference = files.difference(&spec.files);
        drop(files);
        let (mut held, mut absent) = (Vec::new(), Vec::new());
        for index in &difference.lacking {
            match blobs.hold(&caller, spec.files[*index].digest) {
                Ok(blob) => held.push(Arc::new(blob)),
                Err(error) => absent.push((format!("workspace.files[{index}].sha256"), error)),
            }
        }
        match absent.is_empty() {
            true => Ok(Self {
                spec,
                difference,
                blobs: blobs.clone(),
                caller,
                held,
                unplaced: Vec::new(),
            }),
            false => Err(Refusal::Blobs(absent)),
        }
    }

    /// Makes the working directory the same as the workspace, but for files that the code has changed.
    ///
    /// # Errors
    /// The reason for which it is unknown whether the files are in place.
    pub(super) async fn place(
        &mut self,
        files: &SharedFiles,
        channels: &mut SessionChannels,
    ) -> Result<(), String> {
        if self.difference == WorkspaceDifference::default() {
            return Ok(());
        }
        let placement = self.left_to_place(files, channels.work.clone()).await?;
        let placed = tokio::time::timeout(PLACING, deliver(&placement, channels)).await;
        let refused = placed.map_err(|_| "its files were not placed in time".to_owned())??;
        self.held = Vec::new();
        let unplaced = refused
            .iter()
            .filter_map(|index| placement.files.get(*index));
        self.unplaced = unplaced
            .map(|(file, _)| (file.path.clone(), file.size))
            .collect();
        let (files, work) = (Arc::clone(files), channels.work.clone());
        blocking(move || {
            let work = work.open().map_err(|error| error.to_string())?;
            let mut files = files.lock().unwrap_or_else(PoisonError::into_inner);
            files.record_removed(&placement.removals);
            let placed = placement.files.iter().enumerate();
            let placed = placed.filter(|(index, _)| !refused.contains(index));
            files.record_placed(work.as_fd(), placed.map(|(_, (file, _))| file));
            Ok(())
        })
        .await
    }

    async fn left_to_place(
        &mut self,
        files: &SharedFiles,
        work: WorkDirectory,
    ) -> Result<Placement, String> {
        let lacking = self.difference.lacking.iter().copied();
        let held = lacking.zip(std::mem::take(&mut self.held));
        let held: std::collections::HashMap<usize, _> = held.collect();
        let mut difference = std::mem::take(&mut self.difference);
        let (wanted, files) = (self.spec.files.clone(), Arc::clone(files));
        blocking(move || {
            let work = work.open().map_err(|error| error.to_string())?;
            let files = files.lock().unwrap_or_else(PoisonError::into_inner);
            files.leave_changed(work.as_fd(), &wanted, &mut difference);
            let file = |index: &usize| -> Option<(WorkspaceFile, _)> {
                Some((wanted[*index].clone(), held.get(index)?.clone()))
            };
            Ok(Placement {
                files: difference.lacking.iter().filter_map(file).collect(),
                removals: difference.surplus,
            })
        })
        .await
    }

    /// Takes the changes that the code has made.
    pub(super) async fn changes(
        &self,
        files: &SharedFiles,
        work: WorkDirectory,
    ) -> Option<WorkspaceChanges> {
        let (blobs, caller, caps) = (self.blobs.clone(), self.caller.clone(), self.spec.caps);
        let files = Arc::clone(files);
        let taken = blocking(move || {
            let work = work.open().map_err(|error| error.to_string())?;
            let mut files = files.lock().unwrap_or_else(PoisonError::into_inner);
            Ok(files.take_changes((work.as_fd(), &[]), &caps, (&blobs, &caller)))
        });
        match taken.await {
            Ok(mut changes) => {
                for (path, size) in &self.unplaced {
                    changes.refuse(path.as_bytes(), RefusedReason::NoRoom, *size);
                }
                Some(changes)
            }
            Err(error) => {
                tracing::error!(error, "the files of a cell could not be looked at");
                None
            }
        }
    }
}

/// Sends the deliveries of a placement, and waits until each is in place. Returns the files that could not be placed, by
/// their positions.
async fn deliver(
    placement: &Placement,
    channels: &mut SessionChannels,
) -> Result<Vec<usize>, String> {
    let mut all_refused = Vec::new();
    for delivery in placement.deliveries() {
        let before = channels.progress.borrow().placed;
        let sent = placement.send(&delivery, &mut channels.files).await;
        sent.map_err(|error| format!("its files cannot be placed: {error}"))?;
        let in_place = channels
            .progress
            .wait_for(|progress| progress.placed > before);
        let in_place = in_place.await.map_err(|_| "it has ended".to_owned())?;
        let refused = in_place
            .refused
            .iter()
            .filter_map(|index| usize::try_from(*index).ok());
        all_refused.extend(refused.map(|index| delivery.0 + index));
    }
    Ok(all_refused)
}

/// Runs work on a thread that may block.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| error.to_string())?
}
