//! Reading structured calls that the caller has collected, in whichever shape.

use call_catalogue::Diagnostic;
use serde_json::{Map, Value};

use super::{NativeCall, json_text, remark};
use crate::dialect::json::name_and_arguments;

/// Structured calls, and remarks on every other item.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Given {
    /// The calls in their order.
    pub calls: Vec<NativeCall>,
    /// One remark for each part that was not understood; a last one counts the rest.
    pub remarks: Vec<Diagnostic>,
}

/// Reads calls in the shapes of OpenAI (`tool_calls` alone or in a message, the older
/// `function_call`, the items of a response), of Anthropic (a message's content), and plain objects
/// such as `{"name": ..., "arguments": ...}` and `{"toolName": ..., "arguments": ...}`; one of them
/// or a list. Text and thoughts next to calls are skipped, every other item yields a remark.
pub fn read(given: &Value) -> Given {
    let mut reader = GivenReader::default();
    reader.any(given, &mut String::new());
    let GivenReader { mut given, unread } = reader;
    if unread > 0 {
        let message = format!("{unread} further parts are no calls");
        given.remarks.push(remark(UNREADABLE, &message));
    }
    given
}

const UNREADABLE: &str = "native_call_unreadable";

/// Remarks beyond these are counted.
const MOST_REMARKS: usize = 16;

/// Lists and messages within each other.
const MOST_DEPTH: usize = 4;

#[derive(Default)]
struct GivenReader {
    given: Given,
    unread: usize,
}

impl GivenReader {
    fn any(&mut self, value: &Value, place: &mut String) {
        match value {
            Value::Null => {}
            Value::Array(items) if place.matches('/').count() < 2 * MOST_DEPTH => {
                for (index, item) in items.iter().enumerate() {
                    self.within(&index.to_string(), item, place);
                }
            }
            Value::Object(members) => self.object(members, place),
            _ => self.unreadable(place, "it is not an object"),
        }
    }

    fn within(&mut self, key: &str, value: &Value, place: &mut String) {
        let length = place.len();
        place.push('/');
        place.push_str(key);
        self.any(value, place);
        place.truncate(length);
    }

    fn object(&mut self, members: &Map<String, Value>, place: &mut String) {
        // A whole answer, or the message in it.
        for key in [
            "choices",
            "message",
            "tool_calls",
            "function_call",
            "output",
        ] {
            let inner = members.get(key).filter(|inner| !inner.is_null());
            if let Some(inner) = inner.filter(|_| place.matches('/').count() < 2 * MOST_DEPTH) {
                return self.within(key, inner, place);
            }
        }
        let kind = members.get("type").and_then(Value::as_str).unwrap_or("");
        if members.contains_key("role") || kind == "message" {
            if let Some(blocks @ Value::Array(_)) = members.get("content") {
                self.within("content", blocks, place);
            }
            return;
        }
        match kind {
            "" | "function" | "tool_use" | "function_call" | "tool_call" | "tool-call" => {}
            "text" | "output_text" | "thinking" | "redacted_thinking" | "reasoning" | "refusal" => {
                return;
            }
            other => return self.unreadable(place, &format!("its type is '{other}'")),
        }
        match name_and_arguments(members) {
            Some((name, arguments)) => self.given.calls.push(NativeCall {
                id: id_of(members),
                name: name.to_owned(),
                arguments_json: json_text(arguments),
            }),
            None => self.unreadable(place, "it names no tool"),
        }
    }

    fn unreadable(&mut self, place: &str, why: &str) {
        if self.given.remarks.len() == MOST_REMARKS {
            self.unread += 1;
            return;
        }
        let what = match place {
            "" => "what was given".to_owned(),
            place => format!("the part at {place}"),
        };
        let mut remark = remark(
            UNREADABLE,
            &call_catalogue::cut(&format!("{what} is not a call: {why}")),
        );
        remark.hint = r#"write {"name": ..., "arguments": {...}}"#.to_owned();
        self.given.remarks.push(remark);
    }
}

/// The provider's id of a call, under the name that the provider has for it.
fn id_of(members: &Map<String, Value>) -> String {
    let keys = ["call_id", "id", "tool_call_id", "toolCallId"];
    let id = keys.iter().find_map(|key| members.get(*key)?.as_str());
    id.unwrap_or_default().to_owned()
}
