//! The client for OpenAI-compatible endpoints, over a socket.

use std::time::{Duration, Instant};

use agent_runtime::{
    domain::message::{ChatMessage, Role},
    provider::{ModelError, ModelRequest, Piece, Provider, openai::OpenAi},
    settings::OpenAiSettings,
};
use futures::StreamExt;
use settings::Secret;

use crate::endpoint::{Endpoint, Step, end, event, status, stream_head, text};

fn settings(endpoint: &Endpoint) -> OpenAiSettings {
    OpenAiSettings {
        base_url: endpoint.base_url.clone(),
        model: "small".to_owned(),
        first_byte_timeout: Duration::from_secs(20),
        idle_timeout: Duration::from_secs(20),
        ..OpenAiSettings::default()
    }
}

fn request() -> ModelRequest {
    ModelRequest {
        messages: vec![ChatMessage::new(Role::User, "hello")],
        max_output_tokens: None,
        temperature: None,
        top_p: None,
        seed: None,
        tools: Vec::new(),
        deadline: Instant::now() + Duration::from_secs(60),
    }
}

/// Asks and returns the text that came and how it ended.
async fn ask(settings: OpenAiSettings) -> (String, Result<Piece, ModelError>) {
    let client = OpenAi::new(settings, Some(&Secret::new("sk-secret"))).unwrap();
    let mut pieces = client.generate(request());
    let mut said = String::new();
    loop {
        match pieces
            .next()
            .await
            .expect("an answer ends with an end or an error")
        {
            Ok(Piece::Text(text)) => said.push_str(&text),
            Ok(Piece::Thinking(text)) => said.push_str(&format!("({text})")),
            ended => return (said, ended),
        }
    }
}

async fn error_of(settings: OpenAiSettings) -> ModelError {
    ask(settings).await.1.unwrap_err()
}

#[tokio::test]
async fn an_answer_streams_in_with_key_usage_and_reason() {
    let endpoint = Endpoint::start(vec![vec![
        stream_head(),
        event(r#"{"choices":[{"delta":{"reasoning_content":"hm"}}]}"#),
        Step::Send(": a comment\n\n".to_owned()),
        text("Hel"),
        text("lo 世界"),
        end("stop"),
    ]])
    .await;
    let (said, ended) = ask(settings(&endpoint)).await;
    assert_eq!(said, "(hm)Hello 世界");
    let Ok(Piece::End(end)) = ended else {
        panic!("{ended:?}")
    };
    assert_eq!(
        (
            end.finish_reason.as_str(),
            end.input_tokens,
            end.output_tokens
        ),
        ("stop", 7, 3)
    );
    let received = &endpoint.received()[0];
    assert!(
        received.head.starts_with("POST /v1/chat/completions "),
        "{}",
        received.head
    );
    assert!(received.head.contains("Bearer sk-secret"));
    assert_eq!(received.body["stream_options"]["include_usage"], true);
    assert_eq!(received.body["messages"][0]["content"], "hello");
}

#[tokio::test]
async fn a_character_that_is_cut_in_two_arrives_whole() {
    let event =
        "data: {\"choices\":[{\"delta\":{\"content\":\"世\"},\"finish_reason\":\"stop\"}]}\r\n\r\n";
    let whole = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n{event}"
    );
    let pieces = whole
        .chars()
        .map(|character| Step::Send(character.to_string()))
        .collect();
    let endpoint = Endpoint::start(vec![pieces]).await;
    assert_eq!(ask(settings(&endpoint)).await.0, "世");
}

#[tokio::test]
async fn after_429_the_request_is_sent_again_when_the_vendor_says() {
    let endpoint = Endpoint::start(vec![
        status(
            "429 Too Many Requests",
            "retry-after: 0\r\n",
            r#"{"error":{"message":"slow down"}}"#,
        ),
        status("503 Service Unavailable", "retry-after-ms: 1\r\n", "{}"),
        vec![stream_head(), text("ok"), end("stop")],
    ])
    .await;
    assert_eq!(ask(settings(&endpoint)).await.0, "ok");
    assert_eq!(endpoint.received().len(), 3);
}

#[tokio::test]
async fn a_wait_beyond_the_limit_fails_at_once_and_says_how_long() {
    let reply = status(
        "429 Too Many Requests",
        "retry-after: 3600\r\n",
        r#"{"error":{"message":"slow down"}}"#,
    );
    let endpoint = Endpoint::start(vec![reply]).await;
    let error = error_of(settings(&endpoint)).await;
    assert_eq!(error.retry_after(), Some(Duration::from_secs(3600)));
    assert_eq!(error.to_string(), "the endpoint answered 429: slow down");
    assert!(error.is_retryable());
    assert_eq!(endpoint.received().len(), 1);
}

#[tokio::test]
async fn retries_end() {
    let endpoint = Endpoint::start(vec![status(
        "503 Service Unavailable",
        "retry-after: 0\r\n",
        "",
    )])
    .await;
    let error = error_of(OpenAiSettings {
        retries: 2,
        ..settings(&endpoint)
    })
    .await;
    assert_eq!(error.status(), Some(503));
    assert_eq!(endpoint.received().len(), 3);
}

#[tokio::test]
async fn other_refusals_are_not_repeated_and_carry_the_vendors_words() {
    for (line, code) in [
        ("500 Internal Server Error", 500),
        ("401 Unauthorized", 401),
        ("302 Found", 302),
    ] {
        let endpoint =
            Endpoint::start(vec![status(line, "", r#"{"error":{"message":"because"}}"#)]).await;
        let error = error_of(settings(&endpoint)).await;
        assert_eq!(error.status(), Some(code));
        assert!(error.to_string().contains("because"));
        assert_eq!(endpoint.received().len(), 1, "{line}");
    }
}

#[tokio::test]
async fn a_stream_cut_in_the_middle_says_so_and_is_not_asked_for_again() {
    let endpoint = Endpoint::start(vec![vec![stream_head(), text("half an ans")]]).await;
    let (said, ended) = ask(settings(&endpoint)).await;
    assert_eq!(said, "half an ans");
    let error = ended.unwrap_err();
    assert!(
        matches!(error, ModelError::Cut { released: 11, .. }),
        "{error:?}"
    );
    assert_eq!(endpoint.received().len(), 1);
}

#[tokio::test]
async fn a_body_shorter_than_announced_is_a_cut() {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 9000\r\n\r\n";
    let endpoint = Endpoint::start(vec![vec![Step::Send(head.to_owned()), text("half")]]).await;
    assert!(matches!(
        error_of(settings(&endpoint)).await,
        ModelError::Cut { released: 4, .. }
    ));
}

#[tokio::test]
async fn what_is_no_event_of_an_answer_is_malformed() {
    for step in [
        event("{\"choices\": ["),
        event("[1]"),
        Step::Send("data: \u{1}\n\n".to_owned()),
    ] {
        let endpoint = Endpoint::start(vec![vec![stream_head(), step.clone()]]).await;
        let error = error_of(settings(&endpoint)).await;
        assert!(
            matches!(error, ModelError::Malformed(_)),
            "{step:?}: {error:?}"
        );
    }
}

#[tokio::test]
async fn an_error_in_the_stream_is_the_vendors() {
    let endpoint = Endpoint::start(vec![vec![
        stream_head(),
        text("half"),
        event(r#"{"error":{"message":"crashed"}}"#),
    ]])
    .await;
    let error = error_of(settings(&endpoint)).await;
    assert_eq!(
        error,
        ModelError::Vendor {
            message: "crashed".to_owned(),
            released: 4
        }
    );
}

#[tokio::test]
async fn a_stream_that_never_ends_is_ended() {
    let noise = serde_json::json!({"choices": [{"delta": {"content": "x".repeat(1_000)}}]});
    let endpoint = Endpoint::start(vec![vec![
        stream_head(),
        Step::SendForever(format!("data: {noise}\n\n")),
    ]])
    .await;
    assert!(matches!(
        error_of(settings(&endpoint)).await,
        ModelError::TooLarge { what: "text", .. }
    ));
    endpoint.client_gone().await;
}

#[tokio::test]
async fn comments_without_end_are_ended() {
    let comments = format!(": {}\n\n", "nothing ".repeat(8_000));
    let endpoint = Endpoint::start(vec![vec![stream_head(), Step::SendForever(comments)]]).await;
    assert!(matches!(
        error_of(settings(&endpoint)).await,
        ModelError::TooLarge { what: "a body", .. }
    ));
}

#[tokio::test]
async fn a_line_that_never_ends_is_ended() {
    let endpoint = Endpoint::start(vec![vec![
        stream_head(),
        Step::Send("data: ".to_owned()),
        Step::SendForever("x".repeat(64 << 10)),
    ]])
    .await;
    assert!(matches!(
        error_of(settings(&endpoint)).await,
        ModelError::TooLarge { what: "a line", .. }
    ));
}

#[tokio::test]
async fn silence_is_bounded_before_within_and_over_the_whole_answer() {
    let short = Duration::from_millis(150);
    let before = Endpoint::start(vec![vec![Step::Silence]]).await;
    let error = error_of(OpenAiSettings {
        first_byte_timeout: short,
        ..settings(&before)
    })
    .await;
    assert_eq!(
        error,
        ModelError::TimedOut {
            what: "to begin its answer",
            limit: short
        }
    );

    let within = Endpoint::start(vec![vec![stream_head(), text("half"), Step::Silence]]).await;
    let error = error_of(OpenAiSettings {
        idle_timeout: short,
        ..settings(&within)
    })
    .await;
    assert_eq!(
        error,
        ModelError::TimedOut {
            what: "for the next piece of its answer",
            limit: short
        }
    );

    let whole = Endpoint::start(vec![vec![
        stream_head(),
        Step::Drip(": still here\n\n".to_owned()),
    ]])
    .await;
    let error = error_of(OpenAiSettings {
        total_timeout: short,
        ..settings(&whole)
    })
    .await;
    assert_eq!(
        error,
        ModelError::TimedOut {
            what: "for its whole answer",
            limit: short
        }
    );
}

#[tokio::test]
async fn dropping_the_answer_ends_the_request() {
    let endpoint = Endpoint::start(vec![vec![stream_head(), text("half"), Step::Silence]]).await;
    let client = OpenAi::new(settings(&endpoint), None).unwrap();
    let mut pieces = client.generate(request());
    assert_eq!(
        pieces.next().await,
        Some(Ok(Piece::Text("half".to_owned())))
    );
    drop(pieces);
    endpoint.client_gone().await;
}

#[tokio::test]
async fn an_endpoint_that_is_down_is_named() {
    let endpoint = Endpoint::start(Vec::new()).await;
    let mut settings = settings(&endpoint);
    // Nothing listens on the port of a listener that is gone.
    let free = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    settings.base_url = format!("http://{free}/v1");
    let error = error_of(settings).await;
    assert!(
        matches!(&error, ModelError::Unreachable { endpoint, .. } if endpoint.contains(&free.to_string())),
        "{error:?}"
    );
}

#[tokio::test]
async fn an_endpoint_that_does_not_stream_is_read_whole() {
    let body = r#"{"choices":[{"message":{"content":"all at once"},"finish_reason":"stop"}]}"#;
    let endpoint = Endpoint::start(vec![status("200 OK", "", body)]).await;
    assert_eq!(ask(settings(&endpoint)).await.0, "all at once");
}

#[tokio::test]
async fn the_key_is_never_shown() {
    let endpoint = Endpoint::start(vec![status("401 Unauthorized", "", "{}")]).await;
    let client = OpenAi::new(settings(&endpoint), Some(&Secret::new("sk-secret"))).unwrap();
    assert!(!format!("{client:?}").contains("sk-secret"));
    let error = error_of(settings(&endpoint)).await;
    assert!(!format!("{error:?} {error}").contains("sk-secret"));
}

#[test]
fn an_address_that_is_none_is_refused() {
    for base_url in ["", "example.com", "ftp://example.com", "http://"] {
        let settings = OpenAiSettings {
            base_url: base_url.to_owned(),
            ..OpenAiSettings::default()
        };
        assert!(OpenAi::new(settings, None).is_err(), "{base_url}");
    }
}
