//! Locks: the exact files of libraries that scripts import, each with its digest.

mod node;
mod python;

use std::collections::BTreeMap;

pub use python::normalized;

/// The installer for which a lock was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// The requirements of pip, for Python.
    Pip,
    /// The `package-lock.json` of npm, for Node.js.
    Npm,
}

/// A lock that can be used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lock {
    /// The text for the installer. That for pip is written anew, as pip splits lines at characters that a person does
    /// not see.
    pub text: String,
    /// The versions of the packages, by name.
    pub packages: BTreeMap<String, String>,
}

impl Lock {
    /// Reads a lock.
    ///
    /// # Errors
    /// Every wrong line: its number, from 1, and the problem.
    pub fn read(format: Format, text: &str) -> Result<Self, Vec<(usize, String)>> {
        match format {
            Format::Pip => python::read(text),
            Format::Npm => {
                let packages = node::packages(text)?;
                let text = text.to_owned();
                Ok(Self { text, packages })
            }
        }
    }
}
