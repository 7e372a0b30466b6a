//! The last changes of interpreters that workspaces have taken.
//!
//! An interpreter keeps its changes until it knows that they were taken. The records are beside the workspaces, so that
//! a service that starts again knows it too. They stay there if the files are at a server: interpreters do not survive the
//! machine.

use std::io::{self, ErrorKind, Write};

use call_outcome::Failure;
use cap_std::fs::OpenOptions;
use core_types::Tenant;
use serde::{Deserialize, Serialize};

use crate::{
    Workspace,
    failure::{WORKSPACE, of_io},
    place::TENANTS,
    store::SharedWorkspaces,
};

/// The directory of the records: for each runtime a directory, with files under the paths of their workspaces.
const TAKEN: &str = ".taken";

/// The last changes that a workspace has taken from an interpreter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taken {
    /// The interpreter.
    pub session: String,
    /// The cell that made the changes.
    pub cell: u64,
    /// The paths of its changes that were not taken.
    pub not_taken: Vec<String>,
}

impl Workspace {
    /// Returns the last changes that were taken from interpreters of a runtime.
    ///
    /// # Errors
    /// The disk fails.
    pub fn taken(&self, runtime: &str) -> Result<Taken, Failure> {
        let _locked = self.locked();
        let read = self.recorded(runtime);
        read.map_err(|error| of_io(WORKSPACE, &error))
    }

    /// Records the changes that were taken, unless those of a later cell were.
    ///
    /// # Errors
    /// The disk fails.
    pub fn record_taken(&self, runtime: &str, taken: &Taken) -> Result<(), Failure> {
        let _locked = self.locked();
        let recorded = self.recorded(runtime).and_then(|last| {
            match last.session == taken.session && last.cell > taken.cell {
                true => Ok(()),
                false => self.record(runtime, taken),
            }
        });
        recorded.map_err(|error| of_io(WORKSPACE, &error))
    }

    fn recorded(&self, runtime: &str) -> io::Result<Taken> {
        let path = format!("{TAKEN}/{runtime}/{}", self.place.path());
        match self.shared.root.read(path) {
            // A record that a power loss has cut off counts for none.
            Ok(text) => Ok(serde_json::from_slice(&text).unwrap_or_default()),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Taken::default()),
            Err(error) => Err(error),
        }
    }

    fn record(&self, runtime: &str, taken: &Taken) -> io::Result<()> {
        let path = format!("{TAKEN}/{runtime}/{}", self.place.path());
        let (directory, name) = path.rsplit_once('/').unwrap_or_default();
        let directory = self.shared.open_or_make(directory)?;
        let staged = self.shared.ids.next_uuid().simple().to_string();
        let staging = &self.shared.staging;
        let mut options = OpenOptions::new();
        let mut file = staging.open_with(&staged, options.write(true).create_new(true))?;
        // Not synced: interpreters do not survive a power loss.
        let written = file.write_all(&serde_json::to_vec(taken)?);
        let placed = written.and_then(|()| staging.rename(&staged, &directory, name));
        if placed.is_err() {
            let _ = staging.remove_file(&staged);
        }
        placed
    }
}

impl SharedWorkspaces {
    /// Removes the records of a tenant.
    pub(super) fn remove_taken(&self, tenant: Tenant) -> io::Result<()> {
        let runtimes = match self.root.read_dir(TAKEN) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            runtimes => runtimes?,
        };
        for runtime in runtimes {
            let of_tenant = format!("{TENANTS}/{tenant}");
            match runtime?.open_dir()?.remove_dir_all(of_tenant) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }
}
