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

    /// Applies an event of a call of the run. Returns false for a doubt or a decision that is known
    /// already: a call that is joined again reports them again.
    pub(crate) fn note(&self, event: &RunEvent) -> bool {
        if event.run_id != self.run_id {
            return true;
        }
        let is_new = match &event.kind {
            // Their places in the log of the call show whether they are known already.
            Some(Kind::ApprovalRequested(asked)) => {
                self.insert(&asked.effect_id, CallWait::Approval);
                true
            }
            Some(Kind::ApprovalEnded(ended)) => {
                self.lock().remove(&ended.effect_id);
                true
            }
            Some(Kind::CallInDoubt(doubt)) => {
                let error = doubt.error.clone().unwrap_or_default();
                self.enter(&doubt.effect_id, CallWait::InDoubt(doubt.attempt, error))
            }
            Some(Kind::CallDecided(decided)) => {
                self.enter(&decided.effect_id, CallWait::Decided(decided.attempt))
            }
            _ => return true,
        };
        if is_new {
            self.changed.send_replace(());
        }
        is_new
    }

    /// Applies events that the run records itself: a call that has settled waits no longer.
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

    /// Returns the effects of calls in doubt without a decision, in order, and the reason of the first.
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

    /// Notes a doubt or a decision. Returns false if it is known already.
    fn enter(&self, effect_id: &str, wait: CallWait) -> bool {
        let is_known = match (self.lock().get(effect_id), &wait) {
            (
                Some(CallWait::InDoubt(known, _) | CallWait::Decided(known)),
                CallWait::InDoubt(attempt, _),
            )
            | (Some(CallWait::Decided(known)), CallWait::Decided(attempt)) => attempt <= known,
            _ => false,
        };
        if !is_known {
            self.insert(effect_id, wait);
        }
        !is_known
    }

    fn insert(&self, effect_id: &str, wait: CallWait) {
        self.lock().insert(effect_id.to_owned(), wait);
        self.is_empty.store(false, Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, CallWait>> {
        self.waits.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use contracts::tavern::common::v1::{
        ApprovalEnded, ApprovalRequested, CallDecided, CallInDoubt, CallResult, CallSettled,
    };
    use core_types::{IdSource, RunOwner, SystemIds};

    use super::*;

    fn asked() -> Kind {
        Kind::ApprovalRequested(ApprovalRequested {
            effect_id: "a".to_owned(),
            ..ApprovalRequested::default()
        })
    }

    fn answered() -> Kind {
        Kind::ApprovalEnded(ApprovalEnded {
            effect_id: "a".to_owned(),
            ..ApprovalEnded::default()
        })
    }

    fn doubt(attempt: u32) -> Kind {
        Kind::CallInDoubt(CallInDoubt {
            effect_id: "d".to_owned(),
            attempt,
            ..CallInDoubt::default()
        })
    }

    fn decided(attempt: u32) -> Kind {
        Kind::CallDecided(CallDecided {
            effect_id: "d".to_owned(),
            attempt,
            ..CallDecided::default()
        })
    }

    fn settled(status: CallStatus) -> Kind {
        Kind::CallSettled(CallSettled {
            result: Some(CallResult {
                effect_id: "d".to_owned(),
                status: status.into(),
                ..CallResult::default()
            }),
        })
    }

    #[test]
    fn a_run_waits_while_all_that_is_in_flight_waits_for_people() {
        let (running, in_doubt, approval) = (phase::RUNNING, phase::IN_DOUBT, phase::APPROVAL);
        for (kinds, in_flight, shown) in [
            (vec![], "a", running),
            (vec![asked()], "a", approval),
            (vec![asked()], "a d", running),
            (vec![asked(), doubt(1)], "a d", in_doubt),
            (vec![doubt(1), asked()], "d a", in_doubt),
            (vec![asked(), answered()], "a", running),
            (vec![doubt(1)], "d", in_doubt),
            (vec![doubt(1)], "", running),
            (vec![doubt(1), decided(1)], "d", running),
            (vec![doubt(1), decided(1), doubt(2)], "d", in_doubt),
            (vec![doubt(1), settled(CallStatus::Succeeded)], "d", running),
            (vec![doubt(1), settled(CallStatus::InDoubt)], "d", in_doubt),
        ] {
            let run = SystemIds.next_run(RunOwner::Agent);
            let waits = CallWaits::new(run);
            for kind in &kinds {
                waits.note_own(std::slice::from_ref(kind));
                waits.note(&RunEvent {
                    run_id: run.to_string(),
                    kind: Some(kind.clone()),
                    ..RunEvent::default()
                });
            }
            let in_flight = in_flight.split_whitespace().map(|id| PendingWork {
                kind: WorkKind::Call.into(),
                id: id.to_owned(),
            });
            let in_flight: Vec<PendingWork> = in_flight.collect();
            assert_eq!(waits.phase(&in_flight), shown, "{kinds:?}");
        }
    }

    #[test]
    fn only_doubts_and_decisions_that_are_known_are_not_recorded_again() {
        let run = SystemIds.next_run(RunOwner::Agent);
        let waits = CallWaits::new(run);
        for (kind, is_recorded) in [
            (answered(), true),
            (asked(), true),
            (asked(), true),
            (answered(), true),
            (doubt(1), true),
            (doubt(1), false),
            (decided(1), true),
            (decided(1), false),
            (doubt(1), false),
            (doubt(2), true),
        ] {
            let event = RunEvent {
                run_id: run.to_string(),
                kind: Some(kind),
                ..RunEvent::default()
            };
            assert_eq!(waits.note(&event), is_recorded, "{:?}", event.kind);
        }
        let below = RunEvent {
            run_id: "flow_1".to_owned(),
            kind: Some(doubt(1)),
            ..RunEvent::default()
        };
        assert!(waits.note(&below), "the run below has it in its own log");
    }
}
