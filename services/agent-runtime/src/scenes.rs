//! The scenes: those of a directory, and those that were put, which hide files of their ids.
//!
//! The directory is read for each request: scenes are few, and asked for when one is started.

use std::{collections::BTreeMap, fs, io, path::PathBuf, sync::Arc};

use core_types::LoadDiagnostic;
use tokio::sync::Mutex;

use crate::{
    domain::{
        document::DocumentError,
        scene::{self, MAX_SCENE_BYTES, Scene},
    },
    profiles::read_text,
    store::{AgentStore, StoreError},
};

/// The most files that are looked at.
const MAX_FILES: usize = 1_000;

/// The scenes. Clone, cheap.
#[derive(Clone, Debug)]
pub struct Scenes {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    directory: PathBuf,
    store: AgentStore,
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
}

/// Every scene.
#[derive(Debug, Default)]
pub struct All {
    /// The scenes by id.
    pub by_id: BTreeMap<String, KnownScene>,
    /// A finding for each file that was left out.
    pub left_out: Vec<LoadDiagnostic>,
}

/// Why a scene is not stored.
#[derive(Debug, thiserror::Error)]
pub enum PutError {
    /// The text is no valid scene.
    #[error(transparent)]
    Invalid(#[from] DocumentError),
    /// The present scene has another etag; empty if there is none.
    #[error("the etag is not the current one")]
    EtagMismatch {
        /// The present etag.
        current: String,
    },
    /// The store does not work.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Scenes {
    /// Takes the directory and the store.
    pub fn new(directory: PathBuf, store: AgentStore) -> Self {
        Self {
            inner: Arc::new(Inner {
                directory,
                store,
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
                    let known = KnownScene {
                        scene,
                        from_file: false,
                    };
                    all.by_id.insert(known.scene.id.clone(), known);
                }
                Err(error) => tracing::error!(%error, "a stored scene is left out"),
            }
        }
        Ok(all)
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
        if !etag.is_empty() && etag != current {
            return Err(PutError::EtagMismatch { current });
        }
        if !validate_only {
            self.inner.store.put_scene(&scene.id, text).await?;
        }
        Ok(KnownScene {
            scene,
            from_file: false,
        })
    }

    /// Deletes a stored scene. Returns whether there was one.
    ///
    /// # Errors
    /// A store that does not work.
    pub async fn delete(&self, id: &str) -> Result<bool, StoreError> {
        self.inner.store.delete_scene(id).await
    }
}

/// Reads `*.json` of a directory. A file that cannot be read is left out.
fn read_directory(directory: &std::path::Path) -> io::Result<All> {
    let mut paths: Vec<PathBuf> = Vec::new();
    for entry in fs::read_dir(directory)?.take(MAX_FILES) {
        let path = entry?.path();
        let is_json = path
            .extension()
            .is_some_and(|extension| extension == "json");
        if is_json && path.is_file() {
            paths.push(path);
        }
    }
    paths.sort();
    let mut all = All::default();
    for path in paths {
        let shown = path.strip_prefix(directory).unwrap_or(&path);
        let shown = shown.display().to_string();
        let read = read_file(&path).and_then(|scene| match all.by_id.contains_key(&scene.id) {
            true => Err(format!("its id `{}` is taken by an earlier file", scene.id)),
            false => Ok(scene),
        });
        match read {
            Ok(scene) => {
                let known = KnownScene {
                    scene,
                    from_file: true,
                };
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
