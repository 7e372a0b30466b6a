//! Recorded streams of model APIs, each with its expected answer.

use std::fmt::Write as _;

use agent_domain::{
    message::{ChatMessage, Role},
    usage::Usage,
};
use call_text::native::{EndedCall, NativeCall};
use serde_json::json;

use super::{
    ModelRequest,
    api::{self, ModelApi},
};

/// A request without settings of the sampling.
pub(super) fn request(messages: &[(Role, &str)]) -> ModelRequest {
    let messages = messages.iter();
    let messages = messages.map(|(role, text)| ChatMessage::new(*role, *text));
    ModelRequest::new(
        core_types::Tenant::DEFAULT,
        messages.collect(),
        std::time::Instant::now(),
    )
}

/// A conversation in which a tool was called natively.
pub(super) fn request_after_a_call() -> ModelRequest {
    let mut request = request(&[(Role::User, "What is the weather?")]);
    request.messages.push(ChatMessage {
        calls: vec![NativeCall {
            id: "c1".to_owned(),
            name: "ReadWorldStateTool".to_owned(),
            arguments_json: r#"{"path":"weather"}"#.to_owned(),
        }],
        ..ChatMessage::new(Role::Assistant, "Let me look.")
    });
    let mist = "Observation: Tool ReadWorldStateTool executed successfully. Result: mist";
    request.messages.push(ChatMessage {
        result_of: Some(EndedCall {
            id: "c1".to_owned(),
            failed: false,
        }),
        ..ChatMessage::new(Role::Tool, mist)
    });
    request
        .messages
        .push(ChatMessage::new(Role::User, "Observation: Continue."));
    request.tools = vec![json!({"name": "ReadWorldStateTool", "parameters": {"type": "object"}})];
    request
}

/// Asserts that every `*.events` in `tests/golden/<api>` is read as the `*.expected` next to it.
/// With the variable `BLESS` set, the expectation is written anew.
pub(super) fn check_streams(api: &dyn ModelApi, at_least: usize) {
    let golden = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden"));
    let mut seen = 0;
    for entry in std::fs::read_dir(golden.join(api.kind())).unwrap() {
        let path = entry.unwrap().path();
        if path
            .extension()
            .is_none_or(|extension| extension != "events")
        {
            continue;
        }
        seen += 1;
        let actual = transcript(api, &std::fs::read_to_string(&path).unwrap());
        let expected = path.with_extension("expected");
        if std::env::var_os("BLESS").is_some() {
            std::fs::write(&expected, &actual).unwrap();
        }
        assert_eq!(
            actual,
            std::fs::read_to_string(&expected).unwrap_or_default(),
            "{}",
            path.display()
        );
    }
    assert!(seen >= at_least, "only {seen} streams were found");
}

/// Plays the events of `input`, one line of data each, and writes the results down.
fn transcript(api: &dyn ModelApi, input: &str) -> String {
    let mut assembly = api.assembly();
    let mut written = String::new();
    for data in input.lines().filter(|line| !line.is_empty()) {
        match api::push(assembly.as_mut(), data) {
            Ok(pieces) => pieces
                .iter()
                .for_each(|piece| writeln!(written, "{piece:?}").unwrap()),
            Err(error) => {
                writeln!(written, "error {}: {error}", error.code()).unwrap();
                return written;
            }
        }
    }
    match assembly.finish("the connection was closed") {
        Ok(end) => {
            let Usage {
                input_tokens,
                cache_read_tokens,
                cache_write_tokens,
                output_tokens,
            } = end.usage;
            writeln!(
                written,
                "end {} in {input_tokens} read {cache_read_tokens} written {cache_write_tokens} out {output_tokens}",
                end.finish_reason
            )
            .unwrap();
            if let Some(calls) = end.tool_calls {
                writeln!(written, "calls {calls}").unwrap();
            }
        }
        Err(error) => writeln!(written, "error {}: {error}", error.code()).unwrap(),
    }
    written
}
