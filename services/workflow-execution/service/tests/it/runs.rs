//! Starting, following and repeating runs.

use contracts::tavern::common::v1::run_event::Kind;
use contracts::tavern::common::v1::{Durability, ErrorReason, RunOptions, RunState};
use contracts::tavern::run::v1::GetRunRequest;
use contracts::tavern::workflow::v1::start_run_request::Target;
use contracts::tavern::workflow::v1::{SingleNode, StartRunRequest};
use doubles::leave_after;
use serde_json::{Value, json};
use tonic::Code;

use crate::support::*;

fn greeting() -> Value {
    json!({
        "name": "greeting",
        "nodes": [
            {"id": "in", "type": "core:GroupInput"},
            {"id": "say", "type": "core:FormatPrompt", "inputValues": {"template": "Hello {name}, {count} times"}},
            {"id": "out", "type": "core:GroupOutput"},
        ],
        "edges": [edge("in", "name", "say", "name"), edge("in", "count", "say", "count"), edge("say", "prompt", "out", "text")],
        "interfaceInputs": {
            "name": {"dataFlowType": "STRING", "required": true},
            "count": {"dataFlowType": "INTEGER", "config": {"default": 3}},
        },
        "interfaceOutputs": {"text": {"dataFlowType": "STRING"}},
    })
}

#[tokio::test]
async fn a_run_of_pure_nodes_succeeds_and_shows_each_outcome() {
    let world = World::new().await;
    let run = world.start(&greeting(), json!({"name": "Ada"})).await;
    let events = world.events(&run.run_id).await;
    assert_eq!(
        words(&events),
        [
            "run started",
            "in succeeded",
            "say succeeded",
            "out succeeded",
            "run finished"
        ]
    );
    let run = world
        .runs
        .clone()
        .get_run(GetRunRequest { run_id: run.run_id })
        .await
        .unwrap()
        .into_inner()
        .run
        .unwrap();
    assert_eq!(run.state(), RunState::Succeeded);
    assert_eq!(run.durability(), Durability::Sync);
    assert_eq!(
        result(&run.outcome.unwrap()),
        json!({"text": "Hello Ada, 3 times"})
    );
}

#[tokio::test]
async fn inputs_are_checked_all_at_once_before_anything_starts() {
    let world = World::new().await;
    let request = of_definition(&greeting(), json!({"count": "many", "nam": "x"}));
    let status = world.client.clone().start_run(request).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert_eq!(grpc_kit::reason(&status), Some(ErrorReason::InvalidFields));
    let fields: Vec<String> = grpc_kit::violations(&status)
        .into_iter()
        .map(|(field, _)| field)
        .collect();
    assert_eq!(
        fields,
        ["inputs_json/nam", "inputs_json/name", "inputs_json/count"]
    );
}

#[tokio::test]
async fn a_request_that_is_wrong_names_every_field() {
    let world = World::new().await;
    let nothing = StartRunRequest::default();
    let wrong = StartRunRequest {
        request_id: "a\nb".into(),
        conversation_id: "a/b".into(),
        inputs_json: "{".into(),
        ..of_definition(&greeting(), json!({}))
    };
    let all = &["request_id", "conversation_id", "inputs_json"][..];
    for (request, named) in [(nothing, &["target"][..]), (wrong, all)] {
        let status = world.client.clone().start_run(request).await.unwrap_err();
        let fields: Vec<String> = grpc_kit::violations(&status)
            .into_iter()
            .map(|(field, _)| field)
            .collect();
        assert_eq!(fields, named);
    }
}

#[tokio::test]
async fn a_definition_that_is_wrong_is_refused_with_every_place() {
    let world = World::new().await;
    let definition = json!({"nodes": [{"id": "a", "type": "core:TextMerg"}, {"id": "a", "type": "core:TextMerge"}]});
    let status = world
        .client
        .clone()
        .start_run(of_definition(&definition, json!({})))
        .await
        .unwrap_err();
    assert_eq!(
        grpc_kit::reason(&status),
        Some(ErrorReason::WorkflowInvalid)
    );
    let violations = grpc_kit::violations(&status);
    assert_eq!(violations[0].0, "definition_json/nodes/1/id");
    assert_eq!(violations[1].0, "definition_json/nodes/0/type");
    assert!(
        violations[1].1.contains("did you mean `core:TextMerge`?"),
        "{violations:?}"
    );
}

#[tokio::test]
async fn the_same_request_gives_the_same_run() {
    let world = World::new().await;
    let mut request = of_definition(&greeting(), json!({"name": "Ada"}));
    request.request_id = "once".into();
    let first = world
        .client
        .clone()
        .start_run(request.clone())
        .await
        .unwrap()
        .into_inner();
    let second = world
        .client
        .clone()
        .start_run(request.clone())
        .await
        .unwrap()
        .into_inner();
    assert!(!first.replayed && second.replayed);
    assert_eq!(first.run.unwrap().run_id, second.run.unwrap().run_id);
    request.inputs_json = json!({"name": "Bo"}).to_string();
    let status = world
        .client
        .clone()
        .start_run(request.clone())
        .await
        .unwrap_err();
    assert_eq!(
        (status.code(), grpc_kit::reason(&status)),
        (Code::AlreadyExists, Some(ErrorReason::RequestIdReused))
    );
    // A request that would be refused by now still is the same request, with another body.
    request.inputs_json = "{}".into();
    let status = world.client.clone().start_run(request).await.unwrap_err();
    assert_eq!(status.code(), Code::AlreadyExists);
}

fn of_node(full_type: &str, config: &str, inputs: Value) -> StartRunRequest {
    StartRunRequest {
        target: Some(Target::Node(SingleNode {
            full_type: full_type.into(),
            config_values_json: config.into(),
        })),
        inputs_json: inputs.to_string(),
        ..StartRunRequest::default()
    }
}

#[tokio::test]
async fn a_single_node_runs_as_a_workflow_with_all_its_outputs() {
    let world = World::new().await;
    for (full_type, config, inputs, expected) in [
        (
            "core:TextMerge",
            "",
            json!({"text_inputs": ["a", "b"], "separator": "-"}),
            json!({"merged_text": "a-b"}),
        ),
        (
            "core:MathOperation",
            r#"{"operationMode":"power"}"#,
            json!({"base": 2, "exponent": 8}),
            json!({"result": 256}),
        ),
        (
            "core:MathOperation",
            "",
            json!({"operationMode": "min", "a": 2, "b": 8}),
            json!({"result": 2}),
        ),
        (
            "core:FormatPrompt",
            "",
            json!({"template": "{a}!", "a": "x"}),
            json!({"prompt": "x!"}),
        ),
        (
            "core:JsonSelector",
            "",
            json!({"json": {"a": [1]}, "path": "$.a[0]"}),
            json!({"value": 1, "values": [1], "count": 1}),
        ),
        (
            "core:ExecuteTool",
            "",
            json!({"tool_id": "echo", "x": 1}),
            json!({"result": {"x": 1}, "status": "succeeded", "error": null, "results": [], "output": "", "messages": [],
                   "observation": "Observation: Tool echo executed successfully. Result: {\"x\":1}"}),
        ),
    ] {
        let run = world.begin(of_node(full_type, config, inputs)).await;
        assert_eq!(run.subject, format!("node:{full_type}"));
        assert_eq!(
            result(&world.outcome(&run.run_id).await),
            expected,
            "{full_type}"
        );
    }
}

#[tokio::test]
async fn a_single_node_that_is_wrong_is_refused() {
    let world = World::new().await;
    for (full_type, config, inputs, reason, field) in [
        (
            "core:TextMerg",
            "",
            json!({}),
            ErrorReason::WorkflowInvalid,
            "node/full_type",
        ),
        (
            "core:TextMerge",
            "",
            json!({}),
            ErrorReason::InvalidFields,
            "inputs_json/text_inputs",
        ),
        (
            "core:TextMerge",
            "{",
            json!({}),
            ErrorReason::InvalidFields,
            "node.config_values_json",
        ),
        (
            "core:MathOperation",
            r#"{"operationMode":"x"}"#,
            json!({}),
            ErrorReason::WorkflowInvalid,
            "node/config_values_json/operationMode",
        ),
        (
            "core:JsonSelector",
            "",
            json!({"json": 1, "path": "$["}),
            ErrorReason::InvalidFields,
            "inputs_json/path",
        ),
    ] {
        let status = world
            .client
            .clone()
            .start_run(of_node(full_type, config, inputs))
            .await
            .unwrap_err();
        assert_eq!(grpc_kit::reason(&status), Some(reason), "{full_type}");
        assert_eq!(grpc_kit::violations(&status)[0].0, field);
    }
}

#[tokio::test]
async fn a_tool_is_called_with_its_effect_id_after_the_dispatch_was_journalled() {
    let world = World::new().await;
    let definition = json!({
        "nodes": [tool("t", "chatty"), {"id": "out", "type": "core:GroupOutput"}],
        "edges": [edge("t", "status", "out", "s")],
        "interfaceOutputs": {"s": {"dataFlowType": "STRING"}},
    });
    let mut request = of_definition(&definition, json!({}));
    request.conversation_id = "talk".into();
    let run = world.begin(request).await;
    let events = world.events(&run.run_id).await;
    let expected = [
        "run started",
        "t started",
        "t dispatched",
        "chunk hello",
        "call settled",
        "t succeeded",
        "out succeeded",
        "run finished",
    ];
    assert_eq!(words(&events), expected);
    assert_eq!(events[3].run_id, "call_below");
    let asked = world.registry.asked();
    assert_eq!(asked[0].effect_id, format!("{}/t/0", run.run_id));
    assert_eq!(asked[0].conversation_id, "talk");
    assert_eq!(asked[0].durability(), Durability::Sync);
}

#[tokio::test]
async fn a_failed_node_skips_what_needs_it_and_the_rest_goes_on() {
    let world = World::new().await;
    let definition = json!({
        "nodes": [tool("bad", "fail"), tool("after", "echo"), tool("beside", "echo")],
        "edges": [edge("bad", "result", "after", "x")],
    });
    let run = world.start(&definition, json!({})).await;
    let events = world.events(&run.run_id).await;
    let words = words(&events);
    for expected in ["bad failed", "after skipped", "beside succeeded"] {
        assert!(words.iter().any(|word| word == expected), "{words:?}");
    }
    let outcome = world.outcome(&run.run_id).await;
    assert_eq!(outcome.state(), RunState::Failed);
    let error = outcome.error.unwrap();
    assert_eq!(error.code, "failed_as_asked");
    assert_eq!(
        error.message,
        "node `bad` (core:ExecuteTool): the double says failed_as_asked"
    );
    let details: Value = serde_json::from_str(&error.details_json).unwrap();
    assert_eq!(
        details,
        json!({"node_id": "bad", "node_type": "core:ExecuteTool"})
    );
}

#[tokio::test]
async fn a_failure_in_a_workflow_below_names_its_path_once() {
    let world = World::new().await;
    let definition = json!({"nodes": [tool("a", "fail_below")], "edges": []});
    let error = world.run(&definition, json!({})).await.error.unwrap();
    assert_eq!(
        error.message,
        "node `a/b/s` (core:Script): the script ended"
    );
    let details: Value = serde_json::from_str(&error.details_json).unwrap();
    assert_eq!(
        details,
        json!({"node_id": "a/b/s", "node_type": "core:Script"})
    );
}

#[tokio::test]
async fn an_unknown_call_ends_the_run_as_unknown_and_nothing_else_starts() {
    let world = World::new().await;
    let definition = json!({
        "nodes": [tool("u", "unknown"), tool("next", "echo")],
        "edges": [edge("u", "result", "next", "x")],
    });
    let run = world.start(&definition, json!({})).await;
    let outcome = world.outcome(&run.run_id).await;
    assert_eq!(outcome.state(), RunState::InDoubt);
    assert_eq!(
        outcome.unsettled_effect_ids,
        [format!("{}/u/0", run.run_id)]
    );
    assert_eq!(outcome.error.unwrap().code, "nobody_knows");
    assert_eq!(world.registry.asked().len(), 1);
}

#[tokio::test]
async fn a_run_in_doubt_ends_without_its_open_waits() {
    let world = World::new().await;
    let hour =
        json!({"id": "t", "type": "core:Timer", "inputValues": {"value": 1, "duration": 3600}});
    let definition = json!({"nodes": [hour, tool("u", "unknown")], "edges": []});
    let outcome = world.run(&definition, json!({})).await;
    assert_eq!(outcome.state(), RunState::InDoubt);
}

#[tokio::test]
async fn a_registry_that_is_not_there_yet_is_asked_again() {
    let world = World::new().await;
    let outcome = world
        .run(&json!({"nodes": [tool("t", "flaky")]}), json!({}))
        .await;
    assert_eq!(outcome.state(), RunState::Succeeded);
    let asked = world.registry.asked();
    assert_eq!(asked.len(), 3);
    assert!(
        asked
            .iter()
            .all(|request| request.effect_id == asked[0].effect_id)
    );
}

#[tokio::test]
async fn independent_scripts_run_beside_each_other() {
    let world = World::new().await;
    // Each waits until the other has begun, so that one after the other would never end.
    let meet = |own: &str, other: &str| {
        let code = format!(
            "import pathlib, time\nplace = pathlib.Path(inputs['place'])\n(place / '{own}').touch()\n\
             while not (place / '{other}').exists(): time.sleep(0.005)\ngive('{own}')\n"
        );
        python(own, &code)
    };
    let definition = json!({
        "nodes": [{"id": "in", "type": "core:GroupInput"}, meet("left", "right"), meet("right", "left"),
            {"id": "merge", "type": "core:TextMerge", "inputValues": {"separator": "+"}},
            {"id": "out", "type": "core:GroupOutput"}],
        "edges": [edge("in", "place", "left", "place"), edge("in", "place", "right", "place"),
            edge("left", "result", "merge", "text_inputs__0"), edge("right", "result", "merge", "text_inputs__1"),
            edge("merge", "merged_text", "out", "r")],
        "interfaceInputs": {"place": {"dataFlowType": "STRING"}},
        "interfaceOutputs": {"r": {"dataFlowType": "STRING"}},
    });
    let place = world.directory.path().join("meet");
    std::fs::create_dir(&place).unwrap();
    let outcome = world.run(&definition, json!({"place": place})).await;
    assert_eq!(result(&outcome), json!({"r": "left+right"}));
    assert_eq!(world.sandbox.most_at_once(), 2);
}

#[tokio::test]
async fn the_number_of_effects_at_once_is_bounded() {
    let world = World::with(|settings| settings.max_effects_per_run = 2).await;
    let nodes: Vec<Value> = (0..6)
        .map(|at| python(&format!("s{at}"), "give(1)\n"))
        .collect();
    let outcome = world.run(&json!({ "nodes": nodes }), json!({})).await;
    assert_eq!(outcome.state(), RunState::Succeeded);
    assert!(world.sandbox.most_at_once() <= 2);
    assert_eq!(world.sandbox.started(), 6);
}

#[tokio::test]
async fn a_script_that_fails_fails_its_node_with_what_it_said() {
    let world = World::new().await;
    let outcome = world
        .run(
            &json!({"nodes": [python("s", "import sys\nsys.exit('no luck')\n")]}),
            json!({}),
        )
        .await;
    let error = outcome.error.unwrap();
    assert_eq!(error.code, "script_exited");
    assert_eq!(
        error.message,
        "node `s` (core:Script): the script ended with the code 1: no luck"
    );
    let details: Value = serde_json::from_str(&error.details_json).unwrap();
    assert_eq!(
        (&details["exit_code"], &details["stderr"]),
        (&json!(1), &json!("no luck\n"))
    );
}

#[tokio::test]
async fn a_script_that_raises_fails_its_node_with_the_exception() {
    let world = World::new().await;
    let definition = json!({"nodes": [python("s", "raise KeyError('who')\n")]});
    let error = world.run(&definition, json!({})).await.error.unwrap();
    let headline =
        "node `s` (core:Script): the script ended with the code 1: KeyError: 'who' (line 4)\n";
    assert!(error.message.starts_with(headline), "{}", error.message);
    assert!(error.message.contains("On standard error:\nTraceback"));
    let details: Value = serde_json::from_str(&error.details_json).unwrap();
    assert_eq!(details["error"]["type"], "KeyError");
}

#[tokio::test]
async fn a_run_in_memory_says_so() {
    let world = World::new().await;
    let mut request = of_definition(&greeting(), json!({"name": "Ada"}));
    request.options = Some(RunOptions {
        durability: Durability::Memory.into(),
        timeout: None,
    });
    let run = world.begin(request).await;
    let events = world.events(&run.run_id).await;
    assert!(
        matches!(&events[0].kind, Some(Kind::RunStarted(started)) if started.durability() == Durability::Memory)
    );
    assert_eq!(
        world.outcome(&run.run_id).await.durability(),
        Durability::Memory
    );
}

#[tokio::test]
async fn ten_thousand_nodes_run() {
    let world = World::new().await;
    let node = |at: usize| json!({"id": format!("n{at}"), "type": "core:TextMerge", "inputValues": {"text_inputs": ["x"]}});
    let nodes: Vec<Value> = (0..10_000).map(node).collect();
    let edges: Vec<Value> = (1..10_000)
        .map(|at| edge("n0", "merged_text", &format!("n{at}"), "text_inputs"))
        .collect();
    let outcome = world
        .run(&json!({"nodes": nodes, "edges": edges}), json!({}))
        .await;
    assert_eq!(outcome.state(), RunState::Succeeded);
}

#[tokio::test]
async fn a_run_is_carried_out_wherever_its_caller_leaves() {
    let world = World::new().await;
    for polls in 1.. {
        let request = StartRunRequest {
            request_id: format!("request-{polls}"),
            ..of_definition(&greeting(), json!({"name": "Ada"}))
        };
        let mut client = world.client.clone();
        let answered = leave_after(polls, client.start_run(request.clone())).await;
        // The caller repeats the request.
        let run = world.begin(request).await;
        let outcome = world.outcome(&run.run_id).await;
        assert_eq!(outcome.state(), RunState::Succeeded, "{polls}");
        if answered.is_some() {
            return;
        }
    }
}
