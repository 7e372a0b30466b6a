//! The example workflows, run as any backend would run them.

use contracts::tavern::common::v1::run_event::Kind;
use contracts::tavern::common::v1::watch_record::Record;
use contracts::tavern::common::v1::{NodeState, RunEvent, RunOutcome};
use contracts::tavern::registry::v1::GetToolRequest;
use contracts::tavern::run::v1::WatchRunRequest;
use contracts::tavern::workflow::v1::start_run_request::Target;
use contracts::tavern::workflow::v1::{StartRunRequest, ValidateWorkflowRequest};
use serde_json::{Value, json};
use testkit::{Stack, invoke};
use tonic::Status;

use crate::text::user_message;

/// Returns an edge of a definition.
pub(crate) fn edge(source: &str, output: &str, target: &str, input: &str) -> Value {
    json!({"source": source, "sourceHandle": output, "target": target, "targetHandle": input})
}

/// Starts a run, and returns its id.
pub(crate) async fn start(stack: &Stack, target: Target, inputs: &Value) -> Result<String, Status> {
    let request = StartRunRequest {
        target: Some(target),
        inputs_json: inputs.to_string(),
        ..StartRunRequest::default()
    };
    let started = stack.workflow().start_run(request).await?.into_inner();
    Ok(started.run.unwrap_or_default().run_id)
}

/// Runs a workflow to its end and returns its events.
async fn run(stack: &Stack, workflow: &str, inputs: Value) -> anyhow::Result<Vec<RunEvent>> {
    let request = StartRunRequest {
        target: Some(Target::WorkflowId(workflow.to_owned())),
        inputs_json: inputs.to_string(),
        ..StartRunRequest::default()
    };
    follow(stack, request).await
}

/// Starts a run and follows it to its end.
async fn follow(stack: &Stack, request: StartRunRequest) -> anyhow::Result<Vec<RunEvent>> {
    let started = stack.workflow().start_run(request).await?.into_inner();
    let request = WatchRunRequest {
        run_id: started.run.unwrap_or_default().run_id,
        after_sequence: 0,
    };
    let mut records = stack.runs().watch_run(request).await?.into_inner();
    let mut events = Vec::new();
    while let Some(response) = records.message().await? {
        match contracts::watch::decode(response.record)? {
            Some(Record::Event(event)) => events.push(event),
            Some(Record::Terminal(_)) => break,
            _ => {}
        }
    }
    Ok(events)
}

fn outcome(events: &[RunEvent]) -> RunOutcome {
    match events.last().and_then(|event| event.kind.clone()) {
        Some(Kind::RunFinished(finished)) => finished.outcome.unwrap_or_default(),
        other => panic!("the last event is {other:?}"),
    }
}

/// A workflow, its inputs and its outputs.
type Case = (&'static str, Value, Value);

/// The examples that request models.
fn examples_with_models() -> Vec<Case> {
    vec![
        (
            "brief_answer",
            json!({"question": "What is a workflow?"}),
            json!({"answer": "A workflow is a graph of nodes that pass values on.",
                   "usage": {"prompt_tokens": 21, "completion_tokens": 12, "total_tokens": 33}}),
        ),
        (
            "world_coordinator",
            json!({"question": "What is the weather like, and who is player123?"}),
            json!({"report": "It is sunny, and player123 is known.", "first_status": "succeeded"}),
        ),
        (
            "decide_by_hand",
            json!({"question": "What is the weather like, and who is player123?"}),
            json!({"said": "The weather first.", "result": "sunny",
                "observation": "Observation: Tool ReadSampleWorldTool executed successfully. Result: sunny"}),
        ),
        (
            "ask_activated_model",
            json!({"question": "What is a workflow?"}),
            json!({"answer": "A workflow is a graph of nodes that pass values on."}),
        ),
        (
            "look_up",
            json!({"player": "player123"}),
            json!({"answer": "It is sunny, and player123 is the ranger Elara.", "calls": 2,
                "stop_reason": "answered"}),
        ),
    ]
}

/// The other examples.
fn examples_without_models() -> Vec<Case> {
    vec![
        (
            "compare_texts",
            json!({"first": "one two\nthree", "second": "x"}),
            json!({"reports": "13 characters, 2 lines, 3 words; the longest word is \"three\".\n\
                               1 characters, 1 lines, 1 words; the longest word is \"x\"."}),
        ),
        (
            "price_list",
            json!({"prices": [10, "ten", 2.5]}),
            json!({"prices": [12, null, 3], "failed": 1}),
        ),
        (
            "names_of_players",
            json!({"player_ids": ["player123", "player999", "player123"]}),
            json!({"names": ["Elara", "player999 is unknown", "Elara"], "errors": [], "failed": 0}),
        ),
        (
            "keep_journal",
            json!({"path": "journal.md", "entries": ["one", "two", "three"]}),
            json!({"journal": "- one\n- two\n- three\n"}),
        ),
        (
            "interest_twice",
            json!({"principal": 100}),
            json!({"amount": 187.5}),
        ),
        (
            "route_ticket",
            json!({"ticket": {"kind": "refund", "text": "t", "amount": 500}}),
            json!({"outcome": r#"a person decides: {"kind":"refund","text":"t","amount":500}"#,
                "way": 0, "valid": true}),
        ),
        (
            "route_ticket",
            json!({"ticket": {"kind": "thanks", "text": "t"}}),
            json!({"outcome": r#"filed: {"kind":"thanks","text":"t"}"#, "way": 3, "valid": true}),
        ),
        (
            "tally_tabs",
            json!({"tabs": "Ada: 10.5\nBo: 0.5"}),
            json!({"tabs": [{"guest": "Ada", "amount": 10.5}, {"guest": "Bo", "amount": 0.5}],
                "prices": [12.6, 0.6]}),
        ),
        (
            "close_the_tabs",
            json!({"tabs": "Ada: 10.5"}),
            json!({"tabs": [{"guest": "Ada", "amount": 10.5}], "prices": [12.6],
                "ledger": "{\"guest\":\"Ada\",\"amount\":10.5}"}),
        ),
        (
            "turn_point",
            json!({"matrix": [[0, -1], [1, 0]], "point": [[2], [0]]}),
            json!({"point": [[0], [10]], "step": 5}),
        ),
        (
            "polish_text",
            json!({"text": "Hello  WORLD. This   is the very end of it all.",
                "rules": r#"[{"pattern": "WORLD", "replacement": "world"}]"#}),
            json!({"text": "Hello world. This is the very end of it all.",
                "messages": r#"[{"role":"system","content":"Answer briefly."},{"role":"user","content":"Hello world."}]"#}),
        ),
        (
            "read_or_remark",
            json!({"path": "none.txt"}),
            json!({"text": "none.txt cannot be read: file_not_found", "length": 39}),
        ),
        (
            "read_or_remark",
            json!({"path": "none.txt", "seconds": 600}),
            json!({"text": "none.txt cannot be read: file_not_found", "length": -1}),
        ),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn each_example_workflow_gives_its_result() -> anyhow::Result<()> {
    let stack = Stack::all_in_one().await?;
    for (workflow, inputs, expected) in [examples_with_models(), examples_without_models()].concat()
    {
        let ended = outcome(&run(&stack, workflow, inputs).await?);
        assert_eq!(ended.error, None, "{workflow}");
        let result: Value = serde_json::from_str(&ended.result_json)?;
        assert_eq!(result, expected, "{workflow}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_pieces_of_a_streaming_output_are_its_text() -> anyhow::Result<()> {
    let stack = Stack::all_in_one().await?;
    let inputs = json!({"question": "What is a workflow?"});
    let events = run(&stack, "stream_fan_out", inputs).await?;
    let pieces = events.iter().filter_map(|event| match &event.kind {
        Some(Kind::OutputChunk(chunk)) if chunk.interface_key == "live" => Some(&*chunk.text),
        _ => None,
    });
    let text = pieces.collect::<String>();
    assert_eq!(
        text,
        "A workflow is a graph of nodes that pass values on.[end]"
    );
    let result: Value = serde_json::from_str(&outcome(&events).result_json)?;
    assert_eq!(result["live"], text);
    assert_eq!(result["answer"], text.trim_end_matches("[end]"));
    Ok(())
}

/// The calls of a run and their results, without the id of the run.
fn calls(events: &[RunEvent]) -> Vec<[String; 3]> {
    let results = |effect_id: &str| {
        let settled = events.iter().filter_map(|event| match &event.kind {
            Some(Kind::CallSettled(settled)) => settled.result.as_ref(),
            _ => None,
        });
        let of_call = settled.filter(|result| result.effect_id == effect_id);
        of_call.map(|result| result.output_json.clone()).collect()
    };
    let dispatched = events.iter().filter_map(|event| match &event.kind {
        Some(Kind::CallDispatched(call)) => Some(call),
        _ => None,
    });
    dispatched
        .map(|call| {
            let (tool, arguments) = (call.tool_id.clone(), call.arguments_json.clone());
            [tool, arguments, results(&call.effect_id)]
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_drawn_as_a_graph_makes_the_calls_of_the_agent() -> anyhow::Result<()> {
    let stack = Stack::all_in_one().await?;
    let question = "What is the weather like, and who is player123?";
    let drawn = run(
        &stack,
        "agent_loop",
        json!({"question": question, "conversation_id": "drawn"}),
    )
    .await?;
    let ended = outcome(&drawn);
    assert_eq!(ended.error, None);
    let result: Value = serde_json::from_str(&ended.result_json)?;
    let answer = "It is sunny, and player123 is the ranger Elara.";
    assert_eq!(
        (&result["reply"], &result["rounds"], &result["stop_reason"]),
        (&json!(answer), &json!(4), &json!("until"))
    );
    let turn = invoke(&stack.gateway(), user_message("explorer", question)).await?;
    assert_eq!(calls(&drawn), calls(&turn.events));
    assert_eq!(calls(&drawn).len(), 2);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_has_used_its_budget_is_asked_a_last_time_without_tools() -> anyhow::Result<()>
{
    let stack = Stack::all_in_one().await?;
    let path = testkit::repository().join("deploy/workflows/look_up.json");
    let mut definition: Value = serde_json::from_slice(&std::fs::read(path)?)?;
    definition["nodes"][1]["configValues"]["maxToolCalls"] = json!(1);
    let request = StartRunRequest {
        target: Some(Target::DefinitionJson(definition.to_string())),
        inputs_json: json!({"player": "player123"}).to_string(),
        ..StartRunRequest::default()
    };
    let events = follow(&stack, request).await?;
    let ended = outcome(&events);
    assert_eq!(ended.error, None);
    let result: Value = serde_json::from_str(&ended.result_json)?;
    assert_eq!(
        (&result["calls"], &result["stop_reason"]),
        (&json!(1), &json!("iterations"))
    );
    let asked = events.iter().filter_map(|event| match &event.kind {
        Some(Kind::NodeFinished(node)) if node.node_id.ends_with("/prompt") => Some(node),
        _ => None,
    });
    let asked: Vec<Value> = asked
        .map(|node| serde_json::from_str(&node.outputs_json))
        .collect::<Result<_, _>>()?;
    let last = |asked: &Value| {
        asked["messages"]
            .as_array()
            .and_then(|chat| chat.last())
            .cloned()
    };
    let texts: Vec<String> = asked
        .iter()
        .filter_map(|asked| last(asked)?["content"].as_str().map(str::to_owned))
        .collect();
    assert_eq!(texts.len(), 2);
    assert!(texts[0].contains("工具 GetPlayerInfo: "), "{texts:?}");
    assert!(
        texts[1].ends_with("All 1 rounds are used. Answer now, without calling tools."),
        "{texts:?}"
    );
    Ok(())
}

/// The ends of the nodes with `cache` settings.
fn cached(events: &[RunEvent]) -> Vec<(&str, NodeState)> {
    let finished = events.iter().filter_map(|event| match &event.kind {
        Some(Kind::NodeFinished(node)) if node.cache.is_some() => Some(node),
        _ => None,
    });
    finished
        .map(|node| (node.node_id.as_str(), node.state()))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_read_only_tool_gave_is_reused_by_the_next_run() -> anyhow::Result<()> {
    let stack = Stack::all_in_one().await?;
    let inputs = json!({"player_id": "player123"});
    for (state, calls_made) in [(NodeState::Succeeded, 1), (NodeState::Cached, 0)] {
        let events = run(&stack, "remember_player", inputs.clone()).await?;
        let result: Value = serde_json::from_str(&outcome(&events).result_json)?;
        assert_eq!(result, json!({"greeting": "Welcome back, Elara."}));
        assert_eq!(cached(&events), [("lookup", state), ("greeting", state)]);
        assert_eq!(calls(&events).len(), calls_made);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workflow_as_a_node_is_a_run_below() -> anyhow::Result<()> {
    let stack = Stack::all_in_one().await?;
    let events = run(&stack, "interest_twice", json!({"principal": 100})).await?;
    let run_id = events[0].run_id.clone();
    let below: Vec<&RunEvent> = events
        .iter()
        .filter(|event| event.run_id != run_id)
        .collect();
    let begun = |event: &&&RunEvent| matches!(event.kind, Some(Kind::RunStarted(_)));
    assert_eq!(below.iter().filter(begun).count(), 2);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_modes_of_a_node_are_an_enum_of_its_tool() -> anyhow::Result<()> {
    let stack = Stack::all_in_one().await?;
    let request = GetToolRequest {
        tool_id: "node:core:MatrixOperation".to_owned(),
    };
    let tool = stack.registry().get_tool(request).await?.into_inner().tool;
    let parameters: Value = serde_json::from_str(&tool.unwrap_or_default().parameters_json)?;
    let modes = &parameters["properties"]["operationMode"]["enum"];
    assert_eq!(modes[0], "add");
    assert_eq!(modes.as_array().map(Vec::len), Some(7));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn tools_that_do_not_exist_fail_validation_where_they_are_named() -> anyhow::Result<()> {
    let stack = Stack::all_in_one().await?;
    let definition = json!({
        "availableTools": {"initial": ["GetPlayerInfo", "nope"]},
        "nodes": [{"id": "d", "type": "core:LLMDecisionWithTools", "configValues": {
            "profileId": "coordinator_script", "dynamicTools": {"toolIds": ["neither"]}}}],
    });
    let request = ValidateWorkflowRequest {
        definition_json: definition.to_string(),
        ..ValidateWorkflowRequest::default()
    };
    let checked = stack.workflow().validate_workflow(request).await?;
    let violations = checked.into_inner().violations;
    let found: Vec<(&str, &str)> = violations
        .iter()
        .map(|violation| (violation.pointer.as_str(), violation.code.as_str()))
        .collect();
    let expected = [
        ("/availableTools/initial", "unknown_tool"),
        ("/nodes/0/configValues/dynamicTools/toolIds", "unknown_tool"),
    ];
    assert_eq!(found, expected);
    Ok(())
}
