use super::*;
use crate::{
    api::MAX_TOOL_CALLS,
    golden::{check_streams, request, request_after_a_call},
};

#[test]
fn every_recorded_stream_comes_to_what_is_written_beside_it() {
    check_streams(&Anthropic, 10);
}

#[test]
fn a_request_is_written_as_the_golden_file_says() {
    let mut asked = request(&[
        (Role::System, "You are Elara."),
        (Role::System, "Be brief."),
        (Role::User, "What is the weather?"),
        (Role::Assistant, "Let me look.  \n"),
        (Role::Assistant, "<ACTION>"),
        (Role::Assistant, "  "),
        (Role::User, "Observation: mist\n"),
        (Role::System, "Notice: no calls remain."),
        (Role::User, ""),
    ]);
    asked.max_output_tokens = Some(600);
    asked.temperature = Some(0.25);
    asked.top_p = Some(0.5);
    asked.seed = Some(7);
    asked.tools = vec![json!({
        "name": "ReadWorldStateTool",
        "description": "Reads a value from the shared world state.",
        "parameters": {
            "type": "object",
            "properties": {"path": {"type": "string"}},
            "required": ["path"],
            "additionalProperties": false
        }
    })];
    let body = serde_json::to_string_pretty(&Anthropic.request_body("m", &asked)).unwrap();
    let expected = include_str!("../../tests/golden/anthropic/request.json");
    assert_eq!(body.trim(), expected.trim());
}

#[test]
fn the_first_message_is_the_users_and_the_limit_is_always_sent() {
    for messages in [
        &[(Role::Assistant, "Welcome.")][..],
        &[(Role::System, "You are Elara.")],
    ] {
        let body = Anthropic.request_body("m", &request(messages));
        assert_eq!(body["messages"][0]["role"], "user");
        assert_eq!(body["messages"][0]["content"][0]["text"], BEGINNING);
        assert_eq!(body["max_tokens"], DEFAULT_MAX_TOKENS);
    }
}

#[test]
fn a_whole_answer_is_read_like_a_streamed_one() {
    let body = json!({
        "type": "message",
        "content": [
            {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
            {"type": "text", "text": "Hi"},
            {"type": "tool_use", "id": "c1", "name": "read", "input": {"path": "a"}}
        ],
        "stop_reason": "tool_use",
        "usage": {"input_tokens": 3, "cache_read_input_tokens": 2, "output_tokens": 1}
    });
    let (pieces, end) = Anthropic.completion(&body).unwrap();
    assert_eq!(
        pieces,
        [
            Piece::Thinking("hm".to_owned()),
            Piece::Text("Hi".to_owned())
        ]
    );
    assert_eq!(end.finish_reason, "tool_calls");
    assert_eq!(
        (end.usage.input_tokens, end.usage.cache_read_tokens),
        (5, 2)
    );
    let calls = end.native_calls().calls;
    assert_eq!(
        (calls[0].name.as_str(), calls[0].arguments_json.as_str()),
        ("read", r#"{"path":"a"}"#)
    );
    assert!(Anthropic.completion(&json!({})).is_err());
}

#[test]
fn an_answer_without_end_is_bounded() {
    let mut assembly = Anthropic.assembly();
    let piece = json!({"type": "content_block_delta", "index": 0,
                       "delta": {"type": "text_delta", "text": "x".repeat(100_000)}});
    let error = (0..10).find_map(|_| assembly.push(&piece).err()).unwrap();
    assert_eq!(error.code(), "model_answer_too_large");
    let mut assembly = Anthropic.assembly();
    let block = json!({"type": "tool_use", "id": "c", "name": "f", "input": {}});
    let error = (0..=MAX_TOOL_CALLS)
        .find_map(|index| {
            let start =
                json!({"type": "content_block_start", "index": index, "content_block": block});
            assembly.push(&start).err()
        })
        .unwrap();
    assert_eq!(error.code(), "model_malformed");
}

#[test]
fn a_native_call_and_its_result_go_back_in_the_form_of_the_api() {
    let mut asked = request_after_a_call();
    asked.may_call = false;
    let body = Anthropic.request_body("m", &asked);
    let text = |text: &str| json!({"type": "text", "text": text});
    let result = "Observation: Tool ReadWorldStateTool executed successfully. Result: mist";
    let expected = json!([
        {"role": "user", "content": [text("What is the weather?")]},
        {"role": "assistant", "content": [
            text("Let me look."),
            {"type": "tool_use", "id": "c1", "name": "ReadWorldStateTool", "input": {"path": "weather"}},
        ]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "c1", "content": result, "is_error": false},
            text("Observation: Continue."),
        ]},
    ]);
    assert_eq!(body["messages"], expected);
    assert_eq!(body["tool_choice"], json!({"type": "none"}));
    asked.tools.clear();
    let body = Anthropic.request_body("m", &asked);
    let declared = json!([{"name": "ReadWorldStateTool", "input_schema": {"type": "object"}}]);
    assert_eq!((&body["tools"], &body["messages"]), (&declared, &expected));
    assert_eq!(body["tool_choice"], json!({"type": "none"}));
}
