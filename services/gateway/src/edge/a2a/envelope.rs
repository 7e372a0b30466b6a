//! Answers in the form of JSON-RPC.

use serde_json::{Value, json};

/// Writes a result, which is JSON already.
pub(super) fn result(id: &Value, text: &str) -> String {
    format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{text}}}")
}

/// Writes an error.
pub(super) fn failure(id: &Value, error: &Value) -> String {
    json!({"jsonrpc": "2.0", "id": id, "error": error}).to_string()
}
