//! The files that a program works on: those of a conversation, those that a plugin keeps, both or none.

use call_outcome::{Category, Failure};
use contracts::tavern::sandbox::v1::{Workspace as Wanted, WorkspaceChanges};
use tonic::Status;
use tool_domain::path::WorkspacePath;

use super::{CodeFiles, LeftFiles};

/// The most files and directories of all parts together, as the sandbox takes them.
const MAX_ENTRIES: u32 = 20_000;

/// The files that a program works on.
#[derive(Debug, Default)]
pub(in crate::dispatch) struct ProgramFiles {
    parts: Vec<Part>,
}

/// Files in one directory.
#[derive(Debug)]
struct Part {
    /// The directory; empty for the working directory itself, where it is the only part.
    directory: &'static str,
    /// The files; none for an empty directory, of which nothing stays.
    files: Option<CodeFiles>,
    may_write: bool,
}

impl From<CodeFiles> for ProgramFiles {
    /// The program works on the files in its working directory.
    fn from(files: CodeFiles) -> Self {
        let mut all = Self::default();
        all.add("", Some(files), true);
        all
    }
}

impl ProgramFiles {
    /// Adds files in a directory of their own.
    pub(in crate::dispatch) fn add(
        &mut self,
        directory: &'static str,
        files: Option<CodeFiles>,
        may_write: bool,
    ) {
        self.parts.push(Part {
            directory,
            files,
            may_write,
        });
    }

    /// The name under which the sandbox keeps the content of the files; empty without files.
    pub(super) fn caller(&self) -> &str {
        let mut files = self.parts.iter().filter_map(|part| part.files.as_ref());
        files.next().map_or("", |files| files.caller())
    }

    /// Returns the files, as the sandbox is to have them; `None` for no files.
    ///
    /// # Errors
    /// The disk fails.
    pub(super) async fn wanted(&self) -> Result<Option<Wanted>, Failure> {
        let mut all: Option<Wanted> = None;
        for part in &self.parts {
            let mut wanted = match &part.files {
                Some(files) => files.wanted().await?,
                None => Wanted::default(),
            };
            if part.directory.is_empty() {
                return Ok(Some(wanted));
            }
            for file in &mut wanted.files {
                file.path = format!("{}/{}", part.directory, file.path);
            }
            // With its directory a path can be longer than the sandbox takes; such a file stays as it is.
            wanted
                .files
                .retain(|file| WorkspacePath::exact(&file.path).is_ok());
            let all = all.get_or_insert_default();
            all.directories.push(part.directory.to_owned());
            all.files.append(&mut wanted.files);
            // The limits of each part hold when its changes are taken.
            all.max_entries = Some(MAX_ENTRIES);
        }
        Ok(all)
    }

    /// Sends the sandbox the content that it lacks.
    ///
    /// # Errors
    /// The sandbox, or the disk, fails.
    pub(super) async fn send_missing(&self, wanted: &Wanted) -> Result<(), Status> {
        for part in &self.parts {
            if let Some(files) = &part.files {
                let mine = Wanted {
                    files: part.own(&wanted.files, |file| &mut file.path),
                    ..Wanted::default()
                };
                files.send_missing(&mine).await?;
            }
        }
        Ok(())
    }

    /// Takes the changes of a program. `origin` names it where both sides changed a file.
    ///
    /// # Errors
    /// The changes of a part do not fit, and none of it was taken; or the sandbox, or the disk, fails.
    pub(in crate::dispatch) async fn take(
        &self,
        changes: WorkspaceChanges,
        origin: &str,
    ) -> Result<LeftFiles, Failure> {
        let mut all = LeftFiles {
            refused_count: changes.refused_count,
            ..LeftFiles::default()
        };
        for part in self.parts.iter().filter(|part| part.may_write) {
            let Some(files) = &part.files else {
                continue;
            };
            let mine = WorkspaceChanges {
                changed: part.own(&changes.changed, |file| &mut file.path),
                removed: part.own(&changes.removed, |file| &mut file.path),
                refused: part.own(&changes.refused, |file| &mut file.path),
                refused_count: 0,
                overflow: changes.overflow.clone(),
            };
            let taken = files.take(mine, origin).await;
            let left = taken.map_err(|failure| part.named(failure))?;
            all.made.extend(left.made);
            all.refused.extend(left.refused);
            all.refused_count += left.refused_count;
        }
        Ok(all)
    }
}

impl Part {
    /// Names the files of a plugin where these have no room for a change.
    fn named(&self, failure: Failure) -> Failure {
        let is_full = matches!(failure.code.as_str(), "workspace_full" | "too_large");
        match &self.files {
            Some(files) if is_full && self.directory == plugin_package::STORAGE_DIRECTORY => {
                let limits = files.workspace().limits();
                let message = format!(
                    "the files that the plugin keeps have no room, and the call left them as they were: they may have \
                     {} bytes and {} entries",
                    limits.total_bytes, limits.entries
                );
                Failure::new(Category::Limit, "storage_full", message)
            }
            _ => failure,
        }
    }

    /// Returns the things of this part, with their paths in it.
    fn own<T: Clone>(&self, all: &[T], path: impl Fn(&mut T) -> &mut String) -> Vec<T> {
        let mine = all.iter().filter_map(|each| {
            let mut each = each.clone();
            let path = path(&mut each);
            if !self.directory.is_empty() {
                let below = path.strip_prefix(self.directory)?.strip_prefix('/')?;
                *path = below.to_owned();
            }
            Some(each)
        });
        mine.collect()
    }
}
