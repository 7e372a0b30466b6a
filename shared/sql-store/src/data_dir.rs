//! The directory that holds every file of an embedded installation.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// A directory that exists and can be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataDir {
    path: PathBuf,
}

/// The reason for which a data directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DataDirError {
    /// The directory could not be created.
    #[error("cannot create the directory {path}; create it, or name another data directory")]
    Create {
        /// The directory.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// A file could not be written in the directory.
    #[error("cannot write in the directory {path}; give this user the right to, or free space")]
    NotWritable {
        /// The directory.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// A name would leave the directory or be awkward as a file name.
    #[error(
        "'{name}' is not a valid file name; use 1 to 100 of a-z, 0-9, '.', '_', '-', no leading dot"
    )]
    BadName {
        /// The name.
        name: String,
    },
}

impl DataDir {
    /// Creates the directory if it is missing, for its owner only, and proves that it can be
    /// written.
    ///
    /// # Errors
    /// [`DataDirError`] names the fault of the directory.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, DataDirError> {
        let path = path.into();
        create(&path)?;
        // Rights alone prove little: the file system may be read-only or full.
        let probe = path.join(format!(".probe-{}", std::process::id()));
        fs::write(&probe, b"probe")
            .and_then(|()| fs::remove_file(&probe))
            .map_err(|source| DataDirError::NotWritable {
                path: path.clone(),
                source,
            })?;
        Ok(Self { path })
    }

    /// Returns the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path of the file `name` in the directory.
    ///
    /// # Errors
    /// [`DataDirError::BadName`] when the name is not a plain lower-case file name.
    pub fn file(&self, name: &str) -> Result<PathBuf, DataDirError> {
        let plain = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'_' | b'-');
        if name.is_empty() || name.len() > 100 || name.starts_with('.') || !name.bytes().all(plain)
        {
            return Err(DataDirError::BadName {
                name: name.chars().take(100).collect(),
            });
        }
        Ok(self.path.join(name))
    }

    /// Creates the directory `name` inside this one and returns its path.
    ///
    /// # Errors
    /// [`DataDirError`] for a bad name, or when the directory cannot be created.
    pub fn directory(&self, name: &str) -> Result<PathBuf, DataDirError> {
        let path = self.file(name)?;
        create(&path)?;
        Ok(path)
    }
}

fn create(path: &Path) -> Result<(), DataDirError> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path).map_err(|source| DataDirError::Create {
        path: path.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_inside_the_directory() {
        let root = tempfile::tempdir().unwrap();
        let dir = DataDir::open(root.path().join("a/b")).unwrap();
        assert_eq!(
            dir.file("registry.runs.db").unwrap(),
            dir.path().join("registry.runs.db")
        );
        assert!(dir.directory("blobs").unwrap().is_dir());
        for name in [
            "",
            "..",
            "../x",
            "a/b",
            ".hidden",
            "Upper",
            "a b",
            &"x".repeat(101),
        ] {
            assert!(
                matches!(dir.file(name), Err(DataDirError::BadName { .. })),
                "{name}"
            );
        }
    }

    #[test]
    fn a_file_in_the_way_is_reported() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("file");
        fs::write(&path, "x").unwrap();
        assert!(matches!(
            DataDir::open(path),
            Err(DataDirError::Create { .. })
        ));
    }
}
