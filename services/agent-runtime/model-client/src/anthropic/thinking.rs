//! Blocks of a model's thought before its calls: they are sent back unchanged, with their
//! signatures (rule G502).

use agent_domain::message::ChatMessage;
use serde_json::{Map, Value, json};

/// The name under which the blocks are stored with a message.
const BLOCKS: &str = "thinking_blocks";

/// Returns a block of thought as it opens; none if it is another block.
pub(super) fn begun(block: &Value) -> Option<Map<String, Value>> {
    let mut block = block.as_object()?.clone();
    let is_thinking = matches!(
        block.get("type").and_then(Value::as_str),
        Some("thinking" | "redacted_thinking")
    );
    // A whole block holds its text, which is added like the text of a streamed one.
    if let Some(Value::String(text)) = block.get_mut("thinking") {
        text.clear();
    }
    is_thinking.then_some(block)
}

/// Adds a piece to a block; returns the number of bytes that are not shown.
pub(super) fn add(block: &mut Map<String, Value>, delta: &Value) -> usize {
    let text = |key: &str| delta.get(key).and_then(Value::as_str).unwrap_or_default();
    if let Some(Value::String(thinking)) = block.get_mut("thinking") {
        thinking.push_str(text("thinking"));
    }
    let is_piece = delta.get("type").and_then(Value::as_str) == Some("signature_delta");
    if let Some(Value::String(signature)) = block.get_mut("signature").filter(|_| is_piece) {
        signature.push_str(text("signature"));
    } else if is_piece {
        block.insert("signature".to_owned(), text("signature").into());
    }
    text("signature").len() + text("data").len()
}

/// Returns the JSON that is sent back; none if the model did not think.
pub(super) fn to_json(blocks: Vec<Map<String, Value>>) -> Option<Value> {
    (!blocks.is_empty()).then(|| json!({BLOCKS: blocks}))
}

/// Returns the blocks that belong to the calls of a message.
pub(super) fn of_calls(message: &ChatMessage) -> Vec<Value> {
    let reasoning = message.reasoning_of_calls();
    let blocks = reasoning.and_then(|reasoning| reasoning.get(BLOCKS)?.as_array());
    blocks.cloned().unwrap_or_default()
}
