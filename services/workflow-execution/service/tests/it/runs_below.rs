//! Workflows that run workflows, in the service itself: wherever its process is killed and whenever a run is
//! cancelled, each run below starts once, is recorded once and in order, and ends with its parent.
//!
//! One seed is one set of workflows, kills and cancels. `TAVERN_TEST_PARENTS` sets the number of
//! seeds; `make bars` sets 200.

use std::cell::Cell;

use contracts::tavern::common::v1::{Run, RunState};
use contracts::tavern::run::v1::{CancelRunRequest, ListRunsRequest};
use fastrand::Rng;
use serde_json::{Value, json};

use crate::simulation::checks::{
    Logs, check_cancelled, check_ends_with_parent, check_recorded_below, check_results,
    check_steps, outcome,
};
use crate::support::*;

/// The number of seeds unless the environment states another.
const SEEDS: u64 = 6;

/// The most kills of the process.
const MAX_KILLS: usize = 3;

/// The events of the run at the top before which a kill or a cancel happens.
const DISTURBED: usize = 24;

/// A node that works, waits or fails for a moment.
fn random_node(random: &mut Rng, id: &str) -> Value {
    let on_error = ["fail", "continue"][random.usize(0..2)];
    match random.u8(0..4) {
        0 => json!({"id": id, "type": "core:Timer", "inputValues": {"value": id},
            "configValues": {"duration": 0.02}}),
        1 => json!({"id": id, "type": "core:WaitSignal", "inputValues": {"value": id},
            "configValues": {"name": id, "timeout": 0.02, "onTimeout": "default"}}),
        2 => {
            let mut node = tool(id, "fail");
            node["configValues"] = json!({"execution": {"onError": on_error}});
            node
        }
        _ => tool(id, "echo"),
    }
}

/// A workflow of nodes that work and nodes that run these workflows. Some follow each other.
fn random_workflow(random: &mut Rng, runs: &[&str]) -> Value {
    let work = (0..random.usize(1..=2)).map(|at| format!("n{at}"));
    let mut nodes: Vec<Value> = work.map(|id| random_node(random, &id)).collect();
    for (at, workflow_id) in runs.iter().enumerate() {
        let node = json!({"id": format!("r{at}"), "type": "core:RunWorkflow",
            "configValues": {"workflowId": workflow_id, "execution": {"onError": "continue"}}});
        nodes.insert(random.usize(0..=nodes.len()), node);
    }
    let source = |node: &Value| match node["type"].as_str() {
        Some("core:RunWorkflow") => (node["id"].clone(), "out"),
        Some("core:ExecuteTool") => (node["id"].clone(), "status"),
        _ => (node["id"].clone(), "value"),
    };
    let target = |node: &Value| match node["type"].as_str() {
        Some("core:RunWorkflow" | "core:ExecuteTool") => "x",
        _ => "value",
    };
    let mut edges = Vec::new();
    for (before, after) in nodes.iter().zip(&nodes[1..]) {
        if random.bool() {
            let (id, handle) = source(before);
            edges.push(json!({"source": id, "sourceHandle": handle,
                "target": after["id"], "targetHandle": target(after)}));
        }
    }
    let (last, handle) = source(&nodes[random.usize(..nodes.len())]);
    edges.push(
        json!({"source": last, "sourceHandle": handle, "target": "gives", "targetHandle": "out"}),
    );
    nodes.push(json!({"id": "given", "type": "core:GroupInput"}));
    nodes.push(json!({"id": "gives", "type": "core:GroupOutput"}));
    json!({
        "nodes": nodes,
        "edges": edges,
        "interfaceInputs": {"x": {"dataFlowType": "WILDCARD"}},
        "interfaceOutputs": {"out": {"dataFlowType": "WILDCARD"}},
    })
}

impl World {
    /// Follows a run until `count` events have happened, or it has ended.
    async fn until_events(&self, run_id: &str, count: usize) {
        let seen = Cell::new(0);
        let wanted = |_: &_| {
            seen.set(seen.get() + 1);
            seen.get() >= count
        };
        self.events_until(run_id, wanted).await;
    }

    async fn all_runs(&self) -> Vec<Run> {
        let mut runs = self.runs.clone();
        let list = runs.list_runs(ListRunsRequest::default()).await;
        list.unwrap().into_inner().runs
    }
}

async fn check(seed: u64) {
    let mut random = Rng::with_seed(seed);
    let mut world = World::new().await;
    let innermost = random_workflow(&mut random, &[]);
    world.put("innermost", &innermost).await;
    let below_runs = &["innermost"][..random.usize(0..=1)];
    let below = random_workflow(&mut random, below_runs);
    world.put("below", &below).await;
    let top_runs: Vec<&str> = (0..random.usize(1..=3))
        .map(|_| ["below", "innermost"][random.usize(0..2)])
        .collect();
    let top = random_workflow(&mut random, &top_runs);
    let run_id = world.start(&top, json!({})).await.run_id;
    for _ in 0..random.usize(0..=MAX_KILLS) {
        let count = random.usize(1..DISTURBED);
        world.until_events(&run_id, count).await;
        world = world.killed().await;
    }
    if random.bool() {
        let count = random.usize(1..DISTURBED);
        world.until_events(&run_id, count).await;
        let request = CancelRunRequest {
            run_id: run_id.clone(),
            reason: "enough".into(),
        };
        world.runs.clone().cancel_run(request).await.unwrap();
    }
    world.events(&run_id).await;
    let place = format!("seed {seed}");
    let runs = world.all_runs().await;
    let mut logs = Logs::new();
    for run in &runs {
        logs.insert(run.run_id.clone(), world.events(&run.run_id).await);
    }
    check_logs(&place, &runs, &logs, |subject, is_top| match subject {
        _ if is_top => top["nodes"].as_array().unwrap().len(),
        "below" => below["nodes"].as_array().unwrap().len(),
        _ => innermost["nodes"].as_array().unwrap().len(),
    });
}

fn check_logs(place: &str, runs: &[Run], logs: &Logs, nodes: impl Fn(&str, bool) -> usize) {
    let effects: Vec<&String> = runs.iter().map(|run| &run.request_id).collect();
    for run in runs {
        let run_id = &run.run_id;
        let parent = logs[run_id][0].parent_path.last();
        check_steps(place, nodes(&run.subject, parent.is_none()), run_id, logs);
        check_recorded_below(place, run_id, logs);
        check_results(place, run_id, logs);
        check_cancelled(place, run_id, logs);
        let Some(parent) = parent else {
            continue;
        };
        let of_effect = effects.iter().filter(|effect| ***effect == run.request_id);
        assert_eq!(of_effect.count(), 1, "{place}: {}", run.request_id);
        check_ends_with_parent(place, parent, run_id, logs);
        let parent_is_cancelled = outcome(&logs[parent]).state() == RunState::Cancelled;
        let is_cancelled = outcome(&logs[run_id]).state() == RunState::Cancelled;
        assert!(parent_is_cancelled || !is_cancelled, "{place}: {run_id}");
    }
}

#[tokio::test]
async fn runs_below_start_once_and_end_with_their_parents_over_kills_and_cancels() {
    let seeds = std::env::var("TAVERN_TEST_PARENTS");
    let seeds = seeds.map_or(SEEDS, |seeds| seeds.parse().unwrap());
    for seed in 0..seeds {
        check(seed).await;
    }
}
