//! Reading a plugin's directory through directory handles.

use std::io::{self, Read as _};

use call_outcome::Violation;
use cap_std::fs::{Dir, File};
use tool_domain::package::PackageFile;

use crate::{
    MANIFEST, PluginFiles,
    limits::{MAX_ENTRIES, Tally, bounded},
    names,
    refusal::Refusal,
};

/// Opens a plugin's directory in a directory of plugins; nothing if it is no plugin: no directory, or one without a
/// `plugin.yaml`.
///
/// # Errors
/// A link, or a directory that cannot be read.
pub fn open_plugin(root: &Dir, name: &str) -> Result<Option<Dir>, Vec<Violation>> {
    let unreadable = |place: &str, error: &io::Error| vec![unreadable(place, error)];
    let metadata = root
        .symlink_metadata(name)
        .map_err(|error| unreadable("", &error))?;
    if metadata.is_symlink() {
        return Err(vec![link("")]);
    }
    if !metadata.is_dir() {
        return Ok(None);
    }
    let dir = root
        .open_dir(name)
        .map_err(|error| unreadable("", &error))?;
    match dir.symlink_metadata(MANIFEST) {
        Ok(_) => Ok(Some(dir)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(unreadable(MANIFEST, &error)),
    }
}

/// Reads every file of a plugin's directory into memory. Names that begin with a dot, and files that Python makes when
/// it runs a script, are passed over.
///
/// # Errors
/// All violations, among them every link and special file, up to the bound that the directory exceeds; then those of
/// [`PluginFiles::new`].
pub fn read_directory(dir: &Dir) -> Result<PluginFiles, Vec<Violation>> {
    let mut reader = Reader::default();
    reader.directory(dir, "");
    if reader.wrong.is_empty() {
        return PluginFiles::new(reader.files);
    }
    reader
        .wrong
        .sort_by(|a, b| (&a.pointer, &a.code).cmp(&(&b.pointer, &b.code)));
    Err(bounded(reader.wrong))
}

#[derive(Default)]
struct Reader {
    files: Vec<PackageFile>,
    tally: Tally,
    entries: usize,
    wrong: Vec<Violation>,
    /// Whether a bound is exceeded, after which nothing more is read.
    is_full: bool,
}

impl Reader {
    fn directory(&mut self, dir: &Dir, prefix: &str) {
        if let Err(error) = self.entries(dir, prefix) {
            let place = prefix.trim_end_matches('/');
            self.wrong.push(unreadable(place, &error));
        }
    }

    /// Reads the entries of a directory whose path is `prefix`, with its `/`.
    fn entries(&mut self, dir: &Dir, prefix: &str) -> io::Result<()> {
        for entry in dir.entries()? {
            let entry = entry?;
            let name = entry.file_name();
            let Some(name) = name.to_str() else {
                let place = format!("{prefix}{}", name.to_string_lossy());
                let message = "has a name that is not UTF-8; rename it";
                self.refuse(&place, "invalid_path", message);
                continue;
            };
            if names::is_passed_over(name) {
                continue;
            }
            let path = format!("{prefix}{name}");
            self.entries = self.entries.saturating_add(1);
            if self.entries > MAX_ENTRIES {
                let message = format!(
                    "is beyond {MAX_ENTRIES} files and directories; remove those that the plugin does not need"
                );
                self.fill(Refusal::new(&path, "too_many_entries", message));
            } else if let Err(refusal) = names::check(&path) {
                self.wrong.push(refusal.into());
            } else {
                self.entry(dir, name, path, entry.file_type()?);
            }
            if self.is_full {
                return Ok(());
            }
        }
        Ok(())
    }

    fn entry(&mut self, dir: &Dir, name: &str, path: String, kind: cap_std::fs::FileType) {
        if kind.is_dir() {
            match dir.open_dir(name) {
                Ok(inner) => self.directory(&inner, &format!("{path}/")),
                Err(error) => self.wrong.push(unreadable(&path, &error)),
            }
        } else if kind.is_file() {
            match read_file(dir, name, Tally::most_bytes(&path)) {
                Ok(Some(content)) => self.file(path, content),
                Ok(None) => self.wrong.push(link(&path)),
                Err(error) => self.wrong.push(unreadable(&path, &error)),
            }
        } else {
            self.wrong.push(link(&path));
        }
    }

    fn file(&mut self, path: String, content: Vec<u8>) {
        match self.tally.add(&path, content.len()) {
            Ok(()) => self.files.push(PackageFile { path, content }),
            Err(refusal) => self.fill(refusal),
        }
    }

    fn refuse(&mut self, name: &str, code: &'static str, message: &str) {
        self.wrong.push(Refusal::new(name, code, message).into());
    }

    fn fill(&mut self, refusal: Refusal) {
        self.wrong.push(refusal.into());
        self.is_full = true;
    }
}

/// Reads a file, or one byte more than `most` of it, so that its size shows that it is too large; nothing if it has
/// become another kind of file.
fn read_file(dir: &Dir, name: &str, most: usize) -> io::Result<Option<Vec<u8>>> {
    let file: File = dir.open(name)?;
    if !file.metadata()?.is_file() {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    file.take(most as u64 + 1).read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

fn link(place: &str) -> Violation {
    let message = "is a link or a special file; a plugin consists of plain files and directories";
    Refusal::new(place, "link", message).into()
}

fn unreadable(place: &str, error: &io::Error) -> Violation {
    let message = format!("cannot be read: {error}");
    Refusal::new(place, "unreadable", message).into()
}
