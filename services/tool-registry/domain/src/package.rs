//! The files of a plugin: the names that they may have, their bounds, and their digest.

use sha2::{Digest, Sha256};

/// The most files of a plugin, front-end assets aside.
pub const MAX_FILES: usize = 256;
/// The most bytes of all files of a plugin together, front-end assets aside.
pub const MAX_BYTES: usize = 3 << 20;
/// The deepest directory of a plugin.
pub const MAX_DEPTH: usize = 16;
/// The longest relative path, in bytes.
pub const MAX_PATH_BYTES: usize = 512;
const DOMAIN: &[u8] = b"tavern.package.v1";

/// One file of a package.
#[derive(Clone, Debug)]
pub struct PackageFile {
    /// The path beneath the plugin's directory.
    pub path: String,
    /// The content.
    pub content: Vec<u8>,
}

/// The files of a plugin as they were read: the bytes that its scripts run, independent of later
/// changes of the directory. Two packages are equal if their digests are.
#[derive(Clone, Debug)]
pub struct Package {
    files: Vec<PackageFile>,
    digest: String,
}

impl Package {
    /// Sorts the files by path and computes their digest.
    pub fn new(mut files: Vec<PackageFile>) -> Self {
        files.sort_by(|a, b| a.path.cmp(&b.path));
        let digest = digest(&files);
        Self { files, digest }
    }

    /// Returns the files, sorted by path.
    pub fn files(&self) -> &[PackageFile] {
        &self.files
    }

    /// Returns the digest over path, size and content of each file (rule R103), with its `sha256:`.
    pub fn digest(&self) -> &str {
        &self.digest
    }
}

impl PartialEq for Package {
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest
    }
}

/// Computes the digest over path, size and content of files that are sorted by path (rule R103), with its `sha256:`.
pub fn digest(files: &[PackageFile]) -> String {
    digest_of(files.iter().map(|file| {
        let hash = Sha256::digest(&file.content);
        (&*file.path, file.content.len(), hex::encode(hash))
    }))
}

/// Computes the digest of files by path, size in bytes and SHA-256 in hexadecimal digits.
fn digest_of<'a>(files: impl Iterator<Item = (&'a str, usize, String)>) -> String {
    let mut parts = vec![DOMAIN.to_vec()];
    for (path, size, hash) in files {
        parts.extend([path.into(), size.to_string().into(), hash.into()]);
    }
    let digest = canonical_json::digest_of_parts(parts.iter().map(Vec::as_slice));
    format!("sha256:{}", hex::encode(digest))
}

/// Checks a path of a manifest or a definition and returns it without `./`.
///
/// # Errors
/// The problem, as the end of a sentence that begins with the path.
pub fn relative_path(written: &str) -> Result<String, String> {
    if written.len() > MAX_PATH_BYTES {
        return Err(format!(
            "has {} bytes; at most {MAX_PATH_BYTES} are accepted",
            written.len()
        ));
    }
    if written.starts_with('/') {
        return Err("is absolute; write it relative to the plugin's directory".to_owned());
    }
    if let Some(character) = written
        .chars()
        .find(|c| c.is_control() || *c == '\\' || *c == ':')
    {
        return Err(format!(
            "contains {character:?}; write it with '/' between plain names"
        ));
    }
    let mut parts = Vec::new();
    for part in written.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                return Err("leaves its directory by '..'; keep it inside the plugin".to_owned());
            }
            name => parts.push(name),
        }
    }
    if parts.is_empty() {
        return Err("names no file".to_owned());
    }
    if parts.len() > MAX_DEPTH {
        return Err(format!(
            "is nested {} deep; at most {MAX_DEPTH}",
            parts.len()
        ));
    }
    Ok(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r103_a_package_has_the_digest_of_the_vector() {
        // Sizes and hashes of the vector; each hash is the hash of the file's path.
        let files = [
            ("plugin.yaml", 2841),
            ("scripts/forecast.py", 1933),
            ("tools/forecast.tool.json", 1210),
        ];
        let hashed = files.map(|(path, size)| (path, size, hex::encode(Sha256::digest(path))));
        let expected = "sha256:08d02cb6dbcac5eeb698caf9d236fd326b1f7081467e6a7fe118b998d14d5b1b";
        assert_eq!(digest_of(hashed.into_iter()), expected);
    }

    #[test]
    fn r103_a_package_changes_with_each_byte_and_name_and_not_with_the_order() {
        let package = |files: &[(&str, &str)]| {
            let file = |(path, content): &(&str, &str)| PackageFile {
                path: (*path).to_owned(),
                content: content.as_bytes().to_vec(),
            };
            Package::new(files.iter().map(file).collect())
        };
        let first = package(&[("a", "1"), ("b", "2")]);
        assert_eq!(first, package(&[("b", "2"), ("a", "1")]));
        let others: [&[(&str, &str)]; 4] = [
            &[("a", "1"), ("b", "3")],
            &[("a", "1"), ("c", "2")],
            &[("a", "2"), ("b", "1")],
            &[("a", "1")],
        ];
        for other in others {
            assert_ne!(first, package(other), "{other:?}");
        }
    }

    #[test]
    fn a_path_is_kept_beneath_its_directory() {
        assert_eq!(relative_path("./tools"), Ok("tools".to_owned()));
        assert_eq!(relative_path("a//b/./c"), Ok("a/b/c".to_owned()));
        for bad in ["", ".", "/etc", "..", "a/../b", "a\\b", "C:x", "a\0b"] {
            assert!(relative_path(bad).is_err(), "{bad:?}");
        }
        assert!(relative_path(&"a/".repeat(17)).is_err());
    }
}
