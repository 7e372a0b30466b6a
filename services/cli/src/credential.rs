//! The key or the issuer token that proves the caller: read from a file, and sent as the bearer token of each call.
//!
//! It stands in a file only, so that it is in no list of processes and no dump of an environment.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Context, bail, ensure};
use http::HeaderValue;

/// The longest key, in bytes, as the contract states it.
const MAX_KEY_BYTES: usize = 512;

/// The longest token of an issuer, in bytes, as the contract states it.
const MAX_TOKEN_BYTES: usize = 8 << 10;

/// The access of group and others in the mode of a file.
const OF_OTHERS: u32 = 0o077;

/// A key or a token as the header in which it is sent; its `Debug` does not show it.
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
        let text = read_file(path, "key", MAX_KEY_BYTES)?;
        Self::new(&text).with_context(|| format!("the key file {} holds no key", path.display()))
    }

    /// Reads the token of an issuer from a file, as [`Key::read`] does.
    ///
    /// # Errors
    /// A file that cannot be read or is open to others, and a text that is no token. The text is in no error.
    pub fn read_token(path: &Path) -> anyhow::Result<Self> {
        let text = read_file(path, "token", MAX_TOKEN_BYTES)?;
        let (token, shown) = (text.trim(), path.display());
        ensure!(
            token.len() <= MAX_TOKEN_BYTES,
            "the token file {shown} holds no token: a token has at most {MAX_TOKEN_BYTES} bytes"
        );
        let parts = token.split('.').count();
        let is_token = parts == 3 && token.bytes().all(|byte| byte.is_ascii_graphic());
        ensure!(
            is_token,
            "the token file {shown} holds no token: a token is one line of three parts with dots between them"
        );
        Self::sent(token)
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
        Self::sent(key)
    }

    fn sent(text: &str) -> anyhow::Result<Self> {
        let mut bearer = HeaderValue::try_from(format!("Bearer {text}"))?;
        bearer.set_sensitive(true);
        Ok(Self(bearer))
    }

    /// Returns the value of the header `authorization`.
    pub fn bearer(&self) -> HeaderValue {
        self.0.clone()
    }
}

/// Reads the text of a file of a secret, which may stand between white space.
fn read_file(path: &Path, what: &str, longest: usize) -> anyhow::Result<String> {
    let unread = || format!("the {what} file {} cannot be read", path.display());
    let file = File::open(path).with_context(unread)?;
    check_closed(path, what, &file)?;
    let mut bytes = Vec::new();
    file.take(2 * longest as u64)
        .read_to_end(&mut bytes)
        .with_context(unread)?;
    Ok(String::from_utf8(bytes).unwrap_or_default())
}

/// Checks that the file of a secret at `path`, if it belongs to the user of this process, is closed to group and others.
pub(crate) fn check_closed(path: &Path, what: &str, file: &File) -> anyhow::Result<()> {
    let shown = path.display();
    let metadata = file.metadata();
    let metadata = metadata.with_context(|| format!("the {what} file {shown} cannot be read"))?;
    let is_own = metadata.uid() == rustix::process::geteuid().as_raw();
    let access = metadata.mode() & OF_OTHERS;
    ensure!(
        !is_own || access == 0,
        "the {what} file {shown} is open to others (mode {:04o}): `chmod 600 {shown}` closes it",
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
    fn a_token_has_three_parts_and_up_to_eight_kibibytes() {
        let read = |text: &str, mode| {
            let file = NamedTempFile::new().unwrap();
            std::fs::write(file.path(), text).unwrap();
            set_permissions(file.path(), Permissions::from_mode(mode)).unwrap();
            let token = Key::read_token(file.path()).map_err(|error| format!("{error:#}"))?;
            Ok::<_, String>(token.bearer().to_str().unwrap().to_owned())
        };
        let longest = format!("{}.b.c", "a".repeat(MAX_TOKEN_BYTES - 4));
        for text in ["a.b.c", &longest] {
            let token = read(&format!(" {text}\n"), 0o600);
            assert_eq!(token, Ok(format!("Bearer {text}")));
        }
        let long = format!("a{longest}");
        for text in [
            "",
            "secret",
            "a.secret",
            "a.b.c.secret",
            "a.b.secr et",
            &long,
        ] {
            let refused = read(text, 0o600).unwrap_err();
            assert!(refused.contains("holds no token: a token "), "{refused}");
            assert!(
                !refused.contains("secr") && !refused.contains("aaaa"),
                "{refused}"
            );
        }
        let refused = read("a.b.c", 0o644).unwrap_err();
        assert!(refused.starts_with("the token file "), "{refused}");
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
