//! Locks: the exact files of a package set, each with its digest.

mod node;
mod python;

use std::collections::BTreeMap;

use sandbox_engine::domain::profile::Installer;

pub(crate) use python::normalized;

/// A lock that can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lock {
    /// The text for the installer. That for pip is written anew, as pip splits lines at characters that a person does
    /// not see.
    pub(crate) text: String,
    /// The versions of the packages, by name.
    pub(crate) packages: BTreeMap<String, String>,
}

impl Lock {
    /// Reads a lock of an installer.
    ///
    /// # Errors
    /// Every wrong line: its number, from 1, and the problem.
    pub(crate) fn read(installer: Installer, text: &str) -> Result<Self, Vec<(usize, String)>> {
        match installer {
            Installer::Pip => python::read(text),
            Installer::Npm => {
                let packages = node::packages(text)?;
                let text = text.to_owned();
                Ok(Self { text, packages })
            }
        }
    }
}
