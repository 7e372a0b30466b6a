//! The handing over of a new key, whose secret is shown once: on a terminal, or in a new file.

use std::fs::{File, remove_file};
use std::io::{IsTerminal, Seek, SeekFrom, Write, stdout};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use anyhow::{Context, bail};
use contracts::tavern::registry::v1::{
    BootstrapResponse, CreateKeyResponse, Key, RotateKeyResponse,
};
use prost_reflect::prost::{Message, Name};

use super::super::{json, print};
use super::key_in_words;
use crate::program;

/// The room that a new file has for its key, in bytes.
const ROOM: usize = 512;

/// An answer that has a new key.
pub(super) trait Made: Message + Name {
    /// Returns the key with its secret.
    fn secret_key(&mut self) -> &mut String;

    /// Returns the key without its secret.
    fn key(&self) -> Option<&Key>;
}

impl Made for BootstrapResponse {
    fn secret_key(&mut self) -> &mut String {
        &mut self.secret_key
    }

    fn key(&self) -> Option<&Key> {
        self.key.as_ref()
    }
}

impl Made for CreateKeyResponse {
    fn secret_key(&mut self) -> &mut String {
        &mut self.secret_key
    }

    fn key(&self) -> Option<&Key> {
        self.key.as_ref()
    }
}

impl Made for RotateKeyResponse {
    fn secret_key(&mut self) -> &mut String {
        &mut self.secret_key
    }

    fn key(&self) -> Option<&Key> {
        self.key.as_ref()
    }
}

/// The place to which a new key is delivered. It is prepared before the key is made, so that no key is made that
/// cannot be handed over.
pub(super) struct Delivery(Option<NewFile>);

/// A file that is removed unless its key is written.
struct NewFile {
    path: PathBuf,
    file: File,
    is_written: bool,
}

impl Delivery {
    /// Creates the file with mode 0600, or checks that standard output is a terminal.
    ///
    /// # Errors
    /// A file that exists or cannot be created, and neither a file nor a terminal.
    pub(super) fn prepare(out: Option<PathBuf>) -> anyhow::Result<Self> {
        Self::choose(out, stdout().is_terminal())
    }

    fn choose(out: Option<PathBuf>, is_terminal: bool) -> anyhow::Result<Self> {
        match out {
            Some(path) => Ok(Self(Some(NewFile::create(path)?))),
            None if is_terminal => Ok(Self(None)),
            None => bail!(
                "a key is written to a terminal or to a file of its own only: give `--out FILE`; no key was made"
            ),
        }
    }

    /// Hands over the key of an answer; with `as_json` prints the answer too, which has the secret on a terminal
    /// only.
    ///
    /// # Errors
    /// A file that cannot be written; the error states how to revoke the key.
    pub(super) fn deliver(
        self,
        mut made: impl Made,
        owner: &str,
        as_json: bool,
    ) -> anyhow::Result<()> {
        let key = made.key().context("the answer has no key")?.clone();
        let words = key_in_words(&key);
        match self.0 {
            Some(mut file) => {
                let secret = std::mem::take(made.secret_key());
                let written = file.write(&secret);
                let path = file.path.display();
                written.with_context(|| {
                    let (program, id) = (program::name(), &key.key_id);
                    format!(
                        "the new key of {owner} cannot be written to {path}; revoke it: \
                         `{program} keys revoke {id}`"
                    )
                })?;
                if !as_json {
                    print(&format!("{path} holds the key of {owner}: {words}\n"));
                }
            }
            None if !as_json => print(&format!(
                "The key of {owner}, {words}. It is not stored, and is not shown again:\n{}\n",
                made.secret_key()
            )),
            None => {}
        }
        match as_json {
            true => json::print_line(&made),
            false => Ok(()),
        }
    }
}

impl NewFile {
    fn create(path: PathBuf) -> anyhow::Result<Self> {
        let mut options = File::options();
        options.write(true).create_new(true).mode(0o600);
        let file = options.open(&path);
        let file = file.with_context(|| {
            format!(
                "the file {} cannot be created; no key was made",
                path.display()
            )
        })?;
        let mut created = Self {
            path,
            file,
            is_written: false,
        };
        let room = created.file.write_all(&[b'\n'; ROOM]);
        let room = room.and_then(|()| created.file.sync_all());
        room.with_context(|| {
            let path = created.path.display();
            format!("there is no room for the file {path}; no key was made")
        })?;
        Ok(created)
    }

    fn write(&mut self, secret: &str) -> std::io::Result<()> {
        self.file.seek(SeekFrom::Start(0))?;
        self.file.write_all(secret.as_bytes())?;
        self.file.write_all(b"\n")?;
        let length = self.file.stream_position()?;
        // The key is whole from here on, and white space behind it is not part of it.
        self.is_written = true;
        self.file.set_len(length)?;
        self.file.sync_all()
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if !self.is_written {
            // An empty file that stays is no key.
            let _ = remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn made() -> CreateKeyResponse {
        CreateKeyResponse {
            secret_key: "tvk_a_secret_c".to_owned(),
            key: Some(Key {
                key_id: "a".to_owned(),
                ..Key::default()
            }),
            principal: None,
        }
    }

    #[test]
    fn a_key_is_written_to_a_new_file_that_only_its_owner_reads() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ada.key");
        let delivery = Delivery::prepare(Some(path.clone())).unwrap();
        delivery.deliver(made(), "ada", false).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "tvk_a_secret_c\n");
        let mode = path.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let read = crate::credential::Key::read(&path).unwrap();
        assert_eq!(read.bearer().to_str().unwrap(), "Bearer tvk_a_secret_c");
    }

    #[test]
    fn a_file_that_exists_is_refused_and_kept() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ada.key");
        std::fs::write(&path, "another").unwrap();
        let refused = Delivery::prepare(Some(path.clone())).err().unwrap();
        let refused = format!("{refused:#}");
        assert!(refused.contains("no key was made"), "{refused}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "another");
    }

    #[test]
    fn a_file_without_its_key_does_not_stay() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ada.key");
        let delivery = Delivery::prepare(Some(path.clone())).unwrap();
        assert!(path.exists());
        drop(delivery);
        assert!(!path.exists());
    }

    #[test]
    fn without_a_file_a_key_is_made_for_a_terminal_only() {
        assert!(Delivery::choose(None, true).is_ok());
        let refused = Delivery::choose(None, false).err().unwrap().to_string();
        assert!(refused.contains("give `--out FILE`"), "{refused}");
    }
}
