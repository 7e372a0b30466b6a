//! The size of values.

use serde_json::Value;

/// Returns the approximate number of bytes of `value` as JSON text; never less than its texts and
/// names.
pub fn weight(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) => 5,
        Value::Number(number) => number.as_str().len() + 1,
        Value::String(text) => text.len() + 3,
        Value::Array(items) => 2 + items.iter().map(weight).sum::<usize>(),
        Value::Object(map) => {
            2 + map
                .iter()
                .map(|(key, value)| key.len() + 4 + weight(value))
                .sum::<usize>()
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_weight_is_near_the_length_of_the_text() {
        let value = json!({"a": [1, 2.5, "text", null, true], "b": {"c": "字"}});
        let length = value.to_string().len();
        assert!(
            weight(&value).abs_diff(length) <= 12,
            "{} {length}",
            weight(&value)
        );
    }
}
