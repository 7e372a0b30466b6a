//! Failures that the settings of their nodes handled, anywhere in a run (rule W8).

use std::sync::{Arc, Mutex, PoisonError};

use contracts::tavern::common::v1 as common;

use workflow_domain::limits::MAX_HANDLED;

/// The first handled failures of a run, in order. Clones share the list.
#[derive(Clone, Debug, Default)]
pub(crate) struct HandledFailures {
    /// Locked for a lookup or an addition, never across an await.
    listed: Arc<Mutex<Vec<common::NodeFailure>>>,
}

impl HandledFailures {
    /// Adds the handled failures of a node's end: its own, and the ones inside it.
    pub(super) fn note(&self, finished: &common::NodeFinished) {
        let own = (finished.state() == common::NodeState::Handled).then(|| common::NodeFailure {
            node_id: finished.node_id.clone(),
            error: finished.error.clone(),
        });
        if own.is_none() && finished.handled_failures.is_empty() {
            return;
        }
        let mut listed = self.listed.lock().unwrap_or_else(PoisonError::into_inner);
        let room = MAX_HANDLED.saturating_sub(listed.len());
        let inside = finished.handled_failures.iter().cloned();
        listed.extend(inside.chain(own).take(room));
    }

    /// Returns the list.
    pub(super) fn list(&self) -> Vec<common::NodeFailure> {
        let listed = self.listed.lock().unwrap_or_else(PoisonError::into_inner);
        listed.clone()
    }
}
