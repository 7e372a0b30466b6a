//! Native calls of chat messages.

use call_text::native::{EndedCall, NativeCall};
use contracts::tavern::common::v1 as common;
use serde_json::Value;

/// Writes native calls.
pub fn native_calls_to_proto(calls: &[NativeCall]) -> Vec<common::NativeCall> {
    let call = |call: &NativeCall| common::NativeCall {
        id: call.id.clone(),
        name: call.name.clone(),
        arguments_json: call.arguments_json.clone(),
    };
    calls.iter().map(call).collect()
}

/// Reads native calls.
pub fn native_calls_from_proto(calls: Vec<common::NativeCall>) -> Vec<NativeCall> {
    let call = |call: common::NativeCall| NativeCall {
        id: call.id,
        name: call.name,
        arguments_json: call.arguments_json,
    };
    calls.into_iter().map(call).collect()
}

/// Writes the thought of a model before native calls; empty for none.
pub fn reasoning_to_proto(reasoning: Option<&Value>) -> String {
    reasoning.map_or_else(String::new, Value::to_string)
}

/// Reads the thought of a model before native calls; `None` if it is empty or no JSON object.
pub fn reasoning_from_proto(reasoning_json: &str) -> Option<Value> {
    let reasoning: Option<Value> = serde_json::from_str(reasoning_json).ok();
    reasoning.filter(Value::is_object)
}

/// Writes the native call of a result.
pub fn ended_call_to_proto(ended: &EndedCall) -> common::EndedCall {
    common::EndedCall {
        id: ended.id.clone(),
        failed: ended.failed,
    }
}

/// Reads the native call of a result.
pub fn ended_call_from_proto(ended: common::EndedCall) -> EndedCall {
    EndedCall {
        id: ended.id,
        failed: ended.failed,
    }
}
