//! The plugins that Tavern ships, and directories of plugins with mistakes.

use contracts::tavern::{
    common::v1::{CallStatus, RunEvent, run_event::Kind},
    registry::v1::{GetToolRequest, ListPluginsRequest, ToolOrigin},
};
use serde_json::{Value, json};

use crate::fixture::{Fixture, code_of, request};

#[tokio::test]
async fn seed_002_5_1_the_world_state_is_read() {
    let fixture = Fixture::new().await;
    let arguments =
        json!({"path": "environment.weather.current_conditions", "default_value": "unknown"});
    assert_eq!(
        fixture
            .call("ReadSampleWorldTool", arguments)
            .await
            .output_json,
        "\"sunny\""
    );
    let arguments =
        json!({"path": "no.such.place", "default_value": {"kept": 9007199254740993u64}});
    assert_eq!(
        fixture
            .call("ReadSampleWorldTool", arguments)
            .await
            .output_json,
        r#"{"kept":9007199254740993}"#
    );
    let failed = fixture
        .call("ReadSampleWorldTool", json!({"path": "no.such.place"}))
        .await;
    assert_eq!(
        (failed.status(), code_of(&failed)),
        (CallStatus::Failed, "script_error")
    );
}

#[tokio::test]
async fn seed_002_5_5_a_wrong_parameter_is_refused_with_the_right_one_and_then_corrected() {
    let fixture = Fixture::new().await;
    let result = fixture
        .call("GetPlayerInfo", json!({"playerId": "player123"}))
        .await;
    assert_eq!(result.status(), CallStatus::Rejected);
    let violations = result.error.unwrap().violations;
    assert_eq!(violations.len(), 1, "{violations:?}");
    assert_eq!(
        violations[0].message,
        "Unknown parameter 'playerId', did you mean 'player_id'?"
    );
    let result = fixture
        .call("GetPlayerInfo", json!({"player_id": "player123"}))
        .await;
    let output: Value = serde_json::from_str(&result.output_json).unwrap();
    assert_eq!(output["player_id"], "player123");
    let missing = fixture
        .call("GetPlayerInfo", json!({"player_id": "__proto__"}))
        .await;
    assert_eq!(code_of(&missing), "script_error");
}

#[tokio::test]
async fn seed_004_6_3_a_plugins_script_answers_from_its_bundled_file() {
    let fixture = Fixture::new().await;
    for url in [
        "https://www.bilibili.com/video/BV1xx411c7mD?p=1",
        "BV1xx411c7mD",
    ] {
        let (events, result) = fixture
            .finish(request("BilibiliFetch:getSubtitle", json!({"url": url})))
            .await;
        let output: Value = serde_json::from_str(&result.output_json).unwrap();
        assert_eq!(output["bvid"], "BV1xx411c7mD", "{result:?}");
        assert!(output["text"].as_str().unwrap().contains("石桥"));
        let said = |event: &RunEvent| matches!(&event.kind, Some(Kind::OutputChunk(chunk)) if chunk.text.contains("BV1xx411c7mD"));
        assert!(events.iter().any(said), "{events:?}");
    }
    let sent = fixture.sandbox.last.lock().unwrap().clone().unwrap();
    assert_eq!(sent.runtime, "python");
    assert_eq!(sent.stdin, br#"{"url":"BV1xx411c7mD"}"#);
    assert!(
        sent.files
            .iter()
            .any(|file| file.path == "data/subtitles.json")
    );
    for url in [
        "https://example.com/BV1xx411c7mD",
        "BV0000000000",
        "nothing",
    ] {
        let result = fixture
            .call("BilibiliFetch:getSubtitle", json!({"url": url}))
            .await;
        assert_eq!(code_of(&result), "script_error", "{url}");
    }
}

#[tokio::test]
async fn a_tool_is_found_by_its_alias_and_shows_where_it_comes_from() {
    let fixture = Fixture::new().await;
    let get = GetToolRequest {
        tool_id: "BilibiliFetch__getSubtitle".into(),
    };
    let tool = fixture
        .catalogue
        .clone()
        .get_tool(get)
        .await
        .unwrap()
        .into_inner()
        .tool
        .unwrap();
    assert_eq!(tool.tool_id, "BilibiliFetch:getSubtitle");
    assert_eq!(
        (tool.origin(), tool.plugin.as_str()),
        (ToolOrigin::Plugin, "bilibili-fetch")
    );
    assert_eq!(tool.display_name, "获取 Bilibili 视频字幕");
    assert!(tool.read_only && !tool.destructive);
}

#[tokio::test]
async fn every_shipped_plugin_is_loaded() {
    let fixture = Fixture::new().await;
    let skipped = fixture.registry.as_ref().unwrap().skipped_plugins();
    assert!(skipped.is_empty(), "{skipped:?}");
}

#[tokio::test]
async fn a_bad_plugin_and_a_tool_whose_id_is_taken_are_skipped_and_named() {
    let directory = tempfile::tempdir().unwrap();
    let put = |path: &str, content: &str| {
        let path = directory.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    };
    put("broken/plugin.yaml", "name: [");
    put("thief/plugin.yaml", "name: thief\ntools:\n  entry: tools\n");
    put("thief/run.py", "print('\"mine\"')");
    let tool = |id: &str| {
        json!({"id": id, "parameters": {"type": "object"},
               "implementation": {"type": "script", "command": "python run.py"}})
        .to_string()
    };
    put("thief/tools/a.tool.json", &tool("read_file"));
    put("thief/tools/b.tool.json", &tool("own"));
    let mut fixture = Fixture::with_plugins(directory.path().to_owned()).await;
    for _ in 0..2 {
        let skipped = fixture.registry.as_ref().unwrap().skipped_plugins();
        let named: Vec<&str> = skipped.iter().map(|each| each.directory.as_str()).collect();
        assert_eq!(named, ["broken", "thief"]);
        let reasons = skipped[1].to_string();
        assert!(
            reasons.contains("builtin brings one of this id"),
            "{reasons}"
        );
        assert_eq!(fixture.call("own", json!({})).await.output_json, "\"mine\"");
        fixture.crash_and_restart().await;
    }
}

#[tokio::test]
async fn whatever_of_a_plugin_has_no_effect_is_in_the_list_of_plugins() {
    let directory = tempfile::tempdir().unwrap();
    let put = |path: &str, content: &str| {
        let path = directory.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    };
    put("broken/plugin.yaml", "name: [");
    put(
        "mixed/plugin.yaml",
        "name: mixed\ntools:\n  entry: tools\nnodes:\n  entry: nodes\n\
         configOptions:\n  - key: extensions.mixed.a\nfrontend:\n  build:\n    entry: dist/a.js\n",
    );
    put("mixed/run.py", "print(1)");
    let tool = |id: &str| {
        json!({"id": id, "parameters": {"type": "object"}, "returns": {"type": "string"},
               "implementation": {"type": "script", "command": "python run.py"}})
        .to_string()
    };
    put("mixed/tools/good.tool.json", &tool("good"));
    put("mixed/tools/bad.tool.json", "{");
    put("mixed/tools/taken.tool.json", &tool("read_file"));
    let fixture = Fixture::with_plugins(directory.path().to_owned()).await;
    let listed = fixture
        .catalogue
        .clone()
        .list_plugins(ListPluginsRequest {})
        .await;
    let plugins = listed.unwrap().into_inner().plugins;
    let loaded: Vec<(&str, bool, usize)> = plugins
        .iter()
        .map(|each| (each.directory.as_str(), each.loaded, each.tool_ids.len()))
        .collect();
    assert_eq!(loaded, [("broken", false, 0), ("mixed", true, 1)]);
    assert_eq!(plugins[0].diagnostics[0].code, "malformed_yaml");
    let mut found: Vec<(&str, &str)> = plugins[1]
        .diagnostics
        .iter()
        .map(|each| (each.path.as_str(), each.code.as_str()))
        .collect();
    found.sort_unstable();
    assert_eq!(
        found,
        [
            ("", "id_taken"),
            ("plugin.yaml/frontend", "not_supported"),
            ("tools/bad.tool.json", "malformed_json"),
            ("tools/good.tool.json/returns", "not_supported"),
            ("tools/taken.tool.json/returns", "not_supported"),
        ]
    );
    assert_eq!(fixture.call("good", json!({})).await.output_json, "1");
}

#[tokio::test]
async fn a_script_that_answers_with_no_json_or_crashes_is_a_typed_failure() {
    let directory = tempfile::tempdir().unwrap();
    let put = |path: &str, content: &str| {
        let path = directory.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    };
    put("p/plugin.yaml", "name: p\ntools:\n  entry: tools\n");
    for (name, script) in [
        ("silent", ""),
        ("prose", "print('hello')"),
        ("twice", "print('{\"a\": 1, \"a\": 2}')"),
        ("crash", "raise SystemExit(3)"),
        (
            "own_words",
            "print('{\"success\": false, \"error\": {\"type\": \"DependencyError\", \"message\": \"m\"}}'); raise SystemExit(1)",
        ),
    ] {
        put(&format!("p/{name}.py"), script);
        let definition = json!({"id": name, "parameters": {"type": "object"},
            "implementation": {"type": "script", "command": format!("python {name}.py")}});
        put(
            &format!("p/tools/{name}.tool.json"),
            &definition.to_string(),
        );
    }
    let fixture = Fixture::with_plugins(directory.path().to_owned()).await;
    for (tool, code) in [
        ("silent", "script_output_malformed"),
        ("prose", "script_output_malformed"),
        ("twice", "script_output_malformed"),
        ("crash", "script_exited"),
        ("own_words", "script_dependency"),
    ] {
        let result = fixture.call(tool, json!({})).await;
        assert_eq!(
            (result.status(), code_of(&result)),
            (CallStatus::Failed, code),
            "{tool}: {result:?}"
        );
    }
}
