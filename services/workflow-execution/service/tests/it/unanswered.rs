//! Calls that the registry answers with a status instead of a result: rejected only if they have surely
//! not left.

use contracts::tavern::common::v1::run_event::Kind;
use contracts::tavern::common::v1::{CallStatus, RunState};
use serde_json::{Value, json};

use crate::support::*;

/// A node that calls a tool, alone or as the only one of a list, and one behind it.
fn calls(tool_id: &str, listed: bool) -> Value {
    let inputs = match listed {
        true => json!({"requests": [{"toolName": tool_id}]}),
        false => json!({"tool_id": tool_id}),
    };
    json!({"nodes": [{"id": "act", "type": "core:ExecuteTool", "inputValues": inputs}]})
}

async fn ends(tool_id: &str, listed: bool, restarts: bool) -> (RunState, CallStatus) {
    let mut world = World::new().await;
    let run = world.start(&calls(tool_id, listed), json!({})).await;
    if restarts {
        world.registry.until_asked(1).await;
        world = world.restart().await;
    }
    let outcome = world.outcome(&run.run_id).await;
    let events = world.events(&run.run_id).await;
    let status = events.into_iter().find_map(|event| match event.kind {
        Some(Kind::CallSettled(settled)) => Some(settled.result?.status()),
        _ => None,
    });
    (outcome.state(), status.expect("the call has ended"))
}

#[tokio::test]
async fn a_refusal_says_nothing_of_an_earlier_request() {
    let doubt = (RunState::InDoubt, CallStatus::InDoubt);
    for (tool_id, restarts, end) in [
        ("loses", false, doubt),
        ("breaks", false, doubt),
        ("forgets", true, doubt),
        ("refuses", false, (RunState::Failed, CallStatus::Rejected)),
    ] {
        assert_eq!(ends(tool_id, false, restarts).await, end, "{tool_id}");
        // A call of a list that is rejected is a result (rule W34).
        let listed = match end.0 {
            RunState::Failed => (RunState::Succeeded, end.1),
            _ => end,
        };
        assert_eq!(ends(tool_id, true, restarts).await, listed, "{tool_id}");
    }
}
