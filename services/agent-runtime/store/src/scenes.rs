//! The scenes.

use agent_domain::{
    document::DocumentError,
    scene::{self, MAX_SCENE_BYTES, Scene},
};
use documents::{Documents, Kind, Known};
use run_events::RunMeta;

/// The scenes: put by clients, or read from `*.json` of a directory.
pub type Scenes = Documents<SceneKind>;

/// A scene in force.
pub type KnownScene = Known<Scene>;

/// Scenes as documents. The directory is checked at each request: scenes are few, and read when one
/// is started.
#[derive(Clone, Copy, Debug)]
pub struct SceneKind;

impl Kind for SceneKind {
    type Document = Scene;
    type Invalid = DocumentError;

    const NAME: &'static str = "scene";
    const MAX_BYTES: usize = MAX_SCENE_BYTES;
    const REVISIONS: bool = true;
    const FOLLOWED: bool = false;

    fn id(scene: &Scene) -> &str {
        &scene.id
    }

    fn text(scene: &Scene) -> &str {
        &scene.text
    }

    fn etag(scene: &Scene) -> String {
        scene.etag()
    }

    fn label(scene: &Scene) -> &str {
        &scene.version
    }

    fn read(&self, _id: &str, text: &str) -> Result<Scene, DocumentError> {
        scene::read(text)
    }

    fn unreadable(&self, problem: String) -> DocumentError {
        DocumentError::whole(problem)
    }

    fn used(&self, id: &str, meta: &RunMeta) -> Vec<u64> {
        let own = crate::profiles::own_revision(id, meta, "scene_revision");
        own.into_iter().collect()
    }
}
