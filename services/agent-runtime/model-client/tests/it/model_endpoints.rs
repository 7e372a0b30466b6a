//! Models behind endpoints, over a socket.

use std::{
    collections::{BTreeMap, HashMap},
    path::Path,
    time::{Duration, Instant},
};

use agent_domain::message::{ChatMessage, Role};
use core_types::Tenant;
use futures::StreamExt;
use model_client::{
    EndpointSettings, Model, ModelError, ModelRequest, ModelSettings, Models, Piece,
};
use tenancy::Tenants;

use crate::endpoint::{Endpoint, Step, end, event, settings, status, stream_head, text};

pub(crate) fn request() -> ModelRequest {
    let messages = vec![ChatMessage::new(Role::User, "hello")];
    let deadline = Instant::now() + Duration::from_secs(60);
    ModelRequest::new(Tenant::DEFAULT, messages, deadline)
}

/// Sets models up; the variable `KEY` holds a key.
pub(crate) fn models<const N: usize>(named: [(&str, ModelSettings); N]) -> Models {
    let named: BTreeMap<String, ModelSettings> = named
        .into_iter()
        .map(|(name, settings)| (name.to_owned(), settings))
        .collect();
    let variables = HashMap::from([("KEY".to_owned(), "sk-secret".to_owned())]);
    Models::build(&named, Path::new("."), &variables, &Tenants::default()).unwrap()
}

pub(crate) fn model(settings: ModelSettings) -> Model {
    models([("house", settings)]).get("house").unwrap()
}

/// Requests an answer, and returns its text and its end.
pub(crate) async fn ask_model(model: &Model) -> (String, Result<Piece, ModelError>) {
    let mut pieces = model.generate(request());
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

pub(crate) async fn ask(settings: EndpointSettings) -> (String, Result<Piece, ModelError>) {
    ask_model(&model(ModelSettings::Openai(settings))).await
}

pub(crate) async fn error_of(settings: EndpointSettings) -> ModelError {
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
            end.usage.input_tokens,
            end.usage.output_tokens
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
    let ModelError::Vendor { refusal, released } = error else {
        panic!("{error:?}")
    };
    assert_eq!((refusal.status, refusal.message.as_str()), (500, "crashed"));
    assert_eq!(released, 4);
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
    let check = async |steps, limit: fn(&mut EndpointSettings) -> &mut Duration, what| {
        let endpoint = Endpoint::start(vec![steps]).await;
        let mut settings = settings(&endpoint);
        *limit(&mut settings) = short;
        let expected = ModelError::TimedOut { what, limit: short };
        assert_eq!(error_of(settings).await, expected);
    };
    let signs = Step::Drip(": still here\n\n".to_owned());
    let begins = "to begin its answer";
    check(
        vec![Step::Silence],
        |of| &mut of.first_token_timeout,
        begins,
    )
    .await;
    let queued = vec![stream_head(), signs.clone()];
    check(queued.clone(), |of| &mut of.first_token_timeout, begins).await;
    let within = vec![stream_head(), text("half"), signs];
    let piece = "for the next piece of its answer";
    check(within, |of| &mut of.token_gap_timeout, piece).await;
    check(queued, |of| &mut of.total_timeout, "for its whole answer").await;
}

#[tokio::test]
async fn dropping_the_answer_ends_the_request() {
    let endpoint = Endpoint::start(vec![vec![stream_head(), text("half"), Step::Silence]]).await;
    let model = model(ModelSettings::Openai(settings(&endpoint)));
    let mut pieces = model.generate(request());
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
    settings.retries = 0;
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
    let model = model(ModelSettings::Openai(settings(&endpoint)));
    assert!(!format!("{model:?}").contains("sk-secret"));
    let error = error_of(settings(&endpoint)).await;
    assert!(!format!("{error:?} {error}").contains("sk-secret"));
}

#[test]
fn an_address_that_is_none_is_refused() {
    for base_url in ["", "example.com", "ftp://example.com", "http://"] {
        let settings = EndpointSettings {
            base_url: base_url.to_owned(),
            ..EndpointSettings::default()
        };
        let named = BTreeMap::from([("house".to_owned(), ModelSettings::Openai(settings))]);
        let built = Models::build(&named, Path::new("."), &HashMap::new(), &Tenants::default());
        assert!(built.is_err(), "{base_url}");
    }
}

/// Plays the events of a recorded stream of Anthropic's.
fn recorded(events: &str) -> Vec<Step> {
    let mut steps = vec![stream_head()];
    steps.extend(events.lines().map(event));
    steps
}

#[tokio::test]
async fn an_anthropic_endpoint_streams_thinking_text_calls_and_usage() {
    let stream = include_str!("../golden/anthropic/thinking_text_and_a_call.events");
    let endpoint = Endpoint::start(vec![recorded(stream)]).await;
    let (said, ended) = ask_model(&model(ModelSettings::Anthropic(settings(&endpoint)))).await;
    assert_eq!(said, "(Mist)Mist lies on the path.");
    let Ok(Piece::End(end)) = ended else {
        panic!("{ended:?}")
    };
    assert_eq!(
        (end.finish_reason.as_str(), end.model.as_str()),
        ("tool_calls", "house")
    );
    let usage = end.usage;
    assert_eq!(
        (
            usage.input_tokens,
            usage.cache_read_tokens,
            usage.output_tokens
        ),
        (120, 64, 31)
    );
    assert_eq!(end.native_calls().calls[0].name, "ReadWorldStateTool");
    let received = &endpoint.received()[0];
    assert!(
        received.head.starts_with("POST /v1/messages "),
        "{}",
        received.head
    );
    assert!(received.head.contains("x-api-key: sk-secret"));
    assert!(received.head.contains("anthropic-version: 2023-06-01"));
    assert_eq!(received.body["messages"][0]["role"], "user");
}

#[tokio::test]
async fn a_web_page_with_status_200_is_named() {
    let page = "<!doctype html><title>Sign in</title>";
    for media_type in ["text/html", "text/plain", "application/json"] {
        let head =
            format!("HTTP/1.1 200 OK\r\ncontent-type: {media_type}\r\nconnection: close\r\n\r\n");
        let endpoint = Endpoint::start(vec![vec![Step::Send(format!("{head}{page}"))]]).await;
        let error = error_of(settings(&endpoint)).await;
        assert_eq!(error.code(), "model_not_an_api", "{media_type}");
    }
}

#[tokio::test]
async fn a_key_in_a_file_is_read_for_every_request() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("key");
    let answer = vec![stream_head(), text("ok"), end("stop")];
    let endpoint = Endpoint::start(vec![answer]).await;
    let model = model(ModelSettings::Openai(EndpointSettings {
        api_key_env: None,
        api_key_file: Some(file.clone()),
        ..settings(&endpoint)
    }));
    assert_eq!(
        ask_model(&model).await.1.unwrap_err().code(),
        "model_key_unreadable"
    );
    for key in ["sk-first", "sk-second"] {
        std::fs::write(&file, format!("{key}\n")).unwrap();
        assert_eq!(ask_model(&model).await.0, "ok");
        let received = endpoint.received();
        assert!(received.last().unwrap().head.contains(key));
    }
}
