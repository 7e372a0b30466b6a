//! Reading a plugin's directory through directory handles.

use call_outcome::Violation;
use std::io::{self, Read};

use cap_std::fs::Dir;

use settings::text_file;
use tool_domain::{
    manifest::{self, Manifest},
    package::{self, MAX_BYTES, MAX_DEPTH, MAX_FILES, PackageFile},
};

const MANIFEST: &str = "plugin.yaml";
/// Front-end assets; they are served to browsers and never reach a script.
const WEB: [&str; 2] = ["web", "dist"];

/// Opens a plugin's directory; nothing if it is no plugin.
pub(super) fn open_plugin(root: &Dir, name: &str) -> Result<Option<Dir>, Vec<Violation>> {
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

/// Reads `plugin.yaml`.
pub(super) fn manifest(dir: &Dir) -> Result<Manifest, Vec<Violation>> {
    let metadata = dir
        .symlink_metadata(MANIFEST)
        .map_err(|error| unreadable(MANIFEST, &error))?;
    if !metadata.is_file() {
        return Err(vec![link(MANIFEST)]);
    }
    let bytes = read_file(dir, MANIFEST, manifest::MAX_MANIFEST_BYTES)
        .map_err(|error| unreadable(MANIFEST, &error))?;
    let text = text_file::decode(bytes).map_err(|error| {
        let code = "malformed_yaml";
        vec![Violation::new(MANIFEST, code, error.to_string())]
    })?;
    manifest::read(&text).map_err(|mut violations| {
        for violation in &mut violations {
            violation.pointer.insert_str(0, MANIFEST);
        }
        violations
    })
}

/// Reads every file that scripts may see.
pub(super) fn files(dir: &Dir) -> Result<Vec<PackageFile>, Vec<Violation>> {
    let mut reader = Reader {
        files: Vec::new(),
        bytes: 0,
        wrong: Vec::new(),
    };
    reader.directory(dir, "", 0);
    let Reader {
        files, mut wrong, ..
    } = reader;
    if let Some((first, second)) = package::case_twins(files.iter().map(|file| file.path.as_str()))
    {
        let message = format!("'{first}' and '{second}' differ in letter case only; rename one");
        wrong.push(Violation::new(second, "case_twins", message));
    }
    if wrong.is_empty() {
        Ok(files)
    } else {
        Err(wrong)
    }
}

struct Reader {
    files: Vec<PackageFile>,
    bytes: usize,
    wrong: Vec<Violation>,
}

impl Reader {
    fn directory(&mut self, dir: &Dir, prefix: &str, depth: usize) {
        if let Err(error) = self.entries(dir, prefix, depth) {
            self.wrong.extend(unreadable(prefix, &error));
        }
    }

    fn entries(&mut self, dir: &Dir, prefix: &str, depth: usize) -> io::Result<()> {
        for entry in dir.entries()? {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else {
                self.add(
                    prefix,
                    "invalid_path",
                    "has an entry whose name is not UTF-8; rename it",
                );
                continue;
            };
            let passed_over = name.starts_with('.') || (depth == 0 && WEB.contains(&name.as_str()));
            if passed_over {
                continue;
            }
            let path = if prefix.is_empty() {
                name.clone()
            } else {
                format!("{prefix}/{name}")
            };
            if let Err(problem) = package::relative_path(&path) {
                self.add(&path, "invalid_path", &problem);
                continue;
            }
            let kind = entry.file_type()?;
            if kind.is_dir() && depth + 1 < MAX_DEPTH {
                self.directory(&dir.open_dir(&name)?, &path, depth + 1);
            } else if kind.is_file() {
                self.file(dir, &name, path)?;
            } else {
                self.wrong.push(link(&path));
            }
            if self.files.len() > MAX_FILES || self.bytes > MAX_BYTES {
                let message = format!(
                    "the plugin has more than {MAX_FILES} files or {MAX_BYTES} bytes, front-end assets in \
                     web/ and dist/ aside; remove what its scripts do not need"
                );
                self.wrong.push(Violation::new("", "too_large", message));
                return Ok(());
            }
        }
        Ok(())
    }

    fn file(&mut self, dir: &Dir, name: &str, path: String) -> io::Result<()> {
        let content = read_file(dir, name, MAX_BYTES)?;
        self.bytes += content.len();
        self.files.push(PackageFile { path, content });
        Ok(())
    }

    fn add(&mut self, place: &str, code: &'static str, message: &str) {
        self.wrong.push(Violation::new(place, code, message));
    }
}

/// Reads a file, or one byte more than `limit` of it, so that the caller sees that it is too large.
fn read_file(dir: &Dir, name: &str, limit: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    dir.open(name)?
        .take(limit as u64 + 1)
        .read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn link(place: &str) -> Violation {
    let message = "is a link or a special file; a plugin consists of plain files and directories";
    Violation::new(place, "link", message)
}

fn unreadable(place: &str, error: &io::Error) -> Vec<Violation> {
    vec![Violation::new(
        place,
        "unreadable",
        format!("cannot be read: {error}"),
    )]
}
