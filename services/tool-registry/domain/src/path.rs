//! Paths as models write them, beneath a conversation's workspace.

use call_outcome::{Category, Failure};

/// The longest path, in bytes.
pub const MAX_PATH_BYTES: usize = 1_024;
/// The longest name of a file or directory, in bytes.
pub const MAX_NAME_BYTES: usize = 255;
/// The deepest directory.
pub const MAX_DEPTH: usize = 32;

/// A path beneath a workspace: plain names only, never empty parts, `.` or `..`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WorkspacePath {
    parts: Vec<String>,
}

impl WorkspacePath {
    /// Reads a path of a file. A leading `/` means the workspace itself.
    ///
    /// # Errors
    /// The failure names the path, its problem and the remedy.
    pub fn file(written: &str) -> Result<Self, Failure> {
        let path = Self::directory(written)?;
        if path.parts.is_empty() {
            return Err(invalid(
                written,
                "names no file",
                "write it like notes/today.md",
            ));
        }
        Ok(path)
    }

    /// Reads a path of a file or directory; empty text and `/` are the workspace itself.
    ///
    /// # Errors
    /// As [`WorkspacePath::file`].
    pub fn directory(written: &str) -> Result<Self, Failure> {
        if written.len() > MAX_PATH_BYTES {
            let problem = format!("has {} bytes", written.len());
            return Err(invalid(
                written,
                &problem,
                &format!("use at most {MAX_PATH_BYTES}"),
            ));
        }
        if let Some(character) = written.chars().find(|c| c.is_control()) {
            return Err(invalid(
                written,
                &format!("contains {character:?}"),
                "remove it",
            ));
        }
        let mut parts = Vec::new();
        for part in written.trim().split('/') {
            match part {
                "" | "." => {}
                ".." => return Err(outside(written)),
                name if name.len() > MAX_NAME_BYTES => {
                    let problem = format!("has a name of {} bytes", name.len());
                    return Err(invalid(
                        written,
                        &problem,
                        &format!("use at most {MAX_NAME_BYTES}"),
                    ));
                }
                name => parts.push(name.to_owned()),
            }
        }
        if parts.len() > MAX_DEPTH {
            let problem = format!("is {} directories deep", parts.len());
            return Err(invalid(
                written,
                &problem,
                &format!("use at most {MAX_DEPTH}"),
            ));
        }
        Ok(Self { parts })
    }

    /// Reads the path of a file that exists elsewhere, and must be written as it is here.
    ///
    /// # Errors
    /// As [`WorkspacePath::file`], also for a path that is written otherwise.
    pub fn exact(written: &str) -> Result<Self, Failure> {
        let path = Self::file(written)?;
        match path.to_string() == written {
            true => Ok(path),
            false => Err(invalid(
                written,
                "has a name with blanks at an end",
                "take them away",
            )),
        }
    }

    /// Returns the paths of the directories above the file, and its own, from the top.
    pub fn with_directories(&self) -> impl Iterator<Item = String> {
        (1..=self.parts.len()).map(|levels| self.parts[..levels].join("/"))
    }

    /// Returns the path of a file beside this one, with words in the name: `a/b (words).csv`. Where that is too long for
    /// a path, the file is in the workspace itself.
    #[must_use]
    pub fn with_suffix(&self, words: &str) -> Self {
        /// The longest end of a name that is kept as its extension, in bytes.
        const LONGEST_EXTENSION: usize = 32;
        let mut parts = self.parts.clone();
        if let Some(name) = parts.last_mut() {
            let is_extension = |dot: &usize| *dot > 0 && name.len() - dot <= LONGEST_EXTENSION;
            let dot = name.rfind('.').filter(is_extension).unwrap_or(name.len());
            let (stem, extension) = name.split_at(dot);
            let added = words.len() + " ()".len() + extension.len();
            let stem = &stem[..stem.floor_char_boundary(MAX_NAME_BYTES.saturating_sub(added))];
            *name = format!("{stem} ({words}){extension}");
        }
        if parts.join("/").len() > MAX_PATH_BYTES {
            parts.drain(..parts.len() - 1);
        }
        Self { parts }
    }

    /// Returns the path without a leading `/`; `.` for the workspace itself.
    pub fn relative(&self) -> String {
        if self.parts.is_empty() {
            ".".to_owned()
        } else {
            self.parts.join("/")
        }
    }

    /// Returns the path of the directory that holds the file and the file's name.
    pub fn parent_and_name(&self) -> Option<(String, &str)> {
        let (name, parents) = self.parts.split_last()?;
        Some((parents.join("/"), name))
    }
}

impl std::fmt::Display for WorkspacePath {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.parts.join("/"))
    }
}

/// Makes the failure of a path that leaves the workspace.
pub fn outside(written: &str) -> Failure {
    Failure::new(
        Category::Policy,
        "path_outside_workspace",
        format!(
            "the path '{}' leads out of the conversation's workspace; write it relative to the \
             workspace, without '..' and without links that leave it",
            short(written)
        ),
    )
}

fn invalid(written: &str, problem: &str, remedy: &str) -> Failure {
    let message = format!("the path '{}' {problem}; {remedy}", short(written));
    Failure::new(Category::Validation, "invalid_path", message)
}

fn short(written: &str) -> String {
    written
        .chars()
        .filter(|c| !core_types::text::is_hidden(*c))
        .take(120)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_beneath_the_workspace_however_they_are_written() {
        for (written, relative) in [
            ("/logs/today.log", "logs/today.log"),
            ("logs//today.log", "logs/today.log"),
            ("./a/./b", "a/b"),
            (" src/main.ts\t", "src/main.ts"),
            ("/", "."),
            ("文件/一.md", "文件/一.md"),
            ("...", "..."),
        ] {
            let path = WorkspacePath::directory(written.trim_end_matches('\t')).unwrap();
            assert_eq!(path.relative(), relative);
        }
    }

    #[test]
    fn hostile_paths_are_refused_with_a_typed_failure() {
        let long_name = "x".repeat(256);
        let deep = "a/".repeat(33);
        let long = "a/".repeat(600);
        for (written, code) in [
            ("..", "path_outside_workspace"),
            ("../x", "path_outside_workspace"),
            ("a/../../x", "path_outside_workspace"),
            ("a/..", "path_outside_workspace"),
            ("/../etc/passwd", "path_outside_workspace"),
            ("a\0b", "invalid_path"),
            ("a\nb", "invalid_path"),
            ("", "invalid_path"),
            ("/", "invalid_path"),
            (long_name.as_str(), "invalid_path"),
            (deep.as_str(), "invalid_path"),
            (long.as_str(), "invalid_path"),
        ] {
            assert_eq!(
                WorkspacePath::file(written).unwrap_err().code,
                code,
                "{written:?}"
            );
        }
    }
}
