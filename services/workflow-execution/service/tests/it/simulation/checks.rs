//! The invariants of every history, whatever happened in it. `place` names the history in failures.

use std::collections::{BTreeMap, HashMap, HashSet};

use contracts::tavern::common::v1 as common;
use contracts::tavern::common::v1::run_event::Kind;
use contracts::tavern::common::v1::{CallStatus, RunEvent, RunOutcome, RunState};
use serde_json::{Map, Value};

use super::children::{Started, output_of, workflow_of};
use super::graph::Workflows;
use super::world::Played;

/// The events of runs by their ids.
pub(crate) type Logs = BTreeMap<String, Vec<RunEvent>>;

/// Checks a history by its logs. A registry that is killed may lose (`loses_cancels`) the cancel of a call,
/// which its run names then.
pub(super) fn check_history(
    seed: u64,
    workflows: &Workflows,
    played: &Played,
    loses_cancels: bool,
) {
    let (place, logs) = (&*format!("seed {seed}"), &played.logs);
    check_steps(place, workflows.top.nodes.len(), &played.top, logs);
    let mut runs_of = BTreeMap::<&str, u32>::new();
    for Started { run_id, asked } in &played.started {
        let workflow = &workflows.below[&asked.workflow_id];
        check_steps(place, workflow.plan.nodes.len(), run_id, logs);
        let runs = runs_of.entry(&asked.effect_id).or_default();
        *runs += 1;
        let effect_id = &asked.effect_id;
        assert!(
            *runs == 1 || workflow.is_idempotent,
            "{place}: {effect_id} is carried out twice"
        );
        let parent = &asked.caller.run_id;
        let end = outcome(&logs[parent]);
        let may_be_left = loses_cancels || end.state() == RunState::InDoubt;
        if !may_be_left || !end.unsettled_effect_ids.contains(effect_id) {
            check_ends_with_parent(place, parent, run_id, logs);
        }
    }
    for run_id in logs.keys() {
        check_recorded_below(place, run_id, logs);
        check_results(place, run_id, logs);
        check_cancelled(place, run_id, logs);
        check_paused(place, run_id, logs);
        check_in_doubt(place, run_id, logs);
    }
}

/// Checks that runs ended the same way in two histories. Which of them began at all is a matter of time:
/// a zone begins nothing more once an iteration has failed.
pub(super) fn check_same_ends(seed: u64, played: &Played, undisturbed: &Played) {
    for (run_id, state) in &played.states {
        let Some(other) = undisturbed.states.get(run_id) else {
            assert_ne!(*run_id, played.top, "seed {seed}");
            continue;
        };
        assert_eq!(
            state, other,
            "seed {seed}: kills change what {run_id} gives"
        );
        let ends = [played, undisturbed].map(|played| {
            let outcome = outcome(&played.logs[run_id]);
            (outcome.state(), outcome.result_json.clone())
        });
        assert_eq!(
            ends[0], ends[1],
            "seed {seed}: kills change how {run_id} ends"
        );
    }
}

/// Checks that each node of a run began and ended at most once, and did so in this order. `nodes`
/// is the number of nodes of its workflow outside of zones.
pub(crate) fn check_steps(place: &str, nodes: usize, run_id: &str, logs: &Logs) {
    let log = &logs[run_id];
    let (mut begun, mut dispatched, mut finished) =
        (HashMap::new(), HashMap::new(), HashMap::new());
    let mut iterations = HashMap::new();
    let mut waits = HashMap::new();
    for (at, kind) in own(run_id, log).enumerate() {
        let earlier = match kind {
            Kind::NodeStarted(started) => begun.insert(&started.node_id, at),
            Kind::CallDispatched(call) => dispatched.insert(&call.node_id, at),
            Kind::NodeFinished(node) => finished.insert(&node.node_id, at),
            Kind::IterationFinished(ended) => iterations.insert((&ended.node_id, ended.index), at),
            Kind::NodeWoken(woken) => waits.insert(&woken.wait_id, at),
            _ => None,
        };
        assert_eq!(earlier, None, "{place}: a step is recorded twice: {kind:?}");
    }
    let is_whole = !matches!(
        outcome(log).state(),
        RunState::Cancelled | RunState::InDoubt
    );
    let outside_zones = finished.keys().filter(|id| !id.contains('#'));
    assert!(
        outside_zones.count() == nodes || !is_whole,
        "{place}: every node of {run_id} ends"
    );
    for (node, at) in begun.iter().chain(&dispatched) {
        let end = finished.get(*node);
        assert!(
            end.map_or(!is_whole, |end| at < end),
            "{place}: {node} of {run_id} ends before it begins"
        );
    }
}

/// Checks that the events of runs below are recorded once and in the order in which they happened there.
pub(crate) fn check_recorded_below(place: &str, run_id: &str, logs: &Logs) {
    let mut recorded = HashMap::<&str, Vec<&RunEvent>>::new();
    for event in logs[run_id].iter().filter(|event| event.run_id != *run_id) {
        let mut path = event.parent_path.iter().skip_while(|step| *step != run_id);
        let below = path.nth(1).unwrap_or(&event.run_id);
        recorded.entry(below).or_default().push(event);
    }
    for (below, recorded) in recorded {
        let there = &logs[below];
        assert!(recorded.len() <= there.len(), "{place}: {below}");
        for (event, original) in recorded.iter().zip(there) {
            let as_recorded = RunEvent {
                sequence: event.sequence,
                origin_sequence: original.sequence,
                ..original.clone()
            };
            assert_eq!(**event, as_recorded, "{place}: {run_id} of {below}");
        }
    }
}

/// Checks that the results that a run recorded of its calls of workflows equal the ends of their
/// runs.
pub(crate) fn check_results(place: &str, run_id: &str, logs: &Logs) {
    let mut last = HashMap::new();
    let mut nodes = HashMap::new();
    for kind in own(run_id, &logs[run_id]) {
        match kind {
            Kind::CallDispatched(call) if workflow_of(&call.tool_id).is_some() => {
                nodes.insert(call.node_id.as_str(), call.effect_id.as_str());
            }
            Kind::CallSettled(common::CallSettled {
                result: Some(result),
            }) if !result.child_run_id.is_empty() => {
                let below = outcome(&logs[&result.child_run_id]);
                let status = match below.state() {
                    RunState::Succeeded => CallStatus::Succeeded,
                    RunState::Cancelled => CallStatus::Cancelled,
                    RunState::InDoubt => CallStatus::InDoubt,
                    _ => CallStatus::Failed,
                };
                let place = format!("{place}: {run_id} of {}", result.child_run_id);
                assert_eq!(result.status(), status, "{place}");
                let output = output_of(below).map(|output| output.to_string());
                assert_eq!(result.output_json, output.unwrap_or_default(), "{place}");
                last.insert(result.effect_id.as_str(), &result.child_run_id);
            }
            Kind::NodeFinished(node) => {
                let effect_id = nodes.get(node.node_id.as_str());
                let below = effect_id.and_then(|effect_id| last.get(effect_id));
                if let Some(below) = below {
                    check_outputs(place, node, below, logs);
                }
            }
            _ => {}
        }
    }
}

/// Checks that the outputs of a node equal the outputs of the run below.
fn check_outputs(place: &str, node: &common::NodeFinished, below: &String, logs: &Logs) {
    let outcome = outcome(&logs[below]);
    let succeeded = node.state() == common::NodeState::Succeeded;
    let place = format!("{place}: {} of {below}", node.node_id);
    assert_eq!(succeeded, outcome.state() == RunState::Succeeded, "{place}");
    if succeeded {
        let given: Map<String, Value> = serde_json::from_str(&node.outputs_json).unwrap();
        let there: Map<String, Value> = serde_json::from_str(&outcome.result_json).unwrap();
        assert_eq!(given["run_id"], **below, "{place}");
        for (key, value) in there {
            assert_eq!(given[&key], value, "{place}");
        }
    }
}

/// Checks that nothing begins in a run that was cancelled.
pub(crate) fn check_cancelled(place: &str, run_id: &str, logs: &Logs) {
    let is_cancel = |kind: &&Kind| matches!(kind, Kind::CancelRequested(_));
    let kinds = || own(run_id, &logs[run_id]);
    let cancels = kinds().filter(is_cancel).count();
    assert!(cancels <= 1, "{place}: {run_id} is cancelled twice");
    for kind in kinds().skip_while(|kind| !is_cancel(kind)) {
        let begins = matches!(
            kind,
            Kind::NodeStarted(_) | Kind::CallDispatched(_) | Kind::NodeWaiting(_)
        );
        assert!(!begins, "{place}: {run_id} was cancelled: {kind:?}");
    }
}

/// Checks that a run ended before its parent, or was cancelled with it.
pub(crate) fn check_ends_with_parent(place: &str, parent: &str, run_id: &str, logs: &Logs) {
    let ended = |run_id: &str| {
        let time = logs[run_id].last().and_then(|event| event.time);
        time.map(|time| (time.seconds, time.nanos))
    };
    let is_cancelled = outcome(&logs[run_id]).state() == RunState::Cancelled;
    assert!(
        is_cancelled || ended(run_id) <= ended(parent),
        "{place}: {parent} ended, and {run_id} went on"
    );
}

/// Checks that nothing begins in a run while it is paused, and that nodes which only compute do not end.
fn check_paused(place: &str, run_id: &str, logs: &Logs) {
    let (mut is_paused, mut begun) = (false, HashSet::new());
    for kind in own(run_id, &logs[run_id]) {
        let is_held = match kind {
            Kind::RunPaused(_) => {
                is_paused = true;
                true
            }
            Kind::RunResumed(_) => {
                is_paused = false;
                true
            }
            Kind::NodeStarted(started) => begun.insert(&started.node_id) && !is_paused,
            Kind::NodeWaiting(waiting) => {
                begun.extend(waiting.wait.as_ref().map(|wait| &wait.node_id));
                !is_paused
            }
            Kind::NodeFinished(node) => !is_paused || begun.contains(&node.node_id),
            Kind::CallDispatched(_) => !is_paused,
            _ => true,
        };
        assert!(is_held, "{place}: {run_id} is paused, and {kind:?}");
    }
}

/// Checks that a run names the calls of which it is not known whether they took effect, and waits for the ends
/// of all others. It begins nothing outside of zones behind the first.
fn check_in_doubt(place: &str, run_id: &str, logs: &Logs) {
    let (mut doubtful, mut is_in_doubt) = (Vec::new(), false);
    let (mut in_zones, mut settled) = (HashMap::new(), HashSet::new());
    for kind in own(run_id, &logs[run_id]) {
        match kind {
            Kind::CallDispatched(call) => {
                in_zones.insert(&call.effect_id, call.node_id.contains('#'));
            }
            Kind::CallSettled(common::CallSettled {
                result: Some(result),
            }) => {
                settled.insert(&result.effect_id);
                if result.status() == CallStatus::InDoubt {
                    doubtful.push(&result.effect_id);
                    is_in_doubt |= !in_zones[&result.effect_id];
                }
            }
            _ => {}
        }
        let begun = match kind {
            Kind::NodeStarted(started) => Some(&started.node_id),
            Kind::NodeWaiting(waiting) => waiting.wait.as_ref().map(|wait| &wait.node_id),
            _ => None,
        };
        assert!(
            !is_in_doubt || begun.is_none_or(|node_id| node_id.contains('#')),
            "{place}: {run_id} is in doubt and begins {kind:?}"
        );
    }
    let outcome = outcome(&logs[run_id]);
    let state = outcome.state();
    let is_named = |effect_id: &&String| outcome.unsettled_effect_ids.contains(effect_id);
    assert!(
        doubtful.iter().all(is_named),
        "{place}: {run_id}: {doubtful:?}"
    );
    for effect_id in in_zones.keys().filter(|id| !settled.contains(*id)) {
        assert!(
            state == RunState::Cancelled || is_named(effect_id),
            "{place}: {run_id} has not waited for {effect_id}"
        );
    }
    let may_be = match doubtful.is_empty() {
        true => state != RunState::InDoubt,
        false => matches!(state, RunState::InDoubt | RunState::Cancelled),
    };
    assert!(may_be, "{place}: {run_id} is {state:?}");
}

fn own<'e>(run_id: &str, log: &'e [RunEvent]) -> impl Iterator<Item = &'e Kind> {
    let own = log.iter().filter(move |event| event.run_id == run_id);
    own.filter_map(|event| event.kind.as_ref())
}

pub(crate) fn outcome(log: &[RunEvent]) -> &RunOutcome {
    match log.last().and_then(|event| event.kind.as_ref()) {
        Some(Kind::RunFinished(finished)) => finished.outcome.as_ref().unwrap(),
        other => panic!("the last event is {other:?}"),
    }
}
