//! Workflows with a node of a plugin, or a script node with the same logic, in each position.

use serde_json::{Value, json};

use crate::workflows::edge;

/// The same logic in a script node.
const CODE: &str = "import json, os\n\
    given = json.load(open(os.environ['TAVERN_INPUT_PATH']))\n\
    print(given['text'].lower(), flush=True)\n\
    os.write(3, json.dumps(given['text'].upper() + '!').encode())\n";

/// A node with the logic of the script of the plugin: of the plugin, or a script node.
#[derive(Clone, Copy, Debug)]
pub(super) enum Worker {
    Plugin,
    Script,
}

impl Worker {
    /// Returns a node of a workflow, inside a zone if `zone` is one.
    pub(super) fn node(self, id: &str, zone: &str, presets: Value) -> Value {
        let (full_type, mut values) = match self {
            Self::Plugin => ("shout:Upper", json!({})),
            Self::Script => ("core:Script", json!({"language": "python3", "code": CODE})),
        };
        for (key, value) in presets.as_object().into_iter().flatten() {
            values[key] = value.clone();
        }
        let mut node = json!({"id": id, "type": full_type, "inputValues": values});
        if !zone.is_empty() {
            node["parentNode"] = json!(zone);
        }
        node
    }

    /// Returns an edge between two slots, each written as `node.slot`: of a worker `UPPER` is the output with the text,
    /// and `LINES` the one that is written meanwhile.
    fn edge(self, (from, to): (&str, &str)) -> Value {
        let (upper, lines) = match self {
            Self::Plugin => ("upper", "lines"),
            Self::Script => ("result", "stdout"),
        };
        let (source, output) = from.split_once('.').unwrap_or_default();
        let (target, input) = to.split_once('.').unwrap_or_default();
        let output = match output {
            "UPPER" => upper,
            "LINES" => lines,
            output => output,
        };
        edge(source, output, target, input)
    }

    /// Makes a workflow from the input `text` to the output `out`, which may be of any type.
    fn workflow(self, nodes: Vec<Value>, edges: &[(&str, &str)]) -> Value {
        self.workflow_to(nodes, edges, json!({"dataFlowType": "WILDCARD"}))
    }

    fn workflow_to(self, nodes: Vec<Value>, edges: &[(&str, &str)], out: Value) -> Value {
        let edges = edges.iter().map(|between| self.edge(*between));
        workflow(nodes, edges.collect(), out)
    }
}

fn inside(zone: &str, id: &str, full_type: &str) -> Value {
    json!({"id": id, "type": full_type, "parentNode": zone})
}

/// Makes a workflow of nodes and edges, from the input `text` to the output `out`.
pub(super) fn workflow(nodes: Vec<Value>, edges: Vec<Value>, out: Value) -> Value {
    let mut all = vec![
        json!({"id": "in", "type": "core:GroupInput"}),
        json!({"id": "end", "type": "core:GroupOutput"}),
    ];
    all.extend(nodes);
    json!({
        "nodes": all,
        "edges": edges,
        "interfaceInputs": {"text": {"dataFlowType": "STRING", "required": true}},
        "interfaceOutputs": {"out": out},
    })
}

/// Returns a worker in each position of a workflow, with the name of the position.
pub(super) fn positions(worker: Worker) -> Vec<(&'static str, Value)> {
    let mut all = in_a_row(worker);
    all.extend(in_zones(worker));
    all.extend(elsewhere(worker));
    all
}

fn in_a_row(of: Worker) -> Vec<(&'static str, Value)> {
    let node = |id: &str| of.node(id, "", json!({}));
    let format =
        json!({"id": "f", "type": "core:FormatPrompt", "inputValues": {"template": "<{text}>"}});
    let alone = &[("in.text", "w.text"), ("w.UPPER", "end.out")];
    let behind = &[
        ("in.text", "f.text"),
        ("f.prompt", "w.text"),
        ("w.UPPER", "end.out"),
    ];
    let before = &[
        ("in.text", "w.text"),
        ("w.UPPER", "f.text"),
        ("f.prompt", "end.out"),
    ];
    let chain = &[
        ("in.text", "w.text"),
        ("w.UPPER", "v.text"),
        ("v.UPPER", "end.out"),
    ];
    let preset = of.node("w", "", json!({"text": "preset"}));
    vec![
        ("between the ends", of.workflow(vec![node("w")], alone)),
        ("on a preset", of.workflow(vec![preset], &alone[1..])),
        (
            "behind a template",
            of.workflow(vec![format.clone(), node("w")], behind),
        ),
        (
            "before a template",
            of.workflow(vec![node("w"), format], before),
        ),
        (
            "twice in a chain",
            of.workflow(vec![node("w"), node("v")], chain),
        ),
    ]
}

/// A zone of two turns, with its ends and a worker, inside another zone if `zone` is one.
fn two_turns(of: Worker, zone: &str) -> Vec<Value> {
    let mut node = json!({"id": "loop", "type": "core:LoopZone", "inputValues": {"count": 2}, "configValues": {"collect": [{"key": "all"}]}});
    if !zone.is_empty() {
        node["parentNode"] = json!(zone);
    }
    vec![
        node,
        inside("loop", "turn", "core:ZoneInput"),
        inside("loop", "last", "core:ZoneOutput"),
        of.node("w", "loop", json!({})),
    ]
}

fn in_zones(of: Worker) -> Vec<(&'static str, Value)> {
    let map = |inner: Vec<Value>| {
        let mut nodes = vec![
            json!({"id": "map", "type": "core:MapList", "inputValues": {"items": ["a", "b"]}}),
            inside("map", "item", "core:ZoneInput"),
            inside("map", "each", "core:ZoneOutput"),
        ];
        nodes.extend(inner);
        nodes
    };
    let in_loop = &[
        ("in.text", "w.text"),
        ("w.UPPER", "last.all"),
        ("loop.all", "end.out"),
    ];
    let in_map = &[
        ("item.item", "w.text"),
        ("w.UPPER", "each.result"),
        ("map.results", "end.out"),
    ];
    let in_both = &[
        ("item.item", "w.text"),
        ("w.UPPER", "last.all"),
        ("loop.all", "each.result"),
        ("map.results", "end.out"),
    ];
    let mapped = map(vec![of.node("w", "map", json!({}))]);
    vec![
        ("in a loop", of.workflow(two_turns(of, ""), in_loop)),
        ("in a map", of.workflow(mapped, in_map)),
        (
            "in a loop in a map",
            of.workflow(map(two_turns(of, "map")), in_both),
        ),
    ]
}

fn elsewhere(of: Worker) -> Vec<(&'static str, Value)> {
    let node = || of.node("w", "", json!({}));
    let choice = json!({"id": "is", "type": "core:Condition", "configValues": {"condition": "size(inputs.value) > 1"}});
    let joined = json!({"id": "f", "type": "core:FirstValue"});
    let branches = &[
        ("in.text", "is.value"),
        ("is.then", "w.text"),
        ("w.UPPER", "f.values__0"),
        ("is.else", "f.values__1"),
        ("f.value", "end.out"),
    ];
    let mut retried = node();
    retried["configValues"] = json!({"execution": {"retry": {"maxAttempts": 2}}});
    let alone = &[("in.text", "w.text"), ("w.UPPER", "end.out")];
    let refer = |full_type: &str, key: &str| json!({"id": "w", "type": full_type, "configValues": {key: "inner"}});
    let whole = &[("in.text", "w.text"), ("w.out", "end.out")];
    let group = refer("core:NodeGroup", "referencedWorkflowId");
    let below = refer("core:RunWorkflow", "workflowId");
    let written = &[("in.text", "w.text"), ("w.LINES", "end.out")];
    let stream = json!({"dataFlowType": "STRING", "isStream": true});
    vec![
        (
            "in one of two branches",
            of.workflow(vec![choice, node(), joined], branches),
        ),
        ("with further attempts", of.workflow(vec![retried], alone)),
        ("in a group", of.workflow(vec![group], whole)),
        ("in a run below", of.workflow(vec![below], whole)),
        ("on a stream", of.workflow_to(vec![node()], written, stream)),
    ]
}
