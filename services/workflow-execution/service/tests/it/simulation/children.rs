//! The runs below other runs, in the way in which the registry carries out calls of workflows.
//!
//! A call is journalled in the ledger, its run is started under an id that follows from effect and attempt,
//! its caller is shown the events of the run and then the result. The ledger and the runs outlive the
//! process; requests in flight do not, and are repeated.

use std::collections::{BTreeMap, BTreeSet};

use call_outcome::{Category, Failure};
use contracts::tavern::common::v1 as common;
use serde_json::{Map, Value};

use super::outside::{Happening, NodeOfRun, Outside};
use super::world::{DISTURBED, World};

/// The longest delay of a request, or of the news of an end, in milliseconds.
const MAX_DELAY: u64 = 300;

/// The prefix of the ids of tools that are workflows.
const WORKFLOW: &str = "workflow:";

/// A request to the registry: one attempt at an effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) effect_id: String,
    pub(super) attempt: u32,
    pub(super) workflow_id: String,
    pub(super) arguments_json: String,
    /// The node that waits for the call.
    pub(super) caller: NodeOfRun,
}

/// A step of a call.
#[derive(Clone, Debug)]
pub(super) enum Step {
    /// The request arrives.
    Ask(Box<Asked>),
    /// The run is started, or found.
    Start,
    /// The caller is shown events of the run, and the result when it has seen all of them.
    Show,
    /// The end of the run arrives.
    Settle,
    /// A cancel arrives, with its reason.
    Cancel(String),
}

/// The double of the registry.
#[derive(Default)]
pub(super) struct Registry {
    /// By effect and attempt.
    ledger: BTreeMap<(String, u32), Entry>,
    /// The runs of calls, by the id of the request that started them.
    pub(super) started: BTreeMap<String, Started>,
    /// By effect. They end with the process.
    in_flight: BTreeMap<String, InFlight>,
    /// The effects whose cancellation was requested in this process.
    cancelled: BTreeSet<String>,
}

struct Entry {
    asked: Asked,
    result: Option<common::CallResult>,
}

/// A run that was started for a call.
#[derive(Clone)]
pub(super) struct Started {
    pub(super) run_id: String,
    pub(super) asked: Asked,
}

struct InFlight {
    asked: Asked,
    /// Whether its caller follows it.
    is_followed: bool,
    run_id: Option<String>,
    /// The number of events of the run that the caller was shown.
    shown: usize,
    /// Whether the caller is about to be shown more.
    shows: bool,
    /// The reason of its cancellation; none if it was not cancelled.
    cancelled: Option<String>,
    result: Option<common::CallResult>,
}

impl Registry {
    /// Returns the last of the attempts at an effect, up to the given number.
    fn last_entry(&self, effect_id: &str, attempt: u32) -> Option<(u32, &Entry)> {
        let effect_id = effect_id.to_owned();
        let attempts = (effect_id.clone(), 0)..=(effect_id, attempt);
        let (key, entry) = self.ledger.range(attempts).next_back()?;
        Some((key.1, entry))
    }

    /// Drops the state that only the process knew.
    pub(super) fn end_process(&mut self) {
        self.in_flight.clear();
        self.cancelled.clear();
    }

    /// Whether an effect was to be cancelled and no part of it continues.
    pub(super) fn has_followed_cancel(&self, effect_id: &str) -> bool {
        self.cancelled.contains(effect_id) && !self.in_flight.contains_key(effect_id)
    }

    /// Whether a run follows a call, or has a call that nothing carries out any more.
    pub(super) fn is_called_by(&self, run_id: &str) -> bool {
        let mut calls = self.in_flight.values();
        calls.any(|call| call.is_followed && call.asked.caller.run_id == run_id)
    }

    /// Returns the runs of the calls in flight by effect, none where the run is not known yet.
    pub(super) fn in_flight(&self) -> impl Iterator<Item = (&str, Option<&str>)> {
        let calls = self.in_flight.iter();
        calls.map(|(effect_id, call)| (effect_id.as_str(), call.run_id.as_deref()))
    }
}

/// Returns the workflow that a tool runs, if it runs one.
pub(super) fn workflow_of(tool_id: &str) -> Option<&str> {
    tool_id.strip_prefix(WORKFLOW)
}

impl Outside {
    /// Schedules a step of a call.
    pub(super) fn schedule_call(&mut self, process: u32, effect_id: &str, step: Step) {
        let at = self.now + self.random.u64(0..MAX_DELAY);
        let effect_id = effect_id.to_owned();
        let call = Happening::Call {
            process,
            effect_id,
            step,
        };
        self.schedule(at, call);
    }
}

impl World<'_> {
    /// Carries out a step of a call.
    pub(super) fn call(&mut self, effect_id: &str, step: Step) {
        match step {
            Step::Ask(asked) => self.ask(*asked),
            Step::Start => self.start_run(effect_id),
            Step::Show => self.show(effect_id),
            Step::Settle => self.settle(effect_id),
            Step::Cancel(reason) => self.cancel_call(effect_id, &reason),
        }
    }

    fn ask(&mut self, asked: Asked) {
        let effect_id = asked.effect_id.clone();
        let registry = &mut self.outside.registry;
        if let Some(call) = registry.in_flight.get_mut(&effect_id) {
            // A cancel that was faster has dispatched it.
            assert!(!call.is_followed, "{effect_id} is asked for twice");
            assert_eq!(call.asked, asked, "{effect_id} is another call");
            call.is_followed = true;
            return;
        }
        let registry = &self.outside.registry;
        let last = registry.last_entry(&effect_id, asked.attempt);
        if let Some((_, entry)) = last {
            let first = (&entry.asked.workflow_id, &entry.asked.arguments_json);
            let now = (&asked.workflow_id, &asked.arguments_json);
            assert_eq!(first, now, "{effect_id} is used for another call");
        }
        match last {
            Some((attempt, entry)) if !self.may_try_again(attempt, entry, &asked) => {
                if let Some(result) = entry.result.clone() {
                    return self.answer(&asked.caller, &result);
                }
            }
            Some((_, Entry { result: None, .. })) => {}
            _ => {
                let last = last.map_or(0, |(attempt, _)| attempt);
                assert_eq!(asked.attempt, last + 1, "{effect_id}: one is left out");
                let entry = Entry {
                    asked: asked.clone(),
                    result: None,
                };
                let key = (effect_id.clone(), asked.attempt);
                self.outside.registry.ledger.insert(key, entry);
            }
        }
        // A run that was cancelled while its request was in flight sends the cancel again.
        if let Some(reason) = self.reason_of_cancel(&asked.caller.run_id) {
            self.schedule_call(&effect_id, Step::Cancel(reason));
        }
        self.dispatch(asked, true, None);
    }

    fn dispatch(&mut self, asked: Asked, is_followed: bool, cancelled: Option<String>) {
        let effect_id = asked.effect_id.clone();
        let call = InFlight {
            asked,
            is_followed,
            run_id: None,
            shown: 0,
            shows: false,
            cancelled,
            result: None,
        };
        let in_flight = &mut self.outside.registry.in_flight;
        in_flight.insert(effect_id.clone(), call);
        self.schedule_call(&effect_id, Step::Start);
    }

    /// Whether a call is another attempt after a failed one that may be repeated.
    fn may_try_again(&self, attempt: u32, last: &Entry, asked: &Asked) -> bool {
        let failed = |result: &common::CallResult| result.status() == common::CallStatus::Failed;
        asked.attempt > attempt
            && last.result.as_ref().is_some_and(failed)
            && self.workflows.below[&asked.workflow_id].is_idempotent
    }

    fn start_run(&mut self, effect_id: &str) {
        let call = &self.outside.registry.in_flight[effect_id];
        let (asked, cancelled) = (call.asked.clone(), call.cancelled.clone());
        let request_id = format!("{effect_id}#{}", asked.attempt);
        let started = self.outside.registry.started.get(&request_id);
        let run_id = match started {
            Some(started) => {
                let first = (&started.asked.workflow_id, &started.asked.arguments_json);
                let now = (&asked.workflow_id, &asked.arguments_json);
                assert_eq!(first, now, "{request_id} is used for another run");
                started.run_id.clone()
            }
            None => self.begin_run(request_id, asked.clone()),
        };
        let registry = &mut self.outside.registry;
        let call = registry.in_flight.get_mut(effect_id).unwrap();
        call.run_id = Some(run_id.clone());
        if let Some(reason) = cancelled {
            self.cancel_run(&run_id, &reason);
        }
        if self.outside.outcome_of(&run_id).is_some() {
            self.schedule_call(effect_id, Step::Settle);
        }
    }

    fn begin_run(&mut self, request_id: String, asked: Asked) -> String {
        let parent = &asked.caller.run_id;
        let run_id = run_id_of(&request_id);
        let above = self.outside.above(parent).iter().cloned();
        let above = above.chain([parent.clone()]).collect();
        let first = common::RunStarted {
            subject: asked.workflow_id.clone(),
            input_json: asked.arguments_json.clone(),
            ..common::RunStarted::default()
        };
        self.outside.begin_log(&run_id, above, first);
        let plan = &self.workflows.below[&asked.workflow_id].plan;
        for node in &plan.nodes {
            let at = self.outside.now + self.outside.random.u64(0..DISTURBED);
            let (run_id, name) = (run_id.clone(), node.id.to_string());
            self.outside
                .schedule(at, Happening::Signal { run_id, name });
        }
        let started = Started {
            run_id: run_id.clone(),
            asked,
        };
        self.outside.registry.started.insert(request_id, started);
        self.take_over(&run_id, false);
        run_id
    }

    /// Shows every caller the events that it has not seen.
    pub(super) fn show_more(&mut self) {
        let registry = &self.outside.registry;
        let has_more = |call: &InFlight| {
            let below = call.run_id.as_ref();
            let below = below.map_or(0, |run_id| self.outside.events_of(run_id).len());
            call.is_followed && !call.shows && (call.shown < below || call.result.is_some())
        };
        let calls = registry.in_flight.iter();
        let calls = calls.filter(|(_, call)| has_more(call));
        let calls: Vec<String> = calls.map(|(effect_id, _)| effect_id.clone()).collect();
        for effect_id in calls {
            let in_flight = &mut self.outside.registry.in_flight;
            in_flight.get_mut(&effect_id).unwrap().shows = true;
            self.schedule_call(&effect_id, Step::Show);
        }
    }

    fn show(&mut self, effect_id: &str) {
        let call = &self.outside.registry.in_flight[effect_id];
        let (caller, shown) = (call.asked.caller.clone(), call.shown);
        let run_id = call.run_id.as_ref().unwrap();
        let left = &self.outside.events_of(run_id)[shown..];
        if let (true, Some(result)) = (left.is_empty(), call.result.clone()) {
            self.outside.registry.in_flight.remove(effect_id);
            return self.answer(&caller, &result);
        }
        let mut left = left.to_vec();
        left.truncate(self.outside.random.usize(1..=left.len()));
        let call = self.outside.registry.in_flight.get_mut(effect_id).unwrap();
        call.shown += left.len();
        call.shows = false;
        if let Some(process) = self.processes.get_mut(&caller.run_id) {
            self.outside.turn_to(&caller.run_id);
            process.record_below(&mut self.outside, left);
        }
    }

    fn answer(&mut self, caller: &NodeOfRun, result: &common::CallResult) {
        if let Some(process) = self.processes.get_mut(&caller.run_id) {
            self.outside.turn_to(&caller.run_id);
            process.answered(&mut self.outside, caller, result);
        }
    }

    fn settle(&mut self, effect_id: &str) {
        let call = &self.outside.registry.in_flight[effect_id];
        let run_id = call.run_id.clone().unwrap();
        let key = (effect_id.to_owned(), call.asked.attempt);
        let is_idempotent = self.workflows.below[&call.asked.workflow_id].is_idempotent;
        let outcome = self.outside.outcome_of(&run_id).unwrap();
        let result = result_of(effect_id, &run_id, outcome, is_idempotent);
        let registry = &mut self.outside.registry;
        let entry = registry.ledger.get_mut(&key).unwrap();
        assert_eq!(entry.result, None, "{effect_id} settles twice");
        entry.result = Some(result.clone());
        let call = registry.in_flight.get_mut(effect_id).unwrap();
        match call.is_followed {
            true => call.result = Some(result),
            false => drop(registry.in_flight.remove(effect_id)),
        }
    }

    /// Settles every call that follows a run that has ended.
    pub(super) fn run_has_ended(&mut self, run_id: &str) {
        let mut calls = self.outside.registry.in_flight();
        let call = calls.find(|(_, of_call)| *of_call == Some(run_id));
        if let Some(effect_id) = call.map(|(effect_id, _)| effect_id.to_owned()) {
            drop(calls);
            self.schedule_call(&effect_id, Step::Settle);
        }
    }

    fn cancel_call(&mut self, effect_id: &str, reason: &str) {
        let registry = &mut self.outside.registry;
        registry.cancelled.insert(effect_id.to_owned());
        if let Some(call) = registry.in_flight.get_mut(effect_id) {
            call.cancelled.get_or_insert_with(|| reason.to_owned());
            if let Some(run_id) = call.run_id.clone() {
                self.cancel_run(&run_id, reason);
            }
            return;
        }
        let last = registry.last_entry(effect_id, u32::MAX);
        let open = last.filter(|(_, entry)| entry.result.is_none());
        if let Some(asked) = open.map(|(_, entry)| entry.asked.clone()) {
            // The run may not have been recorded, so the call is dispatched again, which finds it.
            self.dispatch(asked, false, Some(reason.to_owned()));
        }
    }

    fn schedule_call(&mut self, effect_id: &str, step: Step) {
        self.outside.schedule_call(self.number, effect_id, step);
    }
}

/// Makes the id of a run, which is the same whenever its process was killed.
fn run_id_of(request_id: &str) -> String {
    let digest = run_log::Hash::of(request_id.as_bytes()).to_string();
    format!("flow_{}", &digest[..32])
}

/// Reads the outcome of a run as the result of the call that started it.
fn result_of(
    effect_id: &str,
    run_id: &str,
    outcome: &common::RunOutcome,
    is_idempotent: bool,
) -> common::CallResult {
    let status = match outcome.state() {
        common::RunState::Succeeded => common::CallStatus::Succeeded,
        common::RunState::Cancelled => common::CallStatus::Cancelled,
        common::RunState::InDoubt => common::CallStatus::InDoubt,
        _ => common::CallStatus::Failed,
    };
    let error = outcome.error.as_ref().map(|error| {
        let mut failure = call_wire::failure_from_proto(error);
        failure.retryable &= is_idempotent;
        call_wire::failure_to_proto(&failure.detail("run_id", run_id))
    });
    common::CallResult {
        effect_id: effect_id.to_owned(),
        status: status.into(),
        output_json: output_of(outcome).map_or_else(String::new, |output| output.to_string()),
        error,
        child_run_id: run_id.to_owned(),
        ..common::CallResult::default()
    }
}

/// Returns the output of a workflow's tool whose run succeeded: its only output, or all by key.
pub(super) fn output_of(outcome: &common::RunOutcome) -> Option<Value> {
    let outputs: Map<String, Value> = serde_json::from_str(&outcome.result_json).ok()?;
    Some(match outputs.len() {
        1 => outputs.into_values().next()?,
        _ => Value::Object(outputs),
    })
}

/// Makes the end of a call that follows a cancel.
pub(super) fn cancelled_result(effect_id: &str) -> common::CallResult {
    let failure = Failure::new(Category::Cancelled, "cancelled", "the call was cancelled");
    common::CallResult {
        effect_id: effect_id.to_owned(),
        status: common::CallStatus::Cancelled.into(),
        error: Some(call_wire::failure_to_proto(&failure)),
        ..common::CallResult::default()
    }
}
