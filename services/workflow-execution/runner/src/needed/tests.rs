use contracts::tavern::common::v1::{
    CallDispatched, CallResult, CallSettled, IterationFinished, NodeFinished, NodeStarted,
    NodeWaiting, NodeWoken, OutputChunk, RunStarted, SignalReceived, Wait,
};
use serde_json::json;

use workflow_domain::compile::compile_text;

use super::*;

/// A loop that carries `sum` and waits for signals.
fn plan() -> Plan {
    let definition = json!({"nodes": [
        {"id": "loop", "type": "core:LoopZone", "inputValues": {"count": 9},
         "configValues": {"variables": [{"key": "sum", "dataFlowType": "FLOAT", "default": 0}]}},
        {"id": "in", "type": "core:ZoneInput", "parentNode": "loop"},
        {"id": "s", "type": "core:WaitSignal", "parentNode": "loop", "configValues": {"name": "go"}},
        {"id": "out", "type": "core:ZoneOutput", "parentNode": "loop"},
    ]});
    compile_text(&definition.to_string(), &workflow_nodes::builtin()).unwrap()
}

fn picked(kinds: Vec<Kind>) -> Vec<u64> {
    let event = |(sequence, kind)| RunEvent {
        sequence,
        run_id: "flow".to_owned(),
        kind: Some(kind),
        ..RunEvent::default()
    };
    let events: Vec<RunEvent> = (1..).zip(kinds).map(event).collect();
    let needed_once = needed(&plan(), "flow", &events);
    // Needed events stay needed when only they are read.
    let left = events.into_iter();
    let left: Vec<RunEvent> = left
        .filter(|event| needed_once.contains(&event.sequence))
        .collect();
    assert_eq!(needed(&plan(), "flow", &left), needed_once);
    needed_once
}

fn finished(node_id: &str) -> Kind {
    Kind::NodeFinished(NodeFinished {
        node_id: node_id.to_owned(),
        state: common::NodeState::Succeeded.into(),
        ..NodeFinished::default()
    })
}

fn started(node_id: &str) -> Kind {
    Kind::NodeStarted(NodeStarted {
        node_id: node_id.to_owned(),
        ..NodeStarted::default()
    })
}

/// An iteration that waits for a signal and results in `gave`.
fn iteration(index: u64, signal_id: &str, gave: &str) -> Vec<Kind> {
    let node_id = format!("loop#{index}/s");
    let wait_id = format!("w{index}");
    vec![
        Kind::NodeWaiting(NodeWaiting {
            wait: Some(Wait {
                wait_id: wait_id.clone(),
                node_id: node_id.clone(),
                name: "go".to_owned(),
                ..Wait::default()
            }),
        }),
        Kind::SignalReceived(SignalReceived {
            name: "go".to_owned(),
            signal_id: signal_id.to_owned(),
            ..SignalReceived::default()
        }),
        Kind::NodeWoken(NodeWoken {
            wait_id,
            node_id: node_id.clone(),
            cause: WakeCause::Signal.into(),
            ..NodeWoken::default()
        }),
        finished(&node_id),
        Kind::IterationFinished(IterationFinished {
            node_id: "loop".to_owned(),
            index,
            outputs_json: gave.to_owned(),
            ..IterationFinished::default()
        }),
    ]
}

fn of_loop(iterations: Vec<Vec<Kind>>) -> Vec<Kind> {
    let first = [Kind::RunStarted(RunStarted::default()), started("loop")];
    first.into_iter().chain(iterations.concat()).collect()
}

#[test]
fn w5_of_a_loop_the_last_values_of_its_variables_are_needed() {
    let sum = r#"{"sum":1}"#;
    let open = || vec![started("loop#3/s")];
    let whole = vec![
        iteration(0, "", sum),
        iteration(1, "", sum),
        iteration(2, "", sum),
        open(),
    ];
    assert_eq!(picked(of_loop(whole)), [1, 2, 17, 18]);
    // The last iteration left the variable unchanged.
    let kept = vec![
        iteration(0, "", sum),
        iteration(1, "", sum),
        iteration(2, "", "{}"),
        open(),
    ];
    assert_eq!(picked(of_loop(kept)), [1, 2, 12, 17, 18]);
}

#[test]
fn w40_a_signal_with_an_id_is_needed_with_all_that_consumed_it() {
    let sum = r#"{"sum":1}"#;
    let events = of_loop(vec![iteration(0, "id", sum), iteration(1, "", sum)]);
    assert_eq!(picked(events), [1, 2, 3, 4, 5, 6, 12]);
}

#[test]
fn w5_a_node_that_ended_is_its_end_and_a_call_under_way_is_all_that_happened() {
    let dispatched = |node_id: &str, effect_id: &str| {
        Kind::CallDispatched(CallDispatched {
            node_id: node_id.to_owned(),
            effect_id: effect_id.to_owned(),
            ..CallDispatched::default()
        })
    };
    let chunk = |effect_id: &str| {
        Kind::OutputChunk(OutputChunk {
            effect_id: effect_id.to_owned(),
            ..OutputChunk::default()
        })
    };
    let settled = |effect_id: &str| {
        Kind::CallSettled(CallSettled {
            result: Some(CallResult {
                effect_id: effect_id.to_owned(),
                ..CallResult::default()
            }),
        })
    };
    let events = vec![
        started("a"),
        dispatched("a", "e1"),
        chunk("e1"),
        settled("e1"),
        finished("a"),
        started("b"),
        dispatched("b", "e2"),
        chunk("e2"),
    ];
    assert_eq!(picked(events), [5, 6, 7, 8]);
}

#[test]
fn w5_of_a_run_below_the_last_event_is_needed_until_its_node_has_ended() {
    let own = |sequence: u64, kind: Kind| RunEvent {
        sequence,
        run_id: "flow".to_owned(),
        kind: Some(kind),
        ..RunEvent::default()
    };
    let below = |sequence: u64| RunEvent {
        sequence,
        run_id: "child".to_owned(),
        parent_path: vec!["flow".to_owned()],
        origin_sequence: sequence,
        kind: Some(started("x")),
        ..RunEvent::default()
    };
    let settled = Kind::CallSettled(CallSettled {
        result: Some(CallResult {
            effect_id: "e".to_owned(),
            child_run_id: "child".to_owned(),
            ..CallResult::default()
        }),
    });
    let dispatched = Kind::CallDispatched(CallDispatched {
        node_id: "a".to_owned(),
        effect_id: "e".to_owned(),
        ..CallDispatched::default()
    });
    let events = [
        own(1, dispatched),
        below(2),
        below(3),
        own(4, settled),
        own(5, finished("a")),
    ];
    let plan = plan();
    assert_eq!(needed(&plan, "flow", &events[..3]), [1, 3]);
    assert_eq!(needed(&plan, "flow", &events[..4]), [1, 3, 4]);
    assert_eq!(needed(&plan, "flow", &events), [5]);
}

#[test]
fn w5_what_a_group_or_a_composite_ended_is_needed_too() {
    let events = vec![
        finished("x/ask"),
        finished("x"),
        finished("m#1/x/ask"),
        finished("m#1/x"),
    ];
    assert_eq!(picked(events), [1, 2, 3, 4]);
}
