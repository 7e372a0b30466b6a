//! The loop of the iterations of a zone whose nodes have effects: a state machine without I/O.
//!
//! Each iteration is a loop of nodes of its own, with the zone and its number in front of the ids of its
//! nodes. The end of an iteration is recorded, so after a crash the zone continues with those that had not
//! ended.

use std::time::Duration;

use call_outcome::{Category, Failure};
use contracts::tavern::common::v1 as common;
use contracts::tavern::common::v1::run_event::Kind;
use core_types::Timestamp;
use run_events::parts;

use crate::wire;
use workflow_domain::data_flow::Values;
use workflow_domain::engine::Engine;
use workflow_domain::plan::NodeIndex;
use workflow_domain::stream_value::to_lines;
use workflow_domain::zone::body::Body;
use workflow_domain::zone::iterations::Iterations;
use workflow_domain::zone::settings::RESULT_STREAM;

use super::effect_end::{Unsettled, ZoneEnd};
use super::handled::HandledFailures;
use super::run_loop::{LoopRun, RunLoop};
use super::run_state::{RunState, ZoneHistory};
use super::slot_stream::SlotStream;

/// The loop of the iterations of a zone.
#[derive(Debug)]
pub struct ZoneLoop {
    /// The id of the zone with the iterations around it.
    path: String,
    body: Body,
    iterations: Iterations,
    history: ZoneHistory,
    of_run: LoopRun,
    /// The handled failures of the whole run.
    handled: HandledFailures,
    /// The streaming outputs that iterations write to.
    streams: Vec<SlotStream>,
    /// The stream of the results of a map; none for a loop.
    results: Option<SlotStream>,
    /// The number of iterations that have begun, also in earlier processes.
    begun: u64,
    /// The number of iterations in progress.
    running: u64,
    failed: Option<Failure>,
    /// Whether no iteration stopped, or failed where that ends the zone.
    may_begin: bool,
    stopped: Unsettled,
    /// The number of results shown.
    shown: usize,
}

/// An iteration that begins, or continues after a restart.
#[derive(Debug)]
pub struct IterationStart {
    /// The number of the iteration.
    pub index: u64,
    /// The loop of its nodes, or why its history is none of its plan.
    pub nodes: Result<RunLoop, Failure>,
}

/// The end of an iteration: the state of its nodes, or why there is none.
pub type IterationEnd = Result<Result<Engine, Failure>, Unsettled>;

impl ZoneLoop {
    /// Begins a zone on the values of its inputs, or continues it after a restart.
    ///
    /// # Errors
    /// A value that the zone cannot use.
    pub fn begin(run: &mut RunLoop, node: NodeIndex, inputs: &Values) -> Result<Self, Failure> {
        let mut history = run.take_zone(node);
        let engine = run.state().engine();
        let (body, mut iterations) = Body::begin(engine.node(node), engine.seed_of(node), inputs)?;
        let begun = iterations.resume(history.ended_mut(), body.connected())?;
        let mut streams = run.streams_of(node);
        Ok(Self {
            path: run.state().path_of(node),
            of_run: run.of_run().clone(),
            handled: run.state().handled().clone(),
            results: streams.pop_if(|stream| **stream.key() == *RESULT_STREAM),
            streams,
            body,
            iterations,
            history,
            begun,
            running: 0,
            failed: None,
            may_begin: true,
            stopped: Unsettled::default(),
            shown: 0,
        })
    }

    /// Returns the next iteration that is to begin, if one is. Iterations that were under way before a crash
    /// are carried to their ends, also behind a failure. None begins in a run that was cancelled.
    pub fn next(&mut self, is_cancelled: bool) -> Option<IterationStart> {
        while (self.begins() || self.history.is_open_from(self.begun))
            && !is_cancelled
            && ((self.begun - self.iterations.index()) as usize) < self.iterations.concurrency()
        {
            let index = self.begun;
            let starts = self.begins() || self.history.is_open(index);
            let values = match self.iterations.next_values() {
                Ok(Some(values)) => values,
                Ok(None) => break,
                Err(failure) => {
                    self.failed = Some(failure);
                    break;
                }
            };
            let has_ended = self.history.ended_mut().contains_key(&index);
            self.begun += 1;
            self.take_ended();
            if starts && !has_ended {
                self.running += 1;
                let nodes = self.iteration(index, values);
                return Some(IterationStart { index, nodes });
            }
        }
        None
    }

    /// Takes the end of an iteration, and returns the event that records it.
    pub fn ended(&mut self, index: u64, took: Duration, end: IterationEnd) -> Option<Kind> {
        self.running -= 1;
        let gave = match end {
            Ok(Ok(engine)) => Body::gave(&engine, index),
            Ok(Err(failure)) => Err(failure),
            Err(unsettled) => {
                self.may_begin = false;
                self.stopped.extend(unsettled);
                return None;
            }
        };
        let slots = &self.body.plan().interface_outputs;
        let outputs_json = gave
            .as_ref()
            .map(|values| wire::values_to_json(slots, values));
        let finished = common::IterationFinished {
            node_id: self.path.clone(),
            index,
            outputs_json: outputs_json.unwrap_or_default(),
            error: gave.as_ref().err().map(call_wire::failure_to_proto),
            duration: prost_types::Duration::try_from(took).ok(),
        };
        self.may_begin &= gave.is_ok() || !self.iterations.tolerates_none();
        self.history.end(index, gave);
        self.take_ended();
        Some(Kind::IterationFinished(finished))
    }

    /// Returns the events that show the results of a map that were not shown before.
    pub fn show(&mut self, now: Timestamp) -> Vec<Kind> {
        let Some(stream) = &self.results else {
            return Vec::new();
        };
        let results = self.iterations.results(self.shown);
        self.shown += results.len();
        let lines = parts(to_lines(results)).into_iter();
        lines.flat_map(|lines| stream.write(&lines, now)).collect()
    }

    /// Whether iterations are under way.
    pub fn is_running(&self) -> bool {
        self.running > 0
    }

    /// Returns how the zone ended, once no iteration is under way and none begins.
    pub fn end(mut self, is_cancelled: bool) -> ZoneEnd {
        if is_cancelled || !self.stopped.is_empty() {
            return ZoneEnd::Stopped(self.stopped);
        }
        ZoneEnd::Ended(match self.failed {
            Some(failure) => Err(failure),
            None => Ok(self.iterations.outputs()),
        })
    }

    fn begins(&self) -> bool {
        self.may_begin && self.failed.is_none()
    }

    fn iteration(&mut self, index: u64, values: Values) -> Result<RunLoop, Failure> {
        let path = format!("{}#{index}/", self.path);
        let engine = self.body.engine(index, values, &mut Vec::new());
        let (events, handled) = (self.history.take_open(index), self.handled.clone());
        let state =
            RunState::replay_iteration(path, engine, &events, handled).map_err(|error| {
                let message = grpc_kit::failure::chain(&error);
                Failure::new(Category::Internal, "history_diverged", message)
            })?;
        let of_run = self.of_run.clone();
        Ok(RunLoop::of_iteration(of_run, state, &self.streams))
    }

    /// Takes the outputs of iterations that have begun, in order.
    fn take_ended(&mut self) {
        while self.failed.is_none()
            && self.iterations.index() < self.begun
            && let Some(gave) = self.history.ended_mut().remove(&self.iterations.index())
        {
            self.failed = self.iterations.take(gave, self.body.connected()).err();
        }
    }
}
