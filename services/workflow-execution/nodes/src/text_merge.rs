//! `core:TextMerge`: several texts become one.

use call_outcome::Failure;
use std::sync::Arc;

use serde_json::{Value, json};

use workflow_domain::data_flow::DataFlow;
use workflow_domain::limits::MAX_VALUE_BYTES;
use workflow_domain::node_definition::NodeDefinition;
use workflow_domain::node_type::{Node, NodeCall, Step};
use workflow_domain::slot::{Shape, Slot};

const SEPARATOR: usize = 0;
const TEXT_INPUTS: usize = 1;

/// Joins texts with a separator.
#[derive(Debug)]
pub struct TextMerge;

impl Node for TextMerge {
    fn definition(&self) -> NodeDefinition {
        let separator =
            "The text between the texts; `\\n`, `\\t` and other escapes are understood.";
        let inputs = vec![
            Slot::new("separator", DataFlow::String, separator)
                .default(json!("\\n"))
                .excluded_from_bypass(),
            Slot::new("text_inputs", DataFlow::String, "The texts, in order.")
                .multi()
                .required(),
        ];
        let outputs = vec![Slot::new(
            "merged_text",
            DataFlow::String,
            "The texts with the separator between them.",
        )];
        let shape = Shape::new(inputs, outputs);
        NodeDefinition {
            description: "Joins several texts into one.".into(),
            category: "text".into(),
            ..NodeDefinition::new("core:TextMerge", "Merge texts", shape)
        }
    }

    fn run(&self, call: NodeCall<'_>) -> Result<Step, Failure> {
        let separator = unescape(call.text(SEPARATOR).unwrap_or("\n"));
        let texts: Vec<&str> = match call.value(TEXT_INPUTS).map(AsRef::as_ref) {
            Some(Value::Array(texts)) => texts
                .iter()
                .map(|text| text.as_str().unwrap_or(""))
                .collect(),
            _ => Vec::new(),
        };
        let bytes = texts
            .iter()
            .map(|text| text.len() + separator.len())
            .sum::<usize>();
        if bytes > MAX_VALUE_BYTES {
            let message = format!(
                "the merged text would have about {bytes} bytes; at most {MAX_VALUE_BYTES} are kept"
            );
            return Err(Failure::limit("value_too_large", message));
        }
        Ok(Step::Done(vec![Arc::new(Value::String(
            texts.join(&separator),
        ))]))
    }
}

/// Replaces `\n`, `\r`, `\t`, `\0`, `\\`, `\'`, `\"` and `\uXXXX`; any other backslash stays.
fn unescape(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        plain.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let (replaced, used) = match rest.bytes().next() {
            Some(b'n') => (Some('\n'), 1),
            Some(b'r') => (Some('\r'), 1),
            Some(b't') => (Some('\t'), 1),
            Some(b'0') => (Some('\0'), 1),
            Some(quoted @ (b'\\' | b'\'' | b'"')) => (Some(char::from(quoted)), 1),
            Some(b'u') => (rest.get(1..5).and_then(code_point), 5),
            _ => (None, 0),
        };
        match replaced {
            Some(character) => {
                plain.push(character);
                rest = &rest[used..];
            }
            None => plain.push('\\'),
        }
    }
    plain.push_str(rest);
    plain
}

fn code_point(hex: &str) -> Option<char> {
    let digits = hex.bytes().all(|byte| byte.is_ascii_hexdigit());
    digits
        .then(|| u32::from_str_radix(hex, 16).ok())
        .flatten()
        .and_then(char::from_u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_replaced_and_everything_else_stays() {
        for (written, expected) in [
            ("\\n", "\n"),
            ("a\\tb", "a\tb"),
            ("\\\\n", "\\n"),
            ("\\u4e2d\\u", "中\\u"),
            ("\\ud800", "\\ud800"),
            ("\\x\\", "\\x\\"),
            ("、", "、"),
            ("\\u中文字", "\\u中文字"),
        ] {
            assert_eq!(unescape(written), expected, "{written}");
        }
    }
}
