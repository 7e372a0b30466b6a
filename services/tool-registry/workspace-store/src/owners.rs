//! The owners of workspaces: the principals whose calls made them.
//!
//! A workspace of an earlier version has none, and is open to its tenant.

use std::io::{self, ErrorKind, Write};

use cap_std::fs::OpenOptions;
use core_types::{Principal, Tenant};

use crate::{
    files::sync_directory,
    place::{Place, STORED, TENANTS},
    store::SharedWorkspaces,
};

/// The directory of the files that name the owners, under the paths of their workspaces.
const OWNERS: &str = ".owners";

impl SharedWorkspaces {
    /// Returns the owner of a workspace; of one that is not there yet, `caller`, which is its owner from now on.
    pub(super) fn owner(&self, place: &Place, caller: &Principal) -> io::Result<Option<Principal>> {
        let name = match &self.server {
            Some(server) => {
                let owner = Some(caller.as_str());
                server.open(place.tenant, &place.stored(), owner)?.owner
            }
            None => match self.owner_in_file(place)? {
                Some(name) => Some(name),
                None if self.root.exists(place.path()) => None,
                None => {
                    self.claim(place, caller)?;
                    self.owner_in_file(place)?
                }
            },
        };
        let owner = name.map(|name| Principal::new(&name)).transpose();
        owner.map_err(io::Error::other)
    }

    /// Returns the name of the owner of a workspace in the directory, if it has one.
    pub(super) fn owner_in_file(&self, place: &Place) -> io::Result<Option<String>> {
        match self.root.read_to_string(owner_file(place)) {
            Ok(name) => Ok(Some(name)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether there is a workspace, or an owner of one.
    pub(super) fn has(&self, place: &Place) -> io::Result<bool> {
        match &self.server {
            Some(server) => Ok(server.place(place.tenant, &place.stored())?.is_some()),
            None => {
                Ok(self.root.try_exists(owner_file(place))?
                    || self.root.try_exists(place.path())?)
            }
        }
    }

    /// Writes the owner of a workspace unless another call does first.
    pub(super) fn claim(&self, place: &Place, caller: &Principal) -> io::Result<()> {
        let file = owner_file(place);
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

    /// Removes workspaces of a tenant at the server. Returns the number of those that are left.
    pub(super) fn remove_stored(&self, tenant: Tenant, most: usize) -> io::Result<u64> {
        match &self.server {
            Some(server) => Ok(server.remove_of(tenant, STORED, most)?),
            None => Ok(0),
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

fn owner_file(place: &Place) -> String {
    format!("{OWNERS}/{}", place.path())
}
