//! The events of a run that are needed to continue it (rule W5).
//!
//! Events inside an iteration or a node that has ended are history: the event of its end has the
//! result. Of a loop that collects nothing, only the iterations are needed whose results are the
//! present values of its variables. Replaying the needed events leads to the same state as
//! replaying all.

mod loops;
mod signals;

use std::collections::{HashMap, HashSet};

use contracts::tavern::common::v1::run_event::Kind;
use contracts::tavern::common::v1::{self as common, RunEvent, WakeCause};

use workflow_domain::limits::MAX_HANDLED;
use workflow_domain::plan::Plan;

use signals::Signals;

/// Returns the sequences of the needed events, in order.
pub fn needed(plan: &Plan, run_id: &str, events: &[RunEvent]) -> Vec<u64> {
    let own: Vec<&RunEvent> = events
        .iter()
        .filter(|event| event.run_id == run_id)
        .collect();
    let ends = Ends::of(&own);
    let signals = Signals::of(&own);
    let mut kept = ends.of_waits(&own, &signals);
    kept.extend(loops::last_iterations(plan, &own, &ends));
    kept.extend(last_of_children(run_id, events, &ends));
    kept.extend(handled(&own));
    kept.extend(used(&own));
    let mut last_turn = None;
    for event in &own {
        match &event.kind {
            Some(Kind::RunQueued(_) | Kind::RunDequeued(_)) => last_turn = Some(event.sequence),
            Some(kind) if ends.needs(kind, event.sequence, &signals) => {
                kept.insert(event.sequence);
            }
            _ => {}
        }
    }
    kept.extend(last_turn);
    let mut kept: Vec<u64> = kept.into_iter().collect();
    kept.sort_unstable();
    kept
}

/// Returns the events with the usage of a run's models.
fn used<'a>(own: &'a [&RunEvent]) -> impl Iterator<Item = u64> + 'a {
    let reports = own
        .iter()
        .filter(|event| matches!(event.kind, Some(Kind::UsageReported(_))));
    reports.map(|event| event.sequence)
}

/// The nodes and iterations that have ended, and the effects of the nodes.
struct Ends<'e> {
    /// The event of the end of each node and iteration that has ended, by its id: `map` or `map#3`.
    by_id: HashMap<String, u64>,
    /// The node of each effect.
    effects: HashMap<&'e str, &'e str>,
    /// The effects whose end is recorded.
    settled: HashSet<&'e str>,
    /// The effect of each run below whose end is recorded.
    children: HashMap<&'e str, &'e str>,
}

impl<'e> Ends<'e> {
    fn of(own: &[&'e RunEvent]) -> Self {
        let mut ends = Self {
            by_id: HashMap::new(),
            effects: HashMap::new(),
            settled: HashSet::new(),
            children: HashMap::new(),
        };
        for event in own {
            match &event.kind {
                Some(Kind::NodeFinished(node)) => {
                    ends.by_id.insert(node.node_id.clone(), event.sequence);
                }
                Some(Kind::IterationFinished(ended)) => {
                    let id = format!("{}#{}", ended.node_id, ended.index);
                    ends.by_id.insert(id, event.sequence);
                }
                Some(Kind::CallDispatched(call)) => {
                    ends.effects.insert(&call.effect_id, &call.node_id);
                }
                Some(Kind::CallSettled(common::CallSettled {
                    result: Some(result),
                })) => {
                    ends.settled.insert(&result.effect_id);
                    ends.children
                        .insert(&result.child_run_id, &result.effect_id);
                }
                _ => {}
            }
        }
        ends
    }

    /// Returns the end of an iteration or zone around a node. A group around it has no end.
    fn around(&self, node_id: &str) -> Option<u64> {
        let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        let places = node_id.match_indices(['#', '/']);
        let mut places = places.filter_map(|(at, mark)| {
            let before = &node_id[..at];
            let is_place = match before.rsplit_once('#') {
                _ if mark == "#" => true,
                Some((_, iteration)) => is_number(iteration),
                None => false,
            };
            self.by_id.get(before).copied().filter(|_| is_place)
        });
        places.next()
    }

    fn own(&self, node_id: &str) -> Option<u64> {
        self.by_id.get(node_id).copied()
    }

    /// Whether a node, or an iteration or zone around it, has ended.
    fn is_over(&self, node_id: &str) -> bool {
        self.own(node_id).is_some() || self.around(node_id).is_some()
    }

    /// Whether the node of an effect has ended.
    fn is_effect_over(&self, effect_id: &str, node_id: &str) -> bool {
        match (node_id, self.effects.get(effect_id)) {
            ("", Some(node_id)) => self.is_over(node_id),
            ("", None) => false,
            (node_id, _) => self.is_over(node_id),
        }
    }

    /// Whether an event is needed by itself, whether or not other events are.
    fn needs(&self, kind: &Kind, sequence: u64, signals: &Signals) -> bool {
        match kind {
            Kind::RunPaused(_) | Kind::RunResumed(_) | Kind::Checkpoint(_) => false,
            Kind::NodeStarted(started) => !self.is_over(&started.node_id),
            Kind::NodeRetrying(retrying) => !self.is_over(&retrying.node_id),
            Kind::NodeFinished(node) => self.around(&node.node_id).is_none(),
            // Iterations of zones in progress are selected by zone.
            Kind::IterationFinished(_) => false,
            Kind::CallDispatched(call) => {
                let is_settled = self.settled.contains(call.effect_id.as_str());
                let has_ended = is_settled && self.own(&call.node_id).is_some();
                !has_ended && self.around(&call.node_id).is_none()
            }
            Kind::CallSettled(settled) => {
                let effect_id = settled.result.as_ref().map(|result| &*result.effect_id);
                effect_id.is_some_and(|effect_id| !self.is_effect_over(effect_id, ""))
            }
            Kind::OutputChunk(chunk) => {
                chunk.interface_key.is_empty()
                    && !self.is_effect_over(&chunk.effect_id, &chunk.node_id)
            }
            Kind::OutputReset(reset) => {
                reset.interface_key.is_empty()
                    && !self.is_effect_over(&reset.effect_id, &reset.node_id)
            }
            Kind::ProgressReported(report) => {
                !self.is_effect_over(&report.effect_id, &report.node_id)
            }
            Kind::ApprovalRequested(asked) => !self.is_effect_over(&asked.effect_id, ""),
            Kind::ApprovalEnded(ended) => !self.is_effect_over(&ended.effect_id, ""),
            Kind::HookApplied(applied) => !self.is_effect_over(&applied.effect_id, ""),
            Kind::CallInDoubt(doubt) => !self.is_effect_over(&doubt.effect_id, ""),
            Kind::CallDecided(decided) => !self.is_effect_over(&decided.effect_id, ""),
            Kind::NodeWaiting(waiting) => waiting.wait.as_ref().is_some_and(|wait| {
                signals.is_kept_with(&wait.wait_id) || !self.is_over(&wait.node_id)
            }),
            Kind::NodeWoken(woken) => {
                let is_answer = woken.cause() == WakeCause::Answer && !woken.request_id.is_empty();
                let is_kept = is_answer || signals.is_kept_with(&woken.wait_id);
                is_kept || !self.is_over(&woken.node_id)
            }
            Kind::SignalReceived(signal) => match signals.consumer_of(sequence) {
                None => true,
                Some(_) if !signal.signal_id.is_empty() => true,
                Some(node_id) => !self.is_over(node_id),
            },
            _ => true,
        }
    }

    /// Returns the ends of nodes whose waits are kept, so that the waits count as ended.
    fn of_waits(&self, own: &[&RunEvent], signals: &Signals) -> HashSet<u64> {
        let waits = own.iter().filter_map(|event| match &event.kind {
            Some(Kind::NodeWaiting(waiting)) => waiting.wait.as_ref(),
            _ => None,
        });
        waits
            .filter(|wait| signals.is_kept_with(&wait.wait_id))
            .filter_map(|wait| {
                self.own(&wait.node_id)
                    .or_else(|| self.around(&wait.node_id))
            })
            .collect()
    }
}

/// Returns the ends of nodes whose failures are listed when the run ends, at any depth.
fn handled(own: &[&RunEvent]) -> Vec<u64> {
    let listed = own.iter().filter(|event| match &event.kind {
        Some(Kind::NodeFinished(node)) => {
            node.state() == common::NodeState::Handled || !node.handled_failures.is_empty()
        }
        _ => false,
    });
    let first = listed.take(MAX_HANDLED);
    first.map(|event| event.sequence).collect()
}

/// Returns the last event of each run below, unless the node that started it has ended: it shows
/// the recorded part of that run's log.
fn last_of_children(run_id: &str, events: &[RunEvent], ends: &Ends) -> Vec<u64> {
    let below = events.iter().filter(|event| event.run_id != run_id);
    let mut last = HashMap::new();
    for event in below.filter(|event| event.origin_sequence > 0) {
        let path = event.parent_path.iter().skip_while(|run| *run != run_id);
        let child = path.clone().nth(1).unwrap_or(&event.run_id);
        last.insert(child.as_str(), event.sequence);
    }
    last.retain(|child, _| {
        let effect_id = ends.children.get(child);
        !effect_id.is_some_and(|effect_id| ends.is_effect_over(effect_id, ""))
    });
    last.into_values().collect()
}

#[cfg(test)]
mod tests;
