//! The canonical form of a call: one byte sequence for equal calls.

use serde_json::{Map, Value};

/// `{"arguments":{…},"tool":"…"}` without white space, keys sorted at every level.
pub fn call(tool_id: &str, arguments: &Map<String, Value>) -> String {
    let mut out = String::from("{\"arguments\":");
    write_object(arguments, &mut out);
    out.push_str(",\"tool\":");
    write_string(tool_id, &mut out);
    out.push('}');
    out
}

/// Compact JSON with sorted keys.
pub fn value(value: &Value) -> String {
    let mut out = String::new();
    write(value, &mut out);
    out
}

fn write(value: &Value, out: &mut String) {
    match value {
        Value::Object(map) => write_object(map, out),
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write(item, out);
            }
            out.push(']');
        }
        Value::String(text) => write_string(text, out),
        other => out.push_str(&other.to_string()),
    }
}

fn write_object(map: &Map<String, Value>, out: &mut String) {
    let mut keys: Vec<&String> = map.keys().collect();
    keys.sort();
    out.push('{');
    for (index, key) in keys.into_iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        write_string(key, out);
        out.push(':');
        write(&map[key], out);
    }
    out.push('}');
}

fn write_string(text: &str, out: &mut String) {
    out.push_str(&Value::String(text.to_owned()).to_string());
}
