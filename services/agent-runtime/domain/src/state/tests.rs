use proptest::prelude::*;
use serde_json::json;

use super::*;

fn path(written: &str) -> Path {
    Path::parse(written).unwrap()
}

fn elara() -> Schema {
    let profile: Value = serde_json::from_str(include_str!(
        "../../tests/fixtures/elara.agent_profile.json"
    ))
    .unwrap();
    Schema::compile(&profile["initial_private_state_schema"]).unwrap()
}

#[test]
fn g106_the_first_state_is_defaults_then_values() {
    let values = json!({"mood": "calm", "trust": 10, "stock": {"feverfew": 6}});
    assert_eq!(
        first(Some(&elara()), &values, MAX_PRIVATE_BYTES).unwrap(),
        json!({"mood": "calm", "trust": 10, "topic": null, "warned_player": false, "stock": {"feverfew": 6}})
    );
    let Err(StateError::BreaksSchema(violations)) =
        first(Some(&elara()), &json!({"trust": "high"}), MAX_PRIVATE_BYTES)
    else {
        panic!("the first state breaks the schema");
    };
    assert_eq!(violations.len(), 2, "{violations:?}");
}

#[test]
fn g106_objects_merge_by_key_and_everything_else_replaces() {
    let cases = [
        (
            json!({"a": {"b": 1, "c": 2}}),
            json!({"a": {"b": 3}}),
            json!({"a": {"b": 3, "c": 2}}),
        ),
        (json!({"a": [1, 2]}), json!({"a": [3]}), json!({"a": [3]})),
        (
            json!({"a": {"b": 1}}),
            json!({"a": null}),
            json!({"a": null}),
        ),
        (
            json!({"a": 1}),
            json!({"a": {"b": 2}}),
            json!({"a": {"b": 2}}),
        ),
    ];
    for (mut below, above, expected) in cases {
        merge(&mut below, &above);
        assert_eq!(below, expected);
    }
}

#[test]
fn g302_operations_change_all_or_nothing() {
    let state = json!({"mood": "calm", "stock": {"moonmoss": 1}, "met": ["p1"]});
    let changed = change(
        &state,
        &[
            Operation::Test(path("mood"), json!("calm")),
            Operation::Set(path("places.hut.door"), json!("open")),
            Operation::Increment(path("/stock/moonmoss"), 2.into()),
            Operation::Increment(path("visits"), 1.into()),
            Operation::Append(path("met"), json!("p2")),
            Operation::Remove(path("/met/0")),
            Operation::Set(path("mood"), json!("warm")),
        ],
        None,
        MAX_PRIVATE_BYTES,
    )
    .unwrap();
    assert_eq!(
        changed.state,
        json!({"mood": "warm", "stock": {"moonmoss": 3}, "met": ["p2"], "visits": 1,
               "places": {"hut": {"door": "open"}}})
    );
    assert_eq!(changed.previous, Some(json!("calm")));
    assert_eq!(changed.paths[0], "/places/hut/door");
}

#[test]
fn g303_every_violation_is_reported_at_once() {
    let state = json!({"mood": "calm", "trust": 1});
    let operations = [
        Operation::Set(path("mood"), json!("furious")),
        Operation::Set(path("trust"), json!(1_000)),
        Operation::Set(path("secret"), json!(1)),
    ];
    let Err(StateError::BreaksSchema(violations)) =
        change(&state, &operations, Some(&elara()), MAX_PRIVATE_BYTES)
    else {
        panic!("the change breaks the schema");
    };
    assert_eq!(violations.len(), 3, "{violations:?}");
}

#[test]
fn g304_limits_hold() {
    let state = json!({});
    let set = |value: Value| {
        change(
            &state,
            &[Operation::Set(path("a"), value)],
            None,
            MAX_PRIVATE_BYTES,
        )
    };
    assert!(matches!(
        set(Value::String("x".repeat(MAX_VALUE_BYTES))),
        Err(StateError::TooLarge { what: "value", .. })
    ));
    let deep = (0..MAX_DEPTH).fold(json!(1), |inner, _| json!([inner]));
    assert_eq!(set(deep), Err(StateError::TooDeep));
    let much: Map<String, Value> = (0..5)
        .map(|n| (n.to_string(), Value::String("x".repeat(60_000))))
        .collect();
    let many: Vec<Operation> = much
        .into_iter()
        .map(|(key, value)| Operation::Set(path(&format!("k{key}")), value))
        .collect();
    assert!(matches!(
        change(&state, &many, None, MAX_PRIVATE_BYTES),
        Err(StateError::TooLarge { what: "state", .. })
    ));
}

#[test]
fn g308_a_missing_path_names_what_is_near() {
    let state = json!({"stock": {"moonmoss": 1}});
    let found = path("stock.moonmos").get(&state).unwrap_err();
    assert_eq!(
        found.to_string(),
        "there is no value at `stock.moonmos`; near it are moonmoss"
    );
    for wrong in ["", "a..b", ".a"] {
        assert!(Path::parse(wrong).is_err(), "{wrong}");
    }
}

fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from)
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec(("[a-c~/]{1,2}", inner), 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn what_is_set_is_read_and_removing_it_leaves_nothing(state in json_value(), keys in prop::collection::vec("[a-c~/]{1,2}", 1..4), value in json_value()) {
        let state = json!({"state": state});
        let escaped = |key: &String| json_schema::pointer::join("", key);
        let pointer: String = keys.iter().map(escaped).collect();
        let path = path(&pointer);
        prop_assert_eq!(path.pointer(), pointer);
        if let Ok(changed) = change(&state, &[Operation::Set(path.clone(), value.clone())], None, MAX_PRIVATE_BYTES) {
            prop_assert_eq!(path.get(&changed.state).unwrap(), &value);
            let removed = change(&changed.state, &[Operation::Remove(path.clone())], None, MAX_PRIVATE_BYTES).unwrap();
            prop_assert_eq!(removed.previous, Some(value));
            prop_assert!(path.get(&removed.state).is_err());
        }
    }

    #[test]
    fn merging_twice_changes_nothing_more(below in json_value(), above in json_value()) {
        let mut once = below;
        merge(&mut once, &above);
        let mut twice = once.clone();
        merge(&mut twice, &above);
        prop_assert_eq!(once, twice);
    }
}
