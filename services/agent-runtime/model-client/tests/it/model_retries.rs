//! Retries of requests, and fallbacks of models.

use std::time::Duration;

use model_client::{EndpointSettings, ModelSettings, Piece};

use crate::{
    endpoint::{Endpoint, end, settings, status, stream_head, text},
    model_endpoints::{ask, ask_model, error_of, models},
};

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
    let error = error_of(EndpointSettings {
        retries: 2,
        ..settings(&endpoint)
    })
    .await;
    assert_eq!(error.status(), Some(503));
    assert_eq!(endpoint.received().len(), 3);
}

#[tokio::test]
async fn refusals_for_good_are_not_repeated_and_carry_the_vendors_words() {
    let quota = r#"{"error":{"message":"because","code":"insufficient_quota"}}"#;
    let because = r#"{"error":{"message":"because"}}"#;
    for (line, headers, body, code) in [
        ("401 Unauthorized", "", because, 401),
        ("302 Found", "", because, 302),
        (
            "503 Service Unavailable",
            "x-should-retry: false\r\n",
            because,
            503,
        ),
        ("429 Too Many Requests", "retry-after: 0\r\n", quota, 429),
    ] {
        let endpoint = Endpoint::start(vec![status(line, headers, body)]).await;
        let error = error_of(settings(&endpoint)).await;
        assert_eq!(error.status(), Some(code));
        assert!(error.to_string().contains("because"));
        assert_eq!(endpoint.received().len(), 1, "{line}");
    }
}

#[tokio::test]
async fn the_failed_attempts_are_in_the_end_of_the_answer() {
    let overloaded =
        r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;
    let stream = include_str!("../golden/anthropic/ends_with_end_turn.events");
    let mut answer = vec![stream_head()];
    answer.extend(stream.lines().map(crate::endpoint::event));
    let endpoint = Endpoint::start(vec![
        status("529 Overloaded", "retry-after-ms: 3\r\n", overloaded),
        answer,
    ])
    .await;
    let models = models([("house", ModelSettings::Anthropic(settings(&endpoint)))]);
    let (said, ended) = ask_model(&models.get("house").unwrap()).await;
    let Ok(Piece::End(end)) = ended else {
        panic!("{ended:?}")
    };
    assert_eq!((said.as_str(), end.finish_reason.as_str()), ("Hi", "stop"));
    let [attempt] = end.failed_attempts.as_slice() else {
        panic!("{:?}", end.failed_attempts)
    };
    assert_eq!(
        (attempt.model.as_str(), attempt.code),
        ("house", "model_refused")
    );
    assert_eq!(attempt.message, "the endpoint answered 529: Overloaded");
    assert_eq!(attempt.wait, Duration::from_millis(3));
}

#[tokio::test]
async fn fallbacks_are_asked_in_order_before_any_text_is_out() {
    let refusing = Endpoint::start(vec![status("401 Unauthorized", "", "{}")]).await;
    let page = Endpoint::start(vec![status("200 OK", "", "<html>")]).await;
    let answering = Endpoint::start(vec![vec![stream_head(), text("ok"), end("stop")]]).await;
    let house = EndpointSettings {
        fallbacks: vec!["second".to_owned(), "third".to_owned()],
        ..settings(&refusing)
    };
    let models = models([
        ("house", ModelSettings::Openai(house)),
        ("second", ModelSettings::Anthropic(settings(&page))),
        ("third", ModelSettings::Openai(settings(&answering))),
    ]);
    let (said, ended) = ask_model(&models.get("house").unwrap()).await;
    let Ok(Piece::End(end)) = ended else {
        panic!("{ended:?}")
    };
    assert_eq!((said.as_str(), end.model.as_str()), ("ok", "third"));
    let failed: Vec<_> = end
        .failed_attempts
        .iter()
        .map(|attempt| (attempt.model.as_str(), attempt.code))
        .collect();
    assert_eq!(
        failed,
        [("house", "model_refused"), ("second", "model_not_an_api")]
    );
}

#[tokio::test]
async fn once_text_is_out_no_fallback_is_asked() {
    let cut = Endpoint::start(vec![vec![stream_head(), text("half")]]).await;
    let spare = Endpoint::start(vec![vec![stream_head(), text("ok"), end("stop")]]).await;
    let house = EndpointSettings {
        fallbacks: vec!["spare".to_owned()],
        ..settings(&cut)
    };
    let models = models([
        ("house", ModelSettings::Openai(house)),
        ("spare", ModelSettings::Openai(settings(&spare))),
    ]);
    let (said, ended) = ask_model(&models.get("house").unwrap()).await;
    assert_eq!(said, "half");
    assert_eq!(ended.unwrap_err().code(), "model_stream_cut");
    assert!(spare.received().is_empty());
}
