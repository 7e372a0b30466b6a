//! The calls of a run that wait for people: for an approval, or for the decision about a call in doubt.
//!
//! They are known from the events that the run records of its calls. While nothing else of the run is in
//! flight, the run is WAITING.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use contracts::tavern::common::v1::run_event::Kind;
use contracts::tavern::common::v1::{CallError, CallStatus, PendingWork, RunEvent, WorkKind};
use core_types::RunId;
use tokio::sync::watch;

use crate::phase;

/// The state of a call that waits or waited for people.
#[derive(Clone, Debug)]
enum CallWait {
    /// It waits for an approval.
    Approval,
    /// It waits for the decision about this attempt, with the reason for which its end is not known.
    InDoubt(u32, CallError),
    /// This attempt was in doubt and was decided.
    Decided(u32),
}

/// The calls of one run that wait for people, by effect id.
#[derive(Debug)]
pub(crate) struct CallWaits {
    run_id: String,
    /// Locked for a look-up or a change, never across an await.
    waits: Mutex<HashMap<String, CallWait>>,
    /// Whether there is none, so that most runs need no look-up.
    is_empty: AtomicBool,
    changed: watch::Sender<()>,
}

impl CallWaits {
    pub(crate) fn new(run: RunId) -> Self {
        Self {
            run_id: run.to_string(),
            waits: Mutex::default(),
            is_empty: AtomicBool::new(true),
            changed: watch::Sender::new(()),
        }
    }

    /// Takes an event of a call of the run. Returns false for one that says what is known already: a call that
    /// is joined again reports its doubt again.
    pub(crate) fn note(&self, event: &RunEvent) -> bool {
        let (effect_id, wait) = match &event.kind {
            Some(Kind::ApprovalRequested(asked)) => (&asked.effect_id, Some(CallWait::Approval)),
            Some(Kind::ApprovalEnded(ended)) => (&ended.effect_id, None),
            Some(Kind::CallInDoubt(doubt)) => {
                let error = doubt.error.clone().unwrap_or_default();
                let wait = CallWait::InDoubt(doubt.attempt, error);
                (&doubt.effect_id, Some(wait))
            }
            Some(Kind::CallDecided(decided)) => {
                let wait = CallWait::Decided(decided.attempt);
                (&decided.effect_id, Some(wait))
            }
            _ => return true,
        };
        if event.run_id != self.run_id {
            return true;
        }
        let is_new = self.enter(effect_id, wait);
        if is_new {
            self.changed.send_replace(());
        }
        is_new
    }

    /// Takes events that the run records itself: a call that has settled waits no longer.
    pub(crate) fn note_own(&self, kinds: &[Kind]) {
        if self.is_empty.load(Ordering::Relaxed) {
            return;
        }
        for kind in kinds {
            let Kind::CallSettled(settled) = kind else {
                continue;
            };
            let result = settled.result.as_ref();
            let Some(result) = result.filter(|result| result.status() != CallStatus::InDoubt)
            else {
                continue;
            };
            let mut waits = self.lock();
            if let Some(wait) = waits.get_mut(&result.effect_id) {
                *wait = CallWait::Decided(result.attempt);
                drop(waits);
                self.changed.send_replace(());
            }
        }
    }

    /// Returns the effects of calls in doubt that nothing has decided, in order, and why the first is in doubt.
    pub(crate) fn undecided(&self) -> Option<(Vec<String>, CallError)> {
        if self.is_empty.load(Ordering::Relaxed) {
            return None;
        }
        let waits = self.lock();
        let mut undecided: Vec<_> = waits
            .iter()
            .filter_map(|(effect_id, wait)| match wait {
                CallWait::InDoubt(_, error) => Some((effect_id.clone(), error.clone())),
                CallWait::Approval | CallWait::Decided(_) => None,
            })
            .collect();
        undecided.sort_by(|one, other| one.0.cmp(&other.0));
        let error = undecided.first()?.1.clone();
        Some((
            undecided.into_iter().map(|(effect, _)| effect).collect(),
            error,
        ))
    }

    /// Returns the phase of a run of which this is in flight: running, unless all of it waits for people.
    pub(crate) fn phase(&self, in_flight: &[PendingWork]) -> i32 {
        let waits = self.lock();
        let mut phase = phase::RUNNING;
        for work in in_flight {
            phase = match waits
                .get(&work.id)
                .filter(|_| work.kind() == WorkKind::Call)
            {
                Some(CallWait::InDoubt(..)) => phase::IN_DOUBT,
                Some(CallWait::Approval) if phase == phase::IN_DOUBT => phase,
                Some(CallWait::Approval) => phase::APPROVAL,
                Some(CallWait::Decided(_)) | None => return phase::RUNNING,
            };
        }
        phase
    }

    /// Reports that calls have begun to wait, or wait no longer.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    fn enter(&self, effect_id: &str, wait: Option<CallWait>) -> bool {
        let mut waits = self.lock();
        let Some(wait) = wait else {
            return waits.remove(effect_id).is_some();
        };
        let is_known = match (waits.get(effect_id), &wait) {
            (
                Some(CallWait::InDoubt(known, _) | CallWait::Decided(known)),
                CallWait::InDoubt(attempt, _),
            )
            | (Some(CallWait::Decided(known)), CallWait::Decided(attempt)) => attempt <= known,
            _ => false,
        };
        if !is_known {
            waits.insert(effect_id.to_owned(), wait);
            self.is_empty.store(false, Ordering::Relaxed);
        }
        !is_known
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, CallWait>> {
        self.waits.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
