//! Workflows with a node of a plugin, or a script node with the same logic, in each position.

use serde_json::{Value, json};

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

    /// Returns the output with the text, and the one that is written meanwhile.
    fn outputs(self) -> (&'static str, &'static str) {
        match self {
            Self::Plugin => ("upper", "lines"),
            Self::Script => ("result", "stdout"),
        }
    }
}

pub(super) fn edge(source: &str, source_handle: &str, target: &str, target_handle: &str) -> Value {
    json!({"source": source, "sourceHandle": source_handle, "target": target, "targetHandle": target_handle})
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

/// The type of an output of any type.
fn any() -> Value {
    json!({"dataFlowType": "WILDCARD"})
}

fn in_a_row(worker: Worker) -> Vec<(&'static str, Value)> {
    let (upper, _) = worker.outputs();
    let node = |id: &str, presets: Value| worker.node(id, "", presets);
    let format = |id: &str, template: &str| json!({"id": id, "type": "core:FormatPrompt", "inputValues": {"template": template}});
    vec![
        (
            "between the ends",
            workflow(
                vec![node("w", json!({}))],
                vec![
                    edge("in", "text", "w", "text"),
                    edge("w", upper, "end", "out"),
                ],
                any(),
            ),
        ),
        (
            "on a preset",
            workflow(
                vec![node("w", json!({"text": "preset"}))],
                vec![edge("w", upper, "end", "out")],
                any(),
            ),
        ),
        (
            "behind a template",
            workflow(
                vec![format("f", "<{text}>"), node("w", json!({}))],
                vec![
                    edge("in", "text", "f", "text"),
                    edge("f", "prompt", "w", "text"),
                    edge("w", upper, "end", "out"),
                ],
                any(),
            ),
        ),
        (
            "before a template",
            workflow(
                vec![node("w", json!({})), format("f", "<{text}>")],
                vec![
                    edge("in", "text", "w", "text"),
                    edge("w", upper, "f", "text"),
                    edge("f", "prompt", "end", "out"),
                ],
                any(),
            ),
        ),
        (
            "twice in a chain",
            workflow(
                vec![node("w", json!({})), node("v", json!({}))],
                vec![
                    edge("in", "text", "w", "text"),
                    edge("w", upper, "v", "text"),
                    edge("v", upper, "end", "out"),
                ],
                any(),
            ),
        ),
    ]
}

/// A zone of two turns, inside another one if `zone` is one.
fn two_turns(zone: &str) -> Value {
    let mut node = json!({"id": "loop", "type": "core:LoopZone", "inputValues": {"count": 2}, "configValues": {"collect": [{"key": "all"}]}});
    if !zone.is_empty() {
        node["parentNode"] = json!(zone);
    }
    node
}

fn in_zones(worker: Worker) -> Vec<(&'static str, Value)> {
    let (upper, _) = worker.outputs();
    let map = |inner: Vec<Value>| {
        let mut nodes = vec![
            json!({"id": "map", "type": "core:MapList", "inputValues": {"items": ["a", "b"]}}),
            inside("map", "item", "core:ZoneInput"),
            inside("map", "each", "core:ZoneOutput"),
        ];
        nodes.extend(inner);
        nodes
    };
    vec![
        (
            "in a loop",
            workflow(
                vec![
                    two_turns(""),
                    inside("loop", "turn", "core:ZoneInput"),
                    inside("loop", "last", "core:ZoneOutput"),
                    worker.node("w", "loop", json!({})),
                ],
                vec![
                    edge("in", "text", "w", "text"),
                    edge("w", upper, "last", "all"),
                    edge("loop", "all", "end", "out"),
                ],
                any(),
            ),
        ),
        (
            "in a map",
            workflow(
                map(vec![worker.node("w", "map", json!({}))]),
                vec![
                    edge("item", "item", "w", "text"),
                    edge("w", upper, "each", "result"),
                    edge("map", "results", "end", "out"),
                ],
                any(),
            ),
        ),
        (
            "in a loop in a map",
            workflow(
                map(vec![
                    two_turns("map"),
                    inside("loop", "turn", "core:ZoneInput"),
                    inside("loop", "last", "core:ZoneOutput"),
                    worker.node("w", "loop", json!({})),
                ]),
                vec![
                    edge("item", "item", "w", "text"),
                    edge("w", upper, "last", "all"),
                    edge("loop", "all", "each", "result"),
                    edge("map", "results", "end", "out"),
                ],
                any(),
            ),
        ),
    ]
}

fn elsewhere(worker: Worker) -> Vec<(&'static str, Value)> {
    let (upper, lines) = worker.outputs();
    let node = |id: &str, presets: Value| worker.node(id, "", presets);
    let choice = json!({"id": "is", "type": "core:Condition", "configValues": {"condition": "size(inputs.value) > 1"}});
    let mut retried = node("w", json!({}));
    retried["configValues"] = json!({"execution": {"retry": {"maxAttempts": 2}}});
    vec![
        (
            "in one of two branches",
            workflow(
                vec![
                    choice,
                    node("w", json!({})),
                    json!({"id": "f", "type": "core:FirstValue"}),
                ],
                vec![
                    edge("in", "text", "is", "value"),
                    edge("is", "then", "w", "text"),
                    edge("w", upper, "f", "values__0"),
                    edge("is", "else", "f", "values__1"),
                    edge("f", "value", "end", "out"),
                ],
                any(),
            ),
        ),
        (
            "with further attempts",
            workflow(
                vec![retried],
                vec![
                    edge("in", "text", "w", "text"),
                    edge("w", upper, "end", "out"),
                ],
                any(),
            ),
        ),
        (
            "in a group",
            workflow(
                vec![
                    json!({"id": "g", "type": "core:NodeGroup", "configValues": {"referencedWorkflowId": "inner"}}),
                ],
                vec![
                    edge("in", "text", "g", "text"),
                    edge("g", "out", "end", "out"),
                ],
                any(),
            ),
        ),
        (
            "in a run below",
            workflow(
                vec![
                    json!({"id": "r", "type": "core:RunWorkflow", "configValues": {"workflowId": "inner"}}),
                ],
                vec![
                    edge("in", "text", "r", "text"),
                    edge("r", "out", "end", "out"),
                ],
                any(),
            ),
        ),
        (
            "on a stream",
            workflow(
                vec![node("w", json!({}))],
                vec![
                    edge("in", "text", "w", "text"),
                    edge("w", lines, "end", "out"),
                ],
                json!({"dataFlowType": "STRING", "isStream": true}),
            ),
        ),
    ]
}
