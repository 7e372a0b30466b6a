//! The whole of a stream: its form in a slot, and its conversion to another slot (rule W24).
//!
//! A stream of texts is held as their joined text, a stream of other values as their array. A slot
//! for streams of any type holds either. In writing, values are JSON lines.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::Value;

use super::data_flow::{DataFlow, Input, Mismatch};
use super::slot::Slot;

/// Makes the whole of the stream `slot` of an incoming value: the whole of a stream, or a plain
/// value, which is a stream of one.
///
/// # Errors
/// A value is of another type than the slot's.
pub fn whole_of<'a>(
    slot: &Slot,
    value: &'a Arc<Value>,
    is_stream: bool,
) -> Result<Input<'a>, Mismatch> {
    let each = |items: &[Value]| -> Result<Vec<Value>, Mismatch> {
        let fit = |item: &Value| {
            slot.data_flow
                .fit(&Arc::new(item.clone()))
                .map(Cow::into_owned)
        };
        let fitted = items.iter().map(|item| fit(item).map(Arc::unwrap_or_clone));
        fitted.collect()
    };
    match value.as_ref() {
        Value::Array(items) if is_stream && slot.streams_values() => {
            match items.iter().all(|item| slot.data_flow.holds(item)) {
                true => Ok(Cow::Borrowed(value)),
                false => each(items).map(|items| Cow::Owned(Arc::new(Value::Array(items)))),
            }
        }
        Value::Array(items) if is_stream => {
            let texts = each(items)?;
            let joined: String = texts.iter().filter_map(Value::as_str).collect();
            Ok(Cow::Owned(Arc::new(Value::String(joined))))
        }
        _ if !slot.streams_values() => slot.data_flow.fit(value),
        Value::Null | Value::String(_) if slot.data_flow.is_any() => Ok(Cow::Borrowed(value)),
        plain => {
            each(std::slice::from_ref(plain)).map(|items| Cow::Owned(Arc::new(Value::Array(items))))
        }
    }
}

/// Whether `value` is the whole of a stream as the slot holds it.
pub fn is_whole(slot: &Slot, value: &Value) -> bool {
    match value {
        Value::Array(items) if slot.streams_values() => {
            items.iter().all(|item| slot.data_flow.holds(item))
        }
        Value::Null | Value::String(_) => slot.whole().holds(value),
        _ => false,
    }
}

/// Returns the whole of a stream that ended before its first value.
pub fn nothing(slot: &Slot) -> Value {
    match slot.streams_values() {
        true => Value::Array(Vec::new()),
        false => DataFlow::String.empty(),
    }
}

/// Writes each value on a line.
pub fn to_lines<'v>(values: impl IntoIterator<Item = &'v Value>) -> String {
    let lines = values.into_iter().map(|value| format!("{value}\n"));
    lines.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn stream(data_flow: DataFlow) -> Slot {
        Slot::new("s", data_flow, "").stream()
    }

    #[track_caller]
    fn check(data_flow: DataFlow, is_stream: bool, value: Value, expected: Option<Value>) {
        let value = Arc::new(value);
        let whole = whole_of(&stream(data_flow), &value, is_stream);
        let whole = whole
            .ok()
            .map(|whole| Arc::unwrap_or_clone(whole.into_owned()));
        assert_eq!(whole, expected);
        if let Some(whole) = whole {
            assert!(is_whole(&stream(data_flow), &whole), "{whole}");
        }
    }

    #[test]
    fn w24_a_stream_keeps_its_values_and_a_plain_value_is_a_stream_of_one() {
        use DataFlow::{Float, Integer, Object, String, Wildcard};
        check(Integer, true, json!([1, 2]), Some(json!([1, 2])));
        check(Float, true, json!([1, 2.5]), Some(json!([1, 2.5])));
        check(Integer, true, json!([1, "a"]), None);
        check(Integer, false, json!(1), Some(json!([1])));
        check(Object, false, json!([1]), None);
        check(Wildcard, false, json!([1, 2]), Some(json!([[1, 2]])));
        check(Wildcard, true, json!([1, 2]), Some(json!([1, 2])));
        check(Wildcard, true, json!("text"), Some(json!("text")));
        check(Wildcard, false, json!(null), Some(json!(null)));
        check(String, true, json!(["a", 1, true]), Some(json!("a1true")));
        check(String, true, json!("text"), Some(json!("text")));
        check(String, false, json!(["a"]), None);
    }

    #[test]
    fn a_whole_is_what_the_slot_holds() {
        let holds = |data_flow, value| is_whole(&stream(data_flow), &value);
        assert!(holds(DataFlow::Integer, json!([1])) && !holds(DataFlow::Integer, json!(1)));
        assert!(!holds(DataFlow::Integer, json!(["a"])) && !holds(DataFlow::Integer, json!("a")));
        assert!(holds(DataFlow::String, json!("a")) && !holds(DataFlow::String, json!(["a"])));
        assert!(holds(DataFlow::Wildcard, json!([{}])) && !holds(DataFlow::Wildcard, json!({})));
    }
}
