//! The engine over random graphs and over recorded histories.

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Map, Value, json};
use workflow_domain::compile::compile_text;
use workflow_domain::data_flow::Values;
use workflow_domain::engine::{Command, Engine, Event, Outcome, Status};
use workflow_domain::evaluate::{all_present, check_outputs, contain, execute, finished};
use workflow_domain::interface::{RunInputs, bind};
use workflow_domain::limits::{MAX_RUN_BYTES, MAX_VALUE_BYTES};
use workflow_domain::node_type::Step;
use workflow_domain::plan::{NodeIndex, Plan};

/// A graph of `count` nodes with edges from lower to higher numbers; the failing ones take the
/// root of a negative number. The others add two numbers, so further edges into one are left out.
fn graph(count: usize, edges: &[(usize, usize)], failing: &[usize]) -> Arc<Plan> {
    let nodes: Vec<Value> = (0..count)
        .map(|at| match failing.contains(&at) {
            true => json!({"id": format!("n{at}"), "type": "core:MathOperation",
                "configValues": {"operationMode": "sqrt"}, "inputValues": {"value": -1}}),
            false => json!({"id": format!("n{at}"), "type": "core:MathOperation",
                "configValues": {"operationMode": "add"}, "inputValues": {"a": 1, "b": at}}),
        })
        .collect();
    let mut free: Vec<Vec<&str>> = vec![vec!["b", "a"]; count];
    let edges: Vec<Value> = edges
        .iter()
        .filter(|(_, to)| !failing.contains(to))
        .filter_map(|(from, to)| {
            let handle = free[*to].pop()?;
            Some(
                json!({"source": format!("n{from}"), "sourceHandle": "result",
                "target": format!("n{to}"), "targetHandle": handle}),
            )
        })
        .collect();
    let text = json!({"nodes": nodes, "edges": edges}).to_string();
    Arc::new(compile_text(&text, &workflow_nodes::builtin()).unwrap())
}

fn no_inputs() -> RunInputs {
    bind(&[], &Map::new()).unwrap()
}

/// Runs to the end, taking commands in the order that `pick` decides, and returns the events and
/// the engine.
fn drive(plan: &Arc<Plan>, mut pick: impl FnMut(usize) -> usize) -> (Vec<Event>, Engine) {
    let mut commands = Vec::new();
    let mut engine = Engine::start(Arc::clone(plan), no_inputs(), &mut commands);
    let mut history = Vec::new();
    while !commands.is_empty() {
        let command = commands.remove(pick(commands.len()));
        let event = match command {
            Command::Skip { node, .. } => Event::Skipped(node),
            Command::Execute(node) => {
                let gave = execute(&engine, node).map(|step| match step {
                    Step::Done(outputs) => all_present(outputs),
                    Step::Branch(outputs) => outputs,
                    Step::Effect(_) | Step::Wait(_) => panic!("all nodes are pure"),
                });
                finished(&engine, node, gave)
            }
        };
        engine.apply(event.clone(), &mut commands).unwrap();
        history.push(event);
    }
    (history, engine)
}

fn statuses(engine: &Engine) -> Vec<Status> {
    let nodes = 0..engine.plan().nodes.len() as NodeIndex;
    nodes.map(|node| engine.status(node)).collect()
}

/// The parts of a state that are compared.
fn state(engine: &Engine) -> (Vec<Status>, Vec<Option<Vec<Value>>>, Vec<Command>) {
    let outputs = (0..engine.plan().nodes.len() as NodeIndex).map(|node| {
        engine.outputs_of(node).map(|outputs| {
            outputs
                .iter()
                .flatten()
                .map(|value| value.as_ref().clone())
                .collect()
        })
    });
    (statuses(engine), outputs.collect(), engine.outstanding())
}

fn random_graph() -> impl Strategy<Value = (usize, Vec<(usize, usize)>, Vec<usize>)> {
    let counts = prop_oneof![9 => 1..24_usize, 1 => 24..=500_usize];
    counts.prop_flat_map(|count| {
        let edges = prop::collection::vec((0..count, 0..count), 0..count * 2);
        let failing = prop::collection::vec(0..count, 0..3);
        (Just(count), edges, failing).prop_map(|(count, edges, failing)| {
            let ordered = edges
                .into_iter()
                .filter(|(a, b)| a != b)
                .map(|(a, b)| (a.min(b), a.max(b)));
            (count, ordered.collect(), failing)
        })
    })
}

proptest! {
    #[test]
    fn each_node_settles_once_and_never_before_what_it_needs((count, edges, failing) in random_graph(), seed: u64) {
        let plan = graph(count, &edges, &failing);
        let mut random = seed;
        let (history, engine) = drive(&plan, |len| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) as usize % len
        });
        let place = |node: NodeIndex| history.iter().position(|event| event.node() == node).unwrap();
        prop_assert_eq!(history.len(), count);
        for (from, node) in plan.nodes.iter().enumerate() {
            for to in &node.successors {
                // A skipped node waits for no other.
                if engine.status(*to) != Status::Skipped {
                    prop_assert!(place(from as NodeIndex) < place(*to));
                    prop_assert_eq!(engine.status(from as NodeIndex), Status::Succeeded);
                }
            }
        }
        let any_failed = history.iter().any(|event| matches!(event, Event::Failed(..)));
        prop_assert_eq!(matches!(engine.outcome(), Some(Outcome::Failed { .. })), any_failed);
    }

    #[test]
    fn the_order_of_execution_does_not_change_the_outputs((count, edges, failing) in random_graph(), seed: u64) {
        let plan = graph(count, &edges, &failing);
        let (_, first) = drive(&plan, |_| 0);
        let mut random = seed | 1;
        let (_, second) = drive(&plan, |len| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) as usize % len
        });
        prop_assert_eq!(state(&first), state(&second));
    }

    #[test]
    fn a_replayed_prefix_gives_the_state_it_was((count, edges, failing) in random_graph(), cut in 0.0..1.0_f64) {
        let plan = graph(count, &edges, &failing);
        let (history, whole) = drive(&plan, |len| len - 1);
        let cut = (history.len() as f64 * cut) as usize;

        let mut commands = Vec::new();
        let mut replayed = Engine::start(Arc::clone(&plan), no_inputs(), &mut commands);
        for event in &history[..cut] {
            replayed.apply(event.clone(), &mut commands).unwrap();
        }
        // The commands that the events did not answer are outstanding.
        let answered: Vec<NodeIndex> = history[..cut].iter().map(Event::node).collect();
        commands.retain(|command| {
            let (Command::Execute(node) | Command::Skip { node, .. }) = command;
            !answered.contains(node)
        });
        commands.sort_by_key(|command| match command {
            Command::Execute(node) | Command::Skip { node, .. } => *node,
        });
        prop_assert_eq!(replayed.outstanding(), commands);

        // Continuing from there ends like the whole run.
        for event in &history[cut..] {
            replayed.apply(event.clone(), &mut Vec::new()).unwrap();
        }
        prop_assert_eq!(state(&replayed), state(&whole));
        prop_assert_eq!(replayed.outcome(), whole.outcome());
    }
}

#[test]
fn a_failure_skips_what_depends_on_it_and_nothing_else() {
    let plan = graph(5, &[(0, 1), (1, 2), (3, 4)], &[0]);
    let (_, engine) = drive(&plan, |_| 0);
    let expected = [
        Status::Failed,
        Status::Skipped,
        Status::Skipped,
        Status::Succeeded,
        Status::Succeeded,
    ];
    assert_eq!(statuses(&engine), expected);
    let Some(Outcome::Failed {
        first,
        failure,
        all,
    }) = engine.outcome()
    else {
        panic!("a node failed")
    };
    assert_eq!(
        (first, failure.code.as_str(), all),
        (0, "undefined_result", vec![0])
    );
}

#[test]
fn an_event_that_cannot_have_happened_is_refused_and_changes_nothing() {
    let plan = graph(2, &[(0, 1)], &[]);
    let mut commands = Vec::new();
    let mut engine = Engine::start(plan, no_inputs(), &mut commands);
    let outputs: Values = vec![Some(Arc::new(json!("x")))].into();
    let before = state(&engine);
    for event in [
        Event::Started(1),
        Event::Succeeded(1, outputs.clone()),
        Event::Skipped(0),
        Event::Started(7),
    ] {
        assert!(engine.apply(event, &mut commands).is_err());
    }
    assert_eq!(state(&engine), before);
    engine
        .apply(Event::Succeeded(0, outputs.clone()), &mut commands)
        .unwrap();
    let error = engine
        .apply(Event::Succeeded(0, outputs), &mut commands)
        .unwrap_err();
    let sentence = "the history does not fit the workflow: node n0 is done and succeeded";
    assert_eq!(error.to_string(), sentence);
}

#[test]
fn a_running_node_is_outstanding_after_a_replay() {
    let plan = graph(2, &[(0, 1)], &[]);
    let mut engine = Engine::start(plan, no_inputs(), &mut Vec::new());
    engine.apply(Event::Started(0), &mut Vec::new()).unwrap();
    assert_eq!(engine.status(0), Status::Running);
    assert_eq!(engine.outstanding(), [Command::Execute(0)]);
}

#[test]
fn outputs_are_bounded_one_by_one_and_together() {
    let plan = graph(1, &[], &[]);
    let mut engine = Engine::start(plan, no_inputs(), &mut Vec::new());
    let huge = vec![Some(Arc::new(json!("x".repeat(MAX_VALUE_BYTES))))];
    assert_eq!(
        check_outputs(&engine, 0, huge.into()).unwrap_err().code,
        "value_too_large"
    );
    let all = vec![Some(Arc::new(json!("x".repeat(MAX_RUN_BYTES))))];
    let held = engine.apply(Event::Succeeded(0, all.into()), &mut Vec::new());
    held.unwrap();
    assert_eq!(
        check_outputs(&engine, 0, vec![Some(Arc::new(json!(1)))].into())
            .unwrap_err()
            .code,
        "run_too_large"
    );
    assert_eq!(
        check_outputs(&engine, 0, Values::new()).unwrap_err().code,
        "wrong_outputs"
    );
}

#[test]
fn a_node_that_panics_has_failed() {
    let plan = graph(1, &[], &[]);
    let failure = contain::<()>(&plan.nodes[0], || panic!("a mistake")).unwrap_err();
    assert_eq!(
        (failure.code.as_str(), failure.category),
        ("node_panicked", call_outcome::Category::Internal)
    );
}

/// A relay that fails for lack of text, a reader of its stream, and a reader of its whole text.
/// `execution` is the setting of the reader of the stream.
fn broken(execution: Value) -> Arc<Plan> {
    let edge = |source: &str, output: &str, target: &str, input: &str| json!({"source": source, "sourceHandle": output, "target": target, "targetHandle": input});
    let text = json!({
        "nodes": [
            {"id": "object", "type": "core:Condition", "configValues": {"condition": "true"}, "inputValues": {"value": {}}},
            {"id": "say", "type": "core:StreamSuffixRelay"},
            {"id": "read", "type": "core:StreamToString", "configValues": {"execution": execution}},
            {"id": "after", "type": "core:TextSummarizer"},
            {"id": "whole", "type": "core:TextSummarizer"},
            {"id": "out", "type": "core:GroupOutput"},
        ],
        "edges": [
            edge("object", "then", "say", "inputStream"),
            edge("say", "outputStream", "read", "stream"),
            edge("read", "text", "after", "text"),
            edge("say", "outputStream", "whole", "text"),
            edge("say", "outputStream", "out", "live"),
        ],
        "interfaceOutputs": {"live": {"dataFlowType": "STRING", "isStream": true}},
    });
    Arc::new(compile_text(&text.to_string(), &workflow_nodes::builtin()).unwrap())
}

#[test]
fn w27_what_reads_from_a_node_that_fails_fails_and_may_handle_that() {
    let handling = json!({"onError": "continue", "outputs": {"text": "cut"}});
    for (execution, after) in [(json!({}), Status::Skipped), (handling, Status::Succeeded)] {
        let plan = broken(execution);
        let (history, engine) = drive(&plan, |_| 0);
        let node = |id: &str| plan.by_id[id];
        let failure = history.iter().find_map(|event| match event {
            Event::Failed(failed, failure) | Event::Handled(failed, _, failure) => {
                (*failed == node("read")).then(|| failure.code.to_string())
            }
            _ => None,
        });
        assert_eq!(failure.as_deref(), Some("stream_broken"));
        assert_eq!(engine.status(node("after")), after);
        assert_eq!(engine.status(node("whole")), Status::Skipped);
        assert_eq!(engine.status(node("out")), Status::Skipped);
        let Some(Outcome::Failed { first, .. }) = engine.outcome() else {
            panic!("the run failed");
        };
        assert_eq!(first, node("say"));
    }
}
