//! Finished turns as fixtures, replayed offline (rules G1001 and G1002). Turns of other tests are
//! replayed where they are played.

use agent_runtime::runner::{Fixture, replay};
use doubles::{Behaviour, TestRegistry};
use serde_json::{Value, json};
use tonic::Code;

use crate::world::{World, says};

fn world() -> World {
    let registry = TestRegistry::default().tool(
        "weather",
        &["city"],
        Behaviour::Gives(std::sync::Arc::new(|_| json!("sunny"))),
    );
    let profile = json!({"id": "ada", "name": "Ada", "tool_ids_inventory": ["weather"],
                         "custom_metadata": {"tavern": {"model": "play"}}});
    let script = json!({"turns": [
        {"answer": {"text": "Let me see. <ACTION><weather><city>Oslo</city></weather></ACTION>"}},
        {"answer": {"text": "It is sunny."}},
    ]});
    World::of(registry, &[("ada.json", &profile)], &script)
}

/// Changes the line that holds a text.
fn changed(fixture: &str, holds: &str, change: impl Fn(&mut Value)) -> String {
    let lines = fixture.lines().map(|line| {
        let mut value: Value = serde_json::from_str(line).unwrap();
        if value.get(holds).is_some() {
            change(&mut value);
        }
        value.to_string()
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[tokio::test]
async fn g1002_a_divergence_names_the_first_differing_event_with_both_values() {
    let running = world().build().await;
    let ended = running.play(says("How is it in Oslo?")).await;
    let fixture = running.export(&ended.run.run_id).await.unwrap();
    let compared = replay(&Fixture::read(&fixture).unwrap()).unwrap();
    assert!(compared > 8, "{compared} events");

    // The fixture has another prompt than the model was shown.
    let other = changed(&fixture, "modelRequested", |event| {
        event["modelRequested"]["promptDigest"] = "00".into();
    });
    let divergence = replay(&Fixture::read(&other).unwrap()).unwrap_err();
    assert_eq!(divergence.pointer, "/modelRequested/promptDigest");
    assert_eq!(*divergence.recorded, "00");

    // The fixture has another output of a tool than the model read.
    let other = changed(&fixture, "callSettled", |event| {
        event["callSettled"]["result"]["outputJson"] = "\"rain\"".into();
    });
    let divergence = replay(&Fixture::read(&other).unwrap()).unwrap_err();
    assert_eq!(divergence.pointer, "/observation/text");
    let text = divergence.replayed.as_str().unwrap();
    assert!(text.ends_with("Result: rain"), "{text}");

    // The fixture has another id of an effect.
    let other = changed(&fixture, "callDispatched", |event| {
        event["callDispatched"]["effectId"] = "other".into();
    });
    let divergence = replay(&Fixture::read(&other).unwrap()).unwrap_err();
    assert_eq!(divergence.pointer, "/callDispatched/effectId");
}

#[tokio::test]
async fn g1001_what_is_no_turn_or_no_fixture_is_refused() {
    let running = world().build().await;
    let refused = running
        .export("turn_00000000000000000000000000000000")
        .await;
    assert_eq!(refused.unwrap_err().code(), Code::NotFound);
    let header = Fixture::read("{}").unwrap_err().to_string();
    assert!(header.contains("tavern.turn.v1"), "{header}");
}

#[tokio::test]
async fn g1001_a_part_of_a_fixture_is_refused() {
    let running = world().build().await;
    let ended = running.play(says("How is it in Oslo?")).await;
    let whole = running.export(&ended.run.run_id).await.unwrap();
    let lines: Vec<&str> = whole.lines().collect();
    for kept in 1..lines.len() {
        let part = lines[..kept].join("\n");
        let read = Fixture::read(&part).map(drop);
        let error = read.expect_err(&part).to_string();
        assert!(error.contains("the end of the turn is missing"), "{error}");
    }
    for left_out in 1..lines.len() {
        let mut part = lines.clone();
        part.remove(left_out);
        let error = Fixture::read(&part.join("\n")).unwrap_err().to_string();
        let place = match left_out + 1 == lines.len() {
            true => "the end of the turn is missing".to_owned(),
            false => format!("line {} has the event", left_out + 1),
        };
        assert!(error.contains(&place), "{error}");
    }
    assert!(Fixture::read(&format!("\n{whole}\n\n")).is_ok());
}
