//! The reports about an instance.

use super::*;

fn player() -> Value {
    json!({
        "type": "object",
        "properties": {
            "player_id": {"type": "string", "minLength": 2, "maxLength": 12, "pattern": "^[a-z0-9]+$"},
            "level": {"type": "integer", "minimum": 1, "maximum": 9_007_199_254_740_993_u64},
            "mode": {"enum": ["normal", "hard"]},
            "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 2, "uniqueItems": true},
            "at": {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"], "additionalProperties": false}
        },
        "required": ["player_id"]
    })
}

#[test]
fn every_violation_is_reported_at_once() {
    let instance = json!({"level": 0, "mode": "herd", "tags": ["a", "a", 3], "at": {"X": 1}});
    check(
        &player(),
        &instance,
        &[
            ("missing_parameter", "/player_id"),
            ("out_of_range", "/level"),
            ("not_in_enum", "/mode"),
            ("too_many_items", "/tags"),
            ("not_unique", "/tags"),
            ("type_mismatch", "/tags/2"),
            ("unknown_parameter", "/at/X"),
        ],
    );
}

#[test]
fn a_misspelled_parameter_is_one_violation_with_the_name_that_was_meant() {
    let schema = Schema::compile_parameters(&player()).expect("compiles");
    let violations = schema.validate(&json!({"playerId": "player123"}));
    assert_eq!(violations.len(), 1, "{violations:#?}");
    assert_eq!(
        violations[0].message,
        "Unknown parameter 'playerId', did you mean 'player_id'?"
    );
    assert_eq!(violations[0].pointer, "/playerId");
    assert_eq!(violations[0].suggestions, ["player_id"]);
    assert_eq!(violations[0].received, "\"player123\"");
}

#[test]
fn a_name_that_is_given_already_is_not_suggested_again() {
    let schema = Schema::compile_parameters(&player()).expect("compiles");
    let violations = schema.validate(&json!({"player_id": "abc", "playerId": "abc"}));
    assert_eq!(violations.len(), 1);
    assert!(violations[0].suggestions.is_empty(), "{violations:#?}");
}

#[test]
fn unknown_parameters_are_refused_unless_the_schema_opens_itself() {
    let cases = [
        (json!({"type": "object", "properties": {"a": {}}}), false),
        (json!({"type": "object", "properties": {}}), false),
        (
            json!({"type": "object", "properties": {"a": {}}, "additionalProperties": true}),
            true,
        ),
        (
            json!({"type": "object", "properties": {"a": {}}, "additionalProperties": false}),
            false,
        ),
        (
            json!({"type": "object", "properties": {"a": {}}, "patternProperties": {"^b": {}}}),
            true,
        ),
        (json!({"type": "object"}), true),
        (json!({}), true),
        (
            json!({"$ref": "#/$defs/p", "$defs": {"p": {"properties": {"a": {}}}}}),
            false,
        ),
        (
            json!({"allOf": [{"properties": {"a": {}}}, {"properties": {"b": {}}}]}),
            true,
        ),
    ];
    for (schema, expected) in cases {
        let compiled = Schema::compile_parameters(&schema).expect("compiles");
        assert_eq!(
            compiled.validate(&json!({"b": 1})).is_empty(),
            expected,
            "{schema}"
        );
        assert_eq!(compiled.is_valid(&json!({"b": 1})), expected, "{schema}");
        assert!(compile(&schema).is_valid(&json!({"a": 1})), "{schema}");
    }
}

#[test]
fn messages_say_what_was_expected_and_received() {
    #[track_caller]
    fn says(schema: Value, instance: Value, message: &str) {
        let violations = compile(&schema).validate(&instance);
        assert_eq!(
            violations.first().map(|v| v.message.as_str()),
            Some(message),
            "{violations:#?}"
        );
    }
    let in_a = |property: Value| json!({"properties": {"a": property}});
    says(
        in_a(json!({"type": "integer"})),
        json!({"a": "x"}),
        "Invalid value for 'a': expected integer, received \"x\".",
    );
    says(
        in_a(json!({"type": ["string", "null"]})),
        json!({"a": 1}),
        "Invalid value for 'a': expected null or string, received 1.",
    );
    says(
        in_a(json!({"enum": ["red", "blue"]})),
        json!({"a": "bleu"}),
        "Invalid value for 'a': expected one of \"red\", \"blue\", received \"bleu\". Did you mean 'blue'?",
    );
    says(
        in_a(json!({"maxLength": 2})),
        json!({"a": "xyz"}),
        "Invalid value for 'a': expected at most 2 characters, received \"xyz\".",
    );
    says(
        in_a(json!({"pattern": "^b$"})),
        json!({"a": "x"}),
        "Invalid value for 'a': expected text that matches ^b$, received \"x\".",
    );
    says(
        in_a(json!({"items": {"properties": {"b": false}}})),
        json!({"a": [{"b": 1}]}),
        "Invalid value for 'a[0].b': expected nothing, as no value is allowed here, received 1.",
    );
    says(
        json!({"required": ["a"], "properties": {"a": {"type": "string"}}}),
        json!({}),
        "Missing parameter 'a' (string).",
    );
    says(
        json!({"type": "object"}),
        json!([]),
        "Invalid value for the arguments: expected object, received [].",
    );
    says(
        json!({"propertyNames": {"maxLength": 1}}),
        json!({"ab": 1}),
        "The name 'ab' is not allowed here: expected at most 1 characters.",
    );
    says(
        json!({"additionalProperties": false}),
        json!({"ab": 1}),
        "Unknown parameter 'ab'; no parameter is allowed here.",
    );
    says(
        json!({"properties": {"x": {}, "y": {}}, "additionalProperties": false}),
        json!({"other": 1}),
        "Unknown parameter 'other'; known parameters: x, y.",
    );
}

#[test]
fn received_values_are_cut() {
    let violations = check(
        &json!({"type": "integer"}),
        &json!("é".repeat(100_000)),
        &[("type_mismatch", "")],
    );
    assert_eq!(violations[0].received.chars().count(), 121);
    let name = "n".repeat(50_000);
    let violations =
        compile(&json!({"additionalProperties": false})).validate(&json!({ name.as_str(): 1 }));
    assert_eq!(violations[0].code, ViolationCode::UnknownParameter);
    assert!(violations[0].message.len() < 400);
    assert_eq!(violations[0].name(), name);
}

#[test]
fn the_report_is_bounded() {
    let instance = Value::Array((0..5_000).map(Value::from).collect());
    assert_eq!(
        compile(&json!({"items": {"type": "string"}}))
            .validate(&instance)
            .len(),
        64
    );
    let members: serde_json::Map<String, Value> =
        (0..5_000).map(|n| (format!("k{n}"), json!(1))).collect();
    let schema = Schema::compile_parameters(&json!({"properties": {"a": {}}})).expect("compiles");
    assert_eq!(schema.validate(&Value::Object(members)).len(), 64);
}

#[test]
fn alternatives_are_explained_by_the_one_that_was_meant() {
    let schema = json!({"anyOf": [{"type": "string"}, {"type": "integer"}]});
    assert_eq!(
        check(&schema, &json!([]), &[("type_mismatch", "")])[0].expected,
        "string or integer"
    );
    let schema = json!({"oneOf": [{"const": "left"}, {"const": "right"}]});
    assert_eq!(
        check(&schema, &json!("rigth"), &[("not_in_enum", "")])[0].suggestions,
        ["right"]
    );
    let shapes = json!({"oneOf": [
        {"properties": {"kind": {"const": "circle"}, "r": {"type": "number"}}, "required": ["kind", "r"]},
        {"properties": {"kind": {"const": "square"}, "side": {"type": "number"}}, "required": ["kind", "side"]}
    ]});
    check(
        &shapes,
        &json!({"kind": "circle", "r": "1"}),
        &[("type_mismatch", "/r")],
    );
    check(
        &shapes,
        &json!({"kind": "square"}),
        &[("missing_parameter", "/side")],
    );
    let violations = check(&shapes, &json!({"kind": "line"}), &[("no_variant", "")]);
    assert!(
        violations[0].message.contains("alternative 1"),
        "{violations:?}"
    );
    check(
        &json!({"oneOf": [{}, {}]}),
        &json!(1),
        &[("many_variants", "")],
    );
    check(&json!({"not": {}}), &json!(1), &[("forbidden", "")]);
}

#[test]
fn numbers_are_compared_with_every_digit() {
    let read = |text: &str| crate::parse_json_strict(text).expect("valid JSON");
    let schema = compile(&player());
    assert!(schema.is_valid(&read(r#"{"player_id":"ab","level":9007199254740993}"#)));
    assert!(!schema.is_valid(&read(r#"{"player_id":"ab","level":9007199254740994}"#)));
    let schema = compile(&read(
        r#"{"type":"integer","maximum":100000000000000000000000000001}"#,
    ));
    assert!(schema.is_valid(&read("100000000000000000000000000001")));
    assert!(!schema.is_valid(&read("100000000000000000000000000002")));
    assert!(compile(&json!({"type": "integer"})).is_valid(&read("1.0")));
    assert!(!compile(&json!({"const": 1.5})).is_valid(&read("1.50000000000000000000000001")));
    assert!(compile(&json!({"multipleOf": 0.01})).is_valid(&read("19.99")));
}

#[test]
fn formats_are_asserted_only_when_chosen() {
    let schema = json!({"format": "ipv4"});
    assert!(compile(&schema).is_valid(&json!("no address")));
    let options = CompileOptions {
        assert_formats: true,
        ..CompileOptions::default()
    };
    let strict = Schema::compile_with(&schema, options).expect("compiles");
    assert_eq!(
        strict.validate(&json!("no address"))[0].code,
        ViolationCode::Format
    );
    assert!(strict.is_valid(&json!("127.0.0.1")));
}
