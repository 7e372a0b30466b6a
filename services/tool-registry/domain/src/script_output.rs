//! The meaning of a script's JSON answer.
//!
//! Three forms are understood: `{success, outputData, error, logs}` of ComfyTavern,
//! `{status, result, error}` of VCP, and any other JSON value, which is the result as it is.

use call_outcome::{CallOutcome, Category, Failure};
use serde_json::{Map, Value};

const MAX_MESSAGE_CHARS: usize = 2_000;

/// Reads the answer of a script.
pub fn read(answer: Value) -> CallOutcome {
    match answer {
        Value::Object(object) if is_comfy_form(&object) => from_comfy_form(object),
        Value::Object(object) if is_vcp_form(&object) => from_vcp_form(object),
        bare => CallOutcome::Succeeded(bare),
    }
}

/// Reads an answer of a script that ended with a code other than zero: only a failure that it
/// reports itself counts.
pub fn read_failure(answer: Value) -> Option<Failure> {
    match read(answer) {
        CallOutcome::Failed(failure) => Some(failure),
        _ => None,
    }
}

/// Returns the log lines of an answer, one per line; empty if there are none.
pub fn logs_of(answer: &Value) -> String {
    match answer.get("logs") {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(lines)) => {
            let lines: Vec<String> = lines.iter().map(text_of).collect();
            lines.join("\n")
        }
        _ => String::new(),
    }
}

fn is_comfy_form(object: &Map<String, Value>) -> bool {
    let known = ["success", "outputData", "error", "logs"];
    object.get("success").is_some_and(Value::is_boolean)
        && object.keys().all(|key| known.contains(&key.as_str()))
}

fn is_vcp_form(object: &Map<String, Value>) -> bool {
    let status = object.get("status").and_then(Value::as_str);
    match status {
        Some("success") => object.contains_key("result"),
        Some("error") => object.contains_key("error"),
        _ => false,
    }
}

fn from_comfy_form(mut object: Map<String, Value>) -> CallOutcome {
    if object.get("success") == Some(&Value::Bool(true)) {
        return CallOutcome::Succeeded(object.shift_remove("outputData").unwrap_or(Value::Null));
    }
    CallOutcome::Failed(failure_of(
        object.shift_remove("error").unwrap_or(Value::Null),
    ))
}

fn from_vcp_form(mut object: Map<String, Value>) -> CallOutcome {
    match object.shift_remove("result") {
        Some(result) if object.get("status").and_then(Value::as_str) == Some("success") => {
            CallOutcome::Succeeded(result)
        }
        _ => CallOutcome::Failed(failure_of(
            object.shift_remove("error").unwrap_or(Value::Null),
        )),
    }
}

fn failure_of(error: Value) -> Failure {
    let (kind, message, details) = match &error {
        Value::Object(object) => (
            object
                .get("type")
                .and_then(Value::as_str)
                .unwrap_or("ScriptError"),
            object.get("message").map(text_of).unwrap_or_default(),
            object.get("details").cloned(),
        ),
        Value::Null => ("ScriptError", String::new(), None),
        other => ("ScriptError", text_of(other), None),
    };
    let (category, code) = match kind {
        "TimeoutError" => (Category::Timeout, "script_timeout"),
        "DependencyError" => (Category::Dependency, "script_dependency"),
        "SecurityError" => (Category::Policy, "script_security"),
        _ => (Category::Domain, "script_error"),
    };
    let message = if message.is_empty() {
        "the script reported a failure without saying why".to_owned()
    } else {
        message.chars().take(MAX_MESSAGE_CHARS).collect()
    };
    let mut failure = Failure::new(category, code, message);
    match details {
        Some(Value::Object(details)) => failure.details = details,
        Some(Value::Null) | None => {}
        Some(other) => failure = failure.detail("details", other),
    }
    failure
}

fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_form_of_success_gives_its_result() {
        for (answer, result) in [
            (
                json!({"success": true, "outputData": {"a": 1}, "logs": "x"}),
                json!({"a": 1}),
            ),
            (json!({"success": true}), json!(null)),
            (json!({"status": "success", "result": [1]}), json!([1])),
            (json!("sunny"), json!("sunny")),
            (
                json!({"success": true, "count": 3}),
                json!({"success": true, "count": 3}),
            ),
            (json!({"status": "shipped"}), json!({"status": "shipped"})),
            (json!({"status": "success"}), json!({"status": "success"})),
        ] {
            assert_eq!(
                read(answer.clone()),
                CallOutcome::Succeeded(result),
                "{answer}"
            );
        }
    }

    #[test]
    fn each_form_of_failure_gives_a_typed_one() {
        for (answer, category, code, message) in [
            (
                json!({"success": false, "error": {"type": "TimeoutError", "message": "slow"}}),
                Category::Timeout,
                "script_timeout",
                "slow",
            ),
            (
                json!({"success": false, "error": {"type": "SecurityError", "message": "no"}}),
                Category::Policy,
                "script_security",
                "no",
            ),
            (
                json!({"status": "error", "error": "not found"}),
                Category::Domain,
                "script_error",
                "not found",
            ),
            (
                json!({"success": false}),
                Category::Domain,
                "script_error",
                "the script reported a failure without saying why",
            ),
        ] {
            let failure = read_failure(answer.clone()).unwrap();
            assert_eq!(
                (
                    failure.category,
                    failure.code.as_str(),
                    failure.message.as_str()
                ),
                (category, code, message),
                "{answer}"
            );
        }
        assert_eq!(read_failure(json!({"anything": 1})), None);
    }

    #[test]
    fn logs_are_lines() {
        assert_eq!(logs_of(&json!({"logs": ["a", 1]})), "a\n1");
        assert_eq!(logs_of(&json!({"logs": "a"})), "a");
        assert_eq!(logs_of(&json!([])), "");
    }
}
