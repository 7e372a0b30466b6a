use serde_json::{Value, json};

use super::*;

mod defaults;
mod parts;
mod properties;
mod refusals;
mod report;

fn compile(schema: &Value) -> Schema {
    Schema::compile(schema).expect("the schema compiles")
}

#[track_caller]
fn check_refused(schema: &Value, expected: &[(CompileCode, &str)]) {
    let errors = Schema::compile(schema).expect_err("the schema is refused");
    let found: Vec<(CompileCode, &str)> = errors
        .problems
        .iter()
        .map(|problem| (problem.code, problem.pointer.as_str()))
        .collect();
    assert_eq!(found, expected, "{errors}");
}

#[track_caller]
fn check(schema: &Value, instance: &Value, expected: &[(&str, &str)]) -> Vec<Violation> {
    let schema = compile(schema);
    let violations = schema.validate(instance);
    let found: Vec<(&str, &str)> = violations
        .iter()
        .map(|v| (v.code.as_str(), v.pointer.as_str()))
        .collect();
    assert_eq!(found, expected, "{violations:#?}");
    assert_eq!(schema.is_valid(instance), expected.is_empty());
    violations
}

fn nested(key: &str, depth: usize, innermost: Value) -> Value {
    (0..depth).fold(innermost, |inner, _| json!({ key: inner }))
}
