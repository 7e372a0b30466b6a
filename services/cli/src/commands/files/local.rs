//! Files of this machine: the one that is stored, and the one that is saved.

use std::fs::{self, File, hard_link, remove_file, rename};
use std::io::{self, ErrorKind, Read, Write, stdin, stdout};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};

use super::name_of;

/// The name that stands for standard input and standard output.
const STANDARD: &str = "-";

/// A file that is stored.
pub(super) struct StoreSource {
    content: Box<dyn Read + Send>,
    size: Option<u64>,
}

impl StoreSource {
    /// Opens a file, or standard input.
    ///
    /// # Errors
    /// A file that cannot be opened, and a directory.
    pub(super) fn open(path: &Path) -> anyhow::Result<Self> {
        if path == Path::new(STANDARD) {
            return Ok(Self {
                content: Box::new(stdin()),
                size: None,
            });
        }
        let cannot = || format!("{} cannot be read", path.display());
        let file = File::open(path).with_context(cannot)?;
        let metadata = file.metadata().with_context(cannot)?;
        ensure!(!metadata.is_dir(), "{} is a directory", path.display());
        Ok(Self {
            content: Box::new(file),
            // Of a pipe the size is not known.
            size: metadata.is_file().then_some(metadata.len()),
        })
    }

    /// Returns the number of bytes, where it is known.
    pub(super) fn size(&self) -> Option<u64> {
        self.size
    }
}

impl Read for StoreSource {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.content.read(buffer) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                read => return read,
            }
        }
    }
}

/// The place to which a file is saved. Nothing is there until the file is whole.
pub(super) enum SaveTarget {
    Standard,
    File(PartialFile),
}

/// A file under another name until it is whole; removed unless it is kept.
pub(super) struct PartialFile {
    path: PathBuf,
    partial: PathBuf,
    file: File,
    /// Whether it replaces a file that exists.
    replaces: bool,
}

impl SaveTarget {
    /// Creates the file, in the directory that `local` names or under its name.
    ///
    /// # Errors
    /// A file that exists, unless it is to be replaced, and one that cannot be created.
    pub(super) fn prepare(
        local: Option<PathBuf>,
        path: &str,
        replaces: bool,
    ) -> anyhow::Result<Self> {
        let path = match local {
            Some(local) if local == Path::new(STANDARD) => return Ok(Self::Standard),
            Some(local) if local.is_dir() => local.join(name_of(path)?),
            Some(local) => local,
            None => PathBuf::from(name_of(path)?),
        };
        ensure!(!path.is_dir(), "{} is a directory", path.display());
        if !replaces && fs::symlink_metadata(&path).is_ok() {
            return exists(&path);
        }
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}.part", std::process::id()));
        let partial = path.with_file_name(name);
        let file = File::create_new(&partial)
            .with_context(|| format!("{} cannot be created", partial.display()))?;
        Ok(Self::File(PartialFile {
            path,
            partial,
            file,
            replaces,
        }))
    }

    /// Adds a piece of the content. A reader of standard output that has read enough ends the program.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub(super) fn write(&mut self, piece: &[u8]) -> anyhow::Result<()> {
        match self {
            Self::Standard => {
                let mut stdout = stdout().lock();
                let written = stdout.write_all(piece).and_then(|()| stdout.flush());
                match written {
                    Err(error) if error.kind() == ErrorKind::BrokenPipe => std::process::exit(0),
                    written => written.context("standard output cannot be written"),
                }
            }
            Self::File(saved) => {
                let written = saved.file.write_all(piece);
                written.with_context(|| format!("{} cannot be written", saved.path.display()))
            }
        }
    }

    /// Gives the file its name, and returns it; `None` for standard output.
    ///
    /// # Errors
    /// A file that exists by now, unless it is to be replaced, and a name that cannot be given.
    pub(super) fn keep(self) -> anyhow::Result<Option<PathBuf>> {
        let Self::File(saved) = self else {
            return Ok(None);
        };
        // The name alone could reach the disk before the content does.
        let synced = saved.file.sync_all();
        let named = synced.and_then(|()| match saved.replaces {
            true => rename(&saved.partial, &saved.path),
            false => hard_link(&saved.partial, &saved.path),
        });
        match named {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => exists(&saved.path),
            named => {
                named.with_context(|| format!("{} cannot be created", saved.path.display()))?;
                Ok(Some(saved.path.clone()))
            }
        }
    }
}

impl Drop for PartialFile {
    fn drop(&mut self) {
        // It is gone where it was renamed.
        let _ = remove_file(&self.partial);
    }
}

fn exists<T>(path: &Path) -> anyhow::Result<T> {
    bail!("{} exists; `--force` replaces it", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn save(directory: &Path, content: &[u8], replaces: bool) -> anyhow::Result<Option<PathBuf>> {
        let local = Some(directory.to_owned());
        let mut destination = SaveTarget::prepare(local, "out/a.csv", replaces)?;
        destination.write(content)?;
        destination.keep()
    }

    #[test]
    fn a_file_is_saved_under_its_name_and_replaced_only_by_force() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.csv");
        assert_eq!(
            save(directory.path(), b"1", false).unwrap(),
            Some(path.clone())
        );
        let refused = save(directory.path(), b"2", false).unwrap_err().to_string();
        assert!(refused.contains("--force"), "{refused}");
        assert_eq!(fs::read(&path).unwrap(), b"1");
        save(directory.path(), b"3", true).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"3");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_that_is_not_whole_does_not_stay() {
        let directory = tempfile::tempdir().unwrap();
        let local = Some(directory.path().join("b.csv"));
        let mut destination = SaveTarget::prepare(local, "a.csv", false).unwrap();
        destination.write(b"1").unwrap();
        drop(destination);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_file_that_appears_meanwhile_is_kept() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.csv");
        let destination = SaveTarget::prepare(Some(path.clone()), "a.csv", false).unwrap();
        fs::write(&path, "another").unwrap();
        assert!(destination.keep().is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "another");
    }

    #[test]
    fn a_directory_is_no_file() {
        let directory = tempfile::tempdir().unwrap();
        assert!(StoreSource::open(directory.path()).is_err());
        assert!(StoreSource::open(&directory.path().join("none")).is_err());
    }
}
