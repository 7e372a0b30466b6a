//! The runs directly below a run, which are paused and resumed with it (rule G811).
//!
//! Their state comes from the events that the run records of them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use contracts::tavern::common::v1::{RunEvent, run_event::Kind};
use core_types::RunId;
use tokio::sync::watch;

/// The reason for the pause of a run whose parent is paused.
pub(crate) const PAUSED_ABOVE: &str = "the run above it was paused";

/// The time that a caller waits for the runs below to follow a pause.
const FOLLOW_WAIT: Duration = Duration::from_secs(2);

/// Whether a run below is paused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pause {
    /// It is not paused.
    No,
    /// It is paused because its parent is.
    Above,
    /// A caller requested the pause, or the run cannot be paused.
    Own,
}

/// The runs directly below one run. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Children {
    parent: String,
    /// Locked for a look-up or a change, never across an await.
    open: Arc<Mutex<HashMap<String, Pause>>>,
    changed: watch::Sender<()>,
}

impl Children {
    pub(crate) fn new(parent: RunId) -> Self {
        Self {
            parent: parent.to_string(),
            open: Arc::default(),
            changed: watch::Sender::new(()),
        }
    }

    /// Updates the state of a run below from its event.
    pub(crate) fn note(&self, event: &RunEvent) {
        if event.parent_path.last() != Some(&self.parent) {
            return;
        }
        let pause = match &event.kind {
            Some(Kind::RunStarted(_) | Kind::RunResumed(_)) => Some(Pause::No),
            Some(Kind::RunPaused(paused)) if paused.reason == PAUSED_ABOVE => Some(Pause::Above),
            Some(Kind::RunPaused(_)) => Some(Pause::Own),
            Some(Kind::RunFinished(_)) => None,
            _ => return,
        };
        match pause {
            Some(pause) => self.open().insert(event.run_id.clone(), pause),
            None => self.open().remove(&event.run_id),
        };
        self.changed.send_replace(());
    }

    /// Waits until the runs below have followed a pause or its end, for a while.
    pub(crate) async fn have_followed(&self, is_paused: bool) {
        let mut changed = self.changed.subscribe();
        let followed =
            async { while !self.due(is_paused).is_empty() && changed.changed().await.is_ok() {} };
        // Runs that have not followed by then still do.
        let _ = tokio::time::timeout(FOLLOW_WAIT, followed).await;
    }

    /// Returns a receiver of changes of the runs below.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Records the answers of the runs below to requests to pause or to continue.
    pub(crate) fn asked(&self, pauses: impl IntoIterator<Item = (String, Pause)>) {
        let mut open = self.open();
        for (run_id, pause) in pauses {
            open.entry(run_id).and_modify(|known| *known = pause);
        }
        drop(open);
        self.changed.send_replace(());
    }

    /// Returns the runs that must still be paused or resumed.
    pub(crate) fn due(&self, is_paused: bool) -> Vec<String> {
        let wrong = match is_paused {
            true => Pause::No,
            false => Pause::Above,
        };
        let open = self.open();
        let due = open.iter().filter(|(_, pause)| **pause == wrong);
        due.map(|(run_id, _)| run_id.clone()).collect()
    }

    fn open(&self) -> MutexGuard<'_, HashMap<String, Pause>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use contracts::tavern::common::v1::{RunFinished, RunPaused, RunResumed, RunStarted};
    use core_types::{IdSource, RunOwner, SystemIds};

    use super::*;

    fn paused(reason: &str) -> Kind {
        let reason = reason.to_owned();
        Kind::RunPaused(RunPaused { reason })
    }

    /// Returns whether a run below is due in a paused and in a resumed run after these events of it.
    fn due_after(kinds: Vec<Kind>) -> (bool, bool) {
        let parent = SystemIds.next_run(RunOwner::Agent);
        let children = Children::new(parent);
        for kind in kinds {
            children.note(&RunEvent {
                run_id: "flow_1".to_owned(),
                parent_path: vec!["above".to_owned(), parent.to_string()],
                kind: Some(kind),
                ..RunEvent::default()
            });
        }
        (
            !children.due(true).is_empty(),
            !children.due(false).is_empty(),
        )
    }

    #[test]
    fn g811_a_run_below_follows_its_parent_unless_a_caller_paused_it() {
        let started = || Kind::RunStarted(RunStarted::default());
        let resumed = || Kind::RunResumed(RunResumed {});
        let ended = || Kind::RunFinished(RunFinished::default());
        assert_eq!(due_after(vec![started()]), (true, false));
        assert_eq!(due_after(vec![started(), paused("lunch")]), (false, false));
        let above = || paused(PAUSED_ABOVE);
        assert_eq!(due_after(vec![started(), above()]), (false, true));
        assert_eq!(
            due_after(vec![started(), above(), resumed()]),
            (true, false)
        );
        assert_eq!(due_after(vec![started(), above(), ended()]), (false, false));
    }

    #[test]
    fn g811_runs_further_below_are_left_to_those_above_them() {
        let children = Children::new(SystemIds.next_run(RunOwner::Agent));
        children.note(&RunEvent {
            run_id: "flow_2".to_owned(),
            parent_path: vec!["flow_1".to_owned()],
            kind: Some(Kind::RunStarted(RunStarted::default())),
            ..RunEvent::default()
        });
        assert!(children.due(true).is_empty());
    }
}
