//! The values of a run for the inputs of its workflow.

use call_outcome::Violation;
use std::sync::Arc;

use json_schema::JsonLimits;
use serde_json::{Map, Value};

use super::data_flow::kind_of;
use super::limits::{MAX_JSON_DEPTH, MAX_VALUE_BYTES};
use super::load::fits_interface;
use super::slot::Slot;
use super::violation::{Violations, of_json};
use json_schema::pointer::join;

/// A value for each interface input, in the order of the interface; none where it is missing.
pub type RunInputs = Arc<[Option<Arc<Value>>]>;

/// Reads the text of run inputs; empty text is no inputs.
///
/// # Errors
/// All problems that keep the text from being a JSON object.
pub fn read_inputs(text: &str) -> Result<Map<String, Value>, Vec<Violation>> {
    if text.is_empty() {
        return Ok(Map::new());
    }
    let limits = JsonLimits {
        max_bytes: MAX_VALUE_BYTES,
        max_depth: MAX_JSON_DEPTH,
        ..JsonLimits::default()
    };
    match json_schema::parse_json_strict_with(text, &limits) {
        Ok(Value::Object(inputs)) => Ok(inputs),
        Ok(other) => {
            let message = format!(
                "expected an object of inputs by key, found {}",
                kind_of(&other)
            );
            Err(vec![
                Violation::new("", "type_mismatch", message).found("object", kind_of(&other)),
            ])
        }
        Err(error) => Err(of_json(&error)),
    }
}

/// Matches given inputs with the interface: a missing input takes the slot's default, any other
/// must be of the slot's type.
///
/// # Errors
/// Every unknown, missing and mistyped input, pointers into `given`.
pub fn bind(slots: &[Slot], given: &Map<String, Value>) -> Result<RunInputs, Vec<Violation>> {
    let mut violations = Violations::default();
    for key in given.keys() {
        if !slots.iter().any(|slot| &*slot.key == key) {
            let known = slots.iter().map(|slot| &*slot.key);
            let message = format!("there is no input `{key}`");
            let violation = Violation::new(join("", key), "unknown_parameter", message);
            let suggest = violations.may_suggest();
            violations.add(violation.nearest_if(suggest, key, known));
        }
    }
    let bound: Vec<Option<Arc<Value>>> = slots
        .iter()
        .map(|slot| bind_one(slot, given, &mut violations))
        .collect();
    if violations.is_empty() {
        Ok(bound.into())
    } else {
        Err(violations.into_vec())
    }
}

fn bind_one(
    slot: &Slot,
    given: &Map<String, Value>,
    violations: &mut Violations,
) -> Option<Arc<Value>> {
    let key = &*slot.key;
    let value = given
        .get(key)
        .filter(|value| !value.is_null() || slot.data_flow.is_any());
    match value {
        Some(value) if fits_interface(slot, value) => Some(Arc::new(value.clone())),
        Some(value) => {
            let kind = slot.data_flow.name();
            let expected = if slot.multi || slot.whole() != slot.data_flow {
                format!("array of {kind}")
            } else {
                kind.to_owned()
            };
            let message = format!("input `{key}` is {}, expected {expected}", kind_of(value));
            violations.add(
                Violation::new(join("", key), "type_mismatch", message)
                    .found(expected, &value.to_string()),
            );
            None
        }
        None if slot.default.is_some() => slot.default.clone(),
        None if slot.required => {
            let message = format!("input `{key}` is required ({})", slot.data_flow.name());
            let violation = Violation::new(join("", key), "missing_parameter", message);
            violations.add(violation.found(slot.data_flow.name(), ""));
            None
        }
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::data_flow::DataFlow;

    fn slots() -> Vec<Slot> {
        vec![
            Slot::new("text", DataFlow::String, "").required(),
            Slot::new("count", DataFlow::Integer, "").default(json!(3)),
            Slot::new("parts", DataFlow::String, "").multi(),
        ]
    }

    #[track_caller]
    fn check(given: &str, expected: Result<Value, &[(&str, &str)]>) {
        let bound = read_inputs(given).and_then(|given| bind(&slots(), &given));
        match (bound, expected) {
            (Ok(bound), Ok(expected)) => {
                let values: Vec<Value> = bound
                    .iter()
                    .map(|value| value.as_deref().cloned().unwrap_or(Value::Null))
                    .collect();
                assert_eq!(json!(values), expected);
            }
            (Err(violations), Err(expected)) => {
                let found: Vec<(&str, &str)> = violations
                    .iter()
                    .map(|v| (v.pointer.as_str(), v.code.as_ref()))
                    .collect();
                assert_eq!(found, expected);
            }
            (bound, expected) => panic!("{bound:?} instead of {expected:?}"),
        }
    }

    #[test]
    fn what_is_missing_takes_its_default_or_stays_absent() {
        check(r#"{"text":"a"}"#, Ok(json!(["a", 3, null])));
        check(
            r#"{"text":"a","count":4,"parts":["b"]}"#,
            Ok(json!(["a", 4, ["b"]])),
        );
    }

    #[test]
    fn everything_wrong_is_named_at_once() {
        check(
            r#"{"texd":"a","count":"4","parts":"b"}"#,
            Err(&[
                ("/texd", "unknown_parameter"),
                ("/text", "missing_parameter"),
                ("/count", "type_mismatch"),
                ("/parts", "type_mismatch"),
            ]),
        );
        check("", Err(&[("/text", "missing_parameter")]));
        check("[]", Err(&[("", "type_mismatch")]));
        check("{", Err(&[("", "not_json")]));
    }

    #[test]
    fn w24_an_input_that_streams_takes_all_its_values() {
        let slots = [
            Slot::new("numbers", DataFlow::Integer, "").stream(),
            Slot::new("any", DataFlow::Wildcard, "").stream(),
        ];
        let takes = |given: Value| bind(&slots, given.as_object().unwrap()).is_ok();
        assert!(takes(json!({"numbers": [1, 2], "any": "text"})));
        assert!(takes(json!({"any": [{}]})));
        assert!(!takes(json!({"numbers": 1})) && !takes(json!({"numbers": ["a"]})));
        assert!(!takes(json!({"any": {}})));
    }

    #[test]
    fn an_unknown_input_is_told_what_was_meant() {
        let violations = bind(
            &slots(),
            &json!({"text": "a", "coutn": 1})
                .as_object()
                .cloned()
                .unwrap(),
        )
        .unwrap_err();
        assert_eq!(violations[0].suggestions, ["count"]);
    }
}
