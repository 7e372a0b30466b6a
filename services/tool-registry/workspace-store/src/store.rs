//! All workspaces, and the workspace of one conversation.

use std::{
    collections::HashMap,
    io,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use call_outcome::{Category, Failure};
use cap_std::{ambient_authority, fs::Dir};
use core_types::{ConversationId, IdSource, Principal, Tenant};
use grpc_kit::CallContext;
use server_files::ServerFiles;
use tokio::sync::watch;

use crate::{
    WorkspaceLimits,
    digests::Digests,
    failure::{self, WORKSPACE},
    files,
    place::{Place, SINGLE_CALL, TENANTS},
};

/// All workspaces of this service.
#[derive(Clone)]
pub struct Workspaces {
    pub(crate) shared: Arc<SharedWorkspaces>,
}

pub(crate) struct SharedWorkspaces {
    pub(crate) root: Dir,
    /// The directory in which files are written before they are renamed into their workspace. It is
    /// on the same file system, and files that a crash left there are removed at the next start.
    pub(crate) staging: Dir,
    pub(crate) limits: WorkspaceLimits,
    pub(crate) ids: Arc<dyn IdSource>,
    /// The files at a server, of which the workspaces are copies, if they are.
    pub(crate) server: Option<ServerFiles>,
    /// The workspaces in use, and those that were used lately. Locked to find one.
    used: Mutex<HashMap<Place, Arc<InUse>>>,
}

/// A workspace in use.
#[derive(Debug, Default)]
struct InUse {
    /// Held by the call whose turn it is, where calls have a workspace one at a time.
    turn: Arc<tokio::sync::Mutex<()>>,
    /// Locked for one operation, and never across an await: one writer at a time, so that two appends do not lose one.
    digests: Mutex<Digests>,
    /// The number of changes.
    version: watch::Sender<u64>,
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
pub(crate) const STAGING: &str = ".staging";
/// The most entries of the directory of a plugin.
const PLUGIN_ENTRIES: usize = 1_000;
/// The most workspaces whose digests are kept while nothing uses them.
const REMEMBERED: usize = 256;

impl Workspaces {
    /// Opens the directory of all workspaces, which must exist, and removes the files that a crash
    /// left. With files at a server the workspaces are copies of those, and nothing is lost with them.
    ///
    /// # Errors
    /// The system's error when the directory cannot be used.
    pub fn open(
        path: &Path,
        limits: WorkspaceLimits,
        ids: Arc<dyn IdSource>,
        server: Option<ServerFiles>,
    ) -> io::Result<Self> {
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
            server,
            used: Mutex::default(),
        };
        Ok(Self {
            shared: Arc::new(shared),
        })
    }

    /// The limits of each workspace.
    pub fn limits(&self) -> &WorkspaceLimits {
        &self.shared.limits
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
        self.of_conversation_of(context, conversation, context.principal())
    }

    /// Opens the workspace of a conversation that belongs to `owner`, and makes it if there is none.
    ///
    /// # Errors
    /// As [`Workspaces::of_conversation`].
    pub fn of_conversation_of(
        &self,
        context: &CallContext,
        conversation: &ConversationId,
        owner: &Principal,
    ) -> Result<Workspace, Failure> {
        let place = Place::of_conversation(context, conversation);
        let owner = self.shared.owner(&place, owner);
        let owner = owner.map_err(|error| failure::of_io(WORKSPACE, &error))?;
        if owner.is_some_and(|owner| !context.sees(&owner)) {
            return Err(failure::no_such_conversation(conversation));
        }
        self.workspace(place, false)
    }

    /// Opens the workspace of a conversation, if there is one.
    ///
    /// # Errors
    /// As [`Workspaces::of_conversation`].
    pub fn find(
        &self,
        context: &CallContext,
        conversation: &ConversationId,
    ) -> Result<Option<Workspace>, Failure> {
        let exists = self
            .shared
            .has(&Place::of_conversation(context, conversation));
        match exists.map_err(|error| failure::of_io(WORKSPACE, &error))? {
            true => self.of_conversation(context, conversation).map(Some),
            false => Ok(None),
        }
    }

    /// Removes the workspaces of at most `most` conversations of a tenant. Returns the number of those that are left.
    ///
    /// # Errors
    /// The system's error when a directory cannot be removed; a repeat continues.
    pub fn remove_of(&self, tenant: Tenant, most: usize) -> io::Result<u64> {
        let at_server = self.shared.remove_stored(tenant, most)?;
        if at_server > 0 {
            return Ok(at_server);
        }
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
            self.shared.remove_taken(tenant)?;
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
        self.workspace(Place::new(Tenant::DEFAULT, name), true)
    }

    /// Opens the files that a plugin keeps for a tenant, of at most so many bytes, and makes their directory if there is
    /// none.
    ///
    /// # Errors
    /// As [`Workspaces::of_conversation`].
    pub fn of_plugin(
        &self,
        tenant: Tenant,
        plugin: &str,
        bytes: u64,
    ) -> Result<Workspace, Failure> {
        let mut workspace = self.workspace(Place::of_plugin(tenant, plugin), false)?;
        let limits = &mut workspace.limits;
        limits.total_bytes = usize::try_from(bytes)
            .map_or(limits.total_bytes, |bytes| bytes.min(limits.total_bytes));
        limits.entries = PLUGIN_ENTRIES;
        Ok(workspace)
    }

    /// Removes the files that a plugin keeps for a tenant.
    ///
    /// # Errors
    /// The system's error when they cannot be removed.
    pub fn remove_of_plugin(&self, tenant: Tenant, plugin: &str) -> io::Result<()> {
        let place = Place::of_plugin(tenant, plugin);
        if let Some(server) = &self.shared.server {
            server.remove(tenant, &place.stored())?;
        }
        match self.shared.root.remove_dir_all(place.path()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    pub(crate) fn workspace(&self, place: Place, temporary: bool) -> Result<Workspace, Failure> {
        let dir = self.shared.open_or_make(&place.path());
        let workspace = Workspace {
            in_use: self.shared.in_use(&place, temporary),
            limits: self.shared.limits,
            shared: Arc::clone(&self.shared),
            place,
            dir: dir.map_err(|error| failure::of_io(WORKSPACE, &error))?,
            temporary,
        };
        workspace.compare()?;
        Ok(workspace)
    }
}

impl SharedWorkspaces {
    pub(crate) fn open_or_make(&self, place: &str) -> io::Result<Dir> {
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

    fn in_use(&self, place: &Place, temporary: bool) -> Arc<InUse> {
        if temporary {
            return Arc::default();
        }
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        if used.len() > REMEMBERED && !used.contains_key(place) {
            used.retain(|_, it| Arc::strong_count(it) > 1);
        }
        Arc::clone(used.entry(place.clone()).or_default())
    }
}

/// The files of one conversation, or of one call.
pub struct Workspace {
    pub(crate) shared: Arc<SharedWorkspaces>,
    in_use: Arc<InUse>,
    limits: WorkspaceLimits,
    pub(crate) place: Place,
    pub(crate) dir: Dir,
    temporary: bool,
}

impl std::fmt::Debug for Workspace {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Workspace({})", self.place.path())
    }
}

impl Workspace {
    /// The limits.
    pub fn limits(&self) -> &WorkspaceLimits {
        &self.limits
    }

    /// Waits for the turn of a call to have the workspace alone.
    pub async fn turn(&self) -> tokio::sync::OwnedMutexGuard<()> {
        Arc::clone(&self.in_use.turn).lock_owned().await
    }

    /// The number of its changes, to be waited for. It stays the same where nothing has changed.
    pub fn follow(&self) -> watch::Receiver<u64> {
        self.in_use.version.subscribe()
    }

    /// The files at a server of which this is a copy, if it is.
    pub(crate) fn server(&self) -> Option<&ServerFiles> {
        self.shared.server.as_ref().filter(|_| !self.temporary)
    }

    pub(crate) fn locked(&self) -> MutexGuard<'_, Digests> {
        // Digests are compared with their files, so a panic of another holder spoils nothing.
        let digests = self.in_use.digests.lock();
        digests.unwrap_or_else(PoisonError::into_inner)
    }

    /// Reports a change to the followers.
    pub(crate) fn notify(&self) {
        self.in_use.version.send_modify(|version| *version += 1);
    }
}

impl Drop for Workspace {
    fn drop(&mut self) {
        if self.temporary
            && let Err(error) = self.shared.root.remove_dir_all(self.place.path())
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
