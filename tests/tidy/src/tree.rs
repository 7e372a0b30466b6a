//! The files that count: committed files and files that would be committed.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Directories that a tree without version control leaves out.
const NOT_SOURCE: [&str; 6] = [
    ".git",
    "target",
    "node_modules",
    "data",
    "__pycache__",
    ".venv",
];

/// Files that are not ours and stay as their authors wrote them.
const FOREIGN: [&str; 2] = ["proto/buf/", "proto/third_party/"];

/// The text files of a repository, by path from its root; a file that is not text has none.
#[derive(Debug, Clone, Default)]
pub struct Tree {
    files: BTreeMap<String, Option<String>>,
}

impl Tree {
    /// Reads the repository that holds this crate.
    ///
    /// # Errors
    ///
    /// Fails where files cannot be listed or read.
    pub fn of_this_repository() -> io::Result<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        Self::read(&root.canonicalize()?)
    }

    /// Reads a directory: the files that git would commit, or all files where there is no git.
    ///
    /// # Errors
    ///
    /// Fails where files cannot be listed or read.
    pub fn read(root: &Path) -> io::Result<Self> {
        let paths = match listed_by_git(root) {
            Some(paths) => paths,
            None => walked(root)?,
        };
        let mut files = BTreeMap::new();
        let is_ours = |path: &String| !FOREIGN.iter().any(|start| path.starts_with(start));
        for path in paths.into_iter().filter(is_ours) {
            match std::fs::read(root.join(&path)) {
                Ok(bytes) => files.insert(path, String::from_utf8(bytes).ok()),
                // Deleted but still listed, or a link that leads nowhere: not a file of the tree.
                Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                Err(error) => return Err(error),
            };
        }
        Ok(Self { files })
    }

    /// Creates a made-up tree.
    pub fn made_up<'a>(files: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let files = files
            .into_iter()
            .map(|(path, text)| (path.to_owned(), Some(text.to_owned())));
        Self {
            files: files.collect(),
        }
    }

    /// Returns all paths, in order.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.files.keys().map(String::as_str)
    }

    /// Returns the text files whose names end in one of the suffixes.
    pub fn texts<'a>(&'a self, suffixes: &'a [&str]) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.files.iter().filter_map(move |(path, text)| {
            let wanted = suffixes.iter().any(|suffix| path.ends_with(suffix));
            wanted.then_some((path.as_str(), text.as_deref()?))
        })
    }

    /// Returns the text of a file.
    pub fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path)?.as_deref()
    }

    /// Returns whether the path is a file or a directory with files.
    pub fn has(&self, path: &str) -> bool {
        let beneath = format!("{path}/");
        self.files.contains_key(path)
            || self
                .files
                .range(beneath.clone()..)
                .next()
                .is_some_and(|(next, _)| next.starts_with(&beneath))
    }

    /// Returns the names directly beneath a directory (the root being the empty string), in order.
    pub fn names_in(&self, directory: &str) -> Vec<String> {
        let prefix = if directory.is_empty() {
            String::new()
        } else {
            format!("{directory}/")
        };
        let mut names: Vec<String> = self
            .paths()
            .filter_map(|path| path.strip_prefix(&prefix))
            .filter_map(|rest| rest.split('/').next())
            .map(str::to_owned)
            .collect();
        names.dedup();
        names
    }

    /// Returns the directories that hold crates: the members of the workspace.
    pub fn crates(&self) -> Vec<String> {
        let manifests = self
            .paths()
            .filter_map(|path| path.strip_suffix("/Cargo.toml"));
        manifests
            .filter(|path| match path.split('/').collect::<Vec<_>>()[..] {
                [_, _] => true,
                // The parts of one service.
                ["services", _, _] => true,
                _ => false,
            })
            .map(str::to_owned)
            .collect()
    }
}

fn listed_by_git(root: &Path) -> Option<Vec<String>> {
    if !root.join(".git").exists() {
        return None;
    }
    let output = Command::new("git")
        .arg("-C")
        .arg(root)
        // A clone that another user owns is still this tree.
        .args([
            "-c",
            "safe.directory=*",
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ])
        .output()
        .ok()
        .filter(|output| output.status.success())?;
    let listed = String::from_utf8(output.stdout).ok()?;
    let mut paths: Vec<String> = listed
        .split('\0')
        .filter(|path| !path.is_empty())
        .map(str::to_owned)
        .collect();
    paths.dedup();
    Some(paths)
}

fn walked(root: &Path) -> io::Result<Vec<String>> {
    let mut paths = Vec::new();
    let mut directories = vec![PathBuf::new()];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(root.join(&directory))? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let kind = entry.file_type()?;
            if kind.is_dir() && !NOT_SOURCE.contains(&name.as_str()) {
                directories.push(directory.join(&name));
            } else if kind.is_file() {
                paths.push(directory.join(&name).to_string_lossy().into_owned());
            }
        }
    }
    Ok(paths)
}
