//! Random workflows of nodes that compute, wait, call tools and fail.

use std::sync::Arc;

use fastrand::Rng;
use serde_json::{Value, json};
use workflow_execution::domain::compile::compile_text;
use workflow_execution::domain::node_type::Catalogue;
use workflow_execution::domain::plan::Plan;

const MAX_NODES: usize = 12;

/// A node as drawn, with the inputs that edges may lead to and its main output.
struct Drawn {
    node: Value,
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
    let nodes: Vec<Value> = drawn.into_iter().map(|drawn| drawn.node).collect();
    let text = json!({"nodes": nodes, "edges": edges}).to_string();
    Arc::new(compile_text(&text, catalogue).unwrap())
}

fn random_node(random: &mut Rng, at: usize) -> Drawn {
    let id = format!("n{at}");
    let on_error = ["fail", "continue", "fallback"][random.usize(0..3)];
    match random.u8(0..8) {
        0 => Drawn {
            node: json!({"id": id, "type": "core:MathOperation", "inputValues": {"value": -1},
                "configValues": {"operationMode": "sqrt", "execution": {"onError": on_error}}}),
            inputs: vec![],
            output: "result",
        },
        1 | 2 => Drawn {
            node: json!({"id": id, "type": "core:MathOperation", "inputValues": {"a": 1, "b": at},
                "configValues": {"operationMode": "add"}}),
            inputs: vec!["b", "a"],
            output: "result",
        },
        3 => Drawn {
            node: json!({"id": id, "type": "core:Timer", "inputValues": {"value": at},
                "configValues": {"duration": random.u32(1..100)}}),
            inputs: vec!["value"],
            output: "value",
        },
        4 => {
            let mut config = json!({"name": id});
            if random.bool() {
                config["timeout"] = json!(random.u32(1..100));
                config["onTimeout"] = json!("default");
            }
            Drawn {
                node: json!({"id": id, "type": "core:WaitSignal", "inputValues": {"value": at},
                    "configValues": config}),
                inputs: vec!["value"],
                output: "value",
            }
        }
        _ => Drawn {
            node: json!({"id": id, "type": "core:ExecuteTool", "inputValues": {"tool_id": "tool"},
                "configValues": {"execution": {"onError": on_error,
                    "retry": {"maxAttempts": random.u32(1..=4), "initial": "1s", "on": ["domain"]}}}}),
            inputs: vec!["y", "x"],
            output: "result",
        },
    }
}
