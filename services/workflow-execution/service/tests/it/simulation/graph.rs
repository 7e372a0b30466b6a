//! Random workflows of nodes that compute, wait, call tools, run workflows and fail.

use std::collections::BTreeMap;
use std::sync::Arc;

use call_outcome::Category;
use fastrand::Rng;
use serde_json::{Value, json};
use workflow_domain::bundle::{Bundle, Children};
use workflow_domain::compile::compile_bundle;
use workflow_domain::node_type::Catalogue;
use workflow_domain::plan::Plan;

const MAX_NODES: usize = 12;

/// The most nodes of a workflow below, without the nodes of its interface.
const MAX_NODES_BELOW: usize = 4;

/// The most nodes of a workflow that run others.
const MAX_RUNS: usize = 3;

/// The workflow that the workflows below may run, which runs no other.
const INNERMOST: &str = "innermost";

/// The workflows that the workflow at the top may run.
const BELOW: [&str; 2] = ["below_a", "below_b"];

/// A workflow and the workflows that it runs.
pub(super) struct Workflows {
    pub(super) top: Arc<Plan>,
    /// The workflows below, by id.
    pub(super) below: BTreeMap<String, Below>,
}

/// A workflow that others run.
pub(super) struct Below {
    pub(super) plan: Arc<Plan>,
    /// Whether its tool declares that another attempt has no further effect.
    pub(super) is_idempotent: bool,
}

/// A node as drawn, with the inputs that edges may lead to and its main output.
struct Drawn {
    node: Value,
    /// The nodes and edges inside it.
    inside: (Vec<Value>, Vec<Value>),
    inputs: Vec<&'static str>,
    output: &'static str,
}

/// Draws a workflow that runs no other.
pub(super) fn workflow_alone(random: &mut Rng, catalogue: &Catalogue) -> Workflows {
    let count = random.usize(1..=MAX_NODES);
    let drawn = (0..count).map(|at| random_node(random, at)).collect();
    let bundle = Bundle::of(definition(random, drawn).to_string());
    Workflows {
        top: Arc::new(compile_bundle(&bundle, catalogue).unwrap()),
        below: BTreeMap::new(),
    }
}

/// Draws a workflow with one to three nodes that run others, some of which run a third one.
pub(super) fn workflow_with_runs(random: &mut Rng, catalogue: &Catalogue) -> Workflows {
    let mut texts = Children::new();
    let innermost = random_below(random, false).to_string();
    texts.insert(INNERMOST.to_owned(), innermost.into());
    for id in BELOW {
        let runs = random.bool();
        let text = random_below(random, runs).to_string();
        texts.insert(id.to_owned(), text.into());
    }
    let (count, runs) = (random.usize(0..=MAX_NODES / 2), random.usize(1..=MAX_RUNS));
    let mut drawn: Vec<Drawn> = (0..count).map(|at| random_node(random, at)).collect();
    for _ in 0..runs {
        let id = BELOW[random.usize(..BELOW.len())];
        insert_run(random, &mut drawn, id);
    }
    let children = Arc::new(texts);
    let compile = |root: Arc<str>| {
        let children = Arc::clone(&children);
        Arc::new(
            compile_bundle(
                &Bundle {
                    children,
                    ..Bundle::of(root)
                },
                catalogue,
            )
            .unwrap(),
        )
    };
    let top = compile(definition(random, drawn).to_string().into());
    let below = children.iter().map(|(id, text)| {
        let below = Below {
            plan: compile(Arc::clone(text)),
            is_idempotent: random.bool(),
        };
        (id.clone(), below)
    });
    Workflows {
        top,
        below: below.collect(),
    }
}

/// Draws a workflow with an input and one or two outputs, which may run the innermost one.
fn random_below(random: &mut Rng, runs: bool) -> Value {
    let count = random.usize(1..=MAX_NODES_BELOW);
    let mut drawn: Vec<Drawn> = (0..count).map(|at| random_node(random, at)).collect();
    if runs {
        insert_run(random, &mut drawn, INNERMOST);
    }
    let taker = random.usize(..drawn.len());
    let taken = drawn[taker].inputs.pop().map(|input| {
        let target = drawn[taker].id();
        edge(("given", "x"), (&target, input))
    });
    let outputs = &["out", "more"][..random.usize(1..=2)];
    let given = outputs.iter().map(|output| {
        let source = &drawn[random.usize(..drawn.len())];
        edge((&source.id(), source.output), ("gives", output))
    });
    let further: Vec<Value> = given.chain(taken).collect();
    let mut definition = definition(random, drawn);
    let interface = |keys: &[&str]| -> Value {
        let slot = |key: &&str| ((*key).to_owned(), json!({"dataFlowType": "WILDCARD"}));
        Value::Object(keys.iter().map(slot).collect())
    };
    definition["interfaceInputs"] = interface(&["x"]);
    definition["interfaceOutputs"] = interface(outputs);
    let nodes = definition["nodes"].as_array_mut().unwrap();
    nodes.push(json!({"id": "given", "type": "core:GroupInput"}));
    nodes.push(json!({"id": "gives", "type": "core:GroupOutput"}));
    definition["edges"].as_array_mut().unwrap().extend(further);
    definition
}

/// Puts a node that runs a workflow, alone or in a zone, anywhere among others.
fn insert_run(random: &mut Rng, drawn: &mut Vec<Drawn>, workflow_id: &str) {
    let id = format!("r{}", drawn.len());
    let node = match random.u8(0..4) {
        0 => {
            let inner = random_run(random, &format!("{id}_x"), workflow_id);
            zone_around(random, &id, inner)
        }
        _ => random_run(random, &id, workflow_id),
    };
    let at = random.usize(0..=drawn.len());
    drawn.insert(at, node);
}

fn random_run(random: &mut Rng, id: &str, workflow_id: &str) -> Drawn {
    let on_error = ["fail", "continue", "fallback"][random.usize(0..3)];
    let initial = ["1s", "10s"][random.usize(0..2)];
    // Which node of a run fails first is a matter of time, so each failure is tried again.
    let all = Category::ALL.into_iter();
    let all = all.filter(|category| *category != Category::Cancelled);
    let categories: Vec<&str> = all.map(Category::as_str).collect();
    Drawn {
        node: json!({"id": id, "type": "core:RunWorkflow", "inputValues": {"x": 7},
            "configValues": {"workflowId": workflow_id, "execution": {"onError": on_error,
                "retry": {"maxAttempts": random.u32(1..=3), "initial": initial, "on": categories}}}}),
        inside: (Vec::new(), Vec::new()),
        inputs: vec!["x"],
        output: "out",
    }
}

/// Makes a definition of nodes. Edges lead from earlier to later ones.
fn definition(random: &mut Rng, mut drawn: Vec<Drawn>) -> Value {
    let mut edges = Vec::new();
    for target in 1..drawn.len() {
        for _ in 0..random.usize(0..=2) {
            let source = random.usize(0..target);
            let Some(input) = drawn[target].inputs.pop() else {
                break;
            };
            let (from, to) = (drawn[source].id(), drawn[target].id());
            edges.push(edge((&from, drawn[source].output), (&to, input)));
        }
    }
    let mut nodes = Vec::new();
    for drawn in drawn {
        nodes.push(drawn.node);
        nodes.extend(drawn.inside.0);
        edges.extend(drawn.inside.1);
    }
    json!({"nodes": nodes, "edges": edges})
}

impl Drawn {
    fn id(&self) -> String {
        self.node["id"].as_str().unwrap().to_owned()
    }
}

fn edge(from: (&str, &str), to: (&str, &str)) -> Value {
    json!({"source": from.0, "sourceHandle": from.1, "target": to.0, "targetHandle": to.1})
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
    let inner_id = format!("{id}_x");
    let inner = match random.u8(0..4) {
        0 if depth == 0 => random_zone(random, &inner_id, depth + 1),
        _ => random_leaf(random, &inner_id, 1),
    };
    zone_around(random, id, inner)
}

/// Draws a loop or a map around a node.
fn zone_around(random: &mut Rng, id: &str, mut inner: Drawn) -> Drawn {
    let (zin, zout, inner_id) = (format!("{id}_in"), format!("{id}_out"), inner.id());
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
    let initial = ["1s", "10s"][random.usize(0..2)];
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
                    "retry": {"maxAttempts": random.u32(1..=4), "initial": initial, "on": ["domain"]}}}}),
            inside,
            inputs: vec!["y", "x"],
            output: "result",
        },
    }
}
