//! Runs that work for an agent, within its grant (rules G206, G703 and G706).

use contracts::tavern::common::v1::{CallGrant, GrantedTools, RunOutcome, RunState};
use contracts::tavern::workflow::v1::StartRunRequest;
use serde_json::{Value, json};

use crate::support::*;

/// Returns a request for a run of a definition that works for an agent.
fn granted(definition: &Value, grant: CallGrant) -> StartRunRequest {
    StartRunRequest {
        request_id: "turn/1".to_owned(),
        grant: Some(grant),
        ..of_definition(definition, json!({}))
    }
}

/// Calls of tools one after the other.
fn chain(tools: &[&str]) -> Value {
    let id = |place: usize| format!("t{place}");
    let nodes = tools.iter().enumerate();
    let nodes: Vec<Value> = nodes.map(|(place, name)| tool(&id(place), name)).collect();
    let next = (1..tools.len()).map(|place| {
        let input = format!("after{place}");
        edge(&id(place - 1), "status", &id(place), &input)
    });
    json!({"nodes": nodes, "edges": next.collect::<Vec<Value>>()})
}

/// A model that is asked, and asked again about its answer.
fn two_questions() -> Value {
    let say = |id: &str| json!({"id": id, "type": "core:CreateMessage", "inputValues": {"role": "user", "content": "And then?"}});
    let ask = |id: &str| json!({"id": id, "type": "core:GenericLlmRequest", "inputValues": {"activated_model_id": "small"}});
    json!({
        "nodes": [say("say"), ask("first"), say("more"), ask("second")],
        "edges": [
            edge("say", "messages", "first", "messages"),
            edge("first", "responseText", "more", "content"),
            edge("more", "messages", "second", "messages"),
        ],
    })
}

fn code_of(outcome: &RunOutcome) -> &str {
    outcome.error.as_ref().map_or("", |error| &error.code)
}

#[tokio::test]
async fn g206_calls_travel_with_what_the_agent_may_use_and_stop_at_its_budget() {
    let world = World::new().await;
    let tools = GrantedTools {
        tool_ids: vec!["echo".to_owned()],
    };
    let grant = CallGrant {
        calls: Some(2),
        depth: Some(3),
        tools: Some(tools.clone()),
        ..CallGrant::default()
    };
    let definition = chain(&["echo", "chatty", "echo"]);
    let run = world.begin(granted(&definition, grant)).await;
    let outcome = world.outcome(&run.run_id).await;
    assert_eq!(
        (outcome.state(), code_of(&outcome), outcome.calls),
        (RunState::Failed, "budget_exhausted", 2)
    );
    let asked = world.registry.asked();
    let grants = asked.into_iter().map(|request| request.grant.unwrap());
    let left: Vec<_> = grants
        .map(|grant| (grant.calls, grant.depth, grant.tools))
        .collect();
    let tools = Some(tools);
    assert_eq!(
        left,
        [(Some(1), Some(3), tools.clone()), (Some(0), Some(3), tools)]
    );
}

#[tokio::test]
async fn g703_what_models_use_is_counted_and_bounds_the_next_request_over_a_restart() {
    let world = World::new().await;
    world.models.answer(&["Hm.", "Hm."]);
    world.models.hold(true);
    let grant = CallGrant {
        tokens: 1_000,
        ..CallGrant::default()
    };
    let run = world.begin(granted(&two_questions(), grant)).await;
    world.until_chunk(&run.run_id, 0).await;
    let world = world.restart().await;
    world.models.hold(false);
    let outcome = world.outcome(&run.run_id).await;
    assert_eq!(outcome.error, None);
    let used: Vec<_> = outcome
        .model_totals
        .iter()
        .map(|total| {
            let usage = total.usage.clone().unwrap();
            (
                total.model.as_str(),
                total.answers,
                usage.input_tokens,
                usage.output_tokens,
            )
        })
        .collect();
    assert_eq!(used, [("small", 2, 14, 6)]);
    let requests = world.models.requests();
    let left = requests
        .iter()
        .map(|request| request.grant.clone().unwrap().tokens);
    assert_eq!(left.collect::<Vec<_>>(), [1_000, 1_000, 990]);
}

#[tokio::test]
async fn g703_a_model_is_not_asked_once_the_tokens_are_used_up() {
    let world = World::new().await;
    world.models.answer(&["Hm.", "Hm."]);
    let grant = CallGrant {
        tokens: 260,
        ..CallGrant::default()
    };
    let run = world.begin(granted(&two_questions(), grant)).await;
    let outcome = world.outcome(&run.run_id).await;
    assert_eq!(code_of(&outcome), "budget_exhausted");
    let details = &outcome.error.unwrap().details_json;
    assert!(details.contains(r#""unit":"tokens""#), "{details}");
    assert_eq!(world.models.requests().len(), 1);
}

#[tokio::test]
async fn g706_the_same_call_with_the_same_result_leaves_five_times_on_behalf_of_an_agent() {
    let world = World::new().await;
    // The nodes before each call are no arguments of it, so that all are equal.
    let mut definition = chain(&["recovers"; 6]);
    for edge in definition["edges"].as_array_mut().unwrap() {
        edge["targetHandle"] = "x".into();
    }
    definition["nodes"][0]["inputValues"]["x"] = "succeeded".into();
    for node in definition["nodes"].as_array_mut().unwrap() {
        node["inputValues"]["tool_id"] = "echo".into();
    }
    let run = world
        .begin(granted(&definition, CallGrant::default()))
        .await;
    let outcome = world.outcome(&run.run_id).await;
    assert_eq!((code_of(&outcome), outcome.calls), ("repetition", 5));
    let without = world.run(&definition, json!({})).await;
    assert_eq!((without.error, without.calls), (None, 6));
}
