//! The end of a scene (rule G109).

use std::time::Duration;

use agent_domain::scene::WorkflowTrigger;
use contracts::tavern::common::v1::{SceneEnding, run_event::Kind};

use super::actor::{Actor, SceneStop};

/// The time for turns in progress to end.
const CLOSING: Duration = Duration::from_secs(60);

impl Actor {
    /// Notes that the scene shall end; a second request has no effect.
    pub(super) async fn request_end(&mut self, reason: String) -> Result<(), SceneStop> {
        if self.state.is_ending {
            return Ok(());
        }
        self.record(vec![Kind::SceneEnding(SceneEnding { reason })])
            .await
    }

    /// Returns true once the scene has ended: its turns first, then its workflows, the workflow of
    /// the end last. Turns that have not ended in time are cancelled.
    pub(super) async fn is_over(&mut self) -> bool {
        if !self.state.is_ending {
            return false;
        }
        let now = self.shared.clock.now();
        let close_by = *self.close_by.get_or_insert_with(|| now.plus(CLOSING));
        if !self.state.taken.is_empty() {
            if now >= close_by {
                self.cancel_all("the scene ends").await;
                self.close_by = Some(now.plus(CLOSING));
            }
            return false;
        }
        if !self.state.workflows.is_empty() {
            return false;
        }
        if !self.state.has_closed {
            self.state.add_workflows(&self.scene, &WorkflowTrigger::End);
        }
        self.state.has_closed
    }
}
