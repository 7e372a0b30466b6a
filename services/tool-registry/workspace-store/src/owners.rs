//! The owners of workspaces: the principals whose calls made them.
//!
//! A workspace of an earlier version has none, and is open to its tenant.

use std::io::{self, ErrorKind, Write};

use cap_std::fs::OpenOptions;
use core_types::{Principal, Tenant};

use crate::{
    files::sync_directory,
    store::{SharedWorkspaces, TENANTS},
};

/// The directory of the files that name the owners, under the paths of their workspaces.
const OWNERS: &str = ".owners";

impl SharedWorkspaces {
    /// Returns the owner of a workspace; of one that is not there yet, `caller`, which is its owner from now on.
    pub(super) fn owner(&self, place: &str, caller: &Principal) -> io::Result<Option<Principal>> {
        let file = format!("{OWNERS}/{place}");
        match self.root.read_to_string(&file) {
            Ok(name) => {
                let owner = Principal::new(&name);
                return owner.map(Some).map_err(io::Error::other);
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        if self.root.exists(place) {
            return Ok(None);
        }
        self.claim(&file, caller)?;
        self.owner(place, caller)
    }

    /// Whether there is a workspace, or an owner of one.
    pub(super) fn has(&self, place: &str) -> io::Result<bool> {
        Ok(self.root.try_exists(format!("{OWNERS}/{place}"))? || self.root.try_exists(place)?)
    }

    /// Writes the owner of a workspace unless another call does first.
    fn claim(&self, file: &str, caller: &Principal) -> io::Result<()> {
        let (directory, name) = file.rsplit_once('/').expect("it is below a directory");
        let directory = self.open_or_make(directory)?;
        let staged = self.ids.next_uuid().simple().to_string();
        let mut options = OpenOptions::new();
        let mut written = self
            .staging
            .open_with(&staged, options.write(true).create_new(true))?;
        written.write_all(caller.as_str().as_bytes())?;
        written.sync_all()?;
        // A link, unlike a renaming, does not replace the file of another.
        let claimed = self.staging.hard_link(&staged, &directory, name);
        self.staging.remove_file(&staged)?;
        match claimed {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
            _ => sync_directory(&directory),
        }
    }

    /// Removes the owners of the workspaces of a tenant that has none left.
    pub(super) fn remove_owners(&self, tenant: Tenant) -> io::Result<()> {
        let removed = self
            .root
            .remove_dir_all(format!("{OWNERS}/{TENANTS}/{tenant}"));
        match removed {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}
