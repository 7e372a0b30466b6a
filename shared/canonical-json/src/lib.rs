//! One text and one digest for equal JSON values (rule G802).
//!
//! Keys are ordered by their bytes, there are no spaces, only characters that must be escaped are,
//! and a number is written by its exact decimal value: `1`, `1.0` and `10e-1` are the same. So two
//! values have the same text if and only if they are equal, however each was written.

mod number;

use std::collections::BTreeMap;

use serde_json::Value;
use sha2::{Digest, Sha256};

/// A SHA-256 digest, 32 bytes.
pub type Sha256Digest = [u8; 32];

/// Returns the canonical text of a value.
///
/// It recurses as deep as the value is nested, which readers of untrusted texts bound.
pub fn to_string(value: &Value) -> String {
    let mut text = String::new();
    write(value, &mut text);
    text
}

/// Returns the SHA-256 of the canonical text of a value.
pub fn digest(value: &Value) -> Sha256Digest {
    Sha256::digest(to_string(value)).into()
}

/// Returns the SHA-256 over parts, each behind its length in bytes as eight bytes, the highest
/// first, so that no other parts have the same digest.
pub fn digest_of_parts<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Sha256Digest {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update((part.len() as u64).to_be_bytes());
        hasher.update(part);
    }
    hasher.finalize().into()
}

fn write(value: &Value, text: &mut String) {
    match value {
        Value::Number(written) => number::write(&written.to_string(), text),
        Value::Array(items) => {
            text.push('[');
            for (place, item) in items.iter().enumerate() {
                if place > 0 {
                    text.push(',');
                }
                write(item, text);
            }
            text.push(']');
        }
        Value::Object(fields) => {
            let ordered: BTreeMap<_, _> = fields.iter().collect();
            text.push('{');
            for (place, (key, value)) in ordered.into_iter().enumerate() {
                if place > 0 {
                    text.push(',');
                }
                write_text(key, text);
                text.push(':');
                write(value, text);
            }
            text.push('}');
        }
        Value::String(written) => write_text(written, text),
        Value::Null | Value::Bool(_) => text.push_str(&value.to_string()),
    }
}

/// Writes a text between quotes, as serde_json does: only quotes, backslashes and control
/// characters are escaped.
fn write_text(written: &str, text: &mut String) {
    text.push_str(&Value::from(written).to_string());
}

#[cfg(test)]
mod tests;
