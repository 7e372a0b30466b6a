//! How a text is to be read and a prompt to be written, checked.

use call_text::prompt;
use call_text::{Dialect, FinishReason, Policy};
use contracts::tavern::gateway::v1::{
    CallsTarget, Detail, Language, ParsePolicy, ParseTextRequest, RenderCallRequest,
    RenderToolsRequest, StreamTextStart, ToolScope,
};
use serde_json::{Map, Value};
use tonic::Status;

use super::policy::read_policy;
use super::problems::Problems;
use crate::domain::scope::Scope;

/// How a text is to be read.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Reading {
    /// Which tools it may speak of.
    pub(super) scope: Scope,
    /// The switches.
    pub(super) policy: Policy,
    /// Why the model stopped.
    pub(super) finish_reason: FinishReason,
    /// Untrusted texts that the model was shown.
    pub(super) untrusted: Vec<String>,
    /// The native calls that came with the text.
    pub(super) native: Option<Value>,
}

/// How a text is to be read, as a request gives it.
#[derive(Default)]
struct Given {
    scope: Option<ToolScope>,
    dialect: i32,
    policy: Option<ParsePolicy>,
    finish_reason: String,
    untrusted_texts: Vec<String>,
    tool_calls_json: String,
}

impl Given {
    fn check(self, problems: &mut Problems) -> Reading {
        problems.untrusted(&self.untrusted_texts);
        let scope = scope_of(self.scope);
        problems.scope(&scope);
        let dialect = problems.dialect(self.dialect);
        Reading {
            scope,
            policy: read_policy(self.policy, dialect),
            finish_reason: call_wire::finish_reason(&self.finish_reason),
            untrusted: self.untrusted_texts,
            native: problems.json("tool_calls_json", &self.tool_calls_json),
        }
    }
}

/// Checks a request to read a text.
pub(super) fn check_parse(
    request: ParseTextRequest,
    max_text: usize,
) -> Result<(String, Reading), Status> {
    let mut problems = Problems::new();
    problems.text("text", &request.text, max_text);
    let given = Given {
        scope: request.scope,
        dialect: request.dialect,
        policy: request.policy,
        finish_reason: request.finish_reason,
        untrusted_texts: request.untrusted_texts,
        tool_calls_json: request.tool_calls_json,
    };
    let reading = given.check(&mut problems);
    problems.or((request.text, reading))
}

/// Checks how a text that is still being written is to be read.
pub(super) fn check_stream(start: StreamTextStart) -> Result<Reading, Status> {
    let mut problems = Problems::new();
    let given = Given {
        scope: start.scope,
        dialect: start.dialect,
        policy: start.policy,
        untrusted_texts: start.untrusted_texts,
        ..Given::default()
    };
    let reading = given.check(&mut problems);
    problems.or(reading)
}

/// Checks a request to execute the calls of a text.
pub(super) fn check_calls(calls: CallsTarget, max_text: usize) -> Result<Reading, Status> {
    let mut problems = Problems::below("calls.");
    problems.text("text", &calls.text, max_text);
    let given = Given {
        scope: calls.scope,
        dialect: calls.dialect,
        policy: calls.policy,
        finish_reason: calls.finish_reason,
        untrusted_texts: calls.untrusted_texts,
        tool_calls_json: calls.tool_calls_json,
    };
    let reading = given.check(&mut problems);
    problems.or(reading)
}

/// Checks a request to write a call; returns the arguments and the dialect.
pub(super) fn check_call(
    request: &RenderCallRequest,
) -> Result<(Map<String, Value>, Dialect), Status> {
    let mut problems = Problems::new();
    problems.scope(&scope_of(request.scope.clone()));
    let dialect = problems.dialect(request.dialect).unwrap_or(Dialect::Action);
    let arguments = match problems.json("arguments_json", &request.arguments_json) {
        Some(Value::Object(arguments)) => arguments,
        Some(_) => {
            problems.add("arguments_json", "is not a JSON object");
            Map::new()
        }
        None => Map::new(),
    };
    problems.or((arguments, dialect))
}

/// How a prompt is to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Style {
    pub(super) dialect: Dialect,
    pub(super) language: prompt::Language,
    pub(super) detail: prompt::Detail,
}

/// Checks a request for a prompt.
pub(super) fn check_render(request: &RenderToolsRequest) -> Result<Style, Status> {
    let mut problems = Problems::new();
    problems.scope(&scope_of(request.scope.clone()));
    let dialect = problems.dialect(request.dialect).unwrap_or(Dialect::Action);
    let language = match Language::try_from(request.language) {
        Ok(Language::Chinese) => prompt::Language::Zh,
        Ok(Language::English | Language::Unspecified) => prompt::Language::En,
        Err(_) => {
            let problem = format!("{} is not a language", request.language);
            problems.add("language", problem);
            prompt::Language::En
        }
    };
    let detail = match Detail::try_from(request.detail) {
        Ok(Detail::Full | Detail::Unspecified) => prompt::Detail::Full,
        Ok(Detail::Brief) => prompt::Detail::Brief,
        Ok(Detail::Names) => prompt::Detail::Names,
        Err(_) => {
            let problem = format!("{} is not a degree of detail", request.detail);
            problems.add("detail", problem);
            prompt::Detail::Full
        }
    };
    problems.or(Style {
        dialect,
        language,
        detail,
    })
}

/// Reads a scope as a key, under which its catalogue is remembered.
pub(super) fn scope_of(scope: Option<ToolScope>) -> Scope {
    let scope = scope.unwrap_or_default();
    Scope {
        profile_id: scope.profile_id,
        tool_ids: scope.tool_ids,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(status: &Status) -> Vec<String> {
        let violations = grpc_kit::violations(status).into_iter();
        violations.map(|(field, _)| field).collect()
    }

    #[test]
    fn every_wrong_field_is_named_by_its_path_in_the_request() {
        let scope = Some(ToolScope {
            tool_ids: vec!["x".to_owned(); 501],
            ..ToolScope::default()
        });
        let calls = CallsTarget {
            text: "too long".to_owned(),
            scope,
            dialect: 99,
            tool_calls_json: "{".to_owned(),
            ..CallsTarget::default()
        };
        let wrong = [
            "calls.text",
            "calls.scope.tool_ids",
            "calls.dialect",
            "calls.tool_calls_json",
        ];
        let status = check_calls(calls.clone(), 4).expect_err("the request is wrong");
        assert_eq!(fields(&status), wrong);
        let parse = ParseTextRequest {
            text: calls.text,
            scope: calls.scope,
            dialect: calls.dialect,
            tool_calls_json: calls.tool_calls_json,
            ..ParseTextRequest::default()
        };
        let status = check_parse(parse, 4).expect_err("the request is wrong");
        assert_eq!(
            fields(&status),
            wrong.map(|field| field.trim_start_matches("calls."))
        );
    }

    #[test]
    fn a_call_needs_an_object_of_arguments() {
        for (arguments, wrong) in [("[]", true), ("{", true), ("", false), ("{}", false)] {
            let request = RenderCallRequest {
                arguments_json: arguments.to_owned(),
                ..RenderCallRequest::default()
            };
            assert_eq!(check_call(&request).is_err(), wrong, "{arguments}");
        }
    }
}
