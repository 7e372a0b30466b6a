//! The usage of turns with models behind endpoints, and the secrets that they do not reveal.

use std::{
    io::Write,
    path::Path,
    sync::{Arc, Mutex},
};

use agent_domain::usage::Prices;
use contracts::tavern::{
    agent::v1::{GenerateRequest, generate_response::Piece},
    common::v1::{
        ChatMessage, ChatRole, ModelAnswered, ModelTotal, ModelUsage, RunState, run_event::Kind,
    },
};
use doubles::TestRegistry;
use model_client::{EndpointSettings, ModelSettings};
use serde_json::json;

use crate::{
    endpoint::{self, Endpoint, Step, end, event, status, stream_head, text},
    world::{Ended, World, says},
};

const KEY: &str = "sk-never-shown";

/// Makes a world whose agent calls the endpoint, with a key from a file.
pub(crate) fn world_with(endpoint: &Endpoint, settings: EndpointSettings) -> World {
    let mut world = World::new(TestRegistry::default(), &[], &json!([]));
    let key = world.directory.path().join("key");
    std::fs::write(&key, KEY).unwrap();
    let settings = EndpointSettings {
        api_key_env: None,
        api_key_file: Some(key),
        base_url: endpoint.base_url.clone(),
        ..settings
    };
    let house = ModelSettings::Openai(settings);
    world.settings.models.insert("play".to_owned(), house);
    world
}

pub(crate) fn priced() -> Option<Prices> {
    Some(Prices {
        input: 3_000_000,
        output: 15_000_000,
        ..Prices::default()
    })
}

fn answered(ended: &Ended) -> &ModelAnswered {
    let mut kinds = ended.events.iter().filter_map(|event| event.kind.as_ref());
    kinds
        .find_map(|kind| match kind {
            Kind::ModelAnswered(answered) => Some(answered),
            _ => None,
        })
        .unwrap()
}

#[tokio::test]
async fn an_answer_and_its_turn_state_usage_cost_and_failed_attempts() {
    let endpoint = Endpoint::start(vec![
        status("429 Too Many Requests", "retry-after: 0\r\n", "{}"),
        vec![stream_head(), text("Hello."), end("stop")],
    ])
    .await;
    let settings = EndpointSettings {
        price_per_million_micros: priced(),
        ..endpoint::settings(&endpoint)
    };
    let running = world_with(&endpoint, settings).build().await;
    let ended = running.play(says("hi")).await;
    let answered = answered(&ended);
    let usage = ModelUsage {
        input_tokens: 7,
        output_tokens: 3,
        cost_micros: Some(7 * 3 + 3 * 15),
        currency: "USD".to_owned(),
        ..ModelUsage::default()
    };
    assert_eq!(answered.usage.as_ref(), Some(&usage));
    let [attempt] = answered.failed_attempts.as_slice() else {
        panic!("{:?}", answered.failed_attempts)
    };
    assert_eq!(
        (attempt.model.as_str(), attempt.code.as_str()),
        ("play", "model_rate_limited")
    );
    let total = ModelTotal {
        model: "play".to_owned(),
        answers: 1,
        usage: Some(usage),
    };
    assert_eq!(ended.run.outcome.unwrap().model_totals, [total]);
}

#[tokio::test]
async fn what_an_endpoint_does_not_count_is_estimated() {
    let stop = event(r#"{"choices":[{"delta":{"content":"1234"},"finish_reason":"stop"}]}"#);
    let endpoint = Endpoint::start(vec![vec![stream_head(), stop]]).await;
    let settings = EndpointSettings {
        price_per_million_micros: priced(),
        ..endpoint::settings(&endpoint)
    };
    let running = world_with(&endpoint, settings).build().await;
    let request = GenerateRequest {
        model: "play".to_owned(),
        messages: vec![ChatMessage {
            role: ChatRole::User.into(),
            text: "hello".to_owned(),
            ..ChatMessage::default()
        }],
        ..GenerateRequest::default()
    };
    let mut pieces = running
        .model
        .clone()
        .generate(request)
        .await
        .unwrap()
        .into_inner();
    let mut last = None;
    while let Some(piece) = pieces.message().await.unwrap() {
        last = piece.piece;
    }
    let Some(Piece::End(end)) = last else {
        panic!("{last:?}")
    };
    let usage = end.usage.unwrap();
    assert!(usage.estimated);
    assert_eq!((usage.input_tokens, usage.output_tokens), (2, 2));
    assert_eq!(usage.cost_micros, Some(2 * 3 + 2 * 15));
    assert_eq!((end.input_tokens, end.model.as_str()), (0, "play"));
}

#[tokio::test]
async fn the_trace_of_a_turn_continues_at_the_endpoint() {
    let answer = vec![stream_head(), text("Hello."), end("stop")];
    let endpoint = Endpoint::start(vec![answer]).await;
    let settings = endpoint::settings(&endpoint);
    let running = world_with(&endpoint, settings).build().await;
    let ended = running.play(says("hi")).await;
    let head = &endpoint.received()[0].head;
    let trace = head
        .lines()
        .find_map(|line| line.strip_prefix("traceparent: 00-"))
        .unwrap_or_else(|| panic!("{head}"));
    assert!(trace.starts_with(&ended.events[0].trace_id), "{trace}");
}

#[tokio::test]
async fn a_key_that_the_endpoint_repeats_is_in_no_event_log_or_file() {
    let logged = Logged::default();
    let writer = logged.clone();
    let layer = tracing_subscriber::fmt::layer().with_writer(move || writer.clone());
    telemetry::init_for_tests_with(layer);
    let message = format!("Incorrect API key provided: {KEY}");
    let body = json!({"error": {"message": message, "code": "invalid_api_key"}});
    let refused = status("401 Unauthorized", "", &body.to_string());
    let busy = status(
        "503 Service Unavailable",
        "retry-after: 0\r\n",
        &body.to_string(),
    );
    let in_stream: Vec<Step> = vec![stream_head(), event(&body.to_string())];
    let endpoint = Endpoint::start(vec![busy, refused, in_stream]).await;
    let settings = endpoint::settings(&endpoint);
    let world = world_with(&endpoint, settings);
    let running = world.build().await;
    for _ in 0..2 {
        let ended = running.play(says("hi")).await;
        assert_eq!(ended.run.state(), RunState::Failed);
        assert!(!format!("{:?} {:?}", ended.events, ended.run).contains(KEY));
        let error = ended.run.outcome.unwrap().error.unwrap();
        assert!(error.message.contains("Incorrect API key provided: [key]"));
    }
    assert_eq!(endpoint.received().len(), 3);
    let logged = String::from_utf8(logged.bytes.lock().unwrap().clone()).unwrap();
    assert!(logged.contains("a request to a model failed"), "{logged}");
    assert!(!logged.contains(KEY));
    let holding = files_with(&world.settings.data_dir, KEY.as_bytes());
    assert!(holding.is_empty(), "{holding:?}");
}

/// The captured log output.
#[derive(Clone, Default)]
struct Logged {
    bytes: Arc<Mutex<Vec<u8>>>,
}

impl Write for Logged {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.bytes.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Returns the files of a directory that hold these bytes.
fn files_with(directory: &Path, wanted: &[u8]) -> Vec<std::path::PathBuf> {
    let mut holding = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            holding.extend(files_with(&path, wanted));
            continue;
        }
        let bytes = std::fs::read(&path).unwrap();
        if bytes.windows(wanted.len()).any(|window| window == wanted) {
            holding.push(path);
        }
    }
    holding
}
