//! The engine and the replay of histories in simulated time: random workflows with zones whose tools fail,
//! whose timers and signals come at any time, and whose processes are killed. Half of the recoveries read
//! what a checkpoint names.
//!
//! One seed is one history. `TAVERN_TEST_SEEDS` sets how many seeds are tried; `make bars` sets 100,000.

mod graph;
mod outside;
mod process;
mod zone;

use std::collections::HashMap;
use std::sync::Arc;

use contracts::tavern::common::v1::run_event::Kind;
use contracts::tavern::common::v1::{RunEvent, SignalReceived};
use fastrand::Rng;
use serde_json::Value;
use workflow_domain::engine::Status;
use workflow_domain::node_type::Catalogue;
use workflow_domain::plan::Plan;
use workflow_runner::needed::needed;

use graph::random_plan;
use outside::{Happening, Outside};
use process::Process;

/// How many seeds are tried unless the environment says otherwise.
const SEEDS: u64 = 1_000;

/// The most often that the process of a run is killed.
const MAX_KILLS: u32 = 4;

/// The time within which kills happen and signals arrive, in milliseconds.
const DISTURBED: u64 = 120_000;

/// Where each node stands, with its main output. The others may say what came first.
type State = Vec<(Status, Option<Arc<Value>>)>;

/// Runs a workflow to its end and returns the history with the state in which it ended.
fn run(plan: &Arc<Plan>, seed: u64, kills: u32) -> (Vec<RunEvent>, State) {
    let run_id = format!("flow_{seed}");
    let mut outside = Outside::new(&run_id, Rng::with_seed(seed));
    for node in &plan.nodes {
        let at = outside.random.u64(0..DISTURBED);
        outside.schedule(at, Happening::Signal(node.id.to_string()));
    }
    for _ in 0..kills {
        let at = outside.random.u64(0..DISTURBED);
        outside.schedule(at, Happening::Kill);
    }
    let mut number = 0;
    let mut process = Process::start(plan, seed, number, &mut outside, &[]);
    loop {
        process.advance(&mut outside);
        if process.engine().outcome().is_some() {
            break;
        }
        let has_waker = outside.any_scheduled(|happening| match happening {
            Happening::Continue { process, .. } => *process == number,
            Happening::Signal(_) => true,
            Happening::Kill => false,
        });
        assert!(has_waker, "seed {seed}: nothing would wake the run");
        match outside.next().unwrap() {
            Happening::Continue {
                process: of,
                place,
                node,
                how,
            } if of == number => process.continues(&mut outside, &place, node, how),
            Happening::Continue { .. } => {}
            Happening::Signal(name) => {
                outside.submit(Kind::SignalReceived(SignalReceived {
                    name: name.clone(),
                    ..SignalReceived::default()
                }));
                outside.commit();
                process.signal(&mut outside, &name);
            }
            Happening::Kill => {
                outside.lose_uncommitted();
                number += 1;
                let log = match outside.random.bool() {
                    true => from_checkpoint(plan, &run_id, &outside.log),
                    false => outside.log.clone(),
                };
                process = Process::start(plan, seed, number, &mut outside, &log);
            }
        }
    }
    let nodes = 0..u32::try_from(plan.nodes.len()).unwrap();
    let engine = process.engine();
    let state = nodes.map(|node| {
        let main = engine.outputs_of(node);
        let main = main.and_then(|outputs| outputs[0].clone());
        (engine.status(node), main)
    });
    (outside.log, state.collect())
}

/// Returns what a run is continued with that has just made a checkpoint.
fn from_checkpoint(plan: &Plan, run_id: &str, log: &[RunEvent]) -> Vec<RunEvent> {
    let needed = needed(plan, run_id, log);
    let left = log.iter();
    let left = left.filter(|event| needed.binary_search(&event.sequence).is_ok());
    left.cloned().collect()
}

/// Checks that each node of a history began and ended at most once, and did so in this order.
fn check_steps(seed: u64, plan: &Plan, history: &[RunEvent]) {
    let (mut begun, mut dispatched, mut finished) =
        (HashMap::new(), HashMap::new(), HashMap::new());
    let mut iterations = HashMap::new();
    for (at, kind) in history
        .iter()
        .filter_map(|event| event.kind.as_ref())
        .enumerate()
    {
        let earlier = match kind {
            Kind::NodeStarted(started) => begun.insert(&started.node_id, at),
            Kind::CallDispatched(call) => dispatched.insert(&call.node_id, at),
            Kind::NodeFinished(node) => finished.insert(&node.node_id, at),
            Kind::IterationFinished(ended) => iterations.insert((&ended.node_id, ended.index), at),
            _ => None,
        };
        assert_eq!(
            earlier, None,
            "seed {seed}: a step is recorded twice: {kind:?}"
        );
    }
    let outside_zones = finished.keys().filter(|id| !id.contains('#'));
    assert_eq!(
        outside_zones.count(),
        plan.nodes.len(),
        "seed {seed}: every node ends"
    );
    for (node, at) in begun.iter().chain(&dispatched) {
        assert!(
            *at < finished[*node],
            "seed {seed}: {node} ends before it begins"
        );
    }
}

fn check(seed: u64, catalogue: &Catalogue) {
    let mut random = Rng::with_seed(seed);
    let plan = random_plan(&mut random, catalogue);
    let kills = random.u32(0..=MAX_KILLS);
    let (history, state) = run(&plan, seed, kills);
    check_steps(seed, &plan, &history);
    let again = run(&plan, seed, kills);
    assert_eq!(
        (&history, &state),
        (&again.0, &again.1),
        "seed {seed} is one history"
    );
    let (_, undisturbed) = run(&plan, seed, 0);
    assert_eq!(state, undisturbed, "seed {seed}: kills change no output");
}

#[test]
fn runs_in_simulated_time_end_as_undisturbed_ones_and_repeat_no_step() {
    let seeds = std::env::var("TAVERN_TEST_SEEDS").map_or(SEEDS, |seeds| seeds.parse().unwrap());
    let catalogue = workflow_nodes::builtin();
    for seed in 0..seeds {
        check(seed, &catalogue);
    }
}
