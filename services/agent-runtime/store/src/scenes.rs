//! The scenes: those of a directory, and those that were put, which hide files of their ids.
//!
//! The directory is read for each request: scenes are few, and asked for when one is started.

use std::{collections::BTreeMap, io, path::PathBuf, sync::Arc};

use agent_domain::scene::{self, MAX_SCENE_BYTES, Scene};
use core_types::LoadDiagnostic;
use tokio::sync::Mutex;

use crate::{
    error::PutError,
    profiles::{json_files, read_text},
    revisions::{DocumentKind, Revisions},
    store::{AgentStore, NewRevision, RevisionRow, StoreError},
};

/// The scenes. Clone, cheap.
#[derive(Clone, Debug)]
pub struct Scenes {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    directory: PathBuf,
    store: AgentStore,
    revisions: Revisions,
    /// One change at a time: checking an etag and storing are one step. Held across the commit.
    changing: Mutex<()>,
}

/// A scene and where it comes from.
#[derive(Clone, Debug)]
pub struct KnownScene {
    /// The scene.
    pub scene: Scene,
    /// Whether it is a file.
    pub from_file: bool,
    /// The revision; none of a scene that was only checked.
    pub revision: Option<RevisionRow>,
}

impl KnownScene {
    fn new(scene: Scene, from_file: bool) -> Self {
        Self {
            scene,
            from_file,
            revision: None,
        }
    }

    /// Returns the number of the revision; zero for none.
    pub fn revision_number(&self) -> u64 {
        self.revision.as_ref().map_or(0, |row| row.number)
    }
}

/// Every scene.
#[derive(Debug, Default)]
pub struct All {
    /// The scenes by id.
    pub by_id: BTreeMap<String, KnownScene>,
    /// A finding for each file that was left out.
    pub left_out: Vec<LoadDiagnostic>,
}

impl Scenes {
    /// Takes the directory and the store.
    pub fn new(directory: PathBuf, store: AgentStore, revisions: Revisions) -> Self {
        Self {
            inner: Arc::new(Inner {
                directory,
                store,
                revisions,
                changing: Mutex::default(),
            }),
        }
    }

    /// Returns every scene.
    ///
    /// # Errors
    /// A store that does not work.
    pub async fn all(&self) -> Result<All, StoreError> {
        let directory = self.inner.directory.clone();
        let read = tokio::task::spawn_blocking(move || read_directory(&directory)).await;
        let read = read.map_err(io::Error::other).and_then(|read| read);
        let mut all = read.unwrap_or_else(|error| {
            tracing::debug!(%error, "the directory of scenes cannot be read; it has no scenes");
            All::default()
        });
        for text in self.inner.store.scenes().await? {
            match scene::read(&text) {
                Ok(scene) => {
                    let known = KnownScene::new(scene, false);
                    all.by_id.insert(known.scene.id.clone(), known);
                }
                Err(error) => tracing::error!(%error, "a stored scene is left out"),
            }
        }
        self.note_revisions(&mut all).await?;
        Ok(all)
    }

    /// Gives each scene its revision; one that came into force is a new one.
    async fn note_revisions(&self, all: &mut All) -> Result<(), StoreError> {
        let revisions = &self.inner.revisions;
        let mut newest = revisions.newest(DocumentKind::Scene).await?;
        let new = all.by_id.values().filter(|known| {
            let row = newest.get(&known.scene.id);
            !row.is_some_and(|row| {
                row.etag == known.scene.etag() && row.from_file == known.from_file
            })
        });
        let new = new.map(|known| NewRevision {
            id: known.scene.id.clone(),
            etag: known.scene.etag(),
            label: known.scene.version.clone(),
            from_file: known.from_file,
            text: known.scene.text.clone(),
        });
        newest.extend(revisions.note(DocumentKind::Scene, new.collect()).await?);
        for (id, known) in &mut all.by_id {
            known.revision = newest.remove(id);
        }
        Ok(())
    }

    /// Returns a scene at a revision; none if it is not kept.
    ///
    /// # Errors
    /// A store that does not work, or a revision that can no longer be read.
    pub async fn at(&self, id: &str, revision: u64) -> Result<Option<KnownScene>, StoreError> {
        let kept = self
            .inner
            .revisions
            .at(DocumentKind::Scene, id, Some(revision));
        let Some((row, text)) = kept.await? else {
            return Ok(None);
        };
        Ok(Some(KnownScene {
            scene: scene::read(&text).map_err(|_| StoreError::Damaged {
                table: "revisions",
                column: "text",
            })?,
            from_file: row.from_file,
            revision: Some(row),
        }))
    }

    /// Returns where the revisions are kept.
    pub fn revisions(&self) -> &Revisions {
        &self.inner.revisions
    }

    /// Returns a scene.
    ///
    /// # Errors
    /// A store that does not work.
    pub async fn get(&self, id: &str) -> Result<Option<KnownScene>, StoreError> {
        Ok(self.all().await?.by_id.remove(id))
    }

    /// Stores a scene, or checks it only.
    ///
    /// # Errors
    /// Everything that is wrong with it, or why it is not stored.
    pub async fn put(
        &self,
        text: &str,
        etag: &str,
        validate_only: bool,
    ) -> Result<KnownScene, PutError> {
        let scene = scene::read(text)?;
        let _one_at_a_time = self.inner.changing.lock().await;
        let current = self.get(&scene.id).await?;
        let current = current.map(|known| known.scene.etag()).unwrap_or_default();
        PutError::check_etag(etag, current)?;
        let checked = KnownScene::new(scene, false);
        if validate_only {
            return Ok(checked);
        }
        let id = checked.scene.id.clone();
        self.inner.store.put_scene(&id, text).await?;
        Ok(self.get(&id).await?.unwrap_or(checked))
    }

    /// Deletes a stored scene. Returns whether there was one.
    ///
    /// # Errors
    /// Another etag, or a store that does not work.
    pub async fn delete(&self, id: &str, etag: &str) -> Result<bool, PutError> {
        let _one_at_a_time = self.inner.changing.lock().await;
        let Some(known) = self.get(id).await? else {
            return Ok(false);
        };
        PutError::check_etag(etag, known.scene.etag())?;
        let deleted = self.inner.store.delete_scene(id).await?;
        if deleted && self.get(id).await?.is_none() {
            self.inner.revisions.forget(DocumentKind::Scene, id).await?;
        }
        Ok(deleted)
    }
}

/// Reads `*.json` of a directory. A file that cannot be read is left out.
fn read_directory(directory: &std::path::Path) -> io::Result<All> {
    let mut all = All::default();
    for path in json_files(directory)? {
        let shown = path.strip_prefix(directory).unwrap_or(&path);
        let shown = shown.display().to_string();
        let read = read_file(&path).and_then(|scene| match all.by_id.contains_key(&scene.id) {
            true => Err(format!("its id `{}` is taken by an earlier file", scene.id)),
            false => Ok(scene),
        });
        match read {
            Ok(scene) => {
                let known = KnownScene::new(scene, true);
                all.by_id.insert(known.scene.id.clone(), known);
            }
            Err(problem) => all.left_out.push(LoadDiagnostic::left_out(shown, &problem)),
        }
    }
    all.left_out.truncate(LoadDiagnostic::MAX);
    Ok(all)
}

fn read_file(path: &std::path::Path) -> Result<Scene, String> {
    let text = read_text(path, MAX_SCENE_BYTES)?;
    scene::read(&text).map_err(|error| error.to_string())
}
