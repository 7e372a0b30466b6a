//! Attempts of a node: what each is known by, how long it may take, and whether there is another.

use std::time::{Duration, Instant};

use call_outcome::Failure;
use contracts::tavern::common::v1 as common;
use contracts::tavern::common::v1::run_event::Kind;
use core_types::EffectId;
use futures::FutureExt;

use crate::domain::execution::Execution;
use crate::domain::plan::NodeIndex;

use super::super::history::forget_failed;
use super::{Drive, EffectOutcome};

/// The shortest time that an attempt is given, however little is left.
const SHORTEST: Duration = Duration::from_millis(1);

impl Drive {
    /// Returns the present attempt of a node, from 1.
    pub(super) fn attempt(&self, node: NodeIndex) -> u32 {
        self.attempts.get(&node).copied().unwrap_or(1)
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
        let took = self.begun.get(&node).map(Instant::elapsed);
        let total = execution.total_timeout?;
        Some(total.saturating_sub(took.unwrap_or_default()))
    }

    /// Begins the pause before another attempt (rule W20), or returns the failure if there is none. A
    /// pause that a restart of the process interrupts is over with it.
    pub(super) fn retry(&mut self, node: NodeIndex, failure: Failure) -> Option<Failure> {
        let attempt = self.attempt(node);
        let planned = self.engine.node(node);
        let Some(execution) = planned.execution.as_ref() else {
            return Some(failure);
        };
        let left = self.total_left(node, execution);
        let pause = execution
            .retry
            .pause(attempt, &failure, fastrand::f64())
            .filter(|pause| left.is_none_or(|left| *pause < left));
        let Some(pause) = pause.filter(|_| !self.control.is_cancelled()) else {
            return Some(failure);
        };
        self.pending.push(Kind::NodeRetrying(common::NodeRetrying {
            node_id: self.path_of(node),
            attempt,
            error: Some(call_wire::failure_to_proto(&failure)),
            pause: prost_types::Duration::try_from(pause).ok(),
        }));
        self.attempts.insert(node, attempt + 1);
        forget_failed(&mut self.calls, node);
        let control = self.control.clone();
        let wait = async move {
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = control.cancelled() => {}
            }
            (node, EffectOutcome::RetryDue)
        };
        self.running.push(wait.boxed());
        None
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
