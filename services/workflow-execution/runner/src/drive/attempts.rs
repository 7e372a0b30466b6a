//! Attempts of a node: what each is known by, how long it may take, and whether there is another.

use std::time::Duration;

use call_outcome::Failure;
use contracts::tavern::common::v1 as common;
use contracts::tavern::common::v1::run_event::Kind;
use core_types::EffectId;
use futures::FutureExt;

use workflow_domain::engine::Command;
use workflow_domain::execution::Execution;
use workflow_domain::plan::NodeIndex;
use workflow_domain::wait::{Due, WaitKind, WaitRequest};

use super::super::history::{Attempt, forget_failed};
use super::{Drive, EffectOutcome};

/// The shortest time that an attempt is given, however little is left.
const SHORTEST: Duration = Duration::from_millis(1);

/// The longest pause before another attempt that is no wait.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

impl Drive {
    /// Returns the present attempt of a node, from 1.
    pub(super) fn attempt(&self, node: NodeIndex) -> u32 {
        let attempt = self.attempts.get(&node);
        attempt.map_or(1, |attempt| attempt.number)
    }

    /// Returns how long the present attempt of a node may take (rule W19).
    pub(super) fn time_left(&self, node: NodeIndex) -> Option<Duration> {
        let execution = self.engine.node(node).execution.as_ref()?;
        let left = self.total_left(node, execution);
        let shorter = match (execution.timeout, left) {
            (Some(timeout), Some(left)) => Some(timeout.min(left)),
            (timeout, left) => timeout.or(left),
        };
        shorter.map(|time| time.max(SHORTEST))
    }

    pub(super) fn total_left(&self, node: NodeIndex, execution: &Execution) -> Option<Duration> {
        let total = execution.total_timeout?;
        let begun = self.begun.get(&node);
        let took = begun.map(|begun| self.recorder.now().since(*begun));
        Some(total.saturating_sub(took.unwrap_or_default()))
    }

    /// Begins the pause before another attempt (rule W20), or returns the failure if there is none.
    pub(super) fn retry(&mut self, node: NodeIndex, failure: Failure) -> Option<Failure> {
        let number = self.attempt(node);
        let planned = self.engine.node(node);
        let Some(execution) = planned.execution.as_ref() else {
            return Some(failure);
        };
        let left = self.total_left(node, execution);
        let pause = execution
            .retry
            .pause(number, &failure, fastrand::f64())
            .filter(|pause| left.is_none_or(|left| *pause < left));
        let Some(pause) = pause.filter(|_| !self.control.is_cancelled()) else {
            return Some(failure);
        };
        self.pending.push(Kind::NodeRetrying(common::NodeRetrying {
            node_id: self.path_of(node),
            attempt: number,
            error: Some(call_wire::failure_to_proto(&failure)),
            pause: prost_types::Duration::try_from(pause).ok(),
        }));
        let attempt = Attempt {
            number: number + 1,
            due: self.recorder.now().plus(pause),
            pause,
        };
        self.attempts.insert(node, attempt);
        forget_failed(&mut self.calls, node, false);
        self.pause(node, attempt);
        None
    }

    /// Continues the pauses before attempts that an earlier process, or the run before it left memory,
    /// has recorded.
    pub(super) fn continue_pauses(&mut self) {
        let attempts = &self.attempts;
        let mut paused = Vec::new();
        self.commands.retain(|command| {
            let Command::Execute(node) = command else {
                return true;
            };
            let attempt = attempts.get(node);
            paused.extend(attempt.map(|attempt| (*node, *attempt)));
            attempt.is_none()
        });
        for (node, attempt) in paused {
            self.pause(node, attempt);
        }
    }

    /// Waits until an attempt is due. A long pause is a wait of the run.
    fn pause(&mut self, node: NodeIndex, attempt: Attempt) {
        if attempt.pause > LONGEST_PAUSE {
            let (seconds, nanos) = attempt.due.seconds_and_nanos();
            let (kind, due) = (WaitKind::Retry, Due::At(seconds, nanos));
            return self.enqueue_wait(node, WaitRequest { kind, due });
        }
        let (control, left) = (self.control.clone(), attempt.due.since(self.recorder.now()));
        let wait = async move {
            tokio::select! {
                () = tokio::time::sleep(left) => {}
                () = control.cancelled() => {}
            }
            (node, EffectOutcome::RetryDue)
        };
        self.running.push(wait.boxed());
    }

    /// Returns the id of the wait before the present attempt of a node. No effect has such an id.
    pub(super) fn retry_id(&self, node: NodeIndex) -> String {
        let index = self.attempt(node) as usize - 1;
        format!("{}~retry", self.effect_id(node, index))
    }

    /// Derives the id of a node's effect. It travels in headers, so other than printable ASCII
    /// characters of the node's id are escaped.
    pub(super) fn effect_id(&self, node: NodeIndex, index: usize) -> String {
        let id = self.path_of(node);
        let plain = |byte: u8| byte.is_ascii_graphic() && byte != b'%';
        let step: String = id
            .bytes()
            .map(|byte| {
                if plain(byte) {
                    char::from(byte).to_string()
                } else {
                    format!("%{byte:02X}")
                }
            })
            .collect();
        EffectId::derive(&self.recorder.run_id(), &step, index).to_string()
    }
}
