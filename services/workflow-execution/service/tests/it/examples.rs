//! The files below `deploy/workflows` work as they are described.

use contracts::tavern::workflow::v1::{
    GetWorkflowRequest, ListNodeTypesRequest, ListWorkflowsRequest,
};
use serde_json::{Value, json};

use crate::support::*;

#[tokio::test]
async fn every_example_is_listed() {
    let world = World::new().await;
    let listed = world
        .client
        .clone()
        .list_workflows(ListWorkflowsRequest::default())
        .await
        .unwrap()
        .into_inner();
    let mut ids: Vec<String> = listed
        .workflows
        .into_iter()
        .map(|workflow| workflow.workflow_id)
        .collect();
    let files = std::fs::read_dir(deploy().join("workflows")).unwrap();
    let mut stems: Vec<String> = files
        .map(|file| file.unwrap().path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "json")
        })
        .map(|path| path.file_stem().unwrap().to_string_lossy().into_owned())
        .collect();
    ids.sort();
    stems.sort();
    assert_eq!(ids, stems);
}

/// Parts of core:LLM, which replaces them in files.
const PARTS: [&str; 2] = ["core:LlmCallCount", "core:LlmRound"];

#[tokio::test]
async fn every_node_type_stands_in_an_example() {
    let world = World::new().await;
    let request = ListNodeTypesRequest {
        page_size: 500,
        without_plugins: true,
        ..ListNodeTypesRequest::default()
    };
    let listed = world.client.clone().list_node_types(request).await;
    let types = listed.unwrap().into_inner().node_types.into_iter();
    let mut unused: Vec<String> = types.map(|node| node.full_type).collect();
    for file in std::fs::read_dir(deploy().join("workflows")).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        unused.retain(|full_type| !text.contains(&format!("\"{full_type}\"")));
    }
    assert_eq!(unused, PARTS);
}

#[tokio::test]
async fn seed_000_section_2_3_1_the_interface_is_the_one_of_the_seed() {
    let world = World::new().await;
    let get = GetWorkflowRequest {
        workflow_id: "summarize_text".into(),
    };
    let workflow = world
        .client
        .clone()
        .get_workflow(get)
        .await
        .unwrap()
        .into_inner()
        .workflow
        .unwrap();
    let file: Value = serde_json::from_str(&workflow.definition_json).unwrap();
    let interface = json!({
        "description": file["description"],
        "interfaceInputs": file["interfaceInputs"],
        "interfaceOutputs": file["interfaceOutputs"],
    });
    let seed = r#"{"description":"对提供的长文本进行摘要。当需要理解大量文本的核心内容时使用。","interfaceInputs":{"text_to_summarize":{"description":"需要进行摘要处理的原始长文本内容。","dataFlowType":"STRING","required":true},"summary_length":{"description":"期望的摘要长度。","dataFlowType":"STRING","required":false,"matchCategories":["ComboOption"],"config":{"default":"中等","suggestions":[{"value":"简短"},{"value":"中等"},{"value":"详细"}]}}},"interfaceOutputs":{"summary_result":{"description":"生成的摘要文本。","dataFlowType":"STRING"}}}"#;
    assert_eq!(interface.to_string(), seed);
}

#[tokio::test]
async fn each_example_gives_its_result() {
    let world = World::new().await;
    let text =
        "工作流把节点连接起来。节点是工作流的基本单元。今天天气很好。工作流可以作为工具使用。";
    for (workflow, inputs, expected) in [
        (
            "summarize_text",
            json!({"text_to_summarize": text, "summary_length": "简短"}),
            json!({"summary_result": "工作流把节点连接起来。"}),
        ),
        (
            "describe_text",
            json!({"text": "one two\nthree"}),
            json!({"report": "13 characters, 2 lines, 3 words; the longest word is \"three\".", "words": 3}),
        ),
        (
            "compound_interest",
            json!({"principal": 1000, "rate": 0.05, "years": 10}),
            json!({"amount": 1628.89}),
        ),
        (
            "compound_interest",
            json!({"principal": 100, "rate": 0.5}),
            json!({"amount": 150}),
        ),
        (
            "greet_everyone",
            json!({"names": ["Ada", "Bo"], "greeting": "Hi"}),
            json!({"greetings": ["Hi, Ada!", "Hi, Bo!"]}),
        ),
        (
            "grant_item",
            json!({"item": "ring", "to": "player", "value": 40}),
            json!({"granted": "player now has the ring, worth 40."}),
        ),
        (
            "nested_loops",
            json!({"rows": 3, "columns": 4}),
            json!({"total": 18, "row_totals": [0, 6, 18], "iterations": 3}),
        ),
        (
            "remind_later",
            json!({"text": "tea", "seconds": 0.01}),
            json!({"reminder": "tea"}),
        ),
        (
            "write_note",
            json!({"title": "T", "body": "B"}),
            // The double's tool returns its arguments.
            json!({"written": {"filePath": "/notes/note.md", "content": "# T\n\nB\n"}, "content": "# T\n\nB\n"}),
        ),
    ] {
        let run = world.begin(of_workflow(workflow, inputs)).await;
        assert_eq!(
            result(&world.outcome(&run.run_id).await),
            expected,
            "{workflow}"
        );
    }
}
