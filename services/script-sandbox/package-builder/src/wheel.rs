//! Unpacks wheels, which are archives that a stranger has made.

use std::{
    collections::BTreeSet,
    fs::File,
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use zip::{ZipArchive, read::ZipFile};

use crate::error::{At as _, BuildError};

/// The most bytes of all files of a set.
pub(crate) const MAX_BYTES: u64 = 4 << 30;
/// The most files of an archive.
const MAX_FILES: usize = 100_000;

/// Unpacks archives into one tree.
pub(crate) struct Unpacking<'a> {
    /// The tree.
    pub(crate) tree: &'a Path,
    /// Names that no library may have; their files are left out.
    pub(crate) reserved: &'a BTreeSet<String>,
    /// Bytes that may still be written.
    pub(crate) left: u64,
    /// The files that were left out.
    pub(crate) left_out: Vec<String>,
}

impl Unpacking<'_> {
    /// Unpacks a wheel. Its scripts, headers and data have no place in a set.
    ///
    /// # Errors
    /// The wheel has an entry that leads outside, is a link or stands in another wheel, or it is too large.
    pub(crate) fn wheel(&mut self, path: &Path) -> Result<(), BuildError> {
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let refused = |problem: String| BuildError::Package {
            package: name.clone(),
            problem,
        };
        let file = File::open(path).at("reading", path)?;
        let archive = ZipArchive::new(io::BufReader::new(file));
        let mut archive = archive.map_err(|error| refused(format!("it is no wheel: {error}")))?;
        if archive.len() > MAX_FILES {
            return Err(refused(format!("it has more than {MAX_FILES} files")));
        }
        for index in 0..archive.len() {
            let mut entry = archive
                .by_index(index)
                .map_err(|error| refused(error.to_string()))?;
            let shown = shown(&entry);
            if entry.is_symlink() || !(entry.is_file() || entry.is_dir()) {
                return Err(refused(format!("its entry {shown} is a link")));
            }
            let inside = plain_path(&entry);
            let Some(inside) = inside else {
                return Err(refused(format!("its entry {shown} leads outside of it")));
            };
            if entry.is_dir() {
                continue;
            }
            let Some(place) = placed(&inside) else {
                continue;
            };
            if self.is_reserved(&place) {
                self.left_out.push(format!("{name}: {}", place.display()));
                continue;
            }
            let path = self.tree.join(place);
            write(&mut entry, &path, &mut self.left).map_err(|problem| match problem {
                Problem::Refused(problem) => refused(format!("its entry {shown} {problem}")),
                Problem::Storage(error) => error,
            })?;
        }
        Ok(())
    }

    /// Whether a file would have an effect that a library must not have: by its name in the place of a module of the
    /// language, or when the interpreter starts.
    fn is_reserved(&self, path: &Path) -> bool {
        let mut parts = path.components();
        let first = parts.next().map(|part| part.as_os_str().to_string_lossy());
        let first = first.unwrap_or_default();
        let stem = first.split('.').next().unwrap_or_default();
        let alone = parts.next().is_none();
        self.reserved.contains(stem) || (alone && first.ends_with(".pth"))
    }
}

/// The name of an entry for a message.
pub(crate) fn shown<R: io::Read>(entry: &ZipFile<'_, R>) -> String {
    let name = entry.name_raw();
    String::from_utf8_lossy(name)
        .escape_default()
        .take(256)
        .collect()
}

/// Writes an entry of an archive into a new file, whatever size the archive states.
///
/// # Errors
/// The file exists, or the entry has more bytes than are left.
pub(crate) fn write<R: io::Read>(
    entry: &mut ZipFile<'_, R>,
    path: &Path,
    left: &mut u64,
) -> Result<(), Problem> {
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent).at("making", parent)?;
    }
    let created = File::options().write(true).create_new(true).open(path);
    if matches!(&created, Err(error) if error.kind() == io::ErrorKind::AlreadyExists) {
        let there = std::fs::read(path).at("reading", path)?;
        let mut same = Vec::new();
        let most = there.len() as u64 + 1;
        entry
            .take(most)
            .read_to_end(&mut same)
            .at("reading", path)?;
        // Parts of one namespace may bring the same file.
        return match same == there {
            true => Ok(()),
            false => Err(Problem::Refused("is another file of another package")),
        };
    }
    let mut file = created.at("writing", path)?;
    let written = io::copy(&mut entry.take(*left + 1), &mut file).at("writing", path)?;
    if written > *left {
        return Err(Problem::Refused("makes the set larger than 4 GiB"));
    }
    *left -= written;
    Ok(())
}

/// A problem with an entry.
pub(crate) enum Problem {
    /// No set may have it.
    Refused(&'static str),
    /// It could not be written.
    Storage(BuildError),
}

impl From<BuildError> for Problem {
    fn from(error: BuildError) -> Self {
        Self::Storage(error)
    }
}

/// The path of an entry, if each part of it is a plain name.
pub(crate) fn plain_path<R: io::Read>(entry: &ZipFile<'_, R>) -> Option<PathBuf> {
    let name = std::str::from_utf8(entry.name_raw()).ok()?;
    let name = name.strip_suffix('/').unwrap_or(name);
    let plain = |part: &str| !matches!(part, "" | "." | "..") && !part.contains(['\\', '\0']);
    name.split('/').all(plain).then(|| PathBuf::from(name))
}

/// The place of a file of a wheel in the tree; `None` if it has none. Bytecode is made anew.
fn placed(path: &Path) -> Option<PathBuf> {
    if path.extension().is_some_and(|extension| extension == "pyc") {
        return None;
    }
    let mut parts = path.components();
    let first = parts.next()?.as_os_str().to_str()?;
    if !first.ends_with(".data") {
        return Some(path.to_owned());
    }
    let library = matches!(parts.next()?.as_os_str().to_str()?, "purelib" | "platlib");
    library.then(|| parts.as_path().to_owned())
}

#[cfg(test)]
mod tests {
    use std::io::{Cursor, Write as _};

    use zip::{ZipWriter, write::SimpleFileOptions};

    use super::*;

    fn archive(entries: &[(&str, &str)]) -> Vec<u8> {
        let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
        for (name, content) in entries {
            writer
                .start_file(*name, SimpleFileOptions::default())
                .unwrap();
            writer.write_all(content.as_bytes()).unwrap();
        }
        writer.finish().unwrap().into_inner()
    }

    /// Unpacks archives in turn; returns the files of the tree, those that were left out, or the refusal.
    fn unpack(wheels: &[Vec<u8>]) -> Result<(Vec<String>, Vec<String>), String> {
        let directory = tempfile::tempdir().unwrap();
        let tree = directory.path().join("tree");
        std::fs::create_dir(&tree).unwrap();
        let reserved = ["json", "sitecustomize"].map(str::to_owned);
        let mut unpacking = Unpacking {
            tree: &tree,
            reserved: &BTreeSet::from(reserved),
            left: 1 << 20,
            left_out: Vec::new(),
        };
        for (index, wheel) in wheels.iter().enumerate() {
            let path = directory.path().join(format!("w{index}.whl"));
            std::fs::write(&path, wheel).unwrap();
            unpacking.wheel(&path).map_err(|error| error.to_string())?;
        }
        let left_out = unpacking.left_out;
        assert!(!directory.path().join("outside.py").exists());
        let files = crate::tree::files(&tree).unwrap();
        let files = files.iter().map(|file| file.path.display().to_string());
        Ok((files.collect(), left_out))
    }

    #[test]
    fn libraries_are_placed_and_the_rest_of_a_wheel_is_not() {
        let wheel = archive(&[
            ("six.py", "x"),
            ("pkg/__init__.py", ""),
            ("six-1.0.dist-info/METADATA", "Name: six"),
            ("six-1.0.data/purelib/more.py", "x"),
            ("six-1.0.data/scripts/six", "#!python"),
            ("pkg/old.pyc", "x"),
        ]);
        let (files, left_out) = unpack(&[wheel]).unwrap();
        assert_eq!(
            files,
            [
                "more.py",
                "pkg/__init__.py",
                "six-1.0.dist-info/METADATA",
                "six.py"
            ]
        );
        assert!(left_out.is_empty());
    }

    #[test]
    fn files_that_would_act_when_an_interpreter_starts_are_left_out() {
        let wheel = archive(&[
            ("evil.pth", "import os; os._exit(1)"),
            ("sitecustomize.py", "x"),
            ("sitecustomize/__init__.py", "x"),
            ("json.py", "x"),
            ("json.cpython-311-x86_64-linux-gnu.so", "x"),
            ("six.py", "x"),
        ]);
        let (files, left_out) = unpack(&[wheel]).unwrap();
        assert_eq!(files, ["six.py"]);
        assert_eq!(left_out.len(), 5, "{left_out:?}");
    }

    #[test]
    fn entries_that_lead_outside_links_and_twins_are_refused() {
        let mut link = ZipWriter::new(Cursor::new(Vec::new()));
        link.add_symlink("six.py", "/etc/passwd", SimpleFileOptions::default())
            .unwrap();
        let link = link.finish().unwrap().into_inner();
        for (wheel, problem) in [
            (archive(&[("../outside.py", "x")]), "leads outside"),
            (archive(&[("a/../../outside.py", "x")]), "leads outside"),
            (archive(&[("/outside.py", "x")]), "leads outside"),
            (link, "is a link"),
            (b"no archive".to_vec(), "no wheel"),
            (archive(&[("big.py", &"x".repeat(2 << 20))]), "larger than"),
        ] {
            let refused = unpack(&[wheel]).unwrap_err();
            assert!(refused.contains(problem), "{problem}: {refused}");
        }
        let one = archive(&[("six.py", "x")]);
        let other = archive(&[("six.py", "y")]);
        assert!(
            unpack(&[one.clone(), other])
                .unwrap_err()
                .contains("another package")
        );
        assert_eq!(unpack(&[one.clone(), one]).unwrap().0, ["six.py"]);
    }
}
