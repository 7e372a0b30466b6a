use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::*;
use crate::manifest;

const CITY_WEATHER: &str = include_str!("../../tests/fixtures/city_weather.yaml");

fn declared(options: &str) -> Vec<OptionDeclaration> {
    let text = format!("apiVersion: tavern/v1\nname: p\nconfigOptions:\n{options}");
    manifest::read(&text).expect("a manifest").options
}

fn object(value: Value) -> Map<String, Value> {
    value.as_object().expect("an object").clone()
}

fn codes(wrong: &[call_outcome::Violation]) -> Vec<(&str, &str)> {
    wrong
        .iter()
        .map(|each| (each.pointer.as_str(), &*each.code))
        .collect()
}

const ALL: &str = "
  - {key: extensions.p.line, type: string, minLength: 2, maxLength: 5, pattern: '^[a-z]*$'}
  - {key: extensions.p.text, type: text, default: \"a\\nb\"}
  - {key: extensions.p.whole, type: integer, minimum: -5, maximum: 10, default: 3}
  - {key: extensions.p.number, type: number, minimum: 0.5}
  - {key: extensions.p.flag, type: boolean, required: true}
  - {key: extensions.p.units, type: enum, options: [metric, {value: imperial, label: Miles}], scopes: [service, project]}
  - {key: extensions.p.list, type: string_list, minItems: 1, maxItems: 2}
  - {key: extensions.p.json, type: json, schema: {type: object, required: [a]}}
";

#[test]
fn every_value_that_breaks_a_bound_is_named_at_once() {
    let options = declared(ALL);
    let written = object(json!({
        "extensions.p.line": "A",
        "extensions.p.text": 5,
        "whole": 11,
        "extensions.p.number": 0.25,
        "extensions.p.flag": "yes",
        "extensions.p.units": "metrics",
        "extensions.p.list": ["a", "b\nc", "d"],
        "extensions.p.json": {"b": 1},
        "extensions.p.unit": "metric",
    }));
    let wrong = OptionValues::read(&options, &written, OptionScope::Service).unwrap_err();
    let expected = [
        ("/extensions.p.line", "too_short"),
        ("/extensions.p.line", "pattern_mismatch"),
        ("/extensions.p.text", "type_mismatch"),
        ("/whole", "out_of_range"),
        ("/extensions.p.number", "out_of_range"),
        ("/extensions.p.flag", "type_mismatch"),
        ("/extensions.p.units", "not_in_enum"),
        ("/extensions.p.list", "too_many"),
        ("/extensions.p.json/a", "missing_parameter"),
        ("/extensions.p.unit", "unknown_option"),
    ];
    assert_eq!(codes(&wrong), expected);
    let written = object(json!({"flag": true, "units": "metric"}));
    let wrong = OptionValues::read(&options, &written, OptionScope::Project).unwrap_err();
    assert_eq!(codes(&wrong), [("/flag", "wrong_scope")]);
    let written = object(json!({"flag": true, "extensions.p.flag": false}));
    let wrong = OptionValues::read(&options, &written, OptionScope::Service).unwrap_err();
    assert_eq!(codes(&wrong), [("/extensions.p.flag", "repeated")]);
}

#[test]
fn a_script_gets_values_and_defaults_without_the_prefix() {
    let options = declared(ALL);
    let none = OptionValues::default();
    let missing: Vec<_> = none.missing(&options).map(|option| &*option.name).collect();
    assert_eq!(missing, ["flag"]);
    let written = object(json!({"extensions.p.flag": true, "line": "abc", "number": null}));
    let values = OptionValues::read(&options, &written, OptionScope::Service).unwrap();
    assert_eq!(values.missing(&options).count(), 0);
    let document = json!({"line": "abc", "text": "a\nb", "whole": 3, "flag": true});
    assert_eq!(values.document(&options), document);
    assert_ne!(values.digest(&options), none.digest(&options));
    let states = ["line", "text", "number"].map(|name| {
        let option = options.iter().find(|option| option.name == name).unwrap();
        values.state(option)
    });
    assert_eq!(
        states,
        [OptionState::Set, OptionState::Default, OptionState::Unset]
    );
}

#[test]
fn a_secret_is_delivered_and_never_shown() {
    let options = manifest::read(CITY_WEATHER).unwrap().options;
    let secret = options
        .iter()
        .find(|option| option.name == "api_key")
        .unwrap();
    let written = object(json!({"api_key": "hunter2"}));
    let values = OptionValues::read(&options, &written, OptionScope::Service).unwrap();
    assert_eq!(values.shown(secret), None);
    assert_eq!(values.state(secret), OptionState::Set);
    assert_eq!(values.document(&options)["api_key"], "hunter2");
    assert!(!format!("{values:?}").contains("hunter2"));
    let long = object(json!({"api_key": ["hunter2"]}));
    let wrong = OptionValues::read(&options, &long, OptionScope::Service).unwrap_err();
    assert!(!format!("{wrong:?}").contains("hunter2"));
    let refused = secret.refusal().unwrap();
    assert_eq!(refused.pointer, "/configOptions/2/type");
    assert!(
        options
            .iter()
            .filter_map(OptionDeclaration::refusal)
            .count()
            == 1
    );
}

#[test]
fn stored_values_that_a_new_version_does_not_take_are_left_out() {
    let options = declared(ALL);
    let stored = object(json!({
        "extensions.p.whole": 100, "extensions.p.gone": 1, "extensions.p.flag": true
    }));
    let (values, wrong) = OptionValues::carried_over(&options, &stored);
    assert_eq!(codes(&wrong), [("/extensions.p.whole", "out_of_range")]);
    assert_eq!(
        values.stored().keys().collect::<Vec<_>>(),
        ["extensions.p.flag"]
    );
}

#[test]
fn assignments_are_read_by_the_declared_type() {
    let options = declared(ALL);
    let values = assignment::parse(
        &options,
        &[
            "line=abc",
            "extensions.p.text=a=b, c",
            "whole=-5",
            "number=1e2",
            "flag=true",
            "units=",
            "list=Oslo, Bergen",
            "json={\"a\": [1]}",
        ],
    );
    let expected = json!({
        "extensions.p.line": "abc",
        "extensions.p.text": "a=b, c",
        "extensions.p.whole": -5,
        "extensions.p.number": 1e2,
        "extensions.p.flag": true,
        "extensions.p.units": null,
        "extensions.p.list": ["Oslo", "Bergen"],
        "extensions.p.json": {"a": [1]},
    });
    let values = Value::Object(values.unwrap());
    assert_eq!(
        canonical_json::to_string(&values),
        canonical_json::to_string(&expected)
    );
    let listed = assignment::parse(&options, &["list=[\"a, b\"]"]).unwrap();
    assert_eq!(listed["extensions.p.list"], json!(["a, b"]));
    let wrong = assignment::parse(
        &options,
        &[
            "whole=1.5",
            "flag=yes",
            "json={",
            "unit=x",
            "whole",
            "number=0",
            "line=abc",
            "line=abe",
        ],
    );
    let expected = [
        ("/extensions.p.whole", "type_mismatch"),
        ("/extensions.p.flag", "type_mismatch"),
        ("/extensions.p.json", "malformed_json"),
        ("/unit", "unknown_option"),
        ("", "no_assignment"),
        ("/extensions.p.number", "out_of_range"),
        ("/extensions.p.line", "repeated"),
    ];
    assert_eq!(codes(&wrong.unwrap_err()), expected);
    let secret = manifest::read(CITY_WEATHER).unwrap().options;
    let wrong = assignment::parse(&secret, &["api_key=hunter2"]).unwrap_err();
    assert!(!format!("{wrong:?}").contains("hunter2"));
}

#[test]
fn a_declaration_that_contradicts_itself_is_refused() {
    #[track_caller]
    fn check(option: &str, expected: &[(&str, &str)]) {
        let text = format!(
            "apiVersion: tavern/v1\nname: p\nconfigOptions:\n  - {{key: extensions.p.x, {option}}}\n"
        );
        let wrong = manifest::read(&text).err().unwrap_or_default();
        assert_eq!(codes(&wrong), expected, "{option}");
    }
    let default = "/configOptions/0/default";
    check(
        "type: integer, maximum: 5, default: 6",
        &[(default, "out_of_range")],
    );
    check("type: string, default: 6", &[(default, "type_mismatch")]);
    check(
        "type: enum, options: [a], default: b",
        &[(default, "not_in_enum")],
    );
    check(
        "type: string_list, maxItems: 1, default: [a, b]",
        &[(default, "too_many")],
    );
    check(
        "type: secret, secret: s, default: b",
        &[(default, "secret_default")],
    );
    check(
        "type: integer, minimum: 5, maximum: 4",
        &[("/configOptions/0/minimum", "invalid_range")],
    );
    check(
        "type: string, pattern: '('",
        &[("/configOptions/0/pattern", "invalid_pattern")],
    );
    check(
        "type: enum",
        &[("/configOptions/0/options", "missing_parameter")],
    );
    check(
        "type: secret",
        &[("/configOptions/0/secret", "missing_parameter")],
    );
    check("type: colour", &[("/configOptions/0/type", "not_in_enum")]);
    check(
        "required: true",
        &[("/configOptions/0/type", "missing_parameter")],
    );
    check(
        "type: secret, secret: s, scopes: [project]",
        &[("/configOptions/0/scopes/0", "not_in_enum")],
    );
    check(
        "type: boolean, minLength: 3",
        &[("/configOptions/0/minLength", "unknown_key")],
    );
}

fn kinds() -> impl Strategy<Value = OptionKind> {
    let bounds = || {
        (0_u64..6, proptest::option::of(0_u64..12)).prop_map(|(min_length, max_length)| {
            TextBounds {
                min_length,
                max_length,
                pattern: None,
            }
        })
    };
    prop_oneof![
        bounds().prop_map(OptionKind::Line),
        bounds().prop_map(OptionKind::Text),
        (any::<i64>(), any::<i64>())
            .prop_map(|(minimum, maximum)| OptionKind::Integer { minimum, maximum }),
        (0_u64..3, proptest::option::of(0_u64..4), bounds()).prop_map(
            |(min_items, max_items, item)| OptionKind::List(ListBounds {
                min_items,
                max_items,
                item
            })
        ),
        Just(OptionKind::Boolean),
        Just(OptionKind::Json { schema: None }),
    ]
}

fn values() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<i64>().prop_map(Value::from),
        any::<bool>().prop_map(Value::from),
        "[a-z\n]{0,14}".prop_map(Value::from),
        proptest::collection::vec("[a-z\n]{0,8}", 0..6).prop_map(Value::from),
        Just(json!({"a": 1})),
    ]
}

/// The bounds, said once more in another way.
fn keeps(kind: &OptionKind, value: &Value) -> bool {
    let text = |value: &Value, bounds: &TextBounds, is_line: bool| {
        value.as_str().is_some_and(|text| {
            let length = text.len() as u64;
            bounds.min_length <= length
                && bounds.max_length.is_none_or(|most| length <= most)
                && !(is_line && text.contains('\n'))
        })
    };
    match kind {
        OptionKind::Line(bounds) => text(value, bounds, true),
        OptionKind::Text(bounds) => text(value, bounds, false),
        OptionKind::Integer { minimum, maximum } => value
            .as_i64()
            .is_some_and(|whole| whole >= *minimum && whole <= *maximum),
        OptionKind::Boolean => value.is_boolean(),
        OptionKind::List(bounds) => value.as_array().is_some_and(|items| {
            let count = items.len() as u64;
            count >= bounds.min_items
                && bounds.max_items.is_none_or(|most| count <= most)
                && items.iter().all(|item| text(item, &bounds.item, true))
        }),
        _ => true,
    }
}

proptest! {
    #[test]
    fn a_value_is_taken_if_and_only_if_it_keeps_its_bounds(kind in kinds(), value in values()) {
        let option = OptionDeclaration {
            kind,
            ..declared("  - {key: extensions.p.x, type: boolean}").remove(0)
        };
        let written = object(json!({"extensions.p.x": value}));
        let read = OptionValues::read(std::slice::from_ref(&option), &written, OptionScope::Service);
        prop_assert_eq!(read.is_ok(), keeps(&option.kind, &value), "{:?} {}", option.kind, value);
        for violation in read.err().into_iter().flatten() {
            prop_assert!(violation.pointer.starts_with("/extensions.p.x"));
        }
    }
}
