//! The end of a scene (rule G109).

use std::time::Duration;

use contracts::tavern::common::v1::{SceneEnding, run_event::Kind};

use super::actor::{Actor, Stop};
use crate::domain::scene::Moment;

/// How long turns under way may take to end.
const CLOSING: Duration = Duration::from_secs(60);

impl Actor {
    /// Notes that the scene shall end; a second request changes nothing.
    pub(super) async fn request_end(&mut self, reason: String) -> Result<(), Stop> {
        if self.state.is_ending {
            return Ok(());
        }
        self.record(vec![Kind::SceneEnding(SceneEnding { reason })])
            .await
    }

    /// Returns true once the scene has ended: its turns first, then its workflows, that of the end last.
    pub(super) fn is_over(&mut self) -> bool {
        if !self.state.is_ending {
            return false;
        }
        let now = self.shared.clock.now();
        let close_by = *self.close_by.get_or_insert_with(|| now.plus(CLOSING));
        if !self.state.taken.is_empty() {
            if now >= close_by {
                // They are cancelled once; how they end is awaited all the same.
                self.close_by = Some(now.plus(CLOSING));
                self.cancel_turns();
            }
            return false;
        }
        if !self.state.workflows.is_empty() || self.is_reacting {
            return false;
        }
        if !self.state.has_closed {
            let scene = std::sync::Arc::clone(&self.scene);
            self.state.add_workflows(&scene, &Moment::End);
            return false;
        }
        true
    }

    fn cancel_turns(&self) {
        let runs = self.shared.runs.clone();
        for work in self.control.in_flight() {
            let runs = runs.clone();
            tokio::spawn(async move { runs.cancel(&work.id, "the scene ends").await });
        }
    }
}
