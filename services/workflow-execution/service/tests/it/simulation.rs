//! The loops of runs and zones in simulated time, as they ship: random workflows with zones whose tools fail,
//! whose timers and signals come at any time, and whose processes are killed. Half of the recoveries read
//! only the events that a checkpoint names. Some run other workflows as runs below, which have a
//! log of their own, wait and fail as they do, and are cancelled with them.
//!
//! One seed is one history. `TAVERN_TEST_SEEDS` sets the number of seeds; `make bars` sets 100,000.

mod calls;
pub(crate) mod checks;
mod children;
mod graph;
mod outside;
mod process;
mod stop;
mod waits;
mod world;
mod zone;

use fastrand::Rng;

use checks::{check_history, check_same_ends};
use graph::{Workflows, workflow_alone, workflow_with_runs};
use world::{Disturbances, World};

/// The number of seeds for runs alone, unless the environment states another.
const SEEDS: u64 = 1_000;

/// The number of seeds for runs with others below.
const SEEDS_WITH_RUNS: u64 = 300;

/// The most kills of a run's process.
const MAX_KILLS: u32 = 4;

/// The most often that a run is paused.
const MAX_PAUSES: u32 = 3;

fn seeds(few: u64) -> u64 {
    std::env::var("TAVERN_TEST_SEEDS").map_or(few, |seeds| seeds.parse().unwrap())
}

fn check(seed: u64, workflows: &Workflows, disturbances: Disturbances) {
    let played = World::play(workflows, seed, disturbances);
    let loses_cancels = disturbances.registry_kills > 0;
    check_history(seed, workflows, &played, loses_cancels);
    let again = World::play(workflows, seed, disturbances);
    assert_eq!(
        (&played.logs, &played.states),
        (&again.logs, &again.states),
        "seed {seed} is one history"
    );
    // Which nodes begin before a cancel, or before the first call in doubt, is a matter of time.
    if disturbances.cancels == 0 && !disturbances.doubts {
        let undisturbed = World::play(workflows, seed, Disturbances::default());
        check_same_ends(seed, &played, &undisturbed);
    }
}

#[test]
fn runs_in_simulated_time_end_as_undisturbed_ones_and_repeat_no_step() {
    let catalogue = workflow_nodes::builtin();
    for seed in 0..seeds(SEEDS) {
        let mut random = Rng::with_seed(seed);
        let workflows = workflow_alone(&mut random, &catalogue);
        let disturbances = Disturbances {
            kills: random.u32(0..=MAX_KILLS),
            pauses: random.u32(0..=MAX_PAUSES),
            doubts: random.u8(0..4) == 0,
            ..Disturbances::default()
        };
        check(seed, &workflows, disturbances);
    }
}

#[test]
fn runs_below_others_start_once_end_with_them_and_are_recorded_in_order() {
    let catalogue = workflow_nodes::builtin();
    for seed in 0..seeds(SEEDS_WITH_RUNS) {
        let mut random = Rng::with_seed(seed);
        let workflows = workflow_with_runs(&mut random, &catalogue);
        let disturbances = Disturbances {
            kills: random.u32(0..=MAX_KILLS),
            registry_kills: random.u32(0..=MAX_KILLS),
            pauses: random.u32(0..=MAX_PAUSES),
            cancels: random.u32(0..4) / 2,
            doubts: random.u8(0..4) == 0,
        };
        check(seed, &workflows, disturbances);
    }
}
