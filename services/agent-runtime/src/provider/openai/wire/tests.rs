use std::fmt::Write as _;

use super::*;
use crate::domain::message::ChatMessage;

fn request(messages: &[(Role, &str)]) -> ModelRequest {
    ModelRequest {
        messages: messages
            .iter()
            .map(|(role, text)| ChatMessage::new(*role, *text))
            .collect(),
        max_output_tokens: None,
        temperature: None,
        top_p: None,
        seed: None,
        tools: Vec::new(),
        deadline: std::time::Instant::now(),
    }
}

/// Plays the events of `input`, one line of data each, and writes down what came of them.
fn transcript(input: &str) -> String {
    let mut assembly = Assembly::default();
    let mut written = String::new();
    for data in input.lines().filter(|line| !line.is_empty()) {
        match assembly.push(data) {
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
            writeln!(
                written,
                "end {} in {} out {}",
                end.finish_reason, end.input_tokens, end.output_tokens
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

/// Every `*.events` in the directory beside this crate has the expected `*.expected`. With the
/// variable `BLESS` set, the expectation is written anew.
#[test]
fn every_recorded_stream_comes_to_what_is_written_beside_it() {
    let directory =
        std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/openai"));
    let mut seen = 0;
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path
            .extension()
            .is_none_or(|extension| extension != "events")
        {
            continue;
        }
        seen += 1;
        let actual = transcript(&std::fs::read_to_string(&path).unwrap());
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
    assert!(seen >= 10, "only {seen} streams were found");
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
    let body = serde_json::to_string_pretty(&request_body("small-model", &asked)).unwrap();
    let expected = include_str!("../../../../tests/golden/openai/request.json");
    assert_eq!(body.trim(), expected.trim());
}

#[test]
fn what_is_not_asked_for_is_left_to_the_endpoint() {
    let body = request_body("m", &request(&[(Role::User, "x")]));
    assert!(body.get("max_tokens").is_none() && body.get("temperature").is_none());
}

#[test]
fn a_whole_answer_is_read_like_a_streamed_one() {
    let (pieces, end) = completion(
        r#"{"choices":[{"message":{"role":"assistant","content":"Hi","reasoning_content":"hm"},"finish_reason":"stop"}],
            "usage":{"prompt_tokens":3,"completion_tokens":1}}"#,
    )
    .unwrap();
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
            end.input_tokens,
            end.output_tokens
        ),
        ("stop", 3, 1)
    );
    assert!(completion("{}").is_err() && completion("<html>").is_err());
}

#[test]
fn the_words_of_a_vendor_are_found_and_cut() {
    let long = "x".repeat(2_000);
    let cases = [
        (
            r#"{"error":{"message":"no such model","type":"t"}}"#,
            "no such model",
        ),
        (r#"{"error":"overloaded"}"#, "overloaded"),
        (r#"{"detail":"nope"}"#, "nope"),
        ("<html>\n502</html>", "<html> 502</html>"),
        ("", "it gave no reason"),
        (long.as_str(), &long[..500]),
    ];
    for (body, expected) in cases {
        assert_eq!(vendor_message(body), expected);
    }
}

#[test]
fn the_wait_is_read_in_every_form() {
    let now = httpdate::parse_http_date("Fri, 20 Nov 2026 10:00:00 GMT").unwrap();
    let cases = [
        (None, Some("7"), Some(Duration::from_secs(7))),
        (None, Some("0.5"), Some(Duration::from_millis(500))),
        (Some("250"), Some("7"), Some(Duration::from_millis(250))),
        (
            None,
            Some("Fri, 20 Nov 2026 10:00:30 GMT"),
            Some(Duration::from_secs(30)),
        ),
        (
            None,
            Some("Fri, 20 Nov 2026 09:00:00 GMT"),
            Some(Duration::ZERO),
        ),
        (None, Some("soon"), None),
        (None, Some("-3"), None),
        (None, None, None),
    ];
    for (milliseconds, header, expected) in cases {
        assert_eq!(
            retry_after(milliseconds, header, now),
            expected,
            "{header:?}"
        );
    }
}

#[test]
fn an_answer_without_end_is_bounded() {
    let mut assembly = Assembly::default();
    let piece =
        serde_json::json!({"choices": [{"delta": {"content": "x".repeat(100_000)}}]}).to_string();
    let error = (0..10).find_map(|_| assembly.push(&piece).err()).unwrap();
    assert_eq!(error.code(), "model_answer_too_large");
    let mut assembly = Assembly::default();
    let call = r#"{"choices":[{"delta":{"tool_calls":[{"id":"c","function":{"name":"f","arguments":"{}"}}]}}]}"#;
    let error = (0..=MAX_TOOL_CALLS)
        .find_map(|_| assembly.push(call).err())
        .unwrap();
    assert_eq!(error.code(), "model_malformed");
}
