use super::*;
use crate::{
    api::MAX_TOOL_CALLS,
    golden::{check_streams, request, request_after_a_call},
};

#[test]
fn every_recorded_stream_comes_to_what_is_written_beside_it() {
    check_streams(&OpenAi, 10);
}

#[test]
fn a_request_is_written_as_the_golden_file_says() {
    let mut asked = request(&[
        (Role::System, "You are Ada."),
        (Role::User, "雨?"),
        (Role::Assistant, "  "),
        (Role::Assistant, "<ACTION>"),
        (Role::User, "Observation: \"no\"\n"),
    ]);
    asked.max_output_tokens = Some(300);
    asked.temperature = Some(0.25);
    asked.top_p = Some(0.5);
    asked.seed = Some(7);
    asked.tools = vec![json!({"name": "rain", "parameters": {"type": "object"}})];
    let body = serde_json::to_string_pretty(&OpenAi.request_body("small-model", &asked)).unwrap();
    let expected = include_str!("../../tests/golden/openai/request.json");
    assert_eq!(body.trim(), expected.trim());
}

#[test]
fn what_is_not_asked_for_is_left_to_the_endpoint() {
    let body = OpenAi.request_body("m", &request(&[(Role::User, "x")]));
    assert!(body.get("max_tokens").is_none() && body.get("temperature").is_none());
}

#[test]
fn a_whole_answer_is_read_like_a_streamed_one() {
    let body = json!({
        "choices": [{
            "message": {"role": "assistant", "content": "Hi", "reasoning_content": "hm"},
            "finish_reason": "stop"
        }],
        "usage": {"prompt_tokens": 3, "completion_tokens": 1}
    });
    let (pieces, end) = OpenAi.completion(&body).unwrap();
    assert_eq!(
        pieces,
        [
            Piece::Thinking("hm".to_owned()),
            Piece::Text("Hi".to_owned())
        ]
    );
    assert_eq!(
        (
            end.finish_reason.as_str(),
            end.usage.input_tokens,
            end.usage.output_tokens
        ),
        ("stop", 3, 1)
    );
    assert!(OpenAi.completion(&json!({})).is_err());
}

#[test]
fn an_answer_without_end_is_bounded() {
    let mut assembly = OpenAi.assembly();
    let piece = json!({"choices": [{"delta": {"content": "x".repeat(100_000)}}]});
    let error = (0..10).find_map(|_| assembly.push(&piece).err()).unwrap();
    assert_eq!(error.code(), "model_answer_too_large");
    let mut assembly = OpenAi.assembly();
    let function = json!({"name": "f", "arguments": "{}"});
    let call = json!({"choices": [{"delta": {"tool_calls": [{"id": "c", "function": function}]}}]});
    let error = (0..=MAX_TOOL_CALLS)
        .find_map(|_| assembly.push(&call).err())
        .unwrap();
    assert_eq!(error.code(), "model_malformed");
}

#[test]
fn a_native_call_and_its_result_go_back_in_the_form_of_the_api() {
    let mut asked = request_after_a_call();
    asked.may_call = false;
    let body = OpenAi.request_body("m", &asked);
    let function = json!({"name": "ReadWorldStateTool", "arguments": r#"{"path":"weather"}"#});
    let expected = json!([
        {"role": "user", "content": "What is the weather?"},
        {"role": "assistant", "content": "Let me look.",
         "tool_calls": [{"id": "c1", "type": "function", "function": function}]},
        {"role": "tool", "tool_call_id": "c1",
         "content": "Observation: Tool ReadWorldStateTool executed successfully. Result: mist"},
        {"role": "user", "content": "Observation: Continue."},
    ]);
    assert_eq!(body["messages"], expected);
    assert_eq!(body["tool_choice"], "none");
}
