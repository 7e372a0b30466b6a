use serde_json::json;

use super::*;

/// Seed 004 §6.3, verbatim.
const SEED_004_6_3: &str = r#"{
  "id": "BilibiliFetch:getSubtitle",
  "displayName": "获取 Bilibili 视频字幕",
  "description": "输入 Bilibili 视频 URL 或 BV 号，获取字幕内容",
  "implementation": {
    "type": "script",
    "command": "python scripts/BilibiliFetch.py"
  },
  "parameters": {
    "type": "object",
    "properties": {
      "url": {
        "type": "string",
        "description": "Bilibili 视频的完整 URL 或 BV 号"
      }
    },
    "required": ["url"]
  }
}"#;

#[test]
fn seed_004_6_3_is_read_and_undeclared_effects_are_assumed() {
    let definition = read(SEED_004_6_3).unwrap();
    assert_eq!(definition.id.as_str(), "BilibiliFetch:getSubtitle");
    assert_eq!(definition.display_name, "获取 Bilibili 视频字幕");
    assert_eq!(definition.flags, Flags::default());
    assert_eq!(definition.implementation.type_name(), "script");
    assert!(definition.diagnostics.is_empty());
}

#[test]
fn the_second_form_is_read_and_ungranted_requests_are_remarked() {
    let read = read_value(json!({
        "toolId": "dice:roll", "displayName": "Dice", "description": "rolls", "version": "1.0.0",
        "handler": {"type": "external-script", "scriptPath": "./dice.js", "language": "nodejs"},
        "parameters": {"type": "object", "properties": {"sides": {"type": "integer"}}},
        "output": {"type": "object"},
        "securityContext": {"networkAccess": {"allowHosts": ["example.com"]}, "fileAccess": {"allowRead": []}},
        "examples": [], "tags": ["game"],
        "readOnly": true, "parallel_safe": true
    }))
    .unwrap();
    let Implementation::Script(program) = &read.implementation else {
        unreachable!("the handler is a script");
    };
    assert_eq!(
        (program.runtime.as_str(), program.entry.as_str()),
        ("nodejs", "dice.js")
    );
    assert!(read.flags.read_only && read.flags.parallel_safe);
    let codes: Vec<&str> = read
        .diagnostics
        .iter()
        .map(|each| each.code.as_str())
        .collect();
    assert_eq!(codes, ["not_granted", "not_supported"]);
    assert_eq!(read.written()["tags"], json!(["game"]));
}

#[test]
fn an_example_that_is_a_placeholder_is_remarked() {
    let path = json!({"type": "string", "examples": ["<the path>"]});
    let read = read_value(json!({
        "id": "files:read", "implementation": {"type": "script", "command": "python read.py"},
        "parameters": {"type": "object", "properties": {"path": path}},
    }))
    .unwrap();
    assert_eq!(read.diagnostics.len(), 1, "{:?}", read.diagnostics);
    assert!(read.diagnostics[0].message.contains("'<the path>'"));
}

#[test]
fn each_implementation_type_is_read() {
    let cases = [
        (
            json!({"type": "service", "service": "builtin", "method": "read_file"}),
            Implementation::Builtin("read_file".into()),
        ),
        (
            json!({"type": "service", "service": "stock", "method": "shop.v1.Stock/Count"}),
            Implementation::Backend {
                service: "stock".into(),
                method: "shop.v1.Stock/Count".into(),
            },
        ),
        (
            json!({"type": "workflow", "workflowId": "w"}),
            Implementation::Workflow {
                workflow_id: "w".into(),
            },
        ),
        (
            json!({"type": "node", "nodeType": "core:TextMerge"}),
            Implementation::Node {
                full_type: "core:TextMerge".into(),
                config: serde_json::Map::new(),
                interface: None,
            },
        ),
    ];
    for (implementation, expected) in cases {
        let read = read_value(json!({
            "id": "t", "implementation": implementation, "parameters": {"type": "object"}
        }));
        assert_eq!(read.unwrap().implementation, expected);
    }
}

#[test]
fn a_timeout_is_milliseconds_or_text_and_never_unlimited() {
    let with = |timeout: Value| {
        read_value(json!({"id": "t", "parameters": {},
            "implementation": {"type": "script", "command": "node a.js", "timeout": timeout}}))
        .map(|read| read.timeout)
    };
    assert_eq!(
        with(json!(1500)).unwrap(),
        Some(Duration::from_millis(1500))
    );
    assert_eq!(with(json!("30s")).unwrap(), Some(Duration::from_secs(30)));
    for bad in [
        json!(0),
        json!(-1),
        json!("0s"),
        json!(1e9),
        json!("forever"),
        json!(null),
        json!([]),
    ] {
        assert_eq!(
            with(bad.clone()).unwrap_err()[0].pointer,
            "/implementation/timeout",
            "{bad}"
        );
    }
}

/// Reads a definition and compares the places of its problems.
fn check(definition: Value, pointers: &[&str]) {
    let wrong = read_value(definition.clone()).unwrap_err();
    let found: Vec<&str> = wrong
        .iter()
        .map(|violation| violation.pointer.as_str())
        .collect();
    assert_eq!(found, pointers, "{definition}");
    assert!(
        wrong
            .iter()
            .all(|violation| !violation.message.is_empty() && !violation.code.is_empty())
    );
}

#[test]
fn every_mistake_of_a_definition_is_named_at_once() {
    check(json!([]), &[""]);
    check(json!({}), &["/id", "/implementation"]);
    check(
        json!({"id": 5, "implementation": "x"}),
        &["/id", "/implementation"],
    );
    check(
        json!({"id": "t", "implementation": {"type": "magic"}}),
        &["/implementation/type"],
    );
    check(
        json!({"id": "t", "implementation": {"type": "script", "command": "rm -rf / ; x", "protocol": "http"},
               "parameters": {"type": "array"}, "description": 3, "readOnly": "yes"}),
        &[
            "/description",
            "/implementation/protocol",
            "/implementation/command",
            "/readOnly",
            "/parameters",
        ],
    );
    check(
        json!({"id": "t", "implementation": {"type": "service", "service": "s", "method": "NoSlash"},
               "parameters": {}}),
        &["/implementation/method"],
    );
    check(
        json!({"id": "workflow:x", "implementation": {"type": "workflow", "workflowId": "x"}}),
        &["/id"],
    );
    check(
        json!({"toolId": "t", "handler": {"type": "external-script", "language": "python",
               "scriptPath": "../x.py", "entryPoint": "main"}, "parameters": {}}),
        &["/handler/scriptPath"],
    );
    check(
        json!({"id": "t", "implementation": {"type": "script", "command": "node a.js"}, "parameters": {},
               "readOnly": true, "destructive": true}),
        &["/destructive"],
    );
}

#[test]
fn a_schema_that_reaches_out_or_loops_is_refused_at_its_place() {
    for schema in [
        json!({"$ref": "http://example.com/x"}),
        json!({"$ref": "file:///etc/passwd"}),
        json!({"properties": {"a": {"pattern": "(?=x)"}}}),
        json!({"properties": {"a": {"$ref": "#/nowhere"}}}),
    ] {
        let wrong = read_value(json!({"id": "t", "parameters": schema,
            "implementation": {"type": "script", "command": "node a.js"}}))
        .unwrap_err();
        assert!(
            wrong.iter().all(|v| v.pointer.starts_with("/parameters")),
            "{wrong:?}"
        );
    }
}

#[test]
fn text_that_is_too_large_too_deep_or_repeats_a_key_is_refused() {
    let large = format!("{{\"id\": \"{}\"}}", "x".repeat(MAX_DEFINITION_BYTES));
    let deep = format!("{}{}", "[".repeat(40), "]".repeat(40));
    for text in [
        large.as_str(),
        deep.as_str(),
        "{\"id\": \"a\", \"id\": \"b\"}",
        "{",
        "",
    ] {
        assert!(!read(text).unwrap_err().is_empty());
    }
}

#[test]
fn a_workflow_tool_may_leave_its_parameters_to_the_workflow() {
    let read =
        read_value(json!({"id": "t", "implementation": {"type": "workflow", "workflowId": "w"}}));
    assert_eq!(read.unwrap().parameters, None);
}
