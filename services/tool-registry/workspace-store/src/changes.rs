//! The changes of code, brought together with those that were made meanwhile.

use std::collections::{BTreeSet, HashMap};

use call_outcome::Failure;
use core_types::ContentDigest;
use server_files::FileChange;
use tool_domain::path::WorkspacePath;

use crate::{File, Staged, Workspace, copy::put, digests::Digests, tree::Tree};

/// A change to a file.
#[derive(Debug)]
pub struct Change {
    /// The file.
    pub path: WorkspacePath,
    /// The content that was changed; `None` if there was no file.
    pub base: Option<ContentDigest>,
    /// The content; `None` if the file was removed.
    pub content: Option<Staged>,
}

/// A change as it was made.
#[derive(Debug)]
pub struct Made {
    /// The path of the changed file.
    pub path: String,
    /// The kind.
    pub kind: MadeKind,
    /// The file that the change left: the new content, or in a conflict the content beside it.
    pub file: Option<File>,
}

/// The kind of a change.
#[derive(Clone, Debug, PartialEq)]
pub enum MadeKind {
    /// The file is new.
    Created,
    /// It has other content.
    Changed,
    /// It is gone.
    Removed,
    /// It was changed meanwhile, and has the content of that change. The content of this one is beside it, under the
    /// path of [`Made::file`], unless this one removed the file, or the other did.
    Conflict,
    /// No workspace can hold it.
    Refused(Failure),
}

impl Workspace {
    /// Makes changes to files, all of them or none. A file that was changed meanwhile stays as it is, and the content of
    /// the change comes to be beside it, under a name with `origin`. Returns the changes that were made.
    ///
    /// # Errors
    /// The files do not fit into the workspace; then nothing has changed. Or the disk fails.
    pub fn make(&self, changes: Vec<Change>, origin: &str) -> Result<Vec<Made>, Failure> {
        if changes.is_empty() {
            return Ok(Vec::new());
        }
        for change in &changes {
            change
                .content
                .as_ref()
                .map_or(Ok(()), |staged| self.store(staged))?;
        }
        let mut digests = self.current()?;
        let files = self.described(&mut digests)?;
        let mut present: HashMap<String, ContentDigest> = files
            .into_iter()
            .map(|file| (file.path, file.digest))
            .collect();
        let mut tree = self.tree()?;
        let mut plan = Vec::new();
        // Removals make room.
        let (removals, contents): (Vec<Change>, Vec<Change>) = changes
            .into_iter()
            .partition(|change| change.content.is_none());
        for change in removals.into_iter().chain(contents) {
            let ours = present.get(&change.path.to_string()).copied();
            let step = self.step(change, ours, &mut tree, origin)?;
            if let Some(step) = step {
                if let Step::Put { path, staged, .. } = &step {
                    present.insert(path.to_string(), staged.digest());
                }
                plan.push(step);
            }
        }
        let made = self.carry_out(plan, &mut digests)?;
        drop(digests);
        self.notify();
        Ok(made)
    }

    /// Decides about one change, and takes its room.
    fn step(
        &self,
        change: Change,
        ours: Option<ContentDigest>,
        tree: &mut Tree,
        origin: &str,
    ) -> Result<Option<Step>, Failure> {
        let Change {
            path,
            base,
            content,
        } = change;
        let of = path.to_string();
        let conflict = |path| Some(Step::Report(path, MadeKind::Conflict));
        let Some(staged) = content else {
            return Ok(match ours {
                None => None,
                Some(_) if ours == base => {
                    tree.remove(&of);
                    Some(Step::Remove(path))
                }
                Some(_) => conflict(of),
            });
        };
        let (path, kind) = match ours {
            Some(ours) if ours == staged.digest() => return Ok(None),
            None if base.is_none() => (path, MadeKind::Created),
            Some(_) if ours == base => (path, MadeKind::Changed),
            // It was removed meanwhile; its content is not lost.
            None => (path, MadeKind::Conflict),
            Some(_) => (beside(&path, origin, tree), MadeKind::Conflict),
        };
        match tree.put(&path, staged.bytes(), self.limits()) {
            Ok(()) => Ok(Some(Step::Put {
                of,
                path,
                staged,
                kind,
            })),
            Err(failure) if matches!(failure.code.as_str(), "workspace_full" | "too_large") => {
                Err(failure)
            }
            Err(failure) => Ok(Some(Step::Report(of, MadeKind::Refused(failure)))),
        }
    }

    fn carry_out(&self, plan: Vec<Step>, digests: &mut Digests) -> Result<Vec<Made>, Failure> {
        let mut directories = BTreeSet::new();
        let mut touched = |path: &WorkspacePath| {
            let (parent, _) = path.parent_and_name().unwrap_or_default();
            directories.insert(parent);
        };
        let (mut made, mut changes) = (Vec::new(), Vec::new());
        let version = digests.version.take();
        for step in plan {
            made.push(match step {
                Step::Report(path, kind) => Made {
                    path,
                    kind,
                    file: None,
                },
                Step::Remove(path) => {
                    self.unlink(&path)?;
                    touched(&path);
                    changes.push(FileChange::Remove(path.to_string()));
                    Made {
                        path: path.to_string(),
                        kind: MadeKind::Removed,
                        file: None,
                    }
                }
                Step::Put {
                    of,
                    path,
                    staged,
                    kind,
                } => match self.place(digests, &path, staged) {
                    Ok(file) => {
                        touched(&path);
                        changes.push(put(&file));
                        Made {
                            path: of,
                            kind,
                            file: Some(file),
                        }
                    }
                    Err(failure) if failure.code == "storage_failed" => return Err(failure),
                    // A directory has the name, or a file that of a directory above.
                    Err(failure) => Made {
                        path: of,
                        kind: MadeKind::Refused(failure),
                        file: None,
                    },
                },
            });
        }
        for directory in directories {
            self.sync(&directory)?;
        }
        self.commit(digests, version, changes)?;
        made.sort_by(|one, other| one.path.cmp(&other.path));
        Ok(made)
    }
}

/// A decided change.
enum Step {
    /// The content of the change to `of` comes to `path`.
    Put {
        of: String,
        path: WorkspacePath,
        staged: Staged,
        kind: MadeKind,
    },
    Remove(WorkspacePath),
    Report(String, MadeKind),
}

/// Returns a free path beside a file: `report (cell 4).csv` for `report.csv`.
fn beside(path: &WorkspacePath, origin: &str, tree: &Tree) -> WorkspacePath {
    let free = (1..).map(|number| match number {
        1 => path.with_suffix(origin),
        _ => path.with_suffix(&format!("{origin}, {number}")),
    });
    let mut free = free.filter(|path| !tree.has(&path.to_string()));
    free.next()
        .expect("a workspace has fewer entries than there are numbers")
}
