//! Properties of every schema and instance.

use proptest::prelude::*;

use super::*;

/// Schemas of few keywords that refer to each other in every way.
fn any_schema() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!(true)),
        Just(json!({"type": "string"})),
        Just(json!({"type": "integer", "minimum": 3})),
        Just(json!({"pattern": "^a"})),
        (0..3_u8).prop_map(|n| json!({"$ref": format!("#/$defs/d{n}")})),
        Just(json!({"$ref": "#"})),
    ];
    let schema = leaf.prop_recursive(3, 24, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 1..3).prop_map(|list| json!({"anyOf": list})),
            prop::collection::vec(inner.clone(), 1..3).prop_map(|list| json!({"allOf": list})),
            (inner.clone(), inner.clone()).prop_map(
                |(a, b)| json!({"properties": {"a": a, "b": b}, "additionalProperties": false})
            ),
            (inner.clone(), inner.clone())
                .prop_map(|(a, b)| json!({"properties": {"a": a}, "additionalProperties": b})),
            inner.clone().prop_map(|item| json!({"items": item})),
            inner.prop_map(|inner| json!({"not": inner})),
        ]
    });
    (schema.clone(), prop::collection::vec(schema, 3)).prop_map(|(root, defs)| {
        let defs: serde_json::Map<String, Value> = defs
            .into_iter()
            .enumerate()
            .map(|(n, def)| (format!("d{n}"), def))
            .collect();
        match root {
            Value::Object(mut root) => {
                root.insert("$defs".to_owned(), Value::Object(defs));
                Value::Object(root)
            }
            other => other,
        }
    })
}

fn any_instance() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!("abc")),
        Just(json!(5)),
        Just(json!(null)),
        Just(json!(1.5))
    ];
    leaf.prop_recursive(5, 40, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::Array),
            prop::collection::btree_map("[a-c]", inner, 0..3).prop_map(|members| json!(members)),
        ]
    })
}

proptest! {
    #[test]
    fn an_accepted_schema_judges_as_the_validator_does(schema in any_schema(), instance in any_instance()) {
        if let Ok(compiled) = Schema::compile(&schema) {
            let violations = compiled.validate(&instance);
            prop_assert_eq!(compiled.is_valid(&instance), violations.is_empty());
            let plain = jsonschema::options().offline().build(&schema).expect("what compiles here compiles there");
            prop_assert_eq!(plain.is_valid(&instance), violations.is_empty(), "{:?}", violations);
            for violation in &violations {
                prop_assert!(!violation.message.is_empty());
                let place = if violation.code == ViolationCode::MissingParameter { violation.parent() } else { &violation.pointer };
                prop_assert!(instance.pointer(place).is_some(), "{:?}", violation);
            }
        }
    }

    #[test]
    fn defaults_are_filled_in_once(schema in any_schema(), mut instance in any_instance()) {
        if let Ok(compiled) = Schema::compile(&schema) && compiled.apply_defaults(&mut instance).is_ok() {
            prop_assert_eq!(compiled.apply_defaults(&mut instance), Ok(Vec::new()));
        }
    }
}
