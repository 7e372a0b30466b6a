//! Hooks about workflows, turns of agents and requests to models.

use anyhow::{Context, ensure};
use contracts::tavern::common::v1::{HookAction, RunState, run_event::Kind};
use contracts::tavern::workflow::v1::PutWorkflowRequest;
use contracts::tavern::workflow::v1::start_run_request::Target;
use serde_json::{Value, json};
use testkit::{Stack, collect, eventually, invoke};

use super::{Backend, applied, grpc, install, plugin, replace};
use crate::text::user_message;
use crate::workflows::start;

/// A workflow that joins its inputs.
fn merge() -> Value {
    json!({
        "nodes": [
            {"id": "in", "type": "core:GroupInput"},
            {"id": "out", "type": "core:GroupOutput"},
        ],
        "edges": [{
            "id": "e", "source": "in", "sourceHandle": "text", "target": "out", "targetHandle": "text",
        }],
        "interfaceInputs": {"text": {"dataFlowType": "STRING"}},
        "interfaceOutputs": {"text": {"dataFlowType": "STRING"}},
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn r203_hooks_before_a_workflow_change_its_inputs_or_fail_it_before_its_first_node()
-> anyhow::Result<()> {
    let stack = Stack::all_in_one().await?;
    let backend = Backend::start(&stack, "hooks", |_, act| {
        Ok(match act["run"]["inputs"]["text"].as_str() {
            Some("no") => json!({"action": "deny", "reason": "Not this one."}),
            Some("") => replace("/run/inputs", json!([1])),
            _ => replace("/run/inputs/text", json!("changed")),
        })
    });
    let backend = backend.await?;
    let hooks = [
        grpc("before", "workflow:before-execute", json!({})),
        grpc("after", "workflow:after-execute", json!({})),
    ];
    install(&stack, &plugin("flows", &hooks, &[])?).await?;
    let request = PutWorkflowRequest {
        workflow_id: "merge".to_owned(),
        definition_json: merge().to_string(),
        ..PutWorkflowRequest::default()
    };
    stack.workflow().put_workflow(request).await?;
    let stored = || Target::WorkflowId("merge".to_owned());
    for target in [stored(), Target::DefinitionJson(merge().to_string())] {
        let run = start(&stack, target, &json!({"text": "given"})).await?;
        let ended = collect(&stack.runs(), &run, 0).await?;
        let outcome = ended.run.outcome.clone().unwrap_or_default();
        ensure!(
            outcome.result_json == r#"{"text":"changed"}"#,
            "{outcome:?}"
        );
        let shown = applied(&ended.events);
        ensure!(
            shown.len() == 1 && shown[0].pointers == ["/run/inputs/text"],
            "{shown:?}"
        );
    }
    for (text, code) in [("no", "denied_by_hook"), ("", "hook_answer_invalid")] {
        let run = start(&stack, stored(), &json!({"text": text})).await?;
        let ended = collect(&stack.runs(), &run, 0).await?;
        let outcome = ended.run.outcome.clone().unwrap_or_default();
        let error = outcome.error.clone().unwrap_or_default();
        ensure!(
            ended.run.state() == RunState::Failed && error.code == code,
            "{outcome:?}"
        );
        ensure!(error.message.contains("flows/before"), "{error:?}");
        let nodes = ended
            .events
            .iter()
            .filter(|event| matches!(event.kind, Some(Kind::NodeFinished(_))));
        ensure!(nodes.count() == 0, "no node ran");
    }
    // A workflow as a tool is one too.
    let result = super::call(&stack, ("workflow:merge", ""), json!({"text": "given"})).await?;
    ensure!(result.output_json.contains("changed"), "{result:?}");
    let seen = eventually("the observers", || async {
        let seen = backend.asked("workflow:after-execute");
        (seen.len() >= 3).then_some(seen)
    });
    let seen = seen.await?;
    ensure!(seen[0]["run"]["outputs"]["text"] == "changed", "{seen:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn r203_hooks_see_turns_and_requests_to_models() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let call = "<ACTION><system:get_current_time></system:get_current_time></ACTION>";
    super::masking::deploy(directory.path(), "system:get_current_time", call)?;
    let stack = Stack::builder().deploy(directory.path()).start().await?;
    let backend = Backend::start(&stack, "hooks", |_, act| {
        let text = act["turn"]["user_text"].as_str().unwrap_or_default();
        Ok(match act["point"].as_str().unwrap_or_default() {
            "turn:before" if text.contains("secret") => {
                json!({"action": "deny", "code": "no_secrets"})
            }
            "turn:before" => replace("/turn/user_text", json!(format!("{text} (in metres)"))),
            "model:before-request" => replace(
                "/request/messages/-",
                json!({"role": "system", "content": "Answer in metres."}),
            ),
            _ => json!({"action": "continue"}),
        })
    });
    let backend = backend.await?;
    let hooks = [
        grpc("text", "turn:before", json!({})),
        grpc("request", "model:before-request", json!({})),
        grpc("after", "turn:after", json!({})),
    ];
    install(&stack, &plugin("turns", &hooks, &[])?).await?;
    let turn = invoke(&stack.gateway(), user_message("clerk", "May I go?")).await?;
    ensure!(turn.run.state() == RunState::Succeeded, "{:?}", turn.run);
    let shown = applied(&turn.events);
    let actions: Vec<(&str, HookAction)> = shown
        .iter()
        .map(|each| (&*each.hook, each.action()))
        .collect();
    ensure!(
        actions[0] == ("turns/text", HookAction::Replace),
        "{actions:?}"
    );
    ensure!(
        actions[1] == ("turns/request", HookAction::Replace),
        "{actions:?}"
    );
    let asked = backend.asked("model:before-request");
    let messages = asked[0]["request"]["messages"]
        .as_array()
        .context("messages")?;
    let last = messages.last().context("a message")?;
    ensure!(last["content"].to_string().contains("in metres"), "{last}");
    let refused = invoke(&stack.gateway(), user_message("clerk", "A secret?")).await;
    let refused = format!("{:?}", refused.map(|turn| turn.run));
    ensure!(refused.contains("turns/text"), "{refused}");
    let seen = eventually("the observer", || async {
        let seen = backend.asked("turn:after");
        (!seen.is_empty()).then_some(seen)
    });
    ensure!(seen.await?[0]["turn"]["stop_reason"] == "stop");
    Ok(())
}
