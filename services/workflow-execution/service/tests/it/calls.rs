//! Calls of a workflow that the real tool-registry decides on, and their effect on the run.

use std::sync::Arc;

use contracts::tavern::common::v1::{RunOutcome, RunState};
use doubles::{Behaviour, TestRegistry};
use serde_json::{Value, json};

use crate::support::*;

fn tools() -> TestRegistry {
    TestRegistry::default()
        .tool("echo", &["text"], Behaviour::Gives(Arc::new(Value::clone)))
        .tool("fail", &["text"], Behaviour::Fails("the disk is gone"))
        .tool("lose", &["text"], Behaviour::Unknown)
        .tool("wait", &["text"], Behaviour::Hangs)
}

/// A workflow with one call.
fn one(tool_id: &str, text: &Value) -> Value {
    json!({"nodes": [{"id": "t", "type": "core:ExecuteTool",
        "inputValues": {"tool_id": tool_id, "text": text}}]})
}

fn code_of(outcome: &RunOutcome) -> &str {
    outcome.error.as_ref().map_or("", |error| &error.code)
}

#[tokio::test]
async fn a_run_ends_as_the_registry_says_of_its_call() {
    let tools = tools();
    let world = World::with_tools(tools.clone()).await;
    let text = json!("x");
    for (name, definition, state, code) in [
        ("a result", one("echo", &text), RunState::Succeeded, ""),
        (
            "a failure",
            one("fail", &text),
            RunState::Failed,
            "script_error",
        ),
        (
            "an unknown tool",
            one("nothing", &text),
            RunState::Failed,
            "unknown_tool",
        ),
        (
            "wrong arguments",
            one("echo", &json!(7)),
            RunState::Failed,
            "invalid_arguments",
        ),
    ] {
        let outcome = world.run(&definition, json!({})).await;
        assert_eq!(outcome.state(), state, "{name}: {outcome:?}");
        assert_eq!(code_of(&outcome), code, "{name}: {outcome:?}");
    }
    assert_eq!(tools.dispatches().len(), 2, "refused calls do not leave");
}

#[tokio::test]
async fn a_cancel_of_the_run_reaches_the_tool() {
    let tools = tools();
    let world = World::with_tools(tools.clone()).await;
    let run = world.start(&one("wait", &json!("x")), json!({})).await;
    while tools.dispatches().is_empty() {
        tokio::task::yield_now().await;
    }
    let request = contracts::tavern::run::v1::CancelRunRequest {
        run_id: run.run_id.clone(),
        reason: "enough".to_owned(),
    };
    let cancelled = world.runs.clone().cancel_run(request).await.unwrap();
    assert_eq!(cancelled.into_inner().still_running, []);
    let outcome = world.outcome(&run.run_id).await;
    assert_eq!(outcome.state(), RunState::Cancelled, "{outcome:?}");
    assert_eq!(outcome.unsettled_effect_ids, [""; 0]);
}
