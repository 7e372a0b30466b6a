//! Rule C13.

use super::*;

#[test]
fn defaults_are_filled_in_at_every_depth() {
    let schema = compile(&json!({
        "properties": {
            "mode": {"type": "string", "default": "fast"},
            "options": {"default": {}, "$ref": "#/$defs/options"},
            "files": {"items": {"properties": {"mode/bits": {"default": 420}}}},
            "either": {"anyOf": [{"properties": {"x": {"default": 1}}}]}
        },
        "allOf": [{"properties": {"late": {"default": null}}}],
        "$defs": {"options": {"properties": {"retries": {"default": 12345678901234567890_u64}}}}
    }));
    let mut instance = json!({"files": [{}, {"mode/bits": 1}], "either": {}});
    let filled = schema.apply_defaults(&mut instance).expect("fits");
    assert_eq!(
        filled,
        [
            "/mode",
            "/options",
            "/options/retries",
            "/files/0/mode~1bits",
            "/late"
        ]
    );
    assert_eq!(
        instance,
        json!({"files": [{"mode/bits": 420}, {"mode/bits": 1}], "either": {}, "mode": "fast",
            "options": {"retries": 12345678901234567890_u64}, "late": null})
    );
    assert_eq!(
        schema.apply_defaults(&mut instance),
        Ok(Vec::new()),
        "a second time there is nothing to do"
    );
}

#[test]
fn defaults_that_never_end_fill_in_nothing() {
    let endless = compile(&json!({"properties": {"c": {"default": {}, "$ref": "#"}}}));
    let mut instance = json!({});
    assert!(matches!(
        endless.apply_defaults(&mut instance),
        Err(DefaultsError::TooMuch { .. })
    ));
    assert_eq!(instance, json!({}));
    let fat = compile(&json!({"items": {"properties": {"c": {"default": "x".repeat(10_000)}}}}));
    let mut instance = Value::Array(vec![json!({}); 100]);
    assert!(fat.apply_defaults(&mut instance).is_err());
}

#[test]
fn null_stands_for_a_member_that_may_be_left_out() {
    let schema = compile(&json!({
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "mode": {"enum": ["a", "b"]},
            "inner": {"type": "object", "properties": {"x/y": {"type": "integer"}}, "additionalProperties": false},
            "free": {}
        },
        "required": ["name"],
        "additionalProperties": false
    }));
    for (given, left) in [
        (
            json!({"name": "n", "mode": null, "inner": {"x/y": null}, "free": null}),
            Some(json!({"name": "n", "inner": {}, "free": null})),
        ),
        (
            json!({"name": "n", "inner": null}),
            Some(json!({"name": "n"})),
        ),
        (json!({"name": null}), None),
        (json!({"name": "n", "other": null}), None),
        (json!({"name": "n", "mode": null, "inner": 1}), None),
    ] {
        assert_eq!(schema.without_nulls(&given), left, "{given}");
    }
}
