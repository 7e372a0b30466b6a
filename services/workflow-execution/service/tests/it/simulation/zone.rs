//! The zones of a simulated process.

use std::collections::BTreeMap;
use std::time::Duration;

use workflow_domain::data_flow::Values;
use workflow_domain::node_type::Settled;
use workflow_domain::plan::NodeIndex;
use workflow_domain::zone::run::ZoneRun;
use workflow_runner::effect_end::{EffectEnd, ZoneEnd};
use workflow_runner::run_loop::{Happening, Rest};
use workflow_runner::zone_loop::ZoneLoop;

use super::outside::Outside;
use super::process::{OfRun, Scope};

/// A zone in progress.
pub(super) struct Zone {
    iterations: ZoneLoop,
    /// The iterations under way.
    pub(super) running: BTreeMap<u64, Scope>,
}

impl Scope {
    pub(super) fn begin_zone(&mut self, outside: &mut Outside, node: NodeIndex, inputs: &Values) {
        let engine = self.nodes.state().engine();
        let (planned, seed) = (engine.node(node), engine.seed_of(node));
        if !planned.repeats_effects() {
            let mut zone = ZoneRun::begin(planned, seed, inputs).unwrap();
            let gave = zone.advance(usize::MAX).unwrap().map(Settled::Zone);
            return self.take(outside, node, Happening::Ended(EffectEnd::Answered(gave)));
        }
        match ZoneLoop::begin(&mut self.nodes, node, inputs) {
            Ok(iterations) => {
                let running = BTreeMap::new();
                self.zones.insert(
                    node,
                    Zone {
                        iterations,
                        running,
                    },
                );
            }
            Err(failure) => {
                let end = EffectEnd::Zone(ZoneEnd::Ended(Err(failure)));
                self.take(outside, node, Happening::Ended(end));
            }
        }
    }

    /// Continues the zones as far as they get by themselves; returns whether one ended.
    pub(super) fn advance_zones(&mut self, run: &OfRun, outside: &mut Outside) -> bool {
        let under_way: Vec<NodeIndex> = self.zones.keys().copied().collect();
        let before = under_way.len();
        for node in under_way {
            let mut zone = self.zones.remove(&node).unwrap();
            self.advance_zone(run, outside, node, &mut zone);
            if zone.iterations.is_running() {
                self.zones.insert(node, zone);
                continue;
            }
            let end = EffectEnd::Zone(zone.iterations.end(run.is_cancelled));
            self.take(outside, node, Happening::Ended(end));
        }
        self.zones.len() < before
    }

    fn advance_zone(
        &mut self,
        run: &OfRun,
        outside: &mut Outside,
        node: NodeIndex,
        zone: &mut Zone,
    ) {
        loop {
            while let Some(start) = zone.iterations.next(run.is_cancelled) {
                let place = self.place_in(node, start.index);
                let scope = Scope::new(start.nodes.unwrap(), place);
                zone.running.insert(start.index, scope);
            }
            outside.submit_all(zone.iterations.show(outside.now()));
            let over = zone.running.iter_mut().find_map(|(index, scope)| {
                let is_over = match run.is_cancelled {
                    true => scope.stop(run, outside),
                    false => scope.advance(run, outside) == Rest::Over,
                };
                is_over.then_some(*index)
            });
            let Some(index) = over else {
                return;
            };
            let scope = zone.running.remove(&index).unwrap();
            let end = scope.nodes.into_end().map(Ok);
            let recorded = zone.iterations.ended(index, Duration::ZERO, end);
            outside.submit_all(recorded);
        }
    }
}
