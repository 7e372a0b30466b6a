//! The files of conversations.
//!
//! Each conversation has a directory beneath the data directory; those of tenants other than the default one are in
//! a directory of their tenant. Everything goes through directory
//! handles, so that no path and no link leads out of it, whatever a model writes. A file is
//! written beside the workspaces first, synced, and then renamed into its place: a reader sees the
//! old content or the new one, and a crash leaves nothing half-written.
//!
//! The functions block; callers run them on threads that may.

mod failure;
mod files;
mod owners;
#[cfg(test)]
mod tests;

use call_outcome::{Category, Failure};
use std::{
    hash::{BuildHasher, RandomState},
    io,
    path::Path,
    sync::{Arc, Mutex},
};

use cap_std::{ambient_authority, fs::Dir};
use core_types::{ConversationId, IdSource, Tenant};
use grpc_kit::CallContext;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use files::{EntryKind, ListedFile, Listing};

/// The limits of a workspace.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct WorkspaceLimits {
    /// The largest file, in bytes. Default 4 MiB.
    #[serde(with = "settings::SizeText")]
    pub file_bytes: usize,
    /// All files of one conversation together, in bytes. Default 256 MiB.
    #[serde(with = "settings::SizeText")]
    pub total_bytes: usize,
    /// Files and directories of one conversation. Default 10,000.
    pub entries: usize,
    /// The most text that one call reads, in bytes. Default 512 KiB; more would not fit into an
    /// event of the run log.
    #[serde(with = "settings::SizeText")]
    pub read_bytes: usize,
    /// The most entries that one listing gives. Default 1,000.
    pub listing: usize,
}

impl Default for WorkspaceLimits {
    fn default() -> Self {
        Self {
            file_bytes: 4 << 20,
            total_bytes: 256 << 20,
            entries: 10_000,
            read_bytes: 512 << 10,
            listing: 1_000,
        }
    }
}

/// All workspaces of this service.
#[derive(Clone)]
pub struct Workspaces {
    shared: Arc<SharedWorkspaces>,
}

struct SharedWorkspaces {
    root: Dir,
    /// The directory in which files are written before they are renamed into their workspace. It is
    /// on the same file system, and files that a crash left there are removed at the next start.
    staging: Dir,
    limits: WorkspaceLimits,
    ids: Arc<dyn IdSource>,
    /// One writer at a time per workspace, so that two appends do not lose one. Workspaces share
    /// locks by hash; a lock is held for one file operation and never across an await.
    locks: Vec<Mutex<()>>,
    hasher: RandomState,
}

impl std::fmt::Debug for Workspaces {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Workspaces")
            .field("limits", &self.shared.limits)
            .finish()
    }
}

/// The name of the staging directory. No conversation's directory begins with a dot.
const STAGING: &str = ".staging";
/// The directory of the directories of tenants other than the default one.
const TENANTS: &str = ".tenants";
/// The prefix of the directories of single calls.
const SINGLE_CALL: &str = ".call-";
const LOCKS: usize = 64;
/// A workspace as a whole, in failures.
const WORKSPACE: &str = "the conversation's workspace";

impl Workspaces {
    /// Opens the directory of all workspaces, which must exist, and removes the files that a crash
    /// left.
    ///
    /// # Errors
    /// The system's error when the directory cannot be used.
    pub fn open(path: &Path, limits: WorkspaceLimits, ids: Arc<dyn IdSource>) -> io::Result<Self> {
        let root = Dir::open_ambient_dir(path, ambient_authority())?;
        for entry in root.entries()? {
            let name = entry?.file_name();
            let text = name.to_string_lossy();
            if text == STAGING || text.starts_with(SINGLE_CALL) {
                root.remove_dir_all(&name)?;
            }
        }
        root.create_dir(STAGING)?;
        let shared = SharedWorkspaces {
            staging: root.open_dir(STAGING)?,
            root,
            limits,
            ids,
            locks: (0..LOCKS).map(|_| Mutex::new(())).collect(),
            hasher: RandomState::new(),
        };
        Ok(Self {
            shared: Arc::new(shared),
        })
    }

    /// Opens the workspace of a conversation of the caller's tenant and makes it if there is none.
    ///
    /// # Errors
    /// A failure fit for the caller when the directory cannot be made, or is out of the reach of the call.
    pub fn of_conversation(
        &self,
        context: &CallContext,
        conversation: &ConversationId,
    ) -> Result<Workspace, Failure> {
        let (tenant, name) = (context.tenant(), conversation.directory_name());
        let place = match tenant.is_default() {
            true => name,
            false => format!("{TENANTS}/{tenant}/{name}"),
        };
        let owner = self.shared.owner(&place, context.principal());
        let owner = owner.map_err(|error| failure::of_io(WORKSPACE, &error))?;
        if owner.is_some_and(|owner| !context.sees(&owner)) {
            return Err(Failure::new(
                Category::Domain,
                "no_such_conversation",
                format!(
                    "there is no conversation '{conversation}'; leave it out, or name one of yours"
                ),
            ));
        }
        self.workspace(place, false)
    }

    /// Removes the workspaces of at most `most` conversations of a tenant. Returns the number of those that are left.
    ///
    /// # Errors
    /// The system's error when a directory cannot be removed; a repeat continues.
    pub fn remove_of(&self, tenant: Tenant, most: usize) -> io::Result<u64> {
        let place = format!("{TENANTS}/{tenant}");
        let directory = match self.shared.root.open_dir(&place) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
            opened => opened?,
        };
        let (mut removed, mut left) = (0, 0);
        for entry in directory.entries()? {
            if removed == most {
                left += 1;
                continue;
            }
            directory.remove_dir_all(entry?.file_name())?;
            removed += 1;
        }
        if left == 0 {
            self.shared.remove_owners(tenant)?;
            self.shared.root.remove_dir(&place)?;
        }
        Ok(left)
    }

    /// Makes a workspace of one call, which is removed when it is dropped.
    ///
    /// # Errors
    /// As [`Workspaces::of_conversation`].
    pub fn of_single_call(&self) -> Result<Workspace, Failure> {
        let name = format!("{SINGLE_CALL}{}", self.shared.ids.next_uuid().simple());
        self.workspace(name, true)
    }

    fn workspace(&self, place: String, temporary: bool) -> Result<Workspace, Failure> {
        let dir = self
            .shared
            .open_or_make(&place)
            .map_err(|error| failure::of_io(WORKSPACE, &error))?;
        Ok(Workspace {
            shared: Arc::clone(&self.shared),
            place,
            dir,
            temporary,
        })
    }
}

impl SharedWorkspaces {
    fn open_or_make(&self, place: &str) -> io::Result<Dir> {
        match self.root.open_dir(place) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            opened => return opened,
        }
        let mut directory = self.root.try_clone()?;
        for name in place.split('/') {
            match directory.create_dir(name) {
                Ok(()) => files::sync_directory(&directory)?,
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
            directory = directory.open_dir(name)?;
        }
        Ok(directory)
    }

    fn lock_of(&self, place: &str) -> &Mutex<()> {
        let slot = self.hasher.hash_one(place) % LOCKS as u64;
        &self.locks[usize::try_from(slot).expect("below the number of locks")]
    }
}

/// The files of one conversation, or of one call.
pub struct Workspace {
    shared: Arc<SharedWorkspaces>,
    /// The path of its directory beneath the root.
    place: String,
    dir: Dir,
    temporary: bool,
}

impl Workspace {
    fn limits(&self) -> &WorkspaceLimits {
        &self.shared.limits
    }
}

impl Drop for Workspace {
    fn drop(&mut self) {
        if self.temporary
            && let Err(error) = self.shared.root.remove_dir_all(&self.place)
        {
            tracing::warn!(error = %error, "the workspace of a single call could not be removed");
        }
    }
}

/// Makes the failure of a conversation id whose directory no file system can hold.
pub fn check_conversation(conversation: &ConversationId) -> Result<(), Failure> {
    let bytes = conversation.directory_name().len();
    if bytes > tool_domain::path::MAX_NAME_BYTES {
        let message = format!(
            "the conversation id needs {bytes} bytes as the name of a directory; use a shorter id"
        );
        return Err(Failure::new(
            Category::Validation,
            "invalid_conversation_id",
            message,
        ));
    }
    Ok(())
}
