//! The most runs of each node.

use serde_json::{Value, json};
use workflow_domain::compile::compile_text;
use workflow_domain::forecast::Forecast;

fn forecast(definition: &Value) -> Forecast {
    let plan = compile_text(&definition.to_string(), &workflow_nodes::builtin());
    Forecast::of(&plan.unwrap())
}

#[test]
fn w49_iterations_and_attempts_are_counted_and_the_order_is_one_that_works() {
    let tool = |id: &str, parent: Value| {
        json!({"id": id, "type": "core:ExecuteTool", "parentNode": parent,
        "inputValues": {"tool_id": "write"}, "configValues": {"execution": {"retry": {"maxAttempts": 3}}}})
    };
    let edge = |from: (&str, &str), to: (&str, &str)| json!({"source": from.0, "sourceHandle": from.1, "target": to.0, "targetHandle": to.1});
    let definition = json!({
        "nodes": [
            tool("last", json!(null)),
            {"id": "map", "type": "core:MapList", "inputValues": {"items": [1, 2]}},
            {"id": "in", "type": "core:ZoneInput", "parentNode": "map"},
            {"id": "loop", "type": "core:LoopZone", "parentNode": "map", "inputValues": {"count": 500},
                "configValues": {"maxIterations": 10}},
            {"id": "loop_in", "type": "core:ZoneInput", "parentNode": "loop"},
            tool("act", json!("loop")),
            {"id": "loop_out", "type": "core:ZoneOutput", "parentNode": "loop"},
            {"id": "out", "type": "core:ZoneOutput", "parentNode": "map"},
        ],
        "edges": [edge(("map", "results"), ("last", "x")), edge(("loop", "stop_reason"), ("out", "result"))],
    });
    let found = forecast(&definition);
    let paths: Vec<&str> = found.nodes.iter().map(|node| node.path.as_str()).collect();
    let expected = [
        "map",
        "map/in",
        "map/loop",
        "map/loop/loop_in",
        "map/loop/act",
        "map/loop/loop_out",
        "map/out",
        "last",
    ];
    assert_eq!(paths, expected);
    let times: Vec<u64> = found.nodes.iter().map(|node| node.max_executions).collect();
    assert_eq!(times, [1, 2, 2, 20, 60, 20, 2, 3]);
    assert_eq!((found.max_executions, found.max_effects), (110, 63));
    assert_eq!(found.nodes[4].uses.as_deref(), Some("write"));
}
