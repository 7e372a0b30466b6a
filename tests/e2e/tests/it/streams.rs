//! Streaming outputs of workflows, with real tools, scripts and kills.

use contracts::tavern::common::v1::RunEvent;
use contracts::tavern::common::v1::run_event::Kind;
use contracts::tavern::common::v1::watch_record::Record;
use contracts::tavern::run::v1::WatchRunRequest;
use contracts::tavern::workflow::v1::start_run_request::Target;
use serde_json::{Value, json};
use testkit::{Followed, Stack, collect, repository};

use crate::workflows::start;

/// The text of an output of the run that a follower has at the end, without parts that a reset made
/// void.
fn shown(events: &[RunEvent], key: &str) -> String {
    let mut text = String::new();
    for event in events.iter().filter(|event| event.parent_path.is_empty()) {
        match &event.kind {
            Some(Kind::OutputReset(reset)) if reset.interface_key == key => text.clear(),
            Some(Kind::OutputChunk(chunk)) if chunk.interface_key == key => {
                text.push_str(&chunk.text);
            }
            _ => {}
        }
    }
    text
}

/// Follows a run until an output shows something.
async fn until_shown(stack: &Stack, run_id: &str, key: &str) -> anyhow::Result<()> {
    let request = WatchRunRequest {
        run_id: run_id.to_owned(),
        after_sequence: 0,
    };
    let mut records = stack.runs().watch_run(request).await?.into_inner();
    while let Some(response) = records.message().await? {
        match contracts::watch::decode(response.record)? {
            Some(Record::Event(event)) if !shown(std::slice::from_ref(&event), key).is_empty() => {
                return Ok(());
            }
            Some(Record::Terminal(_)) => break,
            _ => {}
        }
    }
    anyhow::bail!("the run ended and showed nothing")
}

fn result(run: &Followed) -> anyhow::Result<Value> {
    let outcome = run.run.outcome.clone().unwrap_or_default();
    assert_eq!(outcome.error, None);
    Ok(serde_json::from_str(&outcome.result_json)?)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_code_writes_is_shown_and_reported() -> anyhow::Result<()> {
    let stack = Stack::all_in_one().await?;
    let inputs = json!({"code": "print('one')\nprint('two')"});
    let target = Target::WorkflowId("run_and_report".to_owned());
    let run_id = start(&stack, target, &inputs).await?;
    let ended = collect(&stack.runs(), &run_id, 0).await?;
    let expected = json!({
        "live": "one\ntwo\n",
        "report": "The code succeeded. It wrote: one\ntwo\n",
    });
    assert_eq!(result(&ended)?, expected);
    assert_eq!(shown(&ended.events, "live"), "one\ntwo\n");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_kill_in_the_middle_an_output_is_shown_from_its_beginning() -> anyhow::Result<()> {
    let mut stack = Stack::all_in_one().await?;
    let code = "import time\nfor number in range(40):\n    print(number, flush=True)\n    time.sleep(0.05)\n";
    let definition = json!({
        "nodes": [
            {"id": "say", "type": "core:Script", "inputValues": {"code": code}},
            {"id": "relay", "type": "core:StreamSuffixRelay", "inputValues": {"suffix": "[end]"}},
            {"id": "out", "type": "core:GroupOutput"},
        ],
        "edges": [
            {"source": "say", "sourceHandle": "stdout", "target": "relay", "targetHandle": "inputStream"},
            {"source": "relay", "sourceHandle": "outputStream", "target": "out", "targetHandle": "live"},
        ],
        "interfaceOutputs": {"live": {"dataFlowType": "STRING", "isStream": true}},
    });
    let target = Target::DefinitionJson(definition.to_string());
    let run_id = start(&stack, target, &json!({})).await?;
    until_shown(&stack, &run_id, "live").await?;
    stack.kill()?;
    stack.restart().await?;
    let ended = collect(&stack.runs(), &run_id, 0).await?;
    let lines: String = (0..40).map(|number| format!("{number}\n")).collect();
    let expected = format!("{lines}[end]");
    assert_eq!(result(&ended)?, json!({"live": expected}));
    assert_eq!(shown(&ended.events, "live"), expected);
    let resets = ended.events.iter().filter(
        |event| matches!(&event.kind, Some(Kind::OutputReset(reset)) if reset.interface_key == "live"),
    );
    assert_eq!(resets.count(), 1);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn values_of_a_run_below_are_seen_above_one_by_one_also_after_a_kill() -> anyhow::Result<()> {
    let mut stack = Stack::all_in_one().await?;
    let guests: Vec<String> = (0..20).map(|guest| format!("g{guest}")).collect();
    let tabs: Vec<String> = guests.iter().map(|guest| format!("{guest}: 0.5")).collect();
    let inputs = json!({"tabs": tabs.join("\n"), "pause": 0.05});
    let target = Target::WorkflowId("close_the_tabs".to_owned());
    let run_id = start(&stack, target, &inputs).await?;
    until_shown(&stack, &run_id, "tabs").await?;
    stack.kill()?;
    stack.restart().await?;
    let ended = collect(&stack.runs(), &run_id, 0).await?;
    let result = result(&ended)?;
    let tabs = guests
        .iter()
        .map(|guest| json!({"guest": guest, "amount": 0.5}));
    assert_eq!(result["tabs"], Value::from_iter(tabs));
    assert_eq!(result["prices"], json!(vec![0.6; 20]));
    let lines = shown(&ended.events, "tabs");
    assert_eq!(result["ledger"], lines.trim_end());
    let chunks = ended.events.iter().filter_map(|event| match &event.kind {
        Some(Kind::OutputChunk(chunk)) if chunk.interface_key == "tabs" => Some(chunk.json_lines),
        _ => None,
    });
    let chunks: Vec<bool> = chunks.collect();
    assert!(
        chunks.len() > 10 && chunks.iter().all(|lines| *lines),
        "{chunks:?}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn each_answer_of_a_model_with_tools_is_shown_in_the_place_of_the_one_before()
-> anyhow::Result<()> {
    let stack = Stack::all_in_one().await?;
    let path = repository().join("deploy/workflows/look_up.json");
    let mut definition: Value = serde_json::from_slice(&std::fs::read(path)?)?;
    let live = json!({"source": "llm", "sourceHandle": "text_stream", "target": "output", "targetHandle": "live"});
    definition["edges"].as_array_mut().unwrap().push(live);
    definition["interfaceOutputs"]["live"] = json!({"dataFlowType": "STRING", "isStream": true});
    let target = Target::DefinitionJson(definition.to_string());
    let run_id = start(&stack, target, &json!({"player": "player123"})).await?;
    let ended = collect(&stack.runs(), &run_id, 0).await?;
    let result = result(&ended)?;
    assert_eq!(result["live"], result["answer"]);
    assert_eq!(result["answer"], shown(&ended.events, "live"));
    let count = |is_counted: fn(&Kind) -> bool| {
        let kinds = ended.events.iter().filter_map(|event| event.kind.as_ref());
        kinds.filter(|kind| is_counted(kind)).count()
    };
    let answers =
        count(|kind| matches!(kind, Kind::NodeFinished(node) if node.node_id.ends_with("/ask")));
    let resets =
        count(|kind| matches!(kind, Kind::OutputReset(reset) if reset.interface_key == "live"));
    assert!(answers > 1);
    assert_eq!(resets, answers - 1);
    let first = ended.events.iter().position(|event| match &event.kind {
        Some(Kind::OutputChunk(chunk)) => chunk.interface_key == "live",
        _ => false,
    });
    let called = ended
        .events
        .iter()
        .position(|event| matches!(event.kind, Some(Kind::CallDispatched(_))));
    assert!(first.is_some() && first < called, "{first:?} {called:?}");
    Ok(())
}
