//! `RequestUserInteractionTool`: a question to a person, asked by a node of the workflow service, which
//! waits durably and is answered with `AnswerWait` (rule G808).

use contracts::tavern::workflow::v1::SingleNode;
use serde_json::{Map, Value, json};
use tool_domain::definition::Implementation;

use crate::dispatch::ResolvedCall;

/// The node that asks.
const NODE: &str = "core:HumanInput";
/// The default time for which a question waits for its answer, in seconds.
const EXPIRES_SECONDS: u64 = 24 * 60 * 60;

/// Returns the node that asks a question, and its inputs as JSON.
pub(super) fn node(arguments: &Value) -> (SingleNode, String) {
    let text = |key: &str| arguments[key].as_str().unwrap_or_default();
    let title = match text("options_prompt") {
        "" => text("prompt").to_owned(),
        options => format!("{}\n\n{options}", text("prompt")),
    };
    let mut config = Map::new();
    config.insert("title".to_owned(), title.into());
    let mut choices: Vec<&Value> = Vec::new();
    for option in arguments["options"].as_array().into_iter().flatten() {
        if option.as_str().is_some_and(|text| !text.is_empty()) && !choices.contains(&option) {
            choices.push(option);
        }
    }
    // A form lets answers in beside the choices.
    if choices.is_empty() || arguments["allow_free_text"] == true {
        let schema = arguments.get("answer_schema");
        let form = schema.map_or_else(|| json!({"type": "string"}), Value::clone);
        config.insert("form".to_owned(), form);
    }
    if !choices.is_empty() {
        config.insert("choices".to_owned(), json!(choices));
    }
    let expiry = arguments["expires_seconds"].as_u64();
    config.insert(
        "expiry".to_owned(),
        json!(expiry.unwrap_or(EXPIRES_SECONDS)),
    );
    if let Some(default) = arguments.get("default_answer") {
        config.insert("onExpiry".to_owned(), "default".into());
        config.insert("default".to_owned(), default.clone());
    }
    let node = SingleNode {
        full_type: NODE.to_owned(),
        config_values_json: Value::Object(config).to_string(),
    };
    let inputs = match text("context_text") {
        "" => json!({}),
        context => json!({"context": context}),
    };
    (node, inputs.to_string())
}

/// Whether a call is a question that ends before its answer.
pub(super) fn is_left_open(resolved: &ResolvedCall) -> bool {
    let is_question = *resolved.tool.implementation() == Implementation::Question;
    is_question && resolved.arguments["wait"] == false
}

/// Returns the result of a question that was asked and whose answer the call does not wait for.
pub(super) fn pending(run_id: &str) -> Value {
    json!({"interaction_id": run_id, "status": "pending"})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(arguments: &Value) -> Value {
        serde_json::from_str(&node(arguments).0.config_values_json).unwrap()
    }

    #[test]
    fn g808_a_question_is_a_node_that_waits_for_a_text_for_a_day() {
        assert_eq!(
            config(&json!({"prompt": "Which herb?"})),
            json!({"title": "Which herb?", "form": {"type": "string"}, "expiry": 86_400})
        );
    }

    #[test]
    fn g808_options_bind_the_answer_unless_the_call_allows_others() {
        let options = json!(["yes", "no", "yes", ""]);
        let text = json!({"type": "string"});
        let number = json!({"type": "number"});
        for (more, form) in [
            (json!({"options": options}), None),
            (json!({"options": options, "allow_free_text": false}), None),
            (json!({"options": options, "answer_schema": number}), None),
            (
                json!({"options": options, "allow_free_text": true}),
                Some(&text),
            ),
            (
                json!({"options": options, "allow_free_text": true, "answer_schema": number}),
                Some(&number),
            ),
            (json!({"options": [""]}), Some(&text)),
            (json!({"allow_free_text": false}), Some(&text)),
            (json!({"answer_schema": number}), Some(&number)),
        ] {
            let mut asked = json!({"prompt": "Open?"});
            let given = more.as_object().unwrap().clone();
            asked.as_object_mut().unwrap().extend(given);
            let config = config(&asked);
            assert_eq!(config.get("form"), form, "{more}");
            let has_options = more.get("options") == Some(&options);
            let choices = has_options.then(|| json!(["yes", "no"]));
            assert_eq!(config.get("choices"), choices.as_ref(), "{more}");
        }
        let mut asked = json!({"prompt": "Open?", "options": options});
        asked["expires_seconds"] = json!(60);
        asked["default_answer"] = json!("no");
        assert_eq!(
            config(&asked),
            json!({
                "title": "Open?", "choices": ["yes", "no"], "expiry": 60, "onExpiry": "default",
                "default": "no",
            })
        );
    }

    #[test]
    fn g808_what_the_person_should_know_is_the_context() {
        let asked = json!({"prompt": "Open?", "context_text": "It is dark."});
        assert_eq!(node(&asked).1, r#"{"context":"It is dark."}"#);
    }
}
