//! The key that proves the caller: read from a file, and sent as the bearer token of each call.
//!
//! A key stands in a file only, so that it is in no list of processes and no dump of an environment.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Context, bail, ensure};
use http::HeaderValue;

/// The longest key, in bytes, as the contract states it.
const MAX_KEY_BYTES: usize = 512;

/// The longest file of a key, in bytes: the key may stand between white space.
const MAX_FILE_BYTES: u64 = 2 * MAX_KEY_BYTES as u64;

/// The access of group and others in the mode of a file.
const OF_OTHERS: u32 = 0o077;

/// A key as the header in which it is sent; its `Debug` does not show it.
#[derive(Clone, Debug)]
pub struct Key(HeaderValue);

impl Key {
    /// Reads the key from a file.
    ///
    /// A file of the user whom this process runs as must be closed to group and others, as `ssh` requires it of its
    /// keys. A file of another user is left to its owner: a mounted secret belongs to the platform.
    ///
    /// # Errors
    /// A file that cannot be read or is open to others, and a text that is no key. The text is in no error.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let shown = path.display();
        let unread = || format!("the key file {shown} cannot be read");
        let file = File::open(path).with_context(unread)?;
        check_closed(path, &file)?;
        let mut bytes = Vec::new();
        file.take(MAX_FILE_BYTES)
            .read_to_end(&mut bytes)
            .with_context(unread)?;
        let text = str::from_utf8(&bytes).unwrap_or_default();
        Self::new(text).with_context(|| format!("the key file {shown} holds no key"))
    }

    /// Returns a text without the white space around it as a key.
    ///
    /// # Errors
    /// A text that is empty, is longer than 512 bytes, or has other characters than the visible ones of ASCII and
    /// spaces, which keys of approvers may have.
    pub fn new(text: &str) -> anyhow::Result<Self> {
        let key = text.trim();
        ensure!(
            key.len() <= MAX_KEY_BYTES,
            "a key has at most {MAX_KEY_BYTES} bytes"
        );
        let is_shown = |byte: u8| byte == b' ' || byte.is_ascii_graphic();
        if key.is_empty() || !key.bytes().all(is_shown) {
            bail!("a key is one line of letters, digits and signs");
        }
        let mut bearer = HeaderValue::try_from(format!("Bearer {key}"))?;
        bearer.set_sensitive(true);
        Ok(Self(bearer))
    }

    /// Returns the value of the header `authorization`.
    pub fn bearer(&self) -> HeaderValue {
        self.0.clone()
    }
}

/// Checks that the file of a key at `path`, if it belongs to the user of this process, is closed to group and others.
pub(crate) fn check_closed(path: &Path, file: &File) -> anyhow::Result<()> {
    let shown = path.display();
    let metadata = file.metadata();
    let metadata = metadata.with_context(|| format!("the key file {shown} cannot be read"))?;
    let is_own = metadata.uid() == rustix::process::geteuid().as_raw();
    let access = metadata.mode() & OF_OTHERS;
    ensure!(
        !is_own || access == 0,
        "the key file {shown} is open to others (mode {:04o}): `chmod 600 {shown}` closes it",
        metadata.mode() & 0o7777
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::{Permissions, set_permissions};
    use std::os::unix::fs::PermissionsExt;

    use tempfile::NamedTempFile;

    use super::*;

    /// Returns the header of a key in a file with a mode, or the error with its causes.
    fn read(text: &[u8], mode: u32) -> Result<String, String> {
        let file = NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        set_permissions(file.path(), Permissions::from_mode(mode)).unwrap();
        let key = Key::read(file.path()).map_err(|error| format!("{error:#}"))?;
        Ok(key.bearer().to_str().unwrap().to_owned())
    }

    #[test]
    fn a_key_is_read_without_the_white_space_around_it() {
        for text in ["tvk_a_b_c", "tvk_a_b_c\n", "\r\n  tvk_a_b_c\t\r\n"] {
            let read = read(text.as_bytes(), 0o600);
            assert_eq!(read.as_deref(), Ok("Bearer tvk_a_b_c"), "{text:?}");
        }
        assert_eq!(
            read(b"the key of mara\n", 0o600).as_deref(),
            Ok("Bearer the key of mara")
        );
        let longest = "k".repeat(MAX_KEY_BYTES);
        assert_eq!(
            read(longest.as_bytes(), 0o400),
            Ok(format!("Bearer {longest}"))
        );
    }

    #[test]
    fn a_key_file_that_others_may_read_or_write_is_refused_with_the_remedy() {
        for mode in [0o640, 0o604, 0o620, 0o602, 0o610, 0o644, 0o666, 0o777] {
            let refused = read(b"tvk_a_b_c", mode).unwrap_err();
            let stated = format!("is open to others (mode {mode:04o}): `chmod 600 ");
            assert!(refused.contains(&stated), "{refused}");
        }
    }

    #[test]
    fn a_text_that_is_no_key_is_refused_and_not_repeated() {
        let long = "k".repeat(MAX_KEY_BYTES + 1);
        let longer = "k".repeat(4 * MAX_KEY_BYTES);
        for text in [
            &b""[..],
            b" \n",
            b"secret\nsecond",
            "secr\u{e9}t".as_bytes(),
            b"secret\xFF",
            b"secret\x00",
            b"secret\x7F",
            long.as_bytes(),
            longer.as_bytes(),
        ] {
            let refused = read(text, 0o600).unwrap_err();
            assert!(refused.contains("holds no key: a key "), "{refused}");
            for part in ["secret", "secr\u{e9}t", "kkkk"] {
                assert!(!refused.contains(part), "{refused}");
            }
        }
    }

    #[test]
    fn a_missing_file_is_named() {
        let refused = Key::read(Path::new("/no/such.key")).unwrap_err();
        let refused = format!("{refused:#}");
        let expected = "the key file /no/such.key cannot be read: No such file";
        assert!(refused.starts_with(expected), "{refused}");
    }

    #[test]
    fn a_key_is_not_part_of_what_is_printed_about_it() {
        let key = Key::new("tvk_a_secret_c").unwrap();
        assert_eq!(format!("{key:?}"), "Key(Sensitive)");
    }
}
