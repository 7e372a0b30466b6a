//! Recorded histories replay: a change that makes one diverge breaks runs in progress.
//!
//! The files in `tests/histories` were written by real runs. Each has a definition, the inputs, the
//! events and, after each event, the nodes that were left to do. To record them anew, on purpose,
//! run these tests with `TAVERN_RECORD_HISTORIES=1`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use contracts::tavern::common::v1::RunEvent;
use prost_reflect::prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor};
use serde_json::{Map, Value, json};
use workflow_domain::compile::compile_text;
use workflow_domain::engine::{Command, Outcome};
use workflow_domain::interface::bind;
use workflow_runner::needed::needed;
use workflow_runner::run_state::RunState;

use crate::support::*;

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/histories")
}

fn event_descriptor() -> MessageDescriptor {
    let pool = DescriptorPool::decode(contracts::FILE_DESCRIPTOR_SET).unwrap();
    pool.get_message_by_name("tavern.common.v1.RunEvent")
        .unwrap()
}

fn to_json(event: &RunEvent) -> Value {
    let message =
        DynamicMessage::decode(event_descriptor(), event.encode_to_vec().as_slice()).unwrap();
    serde_json::to_value(message).unwrap()
}

fn from_json(value: &Value) -> RunEvent {
    let text = value.to_string();
    let mut reader = serde_json::Deserializer::from_str(&text);
    let message = DynamicMessage::deserialize(event_descriptor(), &mut reader).unwrap();
    message.transcode_to().unwrap()
}

fn state_after(definition: &str, inputs: &Map<String, Value>, events: &[RunEvent]) -> RunState {
    let plan = Arc::new(compile_text(definition, &workflow_nodes::builtin()).unwrap());
    let inputs = bind(&plan.interface_inputs, inputs).unwrap();
    let run_id = &events[0].run_id;
    RunState::replay(plan, inputs, run_id, events).unwrap()
}

/// Returns the events that are needed to continue a run.
fn picked(definition: &str, events: &[RunEvent]) -> Vec<RunEvent> {
    let plan = compile_text(definition, &workflow_nodes::builtin()).unwrap();
    let needed = needed(&plan, &events[0].run_id, events);
    let events = events.iter();
    let picked = events.filter(|event| needed.contains(&event.sequence));
    picked.cloned().collect()
}

fn outstanding(state: &RunState) -> Vec<String> {
    let name = |command: &Command| match command {
        Command::Execute(node) => format!("execute {}", state.engine().node(*node).id),
        Command::Skip { node, because, .. } => {
            format!(
                "skip {} because of {}",
                state.engine().node(*node).id,
                state.engine().node(*because).id
            )
        }
    };
    state.engine().outstanding().iter().map(name).collect()
}

async fn record(world: &World, name: &str, definition: Value, inputs: Value) {
    let run = world.start(&definition, inputs.clone()).await;
    let events = world.events(&run.run_id).await;
    let text = definition.to_string();
    let given = inputs.as_object().unwrap();
    let left: Vec<Vec<String>> = (1..=events.len())
        .map(|count| outstanding(&state_after(&text, given, &events[..count])))
        .collect();
    let events: Vec<Value> = events.iter().map(to_json).collect();
    let history =
        json!({"definition": definition, "inputs": inputs, "events": events, "outstanding": left});
    let text = serde_json::to_string_pretty(&history).unwrap();
    std::fs::write(directory().join(name).with_extension("json"), text + "\n").unwrap();
}

/// Two scripts in parallel between the ends of the interface.
fn diamond() -> Value {
    json!({
        "nodes": [{"id": "in", "type": "core:GroupInput"}, python("left", "give(inputs['n'] + 1)\n"),
            python("right", "give(inputs['n'] * 2)\n"),
            {"id": "sum", "type": "core:MathOperation", "configValues": {"operationMode": "add"}},
            {"id": "out", "type": "core:GroupOutput"}],
        "edges": [edge("in", "n", "left", "n"), edge("in", "n", "right", "n"), edge("left", "result", "sum", "a"),
            edge("right", "result", "sum", "b"), edge("sum", "result", "out", "r")],
        "interfaceInputs": {"n": {"dataFlowType": "INTEGER", "required": true}},
        "interfaceOutputs": {"r": {"dataFlowType": "FLOAT"}},
    })
}

fn failing() -> Value {
    json!({
        "nodes": [tool("bad", "fail"), tool("after", "echo"), tool("last", "echo"), tool("beside", "echo")],
        "edges": [edge("bad", "result", "after", "x"), edge("after", "result", "last", "x")],
    })
}

fn chain() -> Value {
    json!({
        "nodes": [tool("a", "chatty"), tool("b", "echo"),
            {"id": "text", "type": "core:FormatPrompt", "inputValues": {"template": "{x}"}},
            {"id": "out", "type": "core:GroupOutput"}],
        "edges": [edge("a", "result", "b", "x"), edge("b", "result", "text", "x"), edge("text", "prompt", "out", "r")],
        "interfaceOutputs": {"r": {"dataFlowType": "STRING"}},
    })
}

#[tokio::test]
async fn histories_are_recorded_when_asked_for() {
    if std::env::var_os("TAVERN_RECORD_HISTORIES").is_none() {
        return;
    }
    let world = World::new().await;
    record(&world, "diamond_of_scripts", diamond(), json!({"n": 3})).await;
    record(&world, "failed_tool", failing(), json!({})).await;
    record(&world, "chain_of_tools", chain(), json!({})).await;
    record(
        &world,
        "unknown_call",
        json!({"nodes": [tool("u", "unknown")]}),
        json!({}),
    )
    .await;
}

#[test]
fn every_recorded_history_replays() {
    let mut count = 0;
    for file in std::fs::read_dir(directory()).unwrap() {
        let path = file.unwrap().path();
        let history: Value =
            serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        let definition = history["definition"].to_string();
        let inputs = history["inputs"].as_object().unwrap();
        let events: Vec<RunEvent> = history["events"]
            .as_array()
            .unwrap()
            .iter()
            .map(from_json)
            .collect();
        for (at, left) in history["outstanding"]
            .as_array()
            .unwrap()
            .iter()
            .enumerate()
        {
            let replayed = state_after(&definition, inputs, &events[..=at]);
            let place = format!("{} after event {}", path.display(), at + 1);
            assert_eq!(&json!(outstanding(&replayed)), left, "{place}");
            // The events that a checkpoint there names result in the same state.
            let picked = picked(&definition, &events[..=at]);
            let continued = state_after(&definition, inputs, &picked);
            assert_eq!(&json!(outstanding(&continued)), left, "{place}");
            let unsettled = |state: &RunState| {
                let effects = state.unsettled().map(|(_, effect_id)| effect_id.to_owned());
                effects.collect::<BTreeSet<_>>()
            };
            assert_eq!(unsettled(&continued), unsettled(&replayed), "{place}");
        }
        let replayed = state_after(&definition, inputs, &events);
        let recorded = replayed.outcome().expect("the history is of a whole run");
        match replayed.engine().outcome() {
            Some(Outcome::Succeeded(result)) => {
                assert_eq!(Value::Object(result).to_string(), recorded.result_json)
            }
            Some(Outcome::Failed { failure, .. }) => {
                assert_eq!(failure.code, recorded.error.as_ref().unwrap().code)
            }
            Some(Outcome::TooLarge { .. }) => panic!("no recorded run was too large"),
            None => assert!(
                !recorded.unsettled_effect_ids.is_empty(),
                "{}",
                path.display()
            ),
        }
        count += 1;
    }
    assert!(count >= 4);
}
