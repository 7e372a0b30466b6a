//! Random workflows of nodes that compute, wait, call tools and fail.

use std::sync::Arc;

use fastrand::Rng;
use serde_json::{Value, json};
use workflow_domain::compile::compile_text;
use workflow_domain::node_type::Catalogue;
use workflow_domain::plan::Plan;

const MAX_NODES: usize = 12;

/// A node as drawn, with the inputs that edges may lead to and its main output.
struct Drawn {
    node: Value,
    /// What is inside it, and the edges there.
    inside: (Vec<Value>, Vec<Value>),
    inputs: Vec<&'static str>,
    output: &'static str,
}

/// Draws a workflow. Edges lead from earlier to later nodes.
pub(super) fn random_plan(random: &mut Rng, catalogue: &Catalogue) -> Arc<Plan> {
    let count = random.usize(1..=MAX_NODES);
    let mut drawn: Vec<Drawn> = (0..count).map(|at| random_node(random, at)).collect();
    let mut edges = Vec::new();
    for target in 1..count {
        for _ in 0..random.usize(0..=2) {
            let source = random.usize(0..target);
            let Some(input) = drawn[target].inputs.pop() else {
                break;
            };
            edges.push(json!({
                "source": format!("n{source}"), "sourceHandle": drawn[source].output,
                "target": format!("n{target}"), "targetHandle": input,
            }));
        }
    }
    let mut nodes = Vec::new();
    for drawn in drawn {
        nodes.push(drawn.node);
        nodes.extend(drawn.inside.0);
        edges.extend(drawn.inside.1);
    }
    let text = json!({"nodes": nodes, "edges": edges}).to_string();
    Arc::new(compile_text(&text, catalogue).unwrap())
}

fn random_node(random: &mut Rng, at: usize) -> Drawn {
    let id = format!("n{at}");
    match random.u8(0..10) {
        8 | 9 => random_zone(random, &id, 0),
        _ => random_leaf(random, &id, at),
    }
}

/// Draws a loop or a map with a node that works, waits, or is a zone itself.
fn random_zone(random: &mut Rng, id: &str, depth: usize) -> Drawn {
    let (zin, zout) = (format!("{id}_in"), format!("{id}_out"));
    let inner_id = format!("{id}_x");
    let mut inner = match random.u8(0..4) {
        0 if depth == 0 => random_zone(random, &inner_id, depth + 1),
        _ => random_leaf(random, &inner_id, 1),
    };
    let on_error = ["fail", "continue"][random.usize(0..2)];
    let on_item_error = ["fail", "continue"][random.usize(0..2)];
    let is_loop = random.bool();
    let (mut node, gives, takes, output) = match is_loop {
        true => {
            let config = json!({"variables": [{"key": "v", "dataFlowType": "WILDCARD", "default": 0}],
                "execution": {"onError": on_error}});
            let node = json!({"type": "core:LoopZone", "configValues": config,
                "inputValues": {"count": random.u32(0..4)}});
            (node, "v", "v", "v")
        }
        false => {
            let config = json!({"concurrency": random.u32(1..4),
                "onItemError": on_item_error,
                "execution": {"onError": on_error}});
            let node = json!({"type": "core:MapList", "configValues": config,
                "inputValues": {"items": [1, 2, 3, 4]}});
            (node, "item", "result", "succeeded")
        }
    };
    node["id"] = json!(id);
    let within = |mut node: Value| {
        node["parentNode"] = json!(id);
        node
    };
    let edge = |from: (&str, &str), to: (&str, &str)| json!({"source": from.0, "sourceHandle": from.1, "target": to.0, "targetHandle": to.1});
    let mut edges = vec![edge((&inner_id, inner.output), (&zout, takes))];
    edges.extend(
        inner
            .inputs
            .pop()
            .map(|input| edge((&zin, gives), (&inner_id, input))),
    );
    edges.extend(inner.inside.1);
    let mut nodes = vec![
        within(json!({"id": zin, "type": "core:ZoneInput"})),
        within(inner.node),
        within(json!({"id": zout, "type": "core:ZoneOutput"})),
    ];
    nodes.extend(inner.inside.0);
    Drawn {
        node,
        inside: (nodes, edges),
        inputs: vec![],
        output,
    }
}

fn random_leaf(random: &mut Rng, id: &str, at: usize) -> Drawn {
    let on_error = ["fail", "continue", "fallback"][random.usize(0..3)];
    let inside = (Vec::new(), Vec::new());
    match random.u8(0..8) {
        0 => Drawn {
            node: json!({"id": id, "type": "core:MathOperation", "inputValues": {"value": -1},
                "configValues": {"operationMode": "sqrt", "execution": {"onError": on_error}}}),
            inside,
            inputs: vec![],
            output: "result",
        },
        1 | 2 => Drawn {
            node: json!({"id": id, "type": "core:MathOperation", "inputValues": {"a": 1, "b": at},
                "configValues": {"operationMode": "add"}}),
            inside,
            inputs: vec!["b", "a"],
            output: "result",
        },
        3 => Drawn {
            node: json!({"id": id, "type": "core:Timer", "inputValues": {"value": at},
                "configValues": {"duration": random.u32(1..100)}}),
            inside,
            inputs: vec!["value"],
            output: "value",
        },
        4 => {
            let mut config = json!({"name": id});
            // Each iteration waits anew, and there is one signal.
            if id.contains('_') || random.bool() {
                config["timeout"] = json!(random.u32(1..100));
                config["onTimeout"] = json!("default");
            }
            Drawn {
                node: json!({"id": id, "type": "core:WaitSignal", "inputValues": {"value": at},
                    "configValues": config}),
                inside,
                inputs: vec!["value"],
                output: "value",
            }
        }
        _ => Drawn {
            node: json!({"id": id, "type": "core:ExecuteTool", "inputValues": {"tool_id": "tool"},
                "configValues": {"execution": {"onError": on_error,
                    "retry": {"maxAttempts": random.u32(1..=4), "initial": "1s", "on": ["domain"]}}}}),
            inside,
            inputs: vec!["y", "x"],
            output: "result",
        },
    }
}
