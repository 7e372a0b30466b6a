//! Native calls of models in workflows, and their results in later rounds, runs and conversations.

use contracts::tavern::agent::v1::conversation_service_client::ConversationServiceClient;
use contracts::tavern::agent::v1::{BranchConversationRequest, ListMessagesRequest, Message};
use contracts::tavern::common::v1::ChatRole;
use contracts::tavern::workflow::v1::StartRunRequest;
use contracts::tavern::workflow::v1::start_run_request::Target;
use grpc_kit::{ClientSettings, Outbound};
use serde_json::{Value, json};
use testkit::{Stack, collect, repository};

use crate::model_endpoint::{ANSWER, ModelEndpoint, PROVIDERS};

/// Runs a workflow to its end and returns its outputs.
async fn run(stack: &Stack, definition: &Value, inputs: Value) -> anyhow::Result<Value> {
    let request = StartRunRequest {
        target: Some(Target::DefinitionJson(definition.to_string())),
        inputs_json: inputs.to_string(),
        ..StartRunRequest::default()
    };
    let started = stack.workflow().start_run(request).await?.into_inner();
    let run_id = started.run.unwrap_or_default().run_id;
    let outcome = collect(&stack.runs(), &run_id, 0).await?.run.outcome;
    let outcome = outcome.unwrap_or_default();
    assert_eq!(outcome.error, None);
    Ok(serde_json::from_str(&outcome.result_json)?)
}

/// A question to a model with tools, on a stored conversation of which `limit` messages are read.
fn on_a_conversation(model: &str, limit: u32) -> Value {
    let edge = |from: &str, out: &str, to: &str, input: &str| json!({"source": from, "sourceHandle": out, "target": to, "targetHandle": input});
    json!({
        "nodes": [
            {"id": "in", "type": "core:GroupInput"},
            {"id": "load", "type": "core:HistoryLoad", "configValues": {"limit": limit}},
            {"id": "llm", "type": "core:LLM", "configValues": {"profileId": model, "dialect": "native",
                "prompt": "Who is it?", "toolIds": ["GetPlayerInfo", "ReadSampleWorldTool"]}},
            {"id": "save", "type": "core:HistorySave"},
            {"id": "out", "type": "core:GroupOutput"},
        ],
        "edges": [
            edge("in", "conversation_id", "load", "conversation_id"),
            edge("in", "conversation_id", "save", "conversation_id"),
            edge("load", "messages", "llm", "messages"),
            edge("load", "revision", "save", "expected_revision"),
            edge("llm", "messages", "save", "messages"),
            edge("llm", "text", "out", "text"),
        ],
        "interfaceInputs": {"conversation_id": {"dataFlowType": "STRING"}},
        "interfaceOutputs": {"text": {"dataFlowType": "STRING"}},
    })
}

fn conversations(stack: &Stack) -> anyhow::Result<ConversationServiceClient<Outbound>> {
    let settings = ClientSettings::to(stack.address());
    Ok(ConversationServiceClient::new(
        grpc_kit::remote(&settings)?.outermost(),
    ))
}

async fn messages(stack: &Stack, conversation_id: &str) -> anyhow::Result<Vec<Message>> {
    let request = ListMessagesRequest {
        conversation_id: conversation_id.to_owned(),
        ..ListMessagesRequest::default()
    };
    let listed = conversations(stack)?.list_messages(request).await?;
    Ok(listed.into_inner().messages)
}

/// The roles of an exchange with two calls in the words of a wire, whose ids end in a suffix.
fn exchange(provider: &str, first: &str, second: &str) -> Vec<String> {
    let calls = format!("assistant+{first}+{second}");
    let results = match provider {
        "openai" => vec![format!("tool={first}"), format!("tool={second}")],
        _ => vec![format!("user={first}={second}")],
    };
    [vec!["user".to_owned(), calls], results].concat()
}

#[tokio::test(flavor = "multi_thread")]
async fn native_calls_and_their_results_stay_together_in_rounds_runs_and_branches()
-> anyhow::Result<()> {
    let endpoint = ModelEndpoint::start().await?;
    let deploy = tempfile::tempdir()?;
    endpoint.deploy(deploy.path())?;
    let mut stack = Stack::builder().deploy(deploy.path()).start().await?;
    for provider in PROVIDERS {
        let before = endpoint.asked().len();
        let workflow = on_a_conversation(provider, 50);
        let on = |conversation: &str| json!({"conversation_id": conversation});
        assert_eq!(run(&stack, &workflow, on(provider)).await?["text"], ANSWER);
        let first = exchange(provider, "c1", "c2");
        assert_eq!(
            endpoint.asked()[before..],
            [vec!["user".to_owned()], first.clone()]
        );

        let kept = messages(&stack, provider).await?;
        let roles: Vec<ChatRole> = kept.iter().map(Message::role).collect();
        let [user, model, tool] = [ChatRole::User, ChatRole::Assistant, ChatRole::Tool];
        assert_eq!(roles, [user, model, tool, tool, model]);
        let failed = kept.iter().filter_map(|message| message.result_of.clone());
        let failed: Vec<(String, bool)> = failed.map(|ended| (ended.id, ended.failed)).collect();
        assert_eq!(failed, [("c1".to_owned(), false), ("c2".to_owned(), true)]);

        // The next run reads the stored calls, also in a branch and in another process.
        stack.kill()?;
        stack.restart().await?;
        let request = BranchConversationRequest {
            conversation_id: provider.to_owned(),
            ..BranchConversationRequest::default()
        };
        let branched = conversations(&stack)?.branch_conversation(request).await?;
        let branched = branched.into_inner();
        let branch = branched.conversation.unwrap_or_default().conversation_id;
        for conversation in [provider, &branch] {
            let before = endpoint.asked().len();
            assert_eq!(
                run(&stack, &workflow, on(conversation)).await?["text"],
                ANSWER
            );
            let asked = endpoint.asked();
            let earlier = [
                first.clone(),
                vec!["assistant".to_owned(), "user".to_owned()],
            ]
            .concat();
            assert_eq!(asked[before], earlier);
            // The endpoint repeats its ids; no request does.
            let second = exchange(provider, "call_2", "call_3");
            assert_eq!(asked[before + 1], [&earlier[..], &second[1..]].concat());
        }
        // A window that begins behind the calls begins behind their results.
        let before = endpoint.asked().len();
        let window = on_a_conversation(provider, 2);
        assert_eq!(run(&stack, &window, on(provider)).await?["text"], ANSWER);
        // One API begins with the user.
        let opening = if provider == "openai" { "" } else { "user " };
        assert_eq!(
            endpoint.asked()[before].join(" "),
            format!("{opening}assistant user")
        );
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_drawn_as_a_graph_calls_natively() -> anyhow::Result<()> {
    let endpoint = ModelEndpoint::start().await?;
    let deploy = tempfile::tempdir()?;
    endpoint.deploy(deploy.path())?;
    let stack = Stack::builder().deploy(deploy.path()).start().await?;
    let path = repository().join("deploy/workflows/agent_loop.json");
    let shipped: Value = serde_json::from_slice(&std::fs::read(path)?)?;
    for provider in PROVIDERS {
        let mut definition = shipped.clone();
        let nodes = definition["nodes"].as_array_mut().into_iter().flatten();
        for node in nodes.filter(|node| node["id"] == "decide") {
            node["configValues"] = json!({"profileId": provider, "dialect": "native"});
        }
        let before = endpoint.asked().len();
        let inputs =
            json!({"question": "Who is it?", "conversation_id": format!("{provider}-loop")});
        let result = run(&stack, &definition, inputs).await?;
        assert_eq!(
            (&result["reply"], &result["rounds"]),
            (&json!(ANSWER), &json!(2))
        );
        let expected = [vec!["user".to_owned()], exchange(provider, "c1", "c2")];
        assert_eq!(endpoint.asked()[before..], expected);
    }
    Ok(())
}
