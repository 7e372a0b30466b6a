//! Workspaces that move between a directory and a server.

use std::io;

use call_outcome::Failure;
use core_types::{Principal, Tenant};
use server_files::{FilesError, ServerFiles};

use crate::{
    File, Workspaces,
    copy::put,
    failure::{self, WORKSPACE},
    place::{PLUGIN, Place, STORED, TENANTS},
};

/// The numbers of workspaces and files that were copied; those that were there already count too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopiedFiles {
    /// The workspaces.
    pub workspaces: u64,
    /// Their files.
    pub files: u64,
}

impl Workspaces {
    /// Copies the workspaces of this directory to a server. Files that are there stay as they are, so that a copy that
    /// was cut off is repeated.
    ///
    /// # Errors
    /// A failure that names the file.
    pub fn copy_to(&self, server: &ServerFiles) -> Result<CopiedFiles, Failure> {
        let mut copied = CopiedFiles::default();
        let places = self.places().map_err(failed)?;
        for place in places {
            let owner = self.shared.owner_in_file(&place).map_err(failed)?;
            let (tenant, stored) = (place.tenant, place.stored());
            let opened = server.open(tenant, &stored, owner.as_deref());
            opened.map_err(at_server)?;
            let present = server.files(tenant, &stored).map_err(at_server)?;
            let present = present.map_or_else(Vec::new, |(_, files)| files);
            let workspace = self.workspace(place, false)?;
            let files = workspace.files()?;
            copied.workspaces += 1;
            copied.files += files.len() as u64;
            let is_new = |file: &&File| present.iter().all(|it| it.path != file.path);
            let new: Vec<&File> = files.iter().filter(is_new).collect();
            for file in &new {
                let mut content = workspace.dir.open(&file.path).map_err(failed)?;
                let stored = server.store(tenant, file.digest, file.bytes, &mut content);
                stored.map_err(at_server)?;
            }
            let changes: Vec<_> = new.into_iter().map(put).collect();
            let changed = server.change((tenant, &stored), None, &changes);
            changed.map_err(at_server)?;
        }
        Ok(copied)
    }

    /// Copies the workspaces of a server to this directory. Files that are there stay as they are.
    ///
    /// # Errors
    /// A failure that names the file.
    pub fn copy_from(&self, server: &ServerFiles) -> Result<CopiedFiles, Failure> {
        let mut copied = CopiedFiles::default();
        for (tenant, stored) in server.places(STORED).map_err(at_server)? {
            let Some(place) = Place::of_stored(tenant, &stored) else {
                continue;
            };
            let found = server.place(tenant, &stored).map_err(at_server)?;
            if let Some(owner) = found.and_then(|found| found.owner) {
                let owner =
                    Principal::new(&owner).map_err(|error| failed(io::Error::other(error)))?;
                self.shared.claim(&place, &owner).map_err(failed)?;
            }
            let workspace = self.workspace(place, false)?;
            let files = server.files(tenant, &stored).map_err(at_server)?;
            copied.workspaces += 1;
            let mut digests = workspace.locked();
            for file in files.map_or_else(Vec::new, |(_, files)| files) {
                copied.files += 1;
                if !workspace.dir.exists(&file.path) {
                    workspace.fetch(server, &mut digests, &file)?;
                }
            }
        }
        Ok(copied)
    }

    /// Returns the workspaces of the directory.
    fn places(&self) -> io::Result<Vec<Place>> {
        let mut places = self.places_in(Tenant::DEFAULT, ".")?;
        let tenants = match self.shared.root.read_dir(TENANTS) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(places),
            tenants => tenants?,
        };
        for tenant in tenants {
            let name = tenant?.file_name().to_string_lossy().into_owned();
            let tenant = Tenant::new(&name).map_err(io::Error::other)?;
            places.extend(self.places_in(tenant, &format!("{TENANTS}/{name}"))?);
        }
        Ok(places)
    }

    fn places_in(&self, tenant: Tenant, directory: &str) -> io::Result<Vec<Place>> {
        let mut places = Vec::new();
        for entry in self.shared.root.read_dir(directory)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if !name.starts_with('.') || name.starts_with(PLUGIN) {
                places.push(Place::new(tenant, name));
            }
        }
        Ok(places)
    }
}

fn failed(error: io::Error) -> Failure {
    failure::of_io(WORKSPACE, &error)
}

fn at_server(error: FilesError) -> Failure {
    failed(error.into())
}
