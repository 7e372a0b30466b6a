//! The files of a directory of certificates, each changed as a whole.
//!
//! The certificate and the key of a name are two files, so `NAME.pem` and `NAME.key` are links into `.NAME/current`,
//! which is a link itself: to the directory of one pair. A new pair is written beside it, and one rename of that link
//! puts it in place, so a reader never finds half a pair in place. The pair before stays until the next, for a
//! reader between its two files.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use rustix::fs::{CWD, RenameFlags, renameat_with};

/// The mode of a file that everyone may read.
pub(super) const PUBLIC: u32 = 0o644;

/// The mode of a key.
pub(super) const PRIVATE: u32 = 0o600;

/// The link to the pair in place, within the directory of a name.
const CURRENT: &str = "current";

/// The beginning of the name of a file that is not whole yet.
const UNFINISHED: &str = ".unfinished-";

/// A directory that no other command changes meanwhile.
#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    _locked: File,
}

impl Directory {
    /// Opens a directory, which is made if it does not exist.
    pub(super) fn create(path: &Path) -> anyhow::Result<Self> {
        let made = fs::create_dir_all(path);
        made.with_context(|| format!("the directory {} cannot be made", path.display()))?;
        Self::open(path)
    }

    /// Opens a directory that exists.
    pub(super) fn open(path: &Path) -> anyhow::Result<Self> {
        let shown = path.display();
        let opened = File::open(path).with_context(|| format!("{shown} cannot be opened"))?;
        let metadata = opened.metadata().with_context(|| shown.to_string())?;
        ensure!(metadata.is_dir(), "{shown} is not a directory");
        match opened.try_lock() {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => {
                bail!("another `tavern certs` works in {shown}; repeat this when it has ended")
            }
            Err(fs::TryLockError::Error(error)) => {
                return Err(error).with_context(|| format!("{shown} cannot be locked"));
            }
        }
        Ok(Self {
            path: path.to_owned(),
            _locked: opened,
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a file that does not exist yet.
    pub(super) fn create_file(&self, name: &str, text: &str, mode: u32) -> anyhow::Result<()> {
        let path = self.path.join(name);
        let shown = path.display();
        let unfinished = self.write_unfinished(name, text, mode)?;
        let placed = renameat_with(CWD, &unfinished, CWD, &path, RenameFlags::NOREPLACE);
        let placed = placed.map_err(io::Error::from).inspect_err(|_| {
            let _ = fs::remove_file(&unfinished);
        });
        match placed {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                bail!("{shown} exists, and is not overwritten")
            }
            placed => placed.with_context(|| format!("{shown} cannot be written"))?,
        }
        self.sync(&self.path)
    }

    /// Writes a file in the place of the one before.
    pub(super) fn replace_file(&self, name: &str, text: &str, mode: u32) -> anyhow::Result<()> {
        let path = self.path.join(name);
        let unfinished = self.write_unfinished(name, text, mode)?;
        let placed = fs::rename(&unfinished, &path);
        placed.with_context(|| format!("{} cannot be written", path.display()))?;
        self.sync(&self.path)
    }

    /// Gives a file another name, in the place of the file with that name.
    pub(super) fn rename_file(&self, from: &str, to: &str) -> anyhow::Result<()> {
        let (from, to) = (self.path.join(from), self.path.join(to));
        let renamed = fs::rename(&from, &to);
        renamed.with_context(|| {
            let (from, to) = (from.display(), to.display());
            format!("{from} cannot be renamed to {to}")
        })?;
        self.sync(&self.path)
    }

    /// Whether a file or link has a name.
    pub(super) fn has(&self, name: &str) -> anyhow::Result<bool> {
        let path = self.path.join(name);
        match fs::symlink_metadata(&path) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error).with_context(|| format!("{} cannot be read", path.display())),
        }
    }

    /// Puts the certificate and the key of a name in place, both at once. `number` is one that no earlier pair has.
    pub(super) fn put_pair(
        &self,
        name: &str,
        number: &str,
        (certificate, key): (&str, &str),
    ) -> anyhow::Result<()> {
        let pairs = self.path.join(format!(".{name}"));
        let pair = pairs.join(number);
        let shown = pair.display();
        let written = fs::create_dir_all(&pairs).and_then(|()| fs::create_dir(&pair));
        written.with_context(|| format!("the directory {shown} cannot be made"))?;
        let (certificate_path, key_path) = files(&pair, name);
        let written = write(&certificate_path, certificate, PUBLIC)
            .and_then(|()| write(&key_path, key, PRIVATE))
            .and_then(|()| File::open(&pair)?.sync_all());
        written.with_context(|| format!("the files of {shown} cannot be written"))?;
        let before = fs::read_link(pairs.join(CURRENT)).ok();
        link(Path::new(number), &pairs.join(CURRENT))?;
        self.sync(&pairs)?;
        let (certificate_path, key_path) = files(&self.path, name);
        for path in [key_path, certificate_path] {
            let file_name = path.file_name().unwrap_or_default();
            let target = Path::new(&format!(".{name}")).join(CURRENT).join(file_name);
            if fs::read_link(&path).ok().as_ref() != Some(&target) {
                link(&target, &path)?;
            }
        }
        self.sync(&self.path)?;
        remove_others(&pairs, &[Some(number.into()), before]);
        Ok(())
    }

    /// Writes a file whole under another name, and returns its path.
    fn write_unfinished(&self, name: &str, text: &str, mode: u32) -> anyhow::Result<PathBuf> {
        let path = self.path.join(format!("{UNFINISHED}{name}"));
        // One of a command that was killed.
        let _ = fs::remove_file(&path);
        let written = write(&path, text, mode);
        written.with_context(|| format!("{} cannot be written", path.display()))?;
        Ok(path)
    }

    fn sync(&self, path: &Path) -> anyhow::Result<()> {
        let synced = File::open(path).and_then(|directory| directory.sync_all());
        synced.with_context(|| format!("{} cannot be written to the disk", path.display()))
    }
}

/// Returns the files of a name in a directory: the certificate and the key.
pub(super) fn files(directory: &Path, name: &str) -> (PathBuf, PathBuf) {
    let certificate = directory.join(format!("{name}.pem"));
    (certificate, directory.join(format!("{name}.key")))
}

/// Writes a new file to the disk.
fn write(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(mode).open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

/// Makes a link, in the place of the file or link before.
fn link(target: &Path, path: &Path) -> anyhow::Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let unfinished = path.with_file_name(format!("{UNFINISHED}{name}"));
    let _ = fs::remove_file(&unfinished);
    let linked = symlink(target, &unfinished).and_then(|()| fs::rename(&unfinished, path));
    linked.with_context(|| format!("the link {} cannot be made", path.display()))
}

/// Removes the pairs of a name but some. A pair that stays is in no one's way.
fn remove_others(pairs: &Path, kept: &[Option<PathBuf>]) {
    let Ok(entries) = fs::read_dir(pairs) else {
        return;
    };
    for entry in entries.flatten() {
        let name = PathBuf::from(entry.file_name());
        let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if is_directory && !kept.iter().flatten().any(|kept| *kept == name) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn directory() -> (tempfile::TempDir, Directory) {
        let temporary = tempfile::tempdir().unwrap();
        let directory = Directory::create(&temporary.path().join("certs")).unwrap();
        (temporary, directory)
    }

    fn pair(directory: &Directory) -> (String, String) {
        let (certificate, key) = files(directory.path(), "agent");
        let mode = fs::metadata(&key).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        (
            fs::read_to_string(certificate).unwrap(),
            fs::read_to_string(key).unwrap(),
        )
    }

    #[test]
    fn a_pair_takes_the_place_of_the_one_before_by_one_link() {
        let (_temporary, directory) = directory();
        for number in ["1", "2", "3"] {
            directory
                .put_pair("agent", number, (number, number))
                .unwrap();
            assert_eq!(pair(&directory), (number.to_owned(), number.to_owned()));
        }
        let pairs = directory.path().join(".agent");
        let mut kept: Vec<_> = fs::read_dir(&pairs)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        kept.sort();
        assert_eq!(kept, ["2", "3", "current"]);
    }

    #[test]
    fn a_pair_takes_the_place_of_plain_files_too() {
        let (_temporary, directory) = directory();
        directory.create_file("agent.pem", "0", PUBLIC).unwrap();
        directory.create_file("agent.key", "0", PRIVATE).unwrap();
        directory.put_pair("agent", "1", ("1", "1")).unwrap();
        assert_eq!(pair(&directory), ("1".to_owned(), "1".to_owned()));
    }

    #[test]
    fn a_file_that_exists_is_kept_and_leaves_nothing_beside_it() {
        let (_temporary, directory) = directory();
        directory.create_file("ca.pem", "first", PUBLIC).unwrap();
        let refused = directory.create_file("ca.pem", "second", PUBLIC);
        let refused = refused.unwrap_err().to_string();
        assert!(refused.ends_with("ca.pem exists, and is not overwritten"));
        let path = directory.path().join("ca.pem");
        assert_eq!(fs::read_to_string(path).unwrap(), "first");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn one_command_at_a_time_changes_a_directory() {
        let (_temporary, directory) = directory();
        let second = Directory::open(directory.path()).unwrap_err().to_string();
        assert!(second.contains("another `tavern certs` works"), "{second}");
    }
}
