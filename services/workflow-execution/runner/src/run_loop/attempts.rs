//! Attempts of a node: their ids, their time limits, and whether another follows.

use std::time::Duration;

use call_outcome::Failure;
use contracts::tavern::common::v1 as common;
use contracts::tavern::common::v1::run_event::Kind;
use core_types::{EffectId, Timestamp};

use workflow_domain::plan::NodeIndex;
use workflow_domain::wait::{Due, WaitKind, WaitRequest};

use super::super::run_state::StateEvent;
use super::{Moment, RunLoop};

/// The shortest time limit of an attempt, even if less is left.
const SHORTEST: Duration = Duration::from_millis(1);

/// The longest pause before another attempt that is no wait.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

impl RunLoop {
    /// Returns the present attempt of a node, from 1.
    pub fn attempt(&self, node: NodeIndex) -> u32 {
        let attempt = self.state.attempt(node);
        attempt.map_or(1, |attempt| attempt.number)
    }

    /// Returns the time limit of the present attempt of a node (rule W19).
    pub fn time_left(&self, node: NodeIndex, now: Timestamp) -> Option<Duration> {
        let execution = self.state.engine().node(node).execution.as_ref()?;
        let left = self.total_left(node, now);
        let shorter = match (execution.timeout, left) {
            (Some(timeout), Some(left)) => Some(timeout.min(left)),
            (timeout, left) => timeout.or(left),
        };
        shorter.map(|time| time.max(SHORTEST))
    }

    /// Returns how long all attempts of a node may still take.
    pub fn total_left(&self, node: NodeIndex, now: Timestamp) -> Option<Duration> {
        let execution = self.state.engine().node(node).execution.as_ref()?;
        let took = self.ready_since(node).map(|since| now.since(since));
        let total = execution.total_timeout?;
        Some(total.saturating_sub(took.unwrap_or_default()))
    }

    /// Begins the pause before another attempt (rule W20), or returns the failure if there is none.
    pub(super) fn retry(
        &mut self,
        node: NodeIndex,
        failure: Failure,
        moment: &Moment,
    ) -> Option<Failure> {
        let number = self.attempt(node);
        let Some(execution) = self.state.engine().node(node).execution.as_ref() else {
            return Some(failure);
        };
        let left = self.total_left(node, moment.now);
        let pause = execution
            .retry
            .pause(number, &failure, moment.chance)
            .filter(|pause| left.is_none_or(|left| *pause < left));
        let Some(pause) = pause.filter(|_| !self.is_cancelled) else {
            return Some(failure);
        };
        let retrying = common::NodeRetrying {
            node_id: self.state.path_of(node),
            attempt: number,
            error: Some(call_wire::failure_to_proto(&failure)),
            pause: prost_types::Duration::try_from(pause).ok(),
        };
        self.apply(StateEvent::Retrying {
            node,
            recorded: &retrying,
            at: moment.now,
        });
        self.events.push(Kind::NodeRetrying(retrying), 0);
        self.pause(node);
        None
    }

    /// Waits until the present attempt of a node is due. A long pause is a wait of the run.
    pub(super) fn pause(&mut self, node: NodeIndex) {
        let Some(attempt) = self.state.attempt(node) else {
            return;
        };
        if attempt.pause > LONGEST_PAUSE {
            let (seconds, nanos) = attempt.due.seconds_and_nanos();
            let (kind, due) = (WaitKind::Retry, Due::At(seconds, nanos));
            return self.waits.push_back((node, WaitRequest { kind, due }));
        }
        self.pauses.push((node, attempt.due));
    }

    /// Returns the id of the wait before the present attempt of a node. No effect has such an id.
    pub(super) fn retry_id(&self, node: NodeIndex) -> String {
        format!("{}~retry", self.attempt_id(node))
    }

    /// Returns the id of the present attempt of a node.
    pub fn attempt_id(&self, node: NodeIndex) -> String {
        self.effect_id(node, self.attempt(node) as usize - 1)
    }

    /// Derives the id of a node's effect. It is sent in headers, so characters of the node's id
    /// other than printable ASCII are escaped.
    pub fn effect_id(&self, node: NodeIndex, index: usize) -> String {
        let id = self.state.path_of(node);
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
        EffectId::derive(&self.of_run.run_id, &step, index).to_string()
    }
}
