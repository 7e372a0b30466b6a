//! The names by which tools are known to a model's API (rule G501): letters, digits, `_` and `-`, at
//! most 64 of them. Ids are used everywhere outside a request.

use std::collections::HashMap;

use call_catalogue::alias_of;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::{AnswerEnd, ModelRequest};

/// The longest name that every API accepts.
const MAX_BYTES: usize = 64;

/// The names of the tools of one request.
#[derive(Debug, Default)]
pub(super) struct NativeNames {
    ids: HashMap<String, String>,
}

impl NativeNames {
    /// Replaces the ids of a request's tools and calls by names.
    pub(super) fn publish(request: &mut ModelRequest) -> Self {
        let mut names = Self::default();
        for tool in &mut request.tools {
            if let Some(Value::String(name)) = tool.get_mut("name") {
                *name = names.publish_id(name);
            }
        }
        let calls = request.messages.iter_mut().flat_map(|said| &mut said.calls);
        for call in calls {
            call.name = names.publish_id(&call.name);
        }
        names
    }

    /// Replaces the names in an answer by ids. Other names stay as they are.
    pub(super) fn restore(&self, end: &mut AnswerEnd) {
        let calls = end.tool_calls.as_mut().and_then(Value::as_array_mut);
        for call in calls.into_iter().flatten() {
            if let Some(Value::String(name)) = call.pointer_mut("/function/name")
                && let Some(id) = self.ids.get(name)
            {
                name.clone_from(id);
            }
        }
    }

    fn publish_id(&mut self, id: &str) -> String {
        let mut name = alias_of(id).replace('.', "__");
        let taken = self.ids.get(&name).is_some_and(|other| other != id);
        if taken || name.len() > MAX_BYTES {
            let digest = hex::encode(&Sha256::digest(id)[..4]);
            name.truncate(MAX_BYTES - digest.len() - 1);
            name = format!("{name}_{digest}");
        }
        self.ids.insert(name.clone(), id.to_owned());
        name
    }
}

#[cfg(test)]
mod tests {
    use agent_domain::message::{ChatMessage, Role};
    use call_text::native::NativeCall;
    use serde_json::json;

    use super::*;
    use crate::golden;

    fn published(ids: &[&str]) -> (NativeNames, Vec<String>) {
        let mut request = golden::request(&[]);
        request.tools = ids.iter().map(|id| json!({"name": id})).collect();
        let names = NativeNames::publish(&mut request);
        let given = request.tools.iter();
        let given = given.map(|tool| tool["name"].as_str().unwrap().to_owned());
        (names, given.collect())
    }

    #[test]
    fn g501_every_id_has_a_name_of_its_own_that_each_api_takes() {
        let long = "x".repeat(100);
        let same_beginning = format!("{long}y");
        let ids = [
            "weather",
            "FileOperator.WriteFile",
            "FileOperator:WriteFile",
            "workflow:grant_item",
            "雨",
            "雪",
            &long,
            &same_beginning,
        ];
        let (_, names) = published(&ids);
        assert_eq!(names[..2], ["weather", "FileOperator__WriteFile"]);
        assert_eq!(names[3], "workflow__grant_item");
        let mut different = names.clone();
        different.sort_unstable();
        different.dedup();
        assert_eq!(different.len(), ids.len(), "{names:?}");
        for name in &names {
            let is_taken = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
            assert!(name.len() <= 64 && name.chars().all(is_taken), "{name}");
        }
    }

    #[test]
    fn the_calls_of_an_answer_speak_of_ids_again() {
        let (names, given) = published(&["FileOperator.WriteFile", "FileOperator:WriteFile"]);
        let call = |name: &str| json!({"function": {"name": name, "arguments": "{}"}});
        let calls = json!([call(&given[1]), call(&given[0]), call("unknown")]);
        let mut end = AnswerEnd {
            tool_calls: Some(calls),
            ..AnswerEnd::default()
        };
        names.restore(&mut end);
        let expected = [
            "FileOperator:WriteFile",
            "FileOperator.WriteFile",
            "unknown",
        ];
        assert_eq!(end.tool_calls, Some(expected.map(call).to_vec().into()));
    }

    #[test]
    fn earlier_calls_have_the_names_of_the_tools() {
        let mut request = golden::request(&[]);
        request.tools = vec![json!({"name": "a.b"})];
        request.messages = vec![ChatMessage {
            calls: vec![NativeCall {
                name: "a.b".to_owned(),
                ..NativeCall::default()
            }],
            ..ChatMessage::new(Role::Assistant, "")
        }];
        NativeNames::publish(&mut request);
        assert_eq!(request.messages[0].calls[0].name, "a__b");
    }
}
