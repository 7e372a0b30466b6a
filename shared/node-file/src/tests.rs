use serde_json::{Value, json};

use super::*;

fn file(changes: Value) -> String {
    let mut file = json!({
        "type": "QrCode",
        "inputs": {"text": {"dataFlowType": "STRING", "required": true}},
        "outputs": {"image": {"dataFlowType": "BINARY"}},
        "handler": {"script": "python qr.py"},
    });
    for (key, value) in changes.as_object().unwrap() {
        file[key] = value.clone();
    }
    file.to_string()
}

fn wrong(changes: Value) -> Vec<(String, String)> {
    let found = read(&file(changes), "qr").unwrap_err().into_iter();
    found.map(|it| (it.pointer, it.code.into_owned())).collect()
}

#[test]
fn r116_a_file_keeps_the_order_of_its_slots_and_gets_the_setting_of_its_modes() {
    let read = read(
        &file(json!({
            "type": "qr:QrCode",
            "inputs": {"z": {"dataFlowType": "STRING"}, "a": {"dataFlowType": "INTEGER", "config": {"default": 1}}},
            "modeConfigKey": "mode",
            "modes": {"small": {}, "large": {"inputs": {"z": {"dataFlowType": "STRING"}}}},
        })),
        "qr",
    )
    .unwrap();
    assert_eq!(read.name, "QrCode");
    let keys: Vec<&str> = read.inputs.iter().map(|(key, _)| key.as_str()).collect();
    assert_eq!(keys, ["z", "a"]);
    assert_eq!(
        read.settings[0].1.schema(),
        json!({"description": "The mode.", "type": "string", "enum": ["small", "large"]})
    );
}

#[test]
fn r116_each_condition_between_members_is_checked() {
    for (changes, place, code) in [
        (json!({"type": "core:TextMerge"}), "/type", "foreign_type"),
        (json!({"type": "other:QrCode"}), "/type", "foreign_type"),
        (json!({"type": "Qr Code"}), "/type", "invalid_type"),
        (json!({"type": ""}), "/type", "invalid_type"),
        (json!({"handler": {}}), "/handler", "invalid_handler"),
        (
            json!({"handler": {"tool": "t", "script": "python a.py"}}),
            "/handler",
            "invalid_handler",
        ),
        (
            json!({"handler": {"tool": "t", "packages": "data"}}),
            "/handler",
            "invalid_handler",
        ),
        (json!({"modeConfigKey": "m"}), "/modes", "invalid_modes"),
        (json!({"modes": {"a": {}}}), "/modes", "invalid_modes"),
        (
            json!({"inputs": {"a": {"dataFlowType": "INTEGER", "config": {"default": "x"}}}}),
            "/inputs/a/config/default",
            "type_mismatch",
        ),
        (
            json!({"configSchema": {"execution": {"dataFlowType": "OBJECT"}}}),
            "/configSchema/execution",
            "name_reserved",
        ),
        (
            json!({"configSchema": {"a": {"dataFlowType": "STRING", "config": {"options": ["x"], "default": "y"}}}}),
            "/configSchema/a/config/default",
            "type_mismatch",
        ),
        (
            json!({"configSchema": {"a": {"dataFlowType": "INTEGER", "config": {"options": ["1"]}}}}),
            "/configSchema/a/config/options",
            "type_mismatch",
        ),
        (
            json!({"outputs": {"a": {"dataFlowType": "STRING", "isStream": true}, "b": {"dataFlowType": "STRING", "isStream": true}}}),
            "/outputs",
            "invalid_slot",
        ),
        (
            json!({"modeConfigKey": "m", "modes": {
                "x": {"outputs": {"a": {"dataFlowType": "STRING", "isStream": true}}},
                "y": {"outputs": {"b": {"dataFlowType": "STRING", "isStream": true}}},
            }}),
            "/outputs",
            "invalid_slot",
        ),
        (
            json!({"handler": {"tool": "t"}, "outputs": {"a": {"dataFlowType": "STRING", "isStream": true}}}),
            "/handler/tool",
            "invalid_handler",
        ),
        (
            json!({"outputs": {"a": {"dataFlowType": "STRING", "isStream": true, "multi": true}}}),
            "/outputs/a/isStream",
            "invalid_slot",
        ),
    ] {
        let found = wrong(changes.clone());
        assert_eq!(found, [(place.to_owned(), code.to_owned())], "{changes}");
    }
}

#[test]
fn r116_every_violation_of_a_file_is_reported_at_once() {
    let many: serde_json::Map<String, Value> = (0..1_000)
        .map(|at| (format!("s{at}"), json!({"dataFlowType": "STRING"})))
        .collect();
    let found = wrong(json!({
        "type": "core:TextMerge",
        "inputs": many,
        "outputs": {"image": {"dataFlowType": "PICTURE"}, "a b": {"dataFlowType": "STRING"}},
        "handler": {"script": "python qr.py", "shell": true},
    }));
    let places: Vec<&str> = found.iter().map(|(place, _)| place.as_str()).collect();
    for place in [
        "/type",
        "/inputs",
        "/outputs/image/dataFlowType",
        "/handler",
    ] {
        assert!(
            places.iter().any(|found| found.starts_with(place)),
            "{place}: {found:?}"
        );
    }
}

#[test]
fn r116_a_slot_that_is_written_twice_is_named() {
    let text = r#"{"type": "A", "inputs": {"a": {"dataFlowType": "STRING"}, "a": {"dataFlowType": "STRING"}}, "handler": {"script": "python a.py"}}"#;
    let found = read(text, "p").unwrap_err();
    assert_eq!(found.len(), 1);
    assert!(found[0].pointer.starts_with("/inputs"), "{found:?}");
}

#[test]
fn r116_no_text_makes_the_reader_panic() {
    for text in [
        "",
        "null",
        "[]",
        "{}",
        "{\"type\": 1}",
        "{\"handler\": null, \"type\": null}",
    ] {
        assert!(read(text, "p").is_err(), "{text}");
    }
}
