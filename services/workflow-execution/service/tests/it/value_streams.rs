//! Streams of values other than text: each is seen as soon as it exists, and all of them are an
//! array.

use std::path::PathBuf;

use contracts::tavern::common::v1::RunEvent;
use serde_json::{Value, json};

use crate::streams::{chunk_of, is_chunk_of, shown};
use crate::support::*;

/// The definitions with which a script waits until a file exists.
const WAIT: &str = "import pathlib, time\n\
                    def wait(): \n    while not pathlib.Path(inputs['place']).exists(): time.sleep(0.005)\n\
                    def yields(value): print(json.dumps(value), flush=True)\n";

/// A script that yields `{"n": 1}`, waits for the file `place`, and yields `{"n": 2}`.
fn two(place: &PathBuf) -> Value {
    let code = format!("{WAIT}yields({{'n': 1}})\nwait()\nyields({{'n': 2}})\n");
    let mut script = python("say", &code);
    script["inputValues"]["place"] = json!(place);
    script["configValues"] = json!({"yields": "OBJECT"});
    script
}

/// The final values of an output for a follower.
fn values(events: &[RunEvent], key: &str) -> Vec<Value> {
    let chunks = events.iter().filter_map(|event| chunk_of(event, key));
    assert!(chunks.clone().all(|chunk| chunk.json_lines));
    let lines = shown(events, key);
    lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// The values of a script at a streaming output, at a plain one, and at an output for their text.
fn shared(place: &PathBuf) -> Value {
    json!({
        "nodes": [
            two(place),
            {"id": "text", "type": "core:StreamToString"},
            {"id": "out", "type": "core:GroupOutput"},
        ],
        "edges": [
            edge("say", "values", "out", "live"),
            edge("say", "values", "out", "all"),
            edge("say", "values", "text", "stream"),
            edge("text", "text", "out", "text"),
        ],
        "interfaceOutputs": {
            "live": {"dataFlowType": "OBJECT", "isStream": true},
            "all": {"dataFlowType": "ARRAY"},
            "text": {"dataFlowType": "STRING"},
        },
    })
}

#[tokio::test]
async fn w24_each_value_is_seen_before_the_next_is_there_and_a_plain_slot_gets_all() {
    let world = World::new().await;
    let place = world.directory.path().join("second");
    let run = world.start(&shared(&place), json!({})).await;
    let begun = world.events_until(&run.run_id, is_chunk_of("live")).await;
    assert_eq!(values(&begun, "live"), [json!({"n": 1})]);
    std::fs::write(&place, "").unwrap();
    let outcome = world.outcome(&run.run_id).await;
    let all = json!([{"n": 1}, {"n": 2}]);
    assert_eq!(
        result(&outcome),
        json!({"live": all, "all": all, "text": "{\"n\":1}\n{\"n\":2}"})
    );
    let events = world.events(&run.run_id).await;
    assert_eq!(json!(values(&events, "live")), all);
}

#[tokio::test]
async fn w28_after_a_crash_values_begin_again() {
    let world = World::new().await;
    let place = world.directory.path().join("second");
    let run = world.start(&shared(&place), json!({})).await;
    world.events_until(&run.run_id, is_chunk_of("live")).await;
    let world = world.restart().await;
    std::fs::write(&place, "").unwrap();
    let outcome = world.outcome(&run.run_id).await;
    let all = json!([{"n": 1}, {"n": 2}]);
    assert_eq!(result(&outcome)["live"], all);
    let events = world.events(&run.run_id).await;
    assert_eq!(json!(values(&events, "live")), all);
    let first = events.iter().find_map(|event| chunk_of(event, "live"));
    let last = events
        .iter()
        .rev()
        .find_map(|event| chunk_of(event, "live"));
    assert!(first.unwrap().generation < last.unwrap().generation);
}

#[tokio::test]
async fn a_line_that_is_no_value_ends_the_script() {
    let world = World::new().await;
    let mut script = python(
        "say",
        "print('1\\nno value', flush=True)\nwhile True: pass\n",
    );
    script["configValues"] = json!({"yields": "INTEGER"});
    let failed = world.run(&json!({"nodes": [script]}), json!({})).await;
    let error = failed.error.unwrap();
    assert_eq!(error.code, "value_malformed");
    assert!(error.message.contains("value 2"), "{}", error.message);
}

#[tokio::test]
async fn w27_what_a_script_yielded_before_its_failure_stays_if_that_is_handled() {
    let world = World::new().await;
    let mut script = python(
        "say",
        "print(json.dumps([1]), flush=True)\nraise SystemExit(3)\n",
    );
    script["configValues"] = json!({"yields": "ARRAY", "execution": {"onError": "continue"}});
    let definition = json!({
        "nodes": [script, {"id": "out", "type": "core:GroupOutput"}],
        "edges": [edge("say", "values", "out", "live"), edge("say", "on_error", "out", "why")],
        "interfaceOutputs": {
            "live": {"dataFlowType": "ARRAY", "isStream": true},
            "why": {"dataFlowType": "OBJECT"},
        },
    });
    let outcome = result(&world.run(&definition, json!({})).await);
    assert_eq!(outcome["live"], json!([[1]]));
    assert_eq!(outcome["why"]["code"], "script_exited");
}

#[tokio::test]
async fn what_a_tool_gives_one_by_one_is_seen_before_it_ends() {
    let world = World::new().await;
    let mut counts = tool("act", "counts");
    counts["configValues"] = json!({"yields": "INTEGER"});
    let definition = json!({
        "nodes": [counts, {"id": "out", "type": "core:GroupOutput"}],
        "edges": [edge("act", "values", "out", "live"), edge("act", "output", "out", "text")],
        "interfaceOutputs": {
            "live": {"dataFlowType": "INTEGER", "isStream": true},
            "text": {"dataFlowType": "STRING", "isStream": true},
        },
    });
    let run = world.start(&definition, json!({})).await;
    let begun = world.events_until(&run.run_id, is_chunk_of("live")).await;
    assert_eq!(values(&begun, "live"), [json!(1)]);
    world.registry.release();
    let outcome = world.outcome(&run.run_id).await;
    assert_eq!(result(&outcome), json!({"live": [1, 2], "text": "1\n"}));
    let events = world.events(&run.run_id).await;
    assert_eq!(values(&events, "live"), [json!(1), json!(2)]);
    assert_eq!(shown(&events, "text"), "1\n");
}

#[tokio::test]
async fn w18_results_are_seen_in_order_while_later_items_run_also_after_a_crash() {
    let world = World::new().await;
    let place = world.directory.path().join("third");
    // The second item ends last.
    let code = format!("{WAIT}if inputs['item'] == 2: wait()\ngive({{'is': inputs['item']}})\n");
    let mut script = python("work", &code);
    script["inputValues"]["place"] = json!(place);
    script["parentNode"] = json!("map");
    let mut yields = python("say", "for n in (1, 2, 3): print(n, flush=True)\n");
    yields["configValues"] = json!({"yields": "INTEGER"});
    let definition = json!({
        "nodes": [
            yields,
            {"id": "map", "type": "core:MapList", "configValues": {"concurrency": 3}},
            {"id": "begin", "type": "core:ZoneInput", "parentNode": "map"},
            script,
            {"id": "end", "type": "core:ZoneOutput", "parentNode": "map"},
            {"id": "out", "type": "core:GroupOutput"},
        ],
        "edges": [
            edge("say", "values", "map", "items"),
            edge("begin", "item", "work", "item"),
            edge("work", "result", "end", "result"),
            edge("map", "result_stream", "out", "live"),
        ],
        "interfaceOutputs": {"live": {"dataFlowType": "OBJECT", "isStream": true}},
    });
    let run = world.start(&definition, json!({})).await;
    let begun = world.events_until(&run.run_id, is_chunk_of("live")).await;
    assert_eq!(values(&begun, "live"), [json!({"is": 1})]);
    let world = world.restart().await;
    std::fs::write(&place, "").unwrap();
    let all = json!([{"is": 1}, {"is": 2}, {"is": 3}]);
    let outcome = world.outcome(&run.run_id).await;
    assert_eq!(result(&outcome), json!({"live": all}));
    let events = world.events(&run.run_id).await;
    assert_eq!(json!(values(&events, "live")), all);
}
