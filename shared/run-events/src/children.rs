//! The runs directly below a run, which are paused and resumed with it (rule G811).
//!
//! What is known of them comes from the events that the run records of them. While the run is paused, each
//! is asked to pause; when it is resumed, those continue that were paused because of it, and not those that
//! a caller paused.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use contracts::tavern::common::v1::{RunEvent, run_event::Kind};
use contracts::tavern::run::v1::{PauseRunRequest, ResumeRunRequest};
use core_types::{RunId, RunOwner};
use futures::future::join_all;
use tokio::sync::watch;
use tonic::{Code, Status};

use crate::control::RunControl;
use crate::runs::Runs;

/// Why a run is paused whose parent is.
const PAUSED_ABOVE: &str = "the run above it was paused";

/// How long a run that could not be reached is left alone before it is asked again.
const AGAIN: Duration = Duration::from_millis(500);

/// How long a caller waits for the runs below to follow a pause.
const FOLLOW_WAIT: Duration = Duration::from_secs(2);

/// Whether a run below is paused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pause {
    /// It continues.
    No,
    /// Because its parent is.
    Above,
    /// A caller asked for it, or it cannot be paused.
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

    /// Takes an event of a run below.
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

    /// Pauses and resumes the runs below with the run, for ever.
    pub(crate) async fn follow(&self, runs: Runs, control: RunControl) {
        let (mut changed, mut paused) = (self.changed.subscribe(), control.pauses());
        loop {
            let is_paused = *paused.borrow_and_update();
            changed.borrow_and_update();
            let due = self.due(is_paused);
            let runs = &runs;
            let asked = due.iter().map(|run_id| async move {
                let asked = ask(runs, run_id, is_paused).await;
                (run_id, asked)
            });
            let mut is_left = false;
            for (run_id, asked) in join_all(asked).await {
                let pause = match asked {
                    Ok(()) if is_paused => Pause::Above,
                    Ok(()) => Pause::No,
                    Err(status) if is_final(&status) => Pause::Own,
                    Err(status) => {
                        let error = status.message();
                        tracing::warn!(run_id, error, "a run below cannot follow a pause yet");
                        is_left = true;
                        continue;
                    }
                };
                self.open()
                    .entry(run_id.clone())
                    .and_modify(|known| *known = pause);
            }
            if !due.is_empty() {
                self.changed.send_replace(());
            }
            tokio::select! {
                // They fail when the senders are gone, and this task holds them.
                _ = changed.changed() => {}
                _ = paused.changed() => {}
                () = tokio::time::sleep(AGAIN), if is_left => {}
            }
        }
    }

    /// Waits until the runs below have followed a pause or its end, for a while.
    pub(crate) async fn have_followed(&self, is_paused: bool) {
        let mut changed = self.changed.subscribe();
        let followed =
            async { while !self.due(is_paused).is_empty() && changed.changed().await.is_ok() {} };
        // What has not followed by then still does.
        let _ = tokio::time::timeout(FOLLOW_WAIT, followed).await;
    }

    /// Returns the runs that are not as they should be.
    fn due(&self, is_paused: bool) -> Vec<String> {
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

/// Pauses or resumes a run at the service that owns it.
async fn ask(runs: &Runs, run_id: &str, is_paused: bool) -> Result<(), Status> {
    let run: RunId = run_id
        .parse()
        .map_err(|_| Status::not_found("the run has no id of a run"))?;
    let is_own = run.owner().service() == runs.store().owner.service();
    match (is_own, runs.other_owner()) {
        (true, _) if is_paused => Box::pin(runs.pause(run_id, PAUSED_ABOVE)).await.map(drop)?,
        (true, _) => Box::pin(runs.resume(run_id)).await.map(drop)?,
        (false, Some(_)) if run.owner() == RunOwner::Registry => {
            return Err(Status::failed_precondition("calls of a text cannot pause"));
        }
        (false, Some(mut other)) if is_paused => {
            let request = PauseRunRequest {
                run_id: run_id.to_owned(),
                reason: PAUSED_ABOVE.to_owned(),
            };
            other.pause_run(request).await.map(drop)?;
        }
        (false, Some(mut other)) => {
            let request = ResumeRunRequest {
                run_id: run_id.to_owned(),
            };
            other.resume_run(request).await.map(drop)?;
        }
        (false, None) => return Err(Status::failed_precondition("its owner is not known here")),
    }
    Ok(())
}

/// Whether asking again would change nothing: the run has ended, or cannot be paused.
fn is_final(status: &Status) -> bool {
    matches!(
        status.code(),
        Code::NotFound | Code::FailedPrecondition | Code::InvalidArgument | Code::Unimplemented
    )
}

#[cfg(test)]
mod tests {
    use contracts::tavern::common::v1::{RunFinished, RunPaused, RunResumed, RunStarted};
    use core_types::{IdSource, SystemIds};

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
