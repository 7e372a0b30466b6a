//! Requests to read a text or to write a prompt, checked.

use call_catalogue::Dialect;
use call_prompt::grammar::Mode;
use call_prompt::prompt::{Detail as PromptDetail, Language};
use call_text::{FinishReason, Policy};
use contracts::tavern::gateway::v1::{
    CallsTarget, Detail, GrammarMode, ParsePolicy, ParseTextRequest, RenderCallRequest,
    RenderGrammarRequest, RenderToolsRequest, StreamTextEnd, StreamTextStart, ToolCatalogue,
    ToolScope,
};
use serde_json::{Map, Value};
use tonic::Status;

use super::catalogue::{ToolSource, read_tools};
use super::policy::{read_nonce, read_policy};
use super::problems::Problems;

/// The options for reading a text.
#[derive(Clone, Debug)]
pub(super) struct TextOptions {
    /// The tools that it may call.
    pub(super) tools: ToolSource,
    /// The switches.
    pub(super) policy: Policy,
    /// The reason why the model stopped.
    pub(super) finish_reason: FinishReason,
    /// Untrusted texts that the model was shown.
    pub(super) untrusted: Vec<String>,
    /// The native calls that came with the text.
    pub(super) native: Option<Value>,
}

/// The options for reading a text, as a request states them.
#[derive(Default)]
struct RequestOptions {
    scope: Option<ToolScope>,
    catalogue: Option<ToolCatalogue>,
    dialect: i32,
    policy: Option<ParsePolicy>,
    finish_reason: String,
    untrusted_texts: Vec<String>,
    tool_calls_json: String,
}

impl RequestOptions {
    fn check(self, problems: &mut Problems) -> TextOptions {
        problems.untrusted(&self.untrusted_texts);
        let tools = read_tools(self.scope, self.catalogue, problems);
        let dialect = problems.dialect(self.dialect);
        TextOptions {
            tools,
            policy: read_policy(self.policy, dialect, problems),
            finish_reason: FinishReason::from_words(&self.finish_reason),
            untrusted: self.untrusted_texts,
            native: problems.json("tool_calls_json", &self.tool_calls_json),
        }
    }
}

/// Checks a request to read a text.
pub(super) fn check_parse(
    request: ParseTextRequest,
    max_text: usize,
) -> Result<(String, TextOptions), Status> {
    let mut problems = Problems::new();
    problems.text("text", &request.text, max_text);
    let given = RequestOptions {
        scope: request.scope,
        catalogue: request.catalogue,
        dialect: request.dialect,
        policy: request.policy,
        finish_reason: request.finish_reason,
        untrusted_texts: request.untrusted_texts,
        tool_calls_json: request.tool_calls_json,
    };
    let reading = given.check(&mut problems);
    problems.or((request.text, reading))
}

/// Checks the options for reading a text that is still being written.
pub(super) fn check_stream(start: StreamTextStart) -> Result<TextOptions, Status> {
    let mut problems = Problems::new();
    let given = RequestOptions {
        scope: start.scope,
        catalogue: start.catalogue,
        dialect: start.dialect,
        policy: start.policy,
        untrusted_texts: start.untrusted_texts,
        ..RequestOptions::default()
    };
    let reading = given.check(&mut problems);
    problems.or(reading)
}

/// Checks the end of a text that was still being written; returns its native calls.
pub(super) fn check_end(end: &StreamTextEnd) -> Result<Option<Value>, Status> {
    let mut problems = Problems::below("end.");
    let native = problems.json("tool_calls_json", &end.tool_calls_json);
    problems.or(native)
}

/// Checks a request to execute the calls of a text.
pub(super) fn check_calls(calls: CallsTarget, max_text: usize) -> Result<TextOptions, Status> {
    let mut problems = Problems::below("calls.");
    problems.text("text", &calls.text, max_text);
    let given = RequestOptions {
        scope: calls.scope,
        catalogue: None,
        dialect: calls.dialect,
        policy: calls.policy,
        finish_reason: calls.finish_reason,
        untrusted_texts: calls.untrusted_texts,
        tool_calls_json: calls.tool_calls_json,
    };
    let reading = given.check(&mut problems);
    problems.or(reading)
}

/// A call to be written.
pub(super) struct Writing {
    pub(super) tool_id: String,
    pub(super) arguments: Map<String, Value>,
    pub(super) dialect: Dialect,
    pub(super) tools: ToolSource,
}

/// Checks a request to write a call.
pub(super) fn check_call(request: RenderCallRequest) -> Result<Writing, Status> {
    let mut problems = Problems::new();
    let tools = read_tools(request.scope, request.catalogue, &mut problems);
    let dialect = problems.dialect(request.dialect).unwrap_or(Dialect::Action);
    let arguments = match problems.json("arguments_json", &request.arguments_json) {
        Some(Value::Object(arguments)) => arguments,
        Some(_) => {
            problems.add("arguments_json", "is not a JSON object");
            Map::new()
        }
        None => Map::new(),
    };
    problems.or(Writing {
        tool_id: request.tool_id,
        arguments,
        dialect,
        tools,
    })
}

/// A prompt to be written.
pub(super) struct PromptRequest {
    pub(super) tools: ToolSource,
    pub(super) dialect: Dialect,
    pub(super) language: Language,
    pub(super) detail: PromptDetail,
}

/// Checks a request for a prompt.
pub(super) fn check_render(request: RenderToolsRequest) -> Result<PromptRequest, Status> {
    let mut problems = Problems::new();
    let tools = read_tools(request.scope, request.catalogue, &mut problems);
    let dialect = problems.dialect(request.dialect).unwrap_or(Dialect::Action);
    let language = Language::from_tag(&request.language).unwrap_or_else(|error| {
        problems.add("language", error.to_string());
        Language::default()
    });
    let detail = match Detail::try_from(request.detail) {
        Ok(Detail::Full | Detail::Unspecified) => PromptDetail::Full,
        Ok(Detail::Brief) => PromptDetail::Brief,
        Ok(Detail::Names) => PromptDetail::Names,
        Err(_) => {
            let problem = format!("{} is not a degree of detail", request.detail);
            problems.add("detail", problem);
            PromptDetail::Full
        }
    };
    problems.or(PromptRequest {
        tools,
        dialect,
        language,
        detail,
    })
}

/// A grammar to be written.
pub(super) struct GrammarRequest {
    pub(super) tools: ToolSource,
    pub(super) dialect: Dialect,
    pub(super) mode: Mode,
    pub(super) nonce: Option<String>,
}

/// Checks a request for a grammar.
pub(super) fn check_grammar(request: RenderGrammarRequest) -> Result<GrammarRequest, Status> {
    let mut problems = Problems::new();
    let mode = match request.mode() {
        GrammarMode::Unspecified | GrammarMode::Free => Mode::Free,
        GrammarMode::Call => Mode::Call,
    };
    let tools = read_tools(request.scope, request.catalogue, &mut problems);
    let dialect = problems.dialect(request.dialect).unwrap_or(Dialect::Action);
    let nonce = read_nonce("nonce", request.nonce, &mut problems);
    problems.or(GrammarRequest {
        tools,
        dialect,
        mode,
        nonce,
    })
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
    fn a_language_without_words_is_refused_with_those_that_have_them() {
        for (language, expected) in [("", true), ("en-GB", true), ("zh-CN", true), ("fr", false)] {
            let request = RenderToolsRequest {
                language: language.to_owned(),
                ..RenderToolsRequest::default()
            };
            assert_eq!(check_render(request).is_ok(), expected, "{language}");
        }
    }

    #[test]
    fn a_call_needs_an_object_of_arguments() {
        for (arguments, wrong) in [("[]", true), ("{", true), ("", false), ("{}", false)] {
            let request = RenderCallRequest {
                arguments_json: arguments.to_owned(),
                ..RenderCallRequest::default()
            };
            assert_eq!(check_call(request).is_err(), wrong, "{arguments}");
        }
    }
}
