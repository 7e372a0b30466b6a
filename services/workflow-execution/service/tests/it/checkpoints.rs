//! Long runs are continued from their last checkpoint (rule W5).

use std::path::Path;
use std::sync::Arc;

use contracts::tavern::common::v1::run_event::Kind;
use core_types::{RunOwner, SystemClock, SystemIds};
use run_events::{EVENTS_PER_CHECKPOINT, Runs};
use run_log::RunLogs;
use serde_json::{Value, json};
use sql_store::SqliteOptions;

use crate::support::*;

/// The number of events of an iteration of [`counting`].
const EVENTS_PER_ITERATION: u64 = 9;

/// Calls a tool in each iteration of a loop and adds the numbers of the iterations up.
fn counting(count: u64) -> Value {
    let inside = |mut node: Value| {
        node["parentNode"] = json!("loop");
        node
    };
    json!({
        "nodes": [
            {"id": "loop", "type": "core:LoopZone", "inputValues": {"count": count},
             "configValues": {"variables": [{"key": "sum", "dataFlowType": "FLOAT", "default": 0}],
                "maxIterations": 100_000}},
            inside(json!({"id": "zin", "type": "core:ZoneInput"})),
            inside(tool("act", "echo")),
            inside(json!({"id": "n", "type": "core:JsonSelector", "inputValues": {"path": "$.n"}})),
            inside(json!({"id": "add", "type": "core:MathOperation",
                "configValues": {"operationMode": "add"}})),
            inside(json!({"id": "zout", "type": "core:ZoneOutput"})),
            {"id": "out", "type": "core:GroupOutput"},
        ],
        "edges": [
            edge("zin", "index", "act", "n"), edge("act", "result", "n", "json"),
            edge("n", "value", "add", "a"), edge("zin", "sum", "add", "b"),
            edge("add", "result", "zout", "sum"), edge("loop", "sum", "out", "sum"),
        ],
        "interfaceOutputs": {"sum": {"dataFlowType": "FLOAT"}},
    })
}

/// Reads the events for a recovery of the only open run in a directory; returns their number.
async fn read_at_recovery(data: &Path) -> u64 {
    let file = data.join("data/workflow-execution.runs.db");
    let logs = RunLogs::open(SqliteOptions::new(file)).await.unwrap();
    let (clock, ids) = (Arc::new(SystemClock), Arc::new(SystemIds));
    let runs = Runs::new(logs, RunOwner::Workflow, clock, ids);
    let open = runs.open_runs().await.unwrap();
    runs.shutdown().await;
    open[0].events.len() as u64
}

#[tokio::test]
async fn w5_a_recovery_reads_the_last_checkpoint_and_what_came_after_it() {
    let world = World::new().await;
    let count = EVENTS_PER_CHECKPOINT / EVENTS_PER_ITERATION + 100;
    let run = world.start(&counting(count), json!({})).await.run_id;
    // It is stopped between two checkpoints.
    let late =
        |kind: &Kind| matches!(kind, Kind::IterationFinished(ended) if ended.index == count - 60);
    world.events_until(&run, late).await;
    world.pause(&run).await.unwrap();
    let copied = world.copy_of_data();
    let read = read_at_recovery(copied.path()).await;
    assert!(read < 110 * EVENTS_PER_ITERATION, "{read} events were read");
    let world = world.killed().await;
    world.resume(&run).await.unwrap();
    let events = world.events(&run).await;
    let checkpoints = events
        .iter()
        .filter(|event| matches!(event.kind, Some(Kind::Checkpoint(_))));
    assert_eq!(checkpoints.count(), 1);
    let sum = count * (count - 1) / 2;
    assert_eq!(result(&world.outcome(&run).await), json!({"sum": sum}));
    let asked = world.registry.asked().len() as u64;
    assert!(asked <= count + 1, "no iteration is done again: {asked}");
}
