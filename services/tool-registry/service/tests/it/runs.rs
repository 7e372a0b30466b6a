//! Workflows and nodes as tools.

use contracts::tavern::registry::v1::call_service_client::CallServiceClient;
use contracts::tavern::{
    common::v1::{CallGrant, CallStatus, Durability, GrantedTools, run_event::Kind},
    registry::v1::{CallToolRequest, GetToolRequest},
    workflow::v1::start_run_request::Target,
};
use core_types::MAX_CALL_DEPTH;
use serde_json::{Value, json};

use crate::fixture::{Fixture, code_of, finish, request, until, with_effect};

#[tokio::test]
async fn seed_000_2_3_1_the_schema_of_a_workflow_tool_is_the_seeds_byte_for_byte() {
    let fixture = Fixture::new().await;
    let definition = json!({
        "description": "对提供的长文本进行摘要。当需要理解大量文本的核心内容时使用。",
        "interfaceInputs": {
            "text_to_summarize": {
                "description": "需要进行摘要处理的原始长文本内容。", "dataFlowType": "STRING", "required": true
            },
            "summary_length": {
                "description": "期望的摘要长度。", "dataFlowType": "STRING", "required": false,
                "matchCategories": ["ComboOption"],
                "config": {"default": "中等",
                           "suggestions": [{"value": "简短"}, {"value": "中等"}, {"value": "详细"}]}
            }
        }
    });
    fixture.workflows.put("summarize_text", definition);
    for id in ["workflow:summarize_text", "workflow__summarize_text"] {
        let get = GetToolRequest { tool_id: id.into() };
        let tool = fixture
            .catalogue
            .clone()
            .get_tool(get)
            .await
            .unwrap()
            .into_inner()
            .tool
            .unwrap();
        assert_eq!(tool.tool_id, "workflow:summarize_text");
        assert_eq!(
            tool.description,
            "对提供的长文本进行摘要。当需要理解大量文本的核心内容时使用。"
        );
        assert_eq!(
            tool.parameters_json,
            r#"{"type":"object","properties":{"text_to_summarize":{"type":"string","description":"需要进行摘要处理的原始长文本内容。"},"summary_length":{"type":"string","description":"期望的摘要长度。","enum":["简短","中等","详细"]}},"required":["text_to_summarize"]}"#
        );
    }
    let wrong = fixture
        .call("workflow:summarize_text", json!({"summary_length": "长"}))
        .await;
    assert_eq!(wrong.error.unwrap().violations.len(), 2);
}

#[tokio::test]
async fn seed_000_2_4_a_workflow_runs_its_events_pass_through_and_a_single_output_is_bare() {
    let fixture = Fixture::new().await;
    fixture.workflows.put(
        "echo",
        json!({"interfaceInputs": {"n": {"dataFlowType": "INTEGER"}}}),
    );
    fixture.workflows.put("two", json!({}));
    let asked = with_effect("e1", "workflow:echo", json!({"n": 9007199254740993u64}));
    let (events, result) = fixture.finish(asked.clone()).await;
    assert_eq!(result.output_json, r#"{"n":9007199254740993}"#);
    assert_eq!(result.child_run_id, format!("flow_{:032x}", 0));
    let kinds: Vec<bool> = events
        .iter()
        .map(|event| matches!(event.kind, Some(Kind::RunStarted(_) | Kind::NodeStarted(_))))
        .collect();
    assert_eq!(kinds, [true, true]);
    let started = fixture.workflows.started.lock().unwrap()[0].clone();
    // The client may use its effect id for requests of its own.
    assert!(started.request_id.starts_with("call#"), "{started:?}");
    assert_eq!(started.conversation_id, "c1");
    assert_eq!(started.options.unwrap().durability(), Durability::Sync);
    let (_, replayed) = fixture.finish(asked).await;
    assert!(replayed.replayed);
    assert_eq!(fixture.workflows.run_count(), 1);
    assert_eq!(
        fixture.call("workflow:two", json!({})).await.output_json,
        r#"{"a":1,"b":{}}"#
    );
}

#[tokio::test]
async fn a_node_runs_alone() {
    let fixture = Fixture::new().await;
    for id in ["node:core:Echo", "node__core__Echo"] {
        let result = fixture.call(id, json!({"text": "hello"})).await;
        assert_eq!(result.output_json, r#"{"text":"hello"}"#, "{result:?}");
        assert_eq!(result.tool_id, "node:core:Echo");
    }
    let missing = fixture.call("node:core:Ecko", json!({})).await;
    assert_eq!(
        missing.error.unwrap().violations[0].suggestions,
        ["node:core:Echo"]
    );
}

#[tokio::test]
async fn a_node_is_called_with_its_settings_and_what_a_definition_pins_is_no_parameter() {
    let fixture = Fixture::new().await;
    let pinned = json!({
        "id": "root", "description": "takes the square root",
        "implementation": {"type": "node", "nodeType": "numbers:Calculate",
                           "configValues": {"mode": "root"}},
    });
    fixture.put_tool(pinned).await;
    for (tool_id, keys, arguments, config, inputs) in [
        (
            "node:numbers:Calculate",
            &["a", "b", "c", "mode", "round"][..],
            json!({"a": 1, "mode": "add", "b": 2}),
            json!({"mode": "add"}),
            json!({"a": 1, "b": 2}),
        ),
        (
            "root",
            &["c", "round"],
            json!({"c": 9, "round": true}),
            json!({"mode": "root", "round": true}),
            json!({"c": 9}),
        ),
    ] {
        let request = GetToolRequest {
            tool_id: tool_id.into(),
        };
        let tool = fixture.catalogue.clone().get_tool(request).await.unwrap();
        let schema = tool.into_inner().tool.unwrap().parameters_json;
        let schema: Value = serde_json::from_str(&schema).unwrap();
        let properties = schema["properties"].as_object().unwrap();
        assert_eq!(properties.keys().collect::<Vec<_>>(), keys, "{tool_id}");
        let result = fixture.call(tool_id, arguments).await;
        assert_eq!(result.status(), CallStatus::Succeeded, "{result:?}");
        let started = fixture.workflows.started.lock().unwrap().pop().unwrap();
        let Some(Target::Node(node)) = started.target else {
            panic!("a node is started");
        };
        let read = |text: &str| serde_json::from_str::<Value>(text).unwrap();
        assert_eq!(read(&node.config_values_json), config, "{tool_id}");
        assert_eq!(read(&started.inputs_json), inputs, "{tool_id}");
    }
}

#[tokio::test]
async fn a_run_that_fails_or_whose_outcome_is_unknown_says_so() {
    let fixture = Fixture::new().await;
    for (id, status, code) in [
        ("fail", CallStatus::Failed, "node_failed"),
        ("unknown", CallStatus::InDoubt, "unsettled_after_crash"),
    ] {
        fixture.workflows.put(id, json!({}));
        let result = fixture.call(&format!("workflow:{id}"), json!({})).await;
        assert_eq!((result.status(), code_of(&result)), (status, code));
        assert!(result.error.unwrap().details_json.contains("flow_"));
    }
}

#[tokio::test]
async fn after_a_crash_the_same_run_is_found_again() {
    let mut fixture = Fixture::new().await;
    fixture.workflows.put("hold", json!({}));
    let asked = with_effect("e1", "workflow:hold", json!({}));
    tokio::spawn(finish(fixture.calls.clone(), asked.clone()));
    until("the run", || fixture.workflows.run_count() == 1).await;
    fixture.crash_and_restart().await;
    let again = tokio::spawn(finish(fixture.calls.clone(), asked.clone()));
    // With its own time limit, the repeat is still the same request for the workflow service.
    let joined = CallToolRequest {
        timeout: prost_types::Duration::try_from(std::time::Duration::from_secs(99)).ok(),
        ..asked
    };
    let joined = tokio::spawn(finish(fixture.calls.clone(), joined));
    until("followers", || {
        !again.is_finished() && !joined.is_finished()
    })
    .await;
    fixture.workflows.let_go();
    for call in [again, joined] {
        let (events, result) = call.await.unwrap().unwrap();
        assert_eq!(result.output_json, "\"let go\"");
        assert_eq!(events.len(), 2, "the run's events come from its beginning");
    }
    assert_eq!(fixture.workflows.run_count(), 1);
}

#[tokio::test]
async fn j24_a_workflow_that_calls_itself_is_refused_past_the_depth_limit() {
    let fixture = Fixture::new().await;
    fixture.workflows.put("echo", json!({}));
    let steps = |depth: usize| {
        (0..depth)
            .map(|level| format!("flow_{level}"))
            .collect::<Vec<_>>()
    };
    for (depth, status) in [
        (MAX_CALL_DEPTH - 1, CallStatus::Succeeded),
        (MAX_CALL_DEPTH, CallStatus::Rejected),
    ] {
        let steps = steps(depth);
        let above: Vec<&str> = steps.iter().map(String::as_str).collect();
        let calls = CallServiceClient::new(fixture.below(&above));
        let call = finish(calls, request("workflow:echo", json!({})));
        let (_, result) = call.await.unwrap();
        assert_eq!(result.status(), status, "{depth}: {result:?}");
        if status == CallStatus::Rejected {
            assert_eq!(code_of(&result), "depth_exceeded");
        }
    }
}

#[tokio::test]
async fn null_for_a_parameter_that_may_be_left_out_means_left_out() {
    let fixture = Fixture::new().await;
    let inputs = json!({
        "n": {"dataFlowType": "INTEGER", "required": true},
        "mode": {"dataFlowType": "STRING"}
    });
    fixture
        .workflows
        .put("echo", json!({"interfaceInputs": inputs}));
    for (arguments, status) in [
        (json!({"n": 1, "mode": null}), CallStatus::Succeeded),
        (json!({"n": null, "mode": "a"}), CallStatus::Rejected),
        (json!({"n": null, "mode": null}), CallStatus::Rejected),
        (json!({"n": 1, "other": null}), CallStatus::Rejected),
    ] {
        let result = fixture.call("workflow:echo", arguments.clone()).await;
        assert_eq!(result.status(), status, "{arguments}: {result:?}");
        if status == CallStatus::Succeeded {
            assert_eq!(result.output_json, r#"{"n":1}"#);
        }
    }
}

#[tokio::test]
async fn a_registered_tool_takes_its_parameters_from_its_workflow() {
    let fixture = Fixture::new().await;
    fixture.workflows.put(
        "echo",
        json!({"interfaceInputs": {"n": {"dataFlowType": "INTEGER", "required": true}}}),
    );
    fixture
        .put_tool(
            json!({"id": "count", "description": "counts", "readOnly": true,
                         "implementation": {"type": "workflow", "workflowId": "echo"}}),
        )
        .await;
    let definition = json!({"id": "count.all", "displayName": "Counting machine", "description": "counts", "readOnly": true,
                            "implementation": {"type": "workflow", "workflowId": "echo"}});
    fixture.put_tool(definition).await;
    // Seed 003 has an id or a name.
    let named = fixture.call("Counting machine", json!({"n": 2})).await;
    assert_eq!(
        (&*named.tool_id, &*named.output_json),
        ("count.all", r#"{"n":2}"#)
    );
    let result = fixture.call("count", json!({"n": "x"})).await;
    assert_eq!(result.error.unwrap().violations[0].code, "type_mismatch");
    assert_eq!(
        fixture.call("count", json!({"n": 1})).await.output_json,
        r#"{"n":1}"#
    );
}

#[tokio::test]
async fn g206_a_call_for_an_agent_needs_a_tool_of_its_inventory_and_room_below() {
    let fixture = Fixture::new().await;
    fixture.workflows.put("two", json!({}));
    let asks = |effect: &str, depth: u32, tools: &[&str]| CallToolRequest {
        grant: Some(CallGrant {
            tokens: 700,
            depth: Some(depth),
            tools: Some(GrantedTools {
                tool_ids: tools.iter().map(|id| (*id).to_owned()).collect(),
            }),
            ..CallGrant::default()
        }),
        ..with_effect(effect, "workflow__two", json!({}))
    };
    let tools = ["workflow:two"];
    for (request, code) in [
        (asks("e1", 1, &["clock"]), "tool_not_available"),
        (asks("e2", 0, &tools), "depth_exceeded"),
    ] {
        let (_, refused) = fixture.finish(request).await;
        assert_eq!(
            (refused.status(), code_of(&refused)),
            (CallStatus::Rejected, code)
        );
    }
    assert_eq!(fixture.workflows.run_count(), 0);
    let (_, result) = fixture.finish(asks("e3", 1, &tools)).await;
    assert_eq!(result.status(), CallStatus::Succeeded);
    let started = fixture.workflows.started.lock().unwrap()[0].clone();
    let grant = started.grant.unwrap();
    // Which tools a workflow is made of is up to its author.
    assert_eq!(
        (grant.tokens, grant.depth, grant.tools),
        (700, Some(0), None)
    );
}
