//! Publishing changes of the world state (rule G306).

use std::time::Duration;

use agent_domain::event::{Hop, Source};
use agent_store::store::StateOwner;
use run_events::{Recorder, RunControl};
use serde_json::{Value, json};

use super::{
    actor::{Actor, SceneStop},
    replay::WORLD_UPDATED,
};
use crate::running_scenes::{Change, Draft};

/// The time for which changes are merged.
const MERGED: Duration = Duration::from_millis(50);

/// Returns the owner of the world state of a scene.
pub(super) fn world_state(control: &RunControl, recorder: &Recorder) -> StateOwner {
    let tenant = control.call_context().tenant();
    StateOwner::world(tenant, &recorder.run_id().to_string())
}

impl Actor {
    /// Returns the owner of the world state.
    pub(super) fn world_state(&self) -> StateOwner {
        world_state(&self.control, &self.recorder)
    }

    /// Notes that the world state was changed.
    pub(super) fn note_change(&mut self, change: Change) {
        let at = self.shared.clock.now().plus(MERGED);
        let (_, changes) = self.changes.get_or_insert((at, Vec::new()));
        changes.push(change);
    }

    /// Publishes the changes, when no other change is to be merged with them. Changes before a
    /// crash are found by their versions.
    pub(super) async fn announce_world(&mut self) -> Result<(), SceneStop> {
        let now = self.shared.clock.now();
        let is_due = self.changes.as_ref().is_some_and(|(at, _)| *at <= now);
        if !is_due && self.is_caught_up {
            return Ok(());
        }
        let owner = self.world_state();
        let previous = self.state.announced;
        let new = match self.shared.states.versions_after(&owner, previous).await {
            Ok(new) => new,
            Err(failure) => return self.look_again(failure, "the changes of a world state"),
        };
        self.is_caught_up = true;
        let changes = self.changes.take();
        let changes = changes.map_or_else(Vec::new, |(_, changes)| changes);
        let Some(newest) = new.first().map(|row| row.version) else {
            return Ok(());
        };
        let mut paths: Vec<String> = Vec::new();
        for row in new.iter().rev() {
            let changed: Vec<String> = serde_json::from_str(&row.paths).unwrap_or_default();
            paths.extend(changed);
        }
        paths.sort();
        paths.dedup();
        let payload: Value =
            json!({"paths": paths, "version": newest, "previous_version": previous});
        let (source, chain) = origin(&changes, &self.scene.id);
        let draft = Draft {
            chain,
            ..Draft::of(WORLD_UPDATED, payload, source)
        };
        self.publish_own(draft).await
    }
}

/// Returns the source of changes: the author of all of them, else the scene; and the longest chain
/// of their causes.
fn origin(changes: &[Change], scene_id: &str) -> (Source, Vec<Hop>) {
    let chain = changes.iter().map(|change| &change.chain);
    let chain = chain.max_by_key(|chain| chain.len()).cloned();
    let source = match changes.split_first() {
        Some((first, rest)) if rest.iter().all(|change| change.by == first.by) => first.by.clone(),
        _ => Source::scene(scene_id),
    };
    (source, chain.unwrap_or_default())
}
