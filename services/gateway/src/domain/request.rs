//! What is wrong with a request, all of it at once.

use call_text::{Dialect, FinishReason, Policy};
use contracts::tavern::gateway::v1::invoke_text_request::Input;
use contracts::tavern::gateway::v1::{
    Detail, InvokeTextRequest, Language, ParseTextRequest, RenderCallRequest, RenderToolsRequest,
    StreamTextStart,
};
use serde_json::{Map, Value};

use super::policy::read_policy;
use super::scope::Scope;

/// The most tools that a scope may name.
const MAX_SCOPE: usize = 500;

/// The most untrusted texts, and the most bytes of all of them together.
const MAX_UNTRUSTED: (usize, usize) = (256, 1 << 20);

/// The most bytes of native calls, and of arguments to write.
const MAX_JSON: usize = 1 << 20;

/// One field that is wrong, and what about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) field: &'static str,
    pub(crate) problem: String,
}

/// Collects problems.
#[derive(Debug, Default)]
struct Problems(Vec<Problem>);

impl Problems {
    fn add(&mut self, field: &'static str, problem: impl Into<String>) {
        self.0.push(Problem {
            field,
            problem: problem.into(),
        });
    }

    fn text(&mut self, field: &'static str, text: &str, most: usize) {
        if text.len() > most {
            self.add(
                field,
                format!("has {} bytes; {most} are the most", text.len()),
            );
        }
    }

    fn scope(&mut self, scope: &Scope) {
        let count = scope.tool_ids.len();
        if count > MAX_SCOPE {
            self.add(
                "scope.tool_ids",
                format!("names {count} tools; {MAX_SCOPE} are the most"),
            );
        }
    }

    fn dialect(&mut self, number: i32) -> Option<Dialect> {
        call_wire::dialect_from_proto(number).unwrap_or_else(|error| {
            self.add("dialect", error.to_string());
            None
        })
    }

    fn untrusted(&mut self, texts: &[String]) {
        let bytes: usize = texts.iter().map(String::len).sum();
        let (most, most_bytes) = MAX_UNTRUSTED;
        if texts.len() > most || bytes > most_bytes {
            let count = texts.len();
            let problem = format!(
                "are {count} texts of {bytes} bytes; {most} texts of {most_bytes} bytes are the most"
            );
            self.add("untrusted_texts", problem);
        }
    }

    fn json(&mut self, field: &'static str, text: &str) -> Option<Value> {
        if text.is_empty() {
            return None;
        }
        if text.len() > MAX_JSON {
            self.add(
                field,
                format!("has {} bytes; {MAX_JSON} are the most", text.len()),
            );
            return None;
        }
        match json_schema::parse_json_strict(text) {
            Ok(value) => Some(value),
            Err(error) => {
                self.add(field, format!("is no JSON: {error}"));
                None
            }
        }
    }

    fn or<T>(self, checked: T) -> Result<T, Vec<Problem>> {
        if self.0.is_empty() {
            Ok(checked)
        } else {
            Err(self.0)
        }
    }
}

/// How a text shall be read.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Reading {
    /// Which tools it may speak of.
    pub(crate) scope: Scope,
    /// The switches.
    pub(crate) policy: Policy,
    /// Why the model stopped.
    pub(crate) finish_reason: FinishReason,
    /// Untrusted texts that the model was shown.
    pub(crate) untrusted: Vec<String>,
    /// The native calls that came with the text.
    pub(crate) native: Option<Value>,
}

/// Checks a request to read a text.
pub(crate) fn check_parse(
    request: ParseTextRequest,
    max_text: usize,
) -> Result<(String, Reading), Vec<Problem>> {
    let mut problems = Problems::default();
    problems.text("text", &request.text, max_text);
    problems.untrusted(&request.untrusted_texts);
    let scope = Scope::from(request.scope);
    problems.scope(&scope);
    let dialect = problems.dialect(request.dialect);
    let reading = Reading {
        scope,
        policy: read_policy(request.policy, dialect),
        finish_reason: call_wire::finish_reason(&request.finish_reason),
        untrusted: request.untrusted_texts,
        native: problems.json("tool_calls_json", &request.tool_calls_json),
    };
    problems.or((request.text, reading))
}

/// Checks how a text that is still being written shall be read.
pub(crate) fn check_stream(start: StreamTextStart) -> Result<Reading, Vec<Problem>> {
    let mut problems = Problems::default();
    problems.untrusted(&start.untrusted_texts);
    let scope = Scope::from(start.scope);
    problems.scope(&scope);
    let dialect = problems.dialect(start.dialect);
    problems.or(Reading {
        scope,
        policy: read_policy(start.policy, dialect),
        finish_reason: FinishReason::Unknown,
        untrusted: start.untrusted_texts,
        native: None,
    })
}

/// Checks a request to write a call; gives the arguments and the dialect.
pub(crate) fn check_call(
    request: &RenderCallRequest,
) -> Result<(Map<String, Value>, Dialect), Vec<Problem>> {
    let mut problems = Problems::default();
    problems.scope(&request.scope.clone().into());
    let dialect = problems.dialect(request.dialect).unwrap_or(Dialect::Action);
    let arguments = match problems.json("arguments_json", &request.arguments_json) {
        Some(Value::Object(arguments)) => arguments,
        Some(_) => {
            problems.add("arguments_json", "is no JSON object");
            Map::new()
        }
        None => Map::new(),
    };
    problems.or((arguments, dialect))
}

/// What a request to start a run is about.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Invocation {
    /// A turn of an agent.
    Turn {
        /// What the turn begins with.
        input: Input,
    },
    /// The calls of a text without an agent.
    Calls {
        /// What the model wrote.
        text: String,
        /// How to read it.
        reading: Box<Reading>,
    },
}

/// Checks a request to start a run.
pub(crate) fn check_invoke(
    request: &InvokeTextRequest,
    max_text: usize,
) -> Result<Invocation, Vec<Problem>> {
    let mut problems = Problems::default();
    let scope = Scope::from(request.scope.clone());
    problems.scope(&scope);
    let dialect = problems.dialect(request.dialect);
    if request.continue_with_model && scope.without_agent() {
        problems.add(
            "continue_with_model",
            "needs an agent; name it in scope.profile_id",
        );
    }
    if !scope.without_agent() && !scope.tool_ids.is_empty() {
        let problem = "cannot narrow an agent's run; change the agent's inventory instead";
        problems.add("scope.tool_ids", problem);
    }
    if !scope.without_agent() && !request.tool_calls_json.is_empty() {
        problems.add(
            "tool_calls_json",
            "cannot be given for an agent, whose model is asked by us",
        );
    }
    problems.untrusted(&request.untrusted_texts);
    let reading = Box::new(Reading {
        scope: scope.clone(),
        policy: read_policy(request.policy, dialect),
        finish_reason: call_wire::finish_reason(&request.finish_reason),
        untrusted: request.untrusted_texts.clone(),
        native: problems.json("tool_calls_json", &request.tool_calls_json),
    });
    let invocation = match (request.input.clone(), scope.without_agent()) {
        (Some(Input::ModelText(text)), true) => {
            problems.text("model_text", &text, max_text);
            Invocation::Calls { text, reading }
        }
        (Some(Input::UserMessage(text)), true) => {
            problems.text("user_message", &text, max_text);
            let problem = "is empty; name the agent that shall answer the user's message";
            problems.add("scope.profile_id", problem);
            Invocation::Calls { text, reading }
        }
        (Some(input), false) => {
            let (field, text) = match &input {
                Input::ModelText(text) => ("model_text", text),
                Input::UserMessage(text) => ("user_message", text),
            };
            problems.text(field, text, max_text);
            Invocation::Turn { input }
        }
        (None, _) => {
            problems.add("input", "is missing; give model_text or user_message");
            Invocation::Calls {
                text: String::new(),
                reading,
            }
        }
    };
    problems.or(invocation)
}

/// How a prompt shall be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Style {
    pub(crate) dialect: Dialect,
    pub(crate) language: call_text::prompt::Language,
    pub(crate) detail: call_text::prompt::Detail,
}

/// Checks a request for a prompt.
pub(crate) fn check_render(request: &RenderToolsRequest) -> Result<Style, Vec<Problem>> {
    use call_text::prompt;

    let mut problems = Problems::default();
    problems.scope(&request.scope.clone().into());
    let dialect = problems.dialect(request.dialect).unwrap_or(Dialect::Action);
    let language = match Language::try_from(request.language) {
        Ok(Language::Chinese) => prompt::Language::Zh,
        Ok(Language::English | Language::Unspecified) => prompt::Language::En,
        Err(_) => {
            problems.add(
                "language",
                format!("{} names no language", request.language),
            );
            prompt::Language::En
        }
    };
    let detail = match Detail::try_from(request.detail) {
        Ok(Detail::Full | Detail::Unspecified) => prompt::Detail::Full,
        Ok(Detail::Brief) => prompt::Detail::Brief,
        Ok(Detail::Names) => prompt::Detail::Names,
        Err(_) => {
            problems.add(
                "detail",
                format!("{} names no degree of detail", request.detail),
            );
            prompt::Detail::Full
        }
    };
    problems.or(Style {
        dialect,
        language,
        detail,
    })
}

#[cfg(test)]
mod tests {
    use contracts::tavern::gateway::v1::ToolScope;

    use super::*;

    fn fields(problems: Vec<Problem>) -> Vec<&'static str> {
        problems.into_iter().map(|problem| problem.field).collect()
    }

    fn agent(profile_id: &str, tool_ids: &[&str]) -> Option<ToolScope> {
        let tool_ids = tool_ids.iter().map(|id| (*id).to_owned()).collect();
        Some(ToolScope {
            profile_id: profile_id.to_owned(),
            tool_ids,
        })
    }

    #[test]
    fn a_request_that_cannot_be_carried_out_names_every_wrong_field() {
        let model_text = |text: &str| Some(Input::ModelText(text.to_owned()));
        let user_message = |text: &str| Some(Input::UserMessage(text.to_owned()));
        let empty = InvokeTextRequest::default;
        for (request, wrong) in [
            (empty(), vec!["input"]),
            (
                InvokeTextRequest {
                    input: user_message("hi"),
                    ..empty()
                },
                vec!["scope.profile_id"],
            ),
            (
                InvokeTextRequest {
                    input: model_text("hi"),
                    continue_with_model: true,
                    ..empty()
                },
                vec!["continue_with_model"],
            ),
            (
                InvokeTextRequest {
                    input: model_text("too long"),
                    dialect: 99,
                    ..empty()
                },
                vec!["dialect", "model_text"],
            ),
            (
                InvokeTextRequest {
                    input: model_text("hi"),
                    scope: agent("ada", &["x"]),
                    ..empty()
                },
                vec!["scope.tool_ids"],
            ),
        ] {
            let problems = check_invoke(&request, 4).expect_err("the request is wrong");
            assert_eq!(fields(problems), wrong, "{request:?}");
        }
    }

    #[test]
    fn a_text_belongs_to_the_agent_that_is_named_or_to_nobody() {
        let input = Input::ModelText("hi".to_owned());
        let request = InvokeTextRequest {
            input: Some(input.clone()),
            ..Default::default()
        };
        let read = check_invoke(&request, 99).expect("nothing is wrong");
        assert!(matches!(read, Invocation::Calls { text, .. } if text == "hi"));
        let request = InvokeTextRequest {
            scope: agent("ada", &[]),
            ..request
        };
        assert_eq!(check_invoke(&request, 99), Ok(Invocation::Turn { input }));
    }
}
