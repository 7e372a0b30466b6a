use proptest::prelude::*;

use super::*;

#[track_caller]
fn check(text: &str, expected: Value) {
    assert_eq!(parse_json_strict(text), Ok(expected), "{text}");
}

#[track_caller]
fn check_refused(text: &str, expected: &str) {
    let error = parse_json_strict(text).expect_err(text);
    assert_eq!(
        error.to_string(),
        format!("text is not acceptable JSON: {expected}"),
        "{text}"
    );
}

#[test]
fn values_are_read() {
    check(
        " {\"a\" : [1, true, null, \"x\"]} ",
        serde_json::json!({"a": [1, true, null, "x"]}),
    );
    check("[]", serde_json::json!([]));
    check("{}", serde_json::json!({}));
    check(r#""\u00e9\n\/\ud83d\ude00""#, serde_json::json!("é\n/😀"));
}

#[test]
fn key_order_is_kept() {
    let value = parse_json_strict(r#"{"z":1,"a":2,"m":3}"#).expect("valid");
    assert_eq!(value.to_string(), r#"{"z":1,"a":2,"m":3}"#);
}

#[test]
fn numbers_keep_every_digit() {
    for text in [
        "9007199254740993",
        "123456789012345678901234567890",
        "0.1000000000000000000001",
        "-0",
        "1.50",
        "1e+5",
        "-0.0",
    ] {
        let value = parse_json_strict(text).expect(text);
        assert_eq!(value.to_string(), text);
    }
}

#[test]
fn numbers_that_a_double_cannot_hold_are_refused() {
    for text in ["1e999", "-1e400", "1e-999", "1e99999999999999999999"] {
        check_refused(
            text,
            &format!("number {text} is out of range; send it as a string at line 1, column 1"),
        );
    }
    check("0e999", serde_json::from_str("0e999").expect("a number"));
    check_refused(
        &"1".repeat(1_025),
        "number has more than 1024 characters; send it as a string at line 1, column 1",
    );
}

#[test]
fn all_duplicate_keys_are_named_with_their_places() {
    check_refused(
        "{\"a\":1,\n \"b\":{\"c\":1,\"c\":2},\n \"a\":3, \"a\":4}",
        "duplicate key \"c\"; name each key once at line 2, column 13 (/b/c); \
         duplicate key \"a\"; name each key once at line 3, column 2 (/a)",
    );
    check_refused(
        r#"{"a":1,"\u0061":2}"#,
        "duplicate key \"a\"; name each key once at line 1, column 8 (/a)",
    );
}

#[test]
fn the_private_number_key_is_an_ordinary_key() {
    let value = parse_json_strict(r#"{"$serde_json::private::Number":"12"}"#).expect("valid");
    assert!(value.is_object());
}

#[test]
fn broken_text_names_the_place_and_what_was_expected() {
    check_refused(
        "",
        "expected a JSON value, found the end of the text at line 1, column 1",
    );
    check_refused(
        "{\"a\" 1}",
        "expected `:` after the key, found '1' at line 1, column 6",
    );
    check_refused(
        "[1,\n2,]",
        "expected a JSON value, found ']' at line 2, column 3 (/2)",
    );
    check_refused(
        "{'a':1}",
        "expected a key in double quotes, found '\\'' at line 1, column 2",
    );
    check_refused(
        "[1] x",
        "expected the end of the text, found 'x' at line 1, column 5",
    );
    check_refused(
        "\"abc",
        "expected a closing double quote, found the end of the text at line 1, column 1",
    );
    check_refused("[01]", "expected `,` or `]`, found '1' at line 1, column 3");
    check_refused(
        "[1.]",
        "expected a digit, found ']' at line 1, column 4 (/0)",
    );
    check_refused(
        "nul",
        "expected a JSON value, found 'n' at line 1, column 1",
    );
    check_refused(
        "NaN",
        "expected a JSON value, found 'N' at line 1, column 1",
    );
    check_refused(
        r#""\ud800""#,
        "expected a pair of surrogate escapes; a lone surrogate is not a character, found '\\\\' at line 1, column 2",
    );
    check_refused(
        "\"\\u12é\"",
        "expected four hexadecimal digits after \\u, found '\\\\' at line 1, column 2",
    );
    check_refused(
        "\"a\nb\"",
        "expected an escape such as \\n instead of a bare control character, found '\\n' at line 1, column 3",
    );
}

#[test]
fn size_and_depth_are_bounded() {
    let deep = "[".repeat(33);
    let error = parse_json_strict(&deep).expect_err("too deep");
    assert_eq!(
        error.problems[0].kind,
        JsonProblemKind::TooDeep { limit: 32 }
    );
    assert_eq!(error.problems[0].offset, 32);
    let limits = JsonLimits {
        max_depth: usize::MAX,
        ..JsonLimits::default()
    };
    let error = parse_json_strict_with(&"[".repeat(100_000), &limits).expect_err("too deep");
    assert_eq!(
        error.problems[0].kind,
        JsonProblemKind::TooDeep { limit: 128 }
    );
    let limits = JsonLimits {
        max_bytes: 3,
        ..JsonLimits::default()
    };
    let error = parse_json_strict_with("[  ]", &limits).expect_err("too large");
    assert_eq!(
        error.problems[0].kind,
        JsonProblemKind::TooLarge { bytes: 4, limit: 3 }
    );
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        any::<i64>().prop_map(Value::from),
        any::<f64>()
            .prop_filter("finite", |f| f.is_finite())
            .prop_map(Value::from),
        "[0-9]{1,40}\\.[0-9]{1,40}".prop_filter_map("a number", |text| {
            let text = text.trim_start_matches('0');
            let text = if text.starts_with('.') {
                format!("0{text}")
            } else {
                text.to_owned()
            };
            serde_json::from_str::<Number>(&text)
                .ok()
                .map(Value::Number)
        }),
        any::<String>().prop_map(Value::String),
    ];
    leaf.prop_recursive(6, 64, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::Array),
            prop::collection::vec((any::<String>(), inner), 0..6)
                .prop_map(|pairs| Value::Object(pairs.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn what_is_printed_is_read_back(value in any_json()) {
        prop_assert_eq!(parse_json_strict(&value.to_string()), Ok(value.clone()));
        let pretty = serde_json::to_string_pretty(&value).expect("prints");
        prop_assert_eq!(parse_json_strict(&pretty), Ok(value));
    }

    #[test]
    fn any_text_gives_a_value_or_a_place_inside_it(text in "[\\[\\]{}\",:\\\\u0-9eE.+ \\-truefalsn\u{e9}\n]{0,40}") {
        match parse_json_strict(&text) {
            Ok(_) => prop_assert!(serde_json::from_str::<serde::de::IgnoredAny>(&text).is_ok()),
            Err(error) => for problem in error.problems {
                prop_assert!(problem.offset <= text.len());
            },
        }
    }

    #[test]
    fn what_it_accepts_the_common_reader_accepts_alike(value in any_json()) {
        let text = value.to_string();
        prop_assert_eq!(parse_json_strict(&text).ok(), serde_json::from_str::<Value>(&text).ok());
    }
}
