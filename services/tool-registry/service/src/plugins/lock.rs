//! `plugins.lock`: packages that the operator approves by their digests.

use std::{collections::BTreeSet, io, path::Path};

use call_outcome::Violation;
use serde::Deserialize;

/// The name of the file in the plugin directory.
pub(super) const LOCK_FILE: &str = "plugins.lock";

/// The largest file that is read, in bytes.
const MAX_BYTES: u64 = 1 << 20;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LockFile {
    plugins: Vec<Locked>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
struct Locked {
    name: String,
    package_digest: String,
    /// A comment.
    #[serde(default, rename = "what")]
    _comment: String,
}

/// The packages that are approved.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Lock(BTreeSet<Locked>);

impl Lock {
    /// Reads the file of a plugin directory. Without one nothing is approved.
    ///
    /// # Errors
    /// The reason for which the file cannot be read; nothing is approved then.
    pub(super) fn read(directory: &Path) -> Result<Self, Box<Violation>> {
        let path = directory.join(LOCK_FILE);
        let refuse =
            |problem: String| Box::new(Violation::new(LOCK_FILE, "malformed_json", problem));
        match std::fs::metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Ok(metadata) if metadata.len() > MAX_BYTES => {
                return Err(refuse(format!(
                    "has more than {MAX_BYTES} bytes; remove plugins"
                )));
            }
            _ => {}
        }
        let text =
            std::fs::read(&path).map_err(|error| refuse(format!("cannot be read: {error}")))?;
        let read: LockFile = serde_json::from_slice(&text).map_err(|error| {
            refuse(format!(
                "is not {{\"plugins\": [{{\"name\", \"package_digest\"}}]}} in JSON: {error}"
            ))
        })?;
        Ok(Self(read.plugins.into_iter().collect()))
    }

    /// Whether a package of a plugin is approved.
    pub(super) fn approves(&self, name: &str, package_digest: &str) -> bool {
        let mut locked = self.0.iter();
        locked.any(|each| each.name == name && each.package_digest == package_digest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_approves_a_plugin_by_its_digest() {
        let directory = tempfile::tempdir().unwrap();
        assert!(
            !Lock::read(directory.path())
                .unwrap()
                .approves("p", "sha256:a")
        );
        let path = directory.path().join(LOCK_FILE);
        let text = r#"{"plugins": [{"name": "p", "package_digest": "sha256:a"}]}"#;
        std::fs::write(&path, text).unwrap();
        let lock = Lock::read(directory.path()).unwrap();
        assert!(lock.approves("p", "sha256:a"));
        assert!(!lock.approves("p", "sha256:b") && !lock.approves("q", "sha256:a"));
        std::fs::write(&path, "plugins: []").unwrap();
        assert!(Lock::read(directory.path()).is_err());
    }
}
