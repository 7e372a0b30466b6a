//! Streaming outputs: the text of a node reaches the outputs of the workflow while the node writes
//! it.

use contracts::tavern::common::v1::run_event::Kind;
use contracts::tavern::common::v1::{OutputChunk, RunEvent};
use serde_json::{Value, json};

use crate::support::*;

/// A model whose text goes, with a mark at its end, to the streaming output `live`. The setting
/// `execution` is the model's.
fn relayed(execution: Value) -> Value {
    json!({
        "nodes": [
            {"id": "ask", "type": "core:LlmApiRequest", "configValues": {"execution": execution},
             "inputValues": {"model": "small", "messages": [{"role": "user", "content": "Hello?"}]}},
            {"id": "relay", "type": "core:StreamSuffixRelay", "inputValues": {"suffix": "[end]"}},
            {"id": "whole", "type": "core:StreamToString"},
            {"id": "out", "type": "core:GroupOutput"},
        ],
        "edges": [
            edge("ask", "text_stream", "relay", "inputStream"),
            edge("ask", "text_stream", "whole", "stream"),
            edge("relay", "outputStream", "out", "live"),
            edge("whole", "text", "out", "whole"),
        ],
        "interfaceOutputs": {
            "live": {"dataFlowType": "STRING", "isStream": true},
            "whole": {"dataFlowType": "STRING"},
        },
    })
}

pub(crate) fn chunk_of<'e>(event: &'e RunEvent, key: &str) -> Option<&'e OutputChunk> {
    match &event.kind {
        Some(Kind::OutputChunk(chunk)) if chunk.interface_key == key => Some(chunk),
        _ => None,
    }
}

/// Returns the final text of an output for a follower that discards text that a reset makes void.
pub(crate) fn shown(events: &[RunEvent], key: &str) -> String {
    let mut text = String::new();
    for event in events {
        match &event.kind {
            Some(Kind::OutputReset(reset)) if reset.interface_key == key => text.clear(),
            _ => {}
        }
        if let Some(chunk) = chunk_of(event, key) {
            assert_eq!(chunk.offset, text.len() as u64);
            assert_eq!((&*chunk.effect_id, &*chunk.node_id), ("", ""));
            text.push_str(&chunk.text);
        }
    }
    text
}

pub(crate) fn is_chunk_of(key: &str) -> impl Fn(&Kind) -> bool {
    move |kind| matches!(kind, Kind::OutputChunk(chunk) if chunk.interface_key == key)
}

#[tokio::test]
async fn w25_an_output_shows_its_first_piece_while_the_model_still_writes() {
    let world = World::new().await;
    world.models.answer(&["Rain."]);
    world.models.hold(true);
    let run = world.start(&relayed(json!({})), json!({})).await;
    let begun = world.events_until(&run.run_id, is_chunk_of("live")).await;
    assert_eq!(shown(&begun, "live"), "R");
    world.models.hold(false);
    let outcome = world.outcome(&run.run_id).await;
    assert_eq!(
        result(&outcome),
        json!({"live": "Rain.[end]", "whole": "Rain."})
    );
    let events = world.events(&run.run_id).await;
    assert_eq!(shown(&events, "live"), "Rain.[end]");
    assert_eq!(shown(&events, "whole"), "", "the output is whole");
}

#[tokio::test]
async fn w26_a_follower_that_does_not_read_holds_no_other() {
    let world = World::new().await;
    world.models.answer(&["Rain."]);
    world.models.hold(true);
    let run = world.start(&relayed(json!({})), json!({})).await;
    let request = contracts::tavern::run::v1::WatchRunRequest {
        run_id: run.run_id.clone(),
        after_sequence: 0,
    };
    let unread = world.runs.clone().watch_run(request).await.unwrap();
    world.events_until(&run.run_id, is_chunk_of("live")).await;
    world.models.hold(false);
    let outcome = world.outcome(&run.run_id).await;
    assert_eq!(result(&outcome)["live"], "Rain.[end]");
    drop(unread);
}

#[tokio::test]
async fn w28_after_a_crash_an_output_begins_again_in_another_generation() {
    let world = World::new().await;
    world.models.answer(&["Rain."]);
    world.models.hold(true);
    let run = world.start(&relayed(json!({})), json!({})).await;
    world.events_until(&run.run_id, is_chunk_of("live")).await;
    let world = world.restart().await;
    world.models.hold(false);
    assert_eq!(
        result(&world.outcome(&run.run_id).await)["live"],
        "Rain.[end]"
    );
    let events = world.events(&run.run_id).await;
    assert_eq!(shown(&events, "live"), "Rain.[end]");
    let generations = events.iter().filter_map(|event| chunk_of(event, "live"));
    let generations: Vec<u64> = generations.map(|chunk| chunk.generation).collect();
    assert!(
        generations[0] == 0 && generations.iter().all(|later| *later >= generations[0]),
        "{generations:?}"
    );
    assert!(generations.last() > generations.first());
}

#[tokio::test]
async fn w27_an_output_of_a_failure_that_is_handled_is_the_text_that_stands_for_it() {
    let world = World::new().await;
    let script = python("say", "print('half', flush=True)\nraise SystemExit(3)\n");
    let mut definition = json!({
        "nodes": [script, {"id": "out", "type": "core:GroupOutput"}],
        "edges": [edge("say", "stdout", "out", "live")],
        "interfaceOutputs": {"live": {"dataFlowType": "STRING", "isStream": true}},
    });
    let failed = world.run(&definition, json!({})).await;
    assert_eq!(failed.error.unwrap().code, "script_exited");
    definition["nodes"][0]["configValues"]["execution"] =
        json!({"onError": "continue", "outputs": {"stdout": "none"}});
    let run = world.start(&definition, json!({})).await;
    let outcome = world.outcome(&run.run_id).await;
    assert_eq!(result(&outcome), json!({"live": "none"}));
    assert_eq!(shown(&world.events(&run.run_id).await, "live"), "none");
}

#[tokio::test]
async fn w27_a_stream_whose_failure_is_handled_ends_and_one_that_breaks_fails_its_readers() {
    let world = World::new().await;
    let script = python("say", "print('half', flush=True)\nraise SystemExit(3)\n");
    let mut definition = json!({
        "nodes": [
            script,
            {"id": "collect", "type": "core:StreamToString"},
            {"id": "out", "type": "core:GroupOutput"},
        ],
        "edges": [
            edge("say", "stdout", "collect", "stream"),
            edge("say", "stdout", "out", "live"),
            edge("collect", "text", "out", "whole"),
        ],
        "interfaceOutputs": {
            "live": {"dataFlowType": "STRING", "isStream": true},
            "whole": {"dataFlowType": "STRING"},
        },
    });
    let run = world.start(&definition, json!({})).await;
    let events = world.events(&run.run_id).await;
    let codes: Vec<String> = events
        .iter()
        .filter_map(|event| match &event.kind {
            Some(Kind::NodeFinished(finished)) => finished.error.as_ref(),
            _ => None,
        })
        .map(|error| error.code.clone())
        .collect();
    assert_eq!(codes, ["script_exited", "stream_broken", "upstream_failed"]);
    definition["nodes"][0]["configValues"]["execution"] = json!({"onError": "continue"});
    let run = world.start(&definition, json!({})).await;
    let outcome = world.outcome(&run.run_id).await;
    assert_eq!(
        result(&outcome),
        json!({"live": "half\n", "whole": "half\n"})
    );
    let events = world.events(&run.run_id).await;
    assert_eq!(shown(&events, "live"), "half\n");
    assert!(!words(&events).contains(&"output reset".to_owned()));
}

#[tokio::test]
async fn an_output_shows_what_an_output_of_a_run_below_shows() {
    let world = World::new().await;
    let definition = json!({
        "nodes": [
            {"id": "below", "type": "core:RunWorkflow", "configValues": {"workflowId": "run_and_report"},
             "inputValues": {"code": "1"}},
            {"id": "relay", "type": "core:StreamSuffixRelay", "inputValues": {"suffix": "!"}},
            {"id": "out", "type": "core:GroupOutput"},
        ],
        "edges": [
            edge("below", "live", "relay", "inputStream"),
            edge("relay", "outputStream", "out", "upward"),
            edge("below", "report", "out", "report"),
        ],
        "interfaceOutputs": {
            "upward": {"dataFlowType": "STRING", "isStream": true},
            "report": {"dataFlowType": "STRING"},
        },
    });
    let run = world.start(&definition, json!({})).await;
    let begun = world.events_until(&run.run_id, is_chunk_of("upward")).await;
    assert_eq!(shown(&begun, "upward"), "hello");
    // After a crash the run below is followed from its beginning.
    let world = world.restart().await;
    let resets =
        |kind: &Kind| matches!(kind, Kind::OutputReset(reset) if reset.interface_key == "upward");
    world.events_until(&run.run_id, resets).await;
    world.registry.release();
    let outcome = world.outcome(&run.run_id).await;
    assert_eq!(
        result(&outcome),
        json!({"upward": "hello!", "report": "It ran."})
    );
    let events = world.events(&run.run_id).await;
    assert_eq!(shown(&events, "upward"), "hello!");
}

#[tokio::test]
async fn what_a_node_in_a_zone_writes_is_shown_with_its_place() {
    let world = World::new().await;
    let mut script = python("say", "print(inputs['index'], end='', flush=True)\n");
    script["parentNode"] = json!("loop");
    let definition = json!({
        "nodes": [
            {"id": "loop", "type": "core:LoopZone", "inputValues": {"count": 2}},
            {"id": "begin", "type": "core:ZoneInput", "parentNode": "loop"},
            script,
            {"id": "end", "type": "core:ZoneOutput", "parentNode": "loop"},
        ],
        "edges": [edge("begin", "index", "say", "index")],
    });
    let run = world.start(&definition, json!({})).await;
    let events = world.events(&run.run_id).await;
    let written = events.iter().filter_map(|event| chunk_of(event, ""));
    let written: Vec<(&str, &str)> = written
        .map(|chunk| (chunk.node_id.as_str(), chunk.text.as_str()))
        .collect();
    assert_eq!(written, [("loop#0/say", "0"), ("loop#1/say", "1")]);
}

#[tokio::test]
async fn another_attempt_shows_its_text_from_the_beginning() {
    let world = World::new().await;
    let place = world.directory.path().join("tried");
    let code = "import pathlib, sys\nprint('piece', flush=True)\nplace = pathlib.Path(inputs['place'])\n\
                if not place.exists(): place.touch(); sys.exit(3)\n";
    let mut script = python("say", code);
    script["inputValues"]["place"] = json!(place);
    script["configValues"]["execution"] =
        json!({"retry": {"maxAttempts": 2, "initial": "1ms", "on": ["runtime"]}});
    let definition = json!({
        "nodes": [script, {"id": "out", "type": "core:GroupOutput"}],
        "edges": [edge("say", "stdout", "out", "live")],
        "interfaceOutputs": {"live": {"dataFlowType": "STRING", "isStream": true}},
    });
    let run = world.start(&definition, json!({})).await;
    let outcome = world.outcome(&run.run_id).await;
    assert_eq!(result(&outcome), json!({"live": "piece\n"}));
    let events = world.events(&run.run_id).await;
    assert_eq!(shown(&events, "live"), "piece\n");
    let resets = words(&events);
    assert!(
        resets.contains(&"say attempt 1 failed".to_owned()),
        "{resets:?}"
    );
}

#[tokio::test]
async fn a_plain_value_is_a_stream_of_one_piece_and_a_stream_passes_through_a_decision() {
    let world = World::new().await;
    world.models.answer(&["Sunny."]);
    let definition = json!({
        "nodes": [
            {"id": "decide", "type": "core:LLMDecisionWithTools", "inputValues": {"user_query": "Go.", "tools": []},
             "configValues": {"profileId": "small"}},
            {"id": "out", "type": "core:GroupOutput"},
        ],
        "edges": [
            edge("decide", "text_stream", "out", "live"),
            edge("decide", "reply_text", "out", "reply"),
        ],
        "interfaceOutputs": {
            "live": {"dataFlowType": "STRING", "isStream": true},
            "reply": {"dataFlowType": "STRING", "isStream": true},
        },
    });
    world.models.hold(true);
    let run = world.start(&definition, json!({})).await;
    let begun = world.events_until(&run.run_id, is_chunk_of("live")).await;
    assert_eq!(shown(&begun, "live"), "S");
    world.models.hold(false);
    let outcome = world.outcome(&run.run_id).await;
    assert_eq!(
        result(&outcome),
        json!({"live": "Sunny.", "reply": "Sunny."})
    );
    let events = world.events(&run.run_id).await;
    assert_eq!(shown(&events, "reply"), "Sunny.");
}

/// A node whose text goes to the streaming output `live` and, collected, to the output `whole`.
fn tool_output(mut act: Value) -> Value {
    act["id"] = json!("act");
    json!({
        "nodes": [
            act,
            {"id": "collect", "type": "core:StreamToString"},
            {"id": "out", "type": "core:GroupOutput"},
        ],
        "edges": [
            edge("act", "output", "out", "live"),
            edge("act", "output", "collect", "stream"),
            edge("collect", "text", "out", "whole"),
        ],
        "interfaceOutputs": {
            "live": {"dataFlowType": "STRING", "isStream": true},
            "whole": {"dataFlowType": "STRING"},
        },
    })
}

#[tokio::test]
async fn an_output_shows_what_a_tool_writes_before_it_ends() {
    let world = World::new().await;
    let definition = tool_output(tool("act", "talks"));
    let run = world.start(&definition, json!({})).await;
    let begun = world.events_until(&run.run_id, is_chunk_of("live")).await;
    assert_eq!(shown(&begun, "live"), "hello");
    world.registry.release();
    let outcome = world.outcome(&run.run_id).await;
    assert_eq!(result(&outcome), json!({"live": "hello", "whole": "hello"}));
    assert_eq!(shown(&world.events(&run.run_id).await, "live"), "hello");
}

#[tokio::test]
async fn after_a_crash_the_output_of_calls_that_had_ended_is_still_known() {
    let world = World::new().await;
    let requests = ["says", "talks"].map(|tool| json!({"toolName": tool, "arguments": {}}));
    let definition =
        tool_output(json!({"type": "core:ExecuteTool", "inputValues": {"requests": requests}}));
    let run = world.start(&definition, json!({})).await;
    let second = |kind: &Kind| matches!(kind, Kind::OutputChunk(chunk) if chunk.effect_id.ends_with("/act/1"));
    world.events_until(&run.run_id, second).await;
    let world = world.restart().await;
    world.registry.release();
    let outcome = world.outcome(&run.run_id).await;
    assert_eq!(result(&outcome)["whole"], "hellohello");
    let events = world.events(&run.run_id).await;
    assert_eq!(shown(&events, "live"), "hellohello");
}

#[tokio::test]
async fn the_example_shows_an_answer_live_and_gives_it_in_short() {
    let world = World::new().await;
    let answer = "Workflows pass values on. ".repeat(8);
    world.models.answer(&[&answer]);
    world.models.hold(true);
    let inputs = json!({"question": "What is a workflow?"});
    let run = world.begin(of_workflow("stream_fan_out", inputs)).await;
    let begun = world.events_until(&run.run_id, is_chunk_of("live")).await;
    assert_eq!(shown(&begun, "live"), "W");
    world.models.hold(false);
    let outputs = result(&world.outcome(&run.run_id).await);
    assert_eq!(outputs["live"], format!("{answer}[end]"));
    assert_eq!(outputs["answer"], answer);
    let summary = outputs["summary"].as_str().unwrap();
    assert!(
        summary.starts_with("Workflows") && summary.chars().count() <= 80,
        "{summary}"
    );
    let events = world.events(&run.run_id).await;
    assert_eq!(shown(&events, "live"), format!("{answer}[end]"));
}
