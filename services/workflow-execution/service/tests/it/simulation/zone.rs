//! The zones of a simulated process, in the order of durability that the runner keeps.

use std::collections::BTreeMap;

use call_outcome::Failure;
use contracts::tavern::common::v1 as common;
use contracts::tavern::common::v1::run_event::Kind;
use workflow_domain::data_flow::Values;
use workflow_domain::node_type::Settled;
use workflow_domain::plan::NodeIndex;
use workflow_domain::zone::body::Body;
use workflow_domain::zone::iterations::Iterations;
use workflow_domain::zone::run::ZoneRun;
use workflow_runner::history::{ZoneHistory, replay_iteration};
use workflow_runner::wire;

use super::outside::Outside;
use super::process::{OfRun, Scope};

/// A zone in progress.
pub(super) struct Zone {
    body: Body,
    iterations: Iterations,
    history: ZoneHistory,
    /// The number of iterations that have begun.
    begun: u64,
    /// The results of iterations that the zone has not taken.
    ended: BTreeMap<u64, Result<Values, Failure>>,
    /// The iterations in progress.
    pub(super) running: BTreeMap<u64, Scope>,
    failed: Option<Failure>,
    may_begin: bool,
}

impl Scope {
    pub(super) fn begin_zone(
        &mut self,
        run: &OfRun,
        outside: &mut Outside,
        node: NodeIndex,
        inputs: &Values,
    ) {
        let (planned, seed) = (self.engine.node(node), self.engine.seed_of(node));
        if !planned.repeats_effects() {
            let mut zone = ZoneRun::begin(planned, seed, inputs).unwrap();
            let gave = zone.advance(usize::MAX).unwrap();
            return self.settle_result(run, outside, node, gave.map(Settled::Zone));
        }
        let (body, mut iterations) = Body::begin(planned, seed, inputs).unwrap();
        let mut history = self.histories.remove(&node).unwrap_or_default();
        let mut ended = std::mem::take(&mut history.ended);
        let resumed = iterations.resume(&mut ended, body.connected());
        let zone = Zone {
            begun: *resumed.as_ref().unwrap_or(&0),
            failed: resumed.err(),
            body,
            iterations,
            history,
            ended,
            running: BTreeMap::new(),
            may_begin: true,
        };
        self.zones.insert(node, zone);
        // It is carried on with the commands of the nodes around it.
    }

    /// Advances a zone as far as it can run by itself.
    pub(super) fn advance_zone(&mut self, run: &OfRun, outside: &mut Outside, node: NodeIndex) {
        let Some(mut zone) = self.zones.remove(&node) else {
            return;
        };
        let path = self.id(node);
        loop {
            self.begin_iterations(run, outside, node, &path, &mut zone);
            for scope in zone.running.values_mut() {
                scope.advance(run, outside);
            }
            let over = zone.running.iter();
            let over = over.filter(|(_, scope)| scope.engine.outcome().is_some());
            let Some(index) = over.map(|(index, _)| *index).next() else {
                break;
            };
            zone.end_iteration(outside, &path, index);
        }
        if !zone.running.is_empty() {
            self.zones.insert(node, zone);
            return;
        }
        let gave = match zone.failed {
            Some(failure) => Err(failure),
            None => Ok(Settled::Zone(zone.iterations.outputs())),
        };
        self.settle_result(run, outside, node, gave);
    }

    fn begin_iterations(
        &mut self,
        run: &OfRun,
        outside: &mut Outside,
        node: NodeIndex,
        path: &str,
        zone: &mut Zone,
    ) {
        let may_start = |zone: &Zone| zone.may_begin && zone.failed.is_none();
        while (may_start(zone) || zone.history.is_open_from(zone.begun))
            && ((zone.begun - zone.iterations.index()) as usize) < zone.iterations.concurrency()
        {
            let index = zone.begun;
            let starts = may_start(zone) || zone.history.is_open(index);
            let values = match zone.iterations.next_values() {
                Ok(Some(values)) => values,
                Ok(None) => break,
                Err(failure) => {
                    zone.failed = Some(failure);
                    break;
                }
            };
            zone.begun += 1;
            if starts && !zone.ended.contains_key(&index) {
                let path = format!("{path}#{index}/");
                let engine = zone.body.engine(index, values, &mut Vec::new());
                let events = zone.history.open.remove(&index).unwrap_or_default();
                let replayed = replay_iteration(path.clone(), engine, events.iter()).unwrap();
                let place = self.place_in(node, index);
                let scope = Scope::of(run, outside, path, place, replayed);
                zone.running.insert(index, scope);
            }
            zone.take_ended();
        }
    }
}

impl Zone {
    fn end_iteration(&mut self, outside: &mut Outside, path: &str, index: u64) {
        let scope = self.running.remove(&index).unwrap();
        let gave = Body::gave(&scope.engine, index);
        let slots = &self.body.plan().interface_outputs;
        let outputs_json = gave
            .as_ref()
            .map(|values| wire::values_to_json(slots, values));
        outside.submit(Kind::IterationFinished(common::IterationFinished {
            node_id: path.to_owned(),
            index,
            outputs_json: outputs_json.unwrap_or_default(),
            error: gave.as_ref().err().map(call_wire::failure_to_proto),
            ..common::IterationFinished::default()
        }));
        self.may_begin &= gave.is_ok() || !self.iterations.tolerates_none();
        self.ended.insert(index, gave);
        self.take_ended();
    }

    fn take_ended(&mut self) {
        while self.failed.is_none()
            && self.iterations.index() < self.begun
            && let Some(gave) = self.ended.remove(&self.iterations.index())
        {
            self.failed = self.iterations.take(gave, self.body.connected()).err();
        }
    }
}
