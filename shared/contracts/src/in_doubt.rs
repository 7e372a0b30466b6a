//! Calls in doubt, by the events of the runs that made them.

use crate::tavern::common::v1::{CallInDoubt, RunEvent, run_event::Kind};

/// The calls of a run, and of the runs below it, that are in doubt.
#[derive(Clone, Debug, Default)]
pub struct CallsInDoubt {
    /// The calls, the oldest first, each with the run that made it.
    calls: Vec<(String, CallInDoubt)>,
}

impl CallsInDoubt {
    /// Accounts for the next event. A call is in doubt until it was decided, has settled, or its
    /// run has ended.
    pub fn note(&mut self, event: &RunEvent) {
        match &event.kind {
            Some(Kind::CallInDoubt(call)) => {
                self.forget(&call.effect_id);
                self.calls.push((event.run_id.clone(), call.clone()));
            }
            Some(Kind::CallDecided(decided)) => self.forget(&decided.effect_id),
            Some(Kind::CallSettled(settled)) => {
                let result = settled.result.as_ref();
                self.forget(result.map_or("", |result| &result.effect_id));
            }
            Some(Kind::RunFinished(_)) => self.calls.retain(|(run_id, _)| *run_id != event.run_id),
            _ => {}
        }
    }

    /// Returns the calls, the oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &CallInDoubt> {
        self.calls.iter().map(|(_, call)| call)
    }

    fn forget(&mut self, effect_id: &str) {
        self.calls.retain(|(_, call)| call.effect_id != effect_id);
    }
}

#[cfg(test)]
mod tests {
    use crate::tavern::common::v1::{CallDecided, CallResult, CallSettled, RunFinished};

    use super::*;

    fn in_doubt(effect_id: &str, attempt: u32) -> Kind {
        Kind::CallInDoubt(CallInDoubt {
            effect_id: effect_id.to_owned(),
            attempt,
            ..CallInDoubt::default()
        })
    }

    fn decided(effect_id: &str) -> Kind {
        Kind::CallDecided(CallDecided {
            effect_id: effect_id.to_owned(),
            ..CallDecided::default()
        })
    }

    fn settled(effect_id: &str) -> Kind {
        let result = CallResult {
            effect_id: effect_id.to_owned(),
            ..CallResult::default()
        };
        Kind::CallSettled(CallSettled {
            result: Some(result),
        })
    }

    #[test]
    fn a_call_is_in_doubt_until_it_is_decided_settles_or_its_run_ends() {
        let finished = || Kind::RunFinished(RunFinished::default());
        for (events, expected) in [
            (vec![("turn", in_doubt("a", 1))], vec![("a", 1)]),
            (
                vec![("turn", in_doubt("a", 1)), ("flow", in_doubt("b", 1))],
                vec![("a", 1), ("b", 1)],
            ),
            (
                vec![
                    ("turn", in_doubt("a", 1)),
                    ("flow", in_doubt("b", 1)),
                    ("turn", decided("a")),
                ],
                vec![("b", 1)],
            ),
            (
                vec![("turn", in_doubt("a", 1)), ("turn", settled("a"))],
                vec![],
            ),
            (
                vec![("turn", in_doubt("a", 1)), ("turn", settled("b"))],
                vec![("a", 1)],
            ),
            (
                vec![("turn", in_doubt("a", 1)), ("flow", finished())],
                vec![("a", 1)],
            ),
            (
                vec![("flow", in_doubt("b", 1)), ("flow", finished())],
                vec![],
            ),
            // A repeat is another attempt, which can be in doubt as well.
            (
                vec![
                    ("turn", in_doubt("a", 1)),
                    ("turn", decided("a")),
                    ("turn", in_doubt("a", 2)),
                ],
                vec![("a", 2)],
            ),
        ] {
            let mut calls = CallsInDoubt::default();
            for (run_id, kind) in &events {
                calls.note(&RunEvent {
                    run_id: (*run_id).to_owned(),
                    kind: Some(kind.clone()),
                    ..RunEvent::default()
                });
            }
            let found: Vec<_> = calls
                .iter()
                .map(|call| (call.effect_id.as_str(), call.attempt))
                .collect();
            assert_eq!(found, expected, "{events:?}");
        }
    }
}
