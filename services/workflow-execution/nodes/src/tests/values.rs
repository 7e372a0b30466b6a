//! Node types that make a value of values.

use serde_json::{Value, json};

use super::run;

#[track_caller]
fn check(full_type: &str, config: Value, inputs: Value, expected: Result<Value, &str>) {
    let found = run(full_type, config.clone(), inputs.clone());
    assert_eq!(
        found,
        expected.map_err(str::to_owned),
        "{full_type} {config} {inputs}"
    );
}

#[test]
fn create_message_makes_a_list_of_one_message() {
    for (inputs, expected) in [
        (
            json!({"content": "Hi"}),
            Ok(r#"[{"role":"user","content":"Hi"}]"#),
        ),
        (
            json!({"content": "Hi", "role": "system"}),
            Ok(r#"[{"role":"system","content":"Hi"}]"#),
        ),
        (json!({"content": ""}), Ok("[]")),
        (json!({}), Ok("[]")),
        (
            json!({"content": "Hi", "role": "wizard"}),
            Err("unknown_role"),
        ),
    ] {
        let expected = expected.map(|text| json!({"messages": text}));
        check("core:CreateMessage", json!({}), inputs, expected);
    }
}

#[test]
fn w35_merge_messages_takes_arrays_and_texts_and_passes_over_the_rest() {
    let user = json!({"role": "user", "content": "a"});
    let call = json!({"role": "assistant", "tool_calls": []});
    let inputs =
        json!({"message_inputs": [json!([user]).to_string(), json!([7, call]).to_string()]});
    let expected = json!([user, call]).to_string();
    check(
        "core:MergeMessages",
        json!({}),
        inputs,
        Ok(json!({"messages": expected})),
    );
    let inputs = json!({"message_inputs": [json!([user]).to_string(), "no JSON", "{\"a\":1}"]});
    let expected = json!([user]).to_string();
    check(
        "core:MergeMessages",
        json!({}),
        inputs,
        Ok(json!({"messages": expected})),
    );
}

#[test]
fn apply_regex_replaces_as_scripts_of_the_web_do() {
    let rule = |pattern: &str, replacement: &str, flags: &str| json!({"pattern": pattern, "replacement": replacement, "flags": flags});
    for (text, rules, expected) in [
        ("a-b-c", json!([rule("-", "+", "g")]), Ok("a+b+c")),
        ("a-b-c", json!([rule("-", "+", "")]), Ok("a+b-c")),
        ("AbA", json!([rule("a", "x", "gi")]), Ok("xbx")),
        (
            "a\nb",
            json!([rule("^b$", "x", "m"), rule("a.x", "y", "s")]),
            Ok("y"),
        ),
        (
            "2026-11",
            json!([rule(r"(\d+)-(?<m>\d+)", "$2/$1 $<m> $& $$ $3 $", "")]),
            Ok("11/2026 11 2026-11 $ $3 $"),
        ),
        ("abc", json!([rule("", "-", "g")]), Ok("-a-b-c-")),
        (
            "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!",
            json!([rule("^(a+)+$", "x", "g")]),
            Ok("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!"),
        ),
        (
            "a",
            json!([{"pattern": "a", "replacement": "b", "enabled": false}]),
            Ok("a"),
        ),
        (
            "a",
            json!([{"pattern": "a", "replacement": "b", "disabled": true}]),
            Ok("a"),
        ),
        ("a", json!([rule("(?=a)", "", "")]), Err("invalid_rule")),
        (
            "a",
            json!([rule("a{1000}{1000}", "", "")]),
            Err("invalid_rule"),
        ),
        ("a", json!([rule("a", "", "q")]), Err("invalid_rule")),
        ("a", json!([{"name": "n"}]), Err("invalid_rule")),
        ("a", json!([7]), Err("invalid_rule")),
    ] {
        let expected = expected.map(|text| json!({"outputText": text}));
        check(
            "core:ApplyRegex",
            json!({}),
            json!({"inputText": text, "inlineRegexRules": rules}),
            expected,
        );
    }
    let grows = json!([{"pattern": "", "replacement": "x".repeat(1_000)}]);
    let inputs = json!({"inputText": "a".repeat(1_000), "regexRules": grows});
    check("core:ApplyRegex", json!({}), inputs, Err("value_too_large"));
}

#[test]
fn an_inline_rule_counts_before_a_loaded_one_of_the_same_name() {
    let rule = |name: &str, pattern: &str, replacement: &str| json!({"name": name, "pattern": pattern, "replacement": replacement});
    let inputs = json!({
        "inputText": "ab",
        "regexRules": [rule("one", "a", "loaded"), rule("two", "b", "c")],
        "inlineRegexRules": [rule("one", "a", "inline")],
    });
    check(
        "core:ApplyRegex",
        json!({}),
        inputs,
        Ok(json!({"outputText": "inlinec"})),
    );
}

#[test]
fn random_number_is_decided_by_its_seed_and_bounds() {
    let drawn = |inputs: Value| {
        run("core:RandomNumber", json!({}), inputs).map(|outputs| outputs["number"].clone())
    };
    let first = drawn(json!({"seed": 7})).unwrap();
    assert_eq!(drawn(json!({"seed": 7})).unwrap(), first);
    assert_ne!(drawn(json!({"seed": 8})).unwrap(), first);
    for seed in 0..200 {
        let number = drawn(json!({"seed": seed, "min": -2, "max": 3.5, "whole": true})).unwrap();
        assert!((-2..=3).contains(&number.as_i64().unwrap()), "{number}");
        let number = drawn(json!({"seed": seed, "min": 5, "max": 6})).unwrap();
        assert!((5.0..6.0).contains(&number.as_f64().unwrap()), "{number}");
    }
    assert_eq!(
        drawn(json!({"min": 2, "max": 1})),
        Err("invalid_range".into())
    );
    assert_eq!(
        drawn(json!({"min": 0.1, "max": 0.9, "whole": true})),
        Err("invalid_range".into())
    );
}

#[test]
fn matrix_operation_calculates_by_mode() {
    let (a, b) = (json!([[1, 2], [3, 4]]), json!([[0, 1], [1, 0]]));
    for (mode, inputs, expected) in [
        ("add", json!({"a": a, "b": b}), Ok(json!([[1, 3], [4, 4]]))),
        (
            "subtract",
            json!({"a": a, "b": b}),
            Ok(json!([[1, 1], [2, 4]])),
        ),
        (
            "multiply",
            json!({"a": a, "b": b}),
            Ok(json!([[2, 1], [4, 3]])),
        ),
        (
            "multiply",
            json!({"a": a, "b": [[1]]}),
            Err("invalid_matrix"),
        ),
        (
            "scale",
            json!({"a": a, "factor": 0.5}),
            Ok(json!([[0.5, 1], [1.5, 2]])),
        ),
        (
            "transpose",
            json!({"a": [[1, 2, 3]]}),
            Ok(json!([[1], [2], [3]])),
        ),
        ("determinant", json!({"a": a}), Ok(json!(-2))),
        ("determinant", json!({"a": [[1, 2], [2, 4]]}), Ok(json!(0))),
        (
            "inverse",
            json!({"a": [[0, 2], [4, 0]]}),
            Ok(json!([[0, 0.25], [0.5, 0]])),
        ),
        (
            "inverse",
            json!({"a": [[1, 2], [2, 4]]}),
            Err("undefined_result"),
        ),
        ("inverse", json!({"a": [[1, 2]]}), Err("invalid_matrix")),
        (
            "transpose",
            json!({"a": [[1, 2], [3]]}),
            Err("invalid_matrix"),
        ),
        ("transpose", json!({"a": []}), Err("invalid_matrix")),
        ("turn", json!({"a": a}), Err("unknown_mode")),
    ] {
        let expected = expected.map(|result| json!({"result": result}));
        check(
            "core:MatrixOperation",
            json!({"operationMode": mode}),
            inputs,
            expected,
        );
    }
    check(
        "core:MatrixOperation",
        json!({}),
        json!({"operationMode": "add", "a": a}),
        Err("missing_input"),
    );
}

#[test]
fn text_summarizer_keeps_what_its_mode_says() {
    let text = "One. Two is longer! Three?";
    for (config, expected) in [
        (json!({}), Ok(text)),
        (json!({"maxChars": 9}), Ok("One … ee?")),
        (json!({"maxChars": 4}), Ok("One.")),
        (json!({"mode": "head", "maxChars": 6}), Ok("One. T")),
        (json!({"mode": "tail", "maxChars": 6}), Ok("Three?")),
        (
            json!({"mode": "sentences", "maxChars": 22}),
            Ok("One. Two is longer!"),
        ),
        (json!({"mode": "sentences", "maxChars": 2}), Ok("On")),
        (json!({"mode": "middle"}), Err("unknown_mode")),
        (json!({"maxChars": 0}), Err("out_of_range")),
    ] {
        let expected = expected.map(|summary| json!({"summary": summary}));
        check(
            "core:TextSummarizer",
            config,
            json!({"text": text}),
            expected,
        );
    }
    let chinese = json!({"text": "第一句。第二句很长很长。"});
    let config = json!({"mode": "sentences", "maxChars": 6});
    check(
        "core:TextSummarizer",
        config,
        chinese,
        Ok(json!({"summary": "第一句。"})),
    );
}
