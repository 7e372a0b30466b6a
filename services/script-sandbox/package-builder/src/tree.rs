//! The files of a set: their digest, size, and the names that scripts import.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::{self, Read as _},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use sandbox_engine::domain::profile::Installer;
use sha2::{Digest, Sha256};

use crate::error::{At as _, BuildError};

/// A file of a tree.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TreeFile {
    /// Its path below the tree.
    pub(crate) path: PathBuf,
    /// Its size in bytes.
    pub(crate) bytes: u64,
}

/// Every file below a directory, by path.
///
/// # Errors
/// Something else than a file or a directory is there, such as a link.
pub(crate) fn files(tree: &Path) -> Result<Vec<TreeFile>, BuildError> {
    let mut found = Vec::new();
    let mut open = vec![PathBuf::new()];
    while let Some(directory) = open.pop() {
        let here = tree.join(&directory);
        for entry in fs::read_dir(&here).at("reading", &here)? {
            let entry = entry.at("reading", &here)?;
            let path = directory.join(entry.file_name());
            let about = entry.metadata().at("reading", tree.join(&path))?;
            if about.is_dir() {
                open.push(path);
            } else if about.is_file() {
                let bytes = about.len();
                found.push(TreeFile { path, bytes });
            } else {
                return Err(BuildError::Package {
                    package: path.display().to_string(),
                    problem: "it is a link or no file".to_owned(),
                });
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Makes files readable for every user and writable for none but the owner, whatever the archive or the umask stated.
///
/// # Errors
/// A file cannot be changed.
pub(crate) fn open_up(root: &Path) -> Result<(), BuildError> {
    let mut open = vec![root.to_owned()];
    while let Some(path) = open.pop() {
        let about = fs::symlink_metadata(&path).at("reading", &path)?;
        if about.is_symlink() {
            continue;
        }
        let mode = if about.is_dir() { 0o755 } else { 0o644 };
        let permissions = fs::Permissions::from_mode(mode);
        fs::set_permissions(&path, permissions).at("opening up", &path)?;
        if about.is_dir() {
            for entry in fs::read_dir(&path).at("reading", &path)? {
                open.push(entry.at("reading", &path)?.path());
            }
        }
    }
    Ok(())
}

/// The digest of files, and of texts that name their runtime and their use.
///
/// # Errors
/// A file cannot be read.
pub(crate) fn digest(
    tree: &Path,
    files: &[TreeFile],
    about: &[&str],
) -> Result<String, BuildError> {
    let mut all = Sha256::new();
    let mut add = |bytes: &[u8]| {
        all.update((bytes.len() as u64).to_le_bytes());
        all.update(bytes);
    };
    add(b"tavern.packages.v1");
    for text in about {
        add(text.as_bytes());
    }
    for file in files {
        let path = tree.join(&file.path);
        add(file.path.as_os_str().as_encoded_bytes());
        add(&file.bytes.to_le_bytes());
        add(&content_digest(&path).at("reading", &path)?);
    }
    Ok(hex::encode(all.finalize()))
}

fn content_digest(path: &Path) -> io::Result<[u8; 32]> {
    let mut content = Sha256::new();
    let mut opened = File::open(path)?;
    let mut piece = vec![0; 256 << 10];
    loop {
        match opened.read(&mut piece)? {
            0 => return Ok(content.finalize().into()),
            read => content.update(piece.get(..read).unwrap_or_default()),
        }
    }
}

/// The names that scripts import.
pub(crate) fn modules(installer: Installer, files: &[TreeFile]) -> Vec<String> {
    let names = files.iter().filter_map(|file| match installer {
        Installer::Pip => python_module(&file.path),
        Installer::Npm => node_module(&file.path),
    });
    let names: BTreeSet<String> = names.collect();
    names.into_iter().collect()
}

fn python_module(path: &Path) -> Option<String> {
    let is_code = path.extension().is_some_and(|it| it == "py" || it == "so");
    let first = path.components().next()?.as_os_str().to_str()?;
    let alone = path.components().count() == 1;
    let name = if alone {
        first.split('.').next()?
    } else {
        first
    };
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    (is_code && name.bytes().all(plain)).then(|| name.to_owned())
}

fn node_module(path: &Path) -> Option<String> {
    let mut parts = path.strip_prefix("node_modules").ok()?.components();
    let first = parts.next()?.as_os_str().to_str()?;
    let second = parts.next()?.as_os_str().to_str()?;
    match first {
        hidden if hidden.starts_with('.') => None,
        scope if scope.starts_with('@') => Some(format!("{scope}/{second}")),
        name => Some(name.to_owned()),
    }
}

/// Writes everything below a directory to the disk.
///
/// # Errors
/// A file cannot be written.
pub(crate) fn sync(root: &Path) -> Result<(), BuildError> {
    let opened = File::open(root).at("opening", root)?;
    rustix::fs::syncfs(&opened).at("writing", root)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        for (path, content) in files {
            let path = directory.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        directory
    }

    fn digest_of(tree: &tempfile::TempDir, about: &[&str]) -> String {
        let files = files(tree.path()).unwrap();
        digest(tree.path(), &files, about).unwrap()
    }

    #[test]
    fn the_digest_is_that_of_paths_contents_and_what_they_were_made_for() {
        let one = tree(&[("a/b.py", "1"), ("c.py", "")]);
        let same = tree(&[("c.py", ""), ("a/b.py", "1")]);
        let moved = tree(&[("a/c.py", "1"), ("b.py", "")]);
        let about = ["python3", "3.11.2"];
        assert_eq!(digest_of(&one, &about), digest_of(&same, &about));
        assert_ne!(digest_of(&one, &about), digest_of(&moved, &about));
        assert_ne!(
            digest_of(&one, &about),
            digest_of(&one, &["python3", "3.11.3"])
        );
    }

    #[test]
    fn a_link_in_a_tree_is_refused() {
        let tree = tree(&[("a.py", "")]);
        std::os::unix::fs::symlink("/etc", tree.path().join("etc")).unwrap();
        assert!(matches!(
            files(tree.path()),
            Err(BuildError::Package { .. })
        ));
    }

    #[test]
    fn the_modules_are_the_names_that_scripts_import() {
        let python = tree(&[
            ("six.py", ""),
            ("dateutil/__init__.py", ""),
            ("numpy.libs/x.so", ""),
            ("six-1.0.dist-info/METADATA", ""),
            ("_fast.cpython-311-x86_64-linux-gnu.so", ""),
        ]);
        let python = modules(Installer::Pip, &files(python.path()).unwrap());
        assert_eq!(python, ["_fast", "dateutil", "six"]);
        let node = tree(&[
            ("node_modules/lodash/index.js", ""),
            ("node_modules/@scope/x/index.js", ""),
            ("node_modules/.package-lock.json", ""),
        ]);
        let node = modules(Installer::Npm, &files(node.path()).unwrap());
        assert_eq!(node, ["@scope/x", "lodash"]);
    }
}
