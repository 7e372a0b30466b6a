//! The schemas that are refused, and instances refused for their size.

use super::*;
use crate::limits::Limits;

#[test]
fn references_stay_in_the_document() {
    check_refused(
        &json!({"$ref": "https://example.com/s.json"}),
        &[(CompileCode::RemoteReference, "")],
    );
    check_refused(
        &json!({"properties": {"a": {"$ref": "file:///etc/passwd"}}}),
        &[(CompileCode::RemoteReference, "/properties/a")],
    );
    check_refused(
        &json!({"items": {"$ref": "other.json#/a"}}),
        &[(CompileCode::RemoteReference, "/items")],
    );
    check_refused(
        &json!({"items": {"$ref": "#/$defs/none"}}),
        &[(CompileCode::BrokenReference, "/items")],
    );
    check_refused(
        &json!({"items": {"$ref": "#none"}}),
        &[(CompileCode::BrokenReference, "/items")],
    );
    check_refused(
        &json!({"$defs": {"a": {"$id": "https://example.com/a"}}}),
        &[(CompileCode::NestedId, "/$defs/a/$id")],
    );
    let own = json!({"$id": "https://example.com/s", "items": {"$ref": "https://example.com/s#/$defs/a"}, "$defs": {"a": {"type": "string"}}});
    check(&own, &json!([1]), &[("type_mismatch", "/0")]);
    let anchored =
        json!({"items": {"$ref": "#a"}, "$defs": {"x": {"$anchor": "a", "type": "string"}}});
    check(&anchored, &json!([1]), &[("type_mismatch", "/0")]);
    let encoded =
        json!({"items": {"$ref": "#/$defs/a%20b~1c"}, "$defs": {"a b/c": {"type": "string"}}});
    check(&encoded, &json!([1]), &[("type_mismatch", "/0")]);
    assert!(
        compile(&json!({"properties": {"$ref": {"type": "string"}}}))
            .is_valid(&json!({"$ref": "x"}))
    );
    assert!(
        compile(&json!({"enum": [{"$ref": "https://example.com"}]}))
            .is_valid(&json!({"$ref": "https://example.com"}))
    );
}

#[test]
fn references_that_consume_nothing_are_refused() {
    check_refused(
        &json!({"$ref": "#"}),
        &[(CompileCode::EndlessReference, "")],
    );
    let circle = json!({"$ref": "#/$defs/a", "$defs": {"a": {"allOf": [{"$ref": "#/$defs/b"}]}, "b": {"$ref": "#/$defs/a"}}});
    let errors = Schema::compile(&circle).expect_err("refused");
    assert_eq!(errors.problems[0].code, CompileCode::EndlessReference);
}

/// Doubles a reference `levels` times.
fn doubled(levels: usize, wrap: fn(Value, Value) -> Value) -> Value {
    let mut defs = serde_json::Map::new();
    for level in 0..levels {
        let next = json!({"$ref": format!("#/$defs/d{}", level + 1)});
        defs.insert(format!("d{level}"), wrap(next.clone(), next));
    }
    defs.insert(format!("d{levels}"), json!({"type": "string"}));
    json!({"$ref": "#/$defs/d0", "$defs": defs})
}

#[test]
fn doubled_references_are_refused_before_they_are_compiled() {
    let any_of = |a, b| json!({"anyOf": [a, b]});
    check_refused(&doubled(30, any_of), &[(CompileCode::TooCostly, "")]);
    assert!(Schema::compile(&doubled(9, any_of)).is_ok());
    let one_property =
        |a, b| json!({"allOf": [{"properties": {"c": a}}, {"properties": {"c": b}}]});
    assert_eq!(
        Schema::compile(&doubled(20, one_property))
            .expect_err("refused")
            .problems[0]
            .code,
        CompileCode::TooCostly
    );
    let two_properties = |a, b| json!({"properties": {"l": a, "r": b}});
    assert!(Schema::compile(&doubled(20, two_properties)).is_ok());
    let items = |a, b| json!({"prefixItems": [a], "items": b});
    assert!(Schema::compile(&doubled(20, items)).is_ok());
}

#[test]
fn a_tree_may_recurse_and_a_doubling_recursion_bounds_the_instance() {
    let tree = json!({"$defs": {"t": {"properties": {"l": {"$ref": "#/$defs/t"}, "r": {"$ref": "#/$defs/t"}, "v": {"type": "integer"}},
        "additionalProperties": false}}, "$ref": "#/$defs/t"});
    check(&tree, &nested("l", 60, json!({"v": 1})), &[]);
    check(
        &tree,
        &nested("l", 3, json!({"v": "x"})),
        &[("type_mismatch", "/l/l/l/v")],
    );
    check(&tree, &nested("l", 70, json!({})), &[("too_deep", "")]);

    let filters = json!({"oneOf": [
        {"required": ["and"], "properties": {"and": {"type": "array", "items": {"$ref": "#"}}}},
        {"required": ["or"], "properties": {"or": {"type": "array", "items": {"$ref": "#"}}}},
        {"required": ["not"], "properties": {"not": {"$ref": "#"}}},
        {"required": ["field"], "properties": {"field": {"type": "string"}}}
    ]});
    check(&filters, &nested("not", 30, json!({"field": "x"})), &[]);

    let doubling = json!({"anyOf": [{"properties": {"c": {"$ref": "#"}}}, {"properties": {"c": {"$ref": "#"}}, "maxProperties": 3}]});
    check(&doubling, &nested("c", 8, json!({})), &[]);
    check(&doubling, &nested("c", 40, json!({})), &[("too_deep", "")]);

    let branches: Vec<Value> = (0..40)
        .map(|_| json!({"properties": {"c": {"$ref": "#"}}}))
        .collect();
    let errors = Schema::compile(&json!({"anyOf": branches})).expect_err("refused");
    assert_eq!(errors.problems[0].code, CompileCode::TooCostly);
}

#[test]
fn a_large_instance_is_refused_by_its_price() {
    let schema =
        json!({"items": {"anyOf": (0..500).map(|n| json!({"const": n})).collect::<Vec<_>>()}});
    let instance = Value::Array((0..10_000).map(|_| json!(499)).collect());
    check(&schema, &instance, &[("too_large", "")]);
    let violations = check(
        &schema,
        &Value::Array((0..3_000).map(|_| json!(-1)).collect()),
        &[("not_in_enum", "/0")],
    );
    assert_eq!(
        violations.len(),
        1,
        "an expensive report stops at its first violation"
    );
}

#[test]
fn long_chains_of_references_do_not_exhaust_the_stack() {
    let chain = |length: usize, wrap: fn(Value) -> Value| {
        let mut defs: serde_json::Map<String, Value> = (0..length)
            .map(|n| {
                (
                    format!("d{n}"),
                    wrap(json!({"$ref": format!("#/$defs/d{}", n + 1)})),
                )
            })
            .collect();
        defs.insert(format!("d{length}"), json!({"type": "string"}));
        json!({"$ref": "#/$defs/d0", "$defs": defs})
    };
    for wrap in [
        |inner| inner,
        |inner| json!({"allOf": [inner]}),
        |inner| json!({"properties": {"c": inner}}),
        |inner| json!({"items": inner}),
    ] {
        for length in [90, 1_000, 1_200] {
            let run = move || match Schema::compile(&chain(length, wrap)) {
                Ok(schema) => {
                    schema.validate(&nested("c", 40, json!(1)));
                    let deepest = schema.inner.cost.deepest();
                    schema.validate(&nested("c", deepest, json!(1)));
                    schema.validate(&(0..deepest).fold(json!(1), |inner, _| json!([inner])));
                }
                Err(errors) => {
                    assert_eq!(errors.problems[0].code, CompileCode::TooCostly, "{errors}")
                }
            };
            std::thread::Builder::new()
                .stack_size(2 * 1024 * 1024)
                .spawn(run)
                .expect("spawns")
                .join()
                .expect("does not overflow");
        }
    }
}

#[test]
fn size_and_depth_are_bounded() {
    check_refused(
        &json!({"description": "x".repeat(65_536)}),
        &[(CompileCode::TooLarge, "")],
    );
    assert!(Schema::compile(&json!({"description": "x".repeat(65_000)})).is_ok());
    check_refused(&nested("not", 40, json!({})), &[(CompileCode::TooDeep, "")]);
    let bottomless = (0..5_000).fold(json!({}), |inner, _| Value::Array(vec![inner]));
    check_refused(&bottomless, &[(CompileCode::TooDeep, "")]);
    // Taken apart level by level: dropping it whole would recurse as deep as it is nested.
    let mut rest = bottomless;
    while let Value::Array(mut items) = rest {
        rest = items.pop().unwrap_or_default();
    }
}

#[test]
fn patterns_are_linear_few_and_small() {
    check_refused(
        &json!({"properties": {"a": {"pattern": "^(?!x)"}}}),
        &[(CompileCode::LookAround, "/properties/a/pattern")],
    );
    check_refused(
        &json!({"patternProperties": {"(?=a)/b": {}}}),
        &[(CompileCode::LookAround, "/patternProperties/(?=a)~1b")],
    );
    check_refused(
        &json!({"pattern": "a{2000}"}),
        &[(CompileCode::PatternTooComplex, "/pattern")],
    );
    check_refused(
        &json!({"pattern": "\\p{L}{500}"}),
        &[(CompileCode::PatternTooComplex, "/pattern")],
    );
    check_refused(
        &json!({"pattern": "["}),
        &[(CompileCode::PatternTooComplex, "/pattern")],
    );
    let many: Vec<Value> = (0..65)
        .map(|n| json!({"pattern": format!("a{n}")}))
        .collect();
    check_refused(
        &json!({"anyOf": many}),
        &[(CompileCode::TooManyPatterns, "")],
    );
    check(
        &json!({"pattern": "^(a+)+$"}),
        &json!("a".repeat(50_000) + "!"),
        &[("pattern", "")],
    );
}

#[test]
fn broken_schemas_name_the_place() {
    check_refused(
        &json!({"type": "strin"}),
        &[(CompileCode::InvalidSchema, "/type")],
    );
    check_refused(
        &json!({"properties": {"a": {"minimum": "1"}, "b": {"required": "x"}}}),
        &[
            (CompileCode::InvalidSchema, "/properties/a/minimum"),
            (CompileCode::InvalidSchema, "/properties/b/required"),
        ],
    );
    check_refused(
        &json!({"$schema": "https://example.com/own"}),
        &[(CompileCode::InvalidSchema, "/$schema")],
    );
    check_refused(&json!(3), &[(CompileCode::InvalidSchema, "")]);
    let errors = Schema::compile_parameters(&json!({"type": "string"})).expect_err("refused");
    assert_eq!(errors.problems[0].code, CompileCode::NotAnObject);
    let errors = Schema::compile(&json!({"pattern": "(?=a)", "items": {"$ref": "http://x/y"}}))
        .expect_err("refused");
    assert_eq!(errors.problems.len(), 2, "{errors}");
}

#[test]
fn older_drafts_are_read() {
    let schema = json!({"$schema": "http://json-schema.org/draft-07/schema#", "items": [{"type": "string"}], "additionalItems": false});
    check(&schema, &json!(["a", 1]), &[("too_many_items", "")]);
    check(&schema, &json!([1]), &[("type_mismatch", "/0")]);
}

#[test]
fn limits_of_zero_mean_zero() {
    let limits = Limits {
        patterns: 0,
        ..Limits::default()
    };
    let options = CompileOptions {
        limits,
        ..CompileOptions::default()
    };
    assert!(Schema::compile_with(&json!({"pattern": "a"}), options).is_err());
    let limits = Limits {
        instance_depth: 0,
        ..Limits::default()
    };
    let options = CompileOptions {
        limits,
        ..CompileOptions::default()
    };
    let schema = Schema::compile_with(&json!({}), options).expect("compiles");
    assert!(schema.is_valid(&json!(1)));
    assert!(!schema.is_valid(&json!([])));
}
