//! Runs of another service: followed, cancelled, gone.

use std::{future::pending, net::TcpListener, time::Duration};

use contracts::tavern::{
    common::v1::{TextDelta, run_event::Kind},
    workflow::v1::StartRunRequest,
};
use futures::StreamExt;
use grpc_kit::{CallContext, ClientSettings, Services, Transport};
use run_client::{ChildRequest, ChildRun, Followed, policy::RUN_GRACE};
use run_events::{End, Runs, outcome};
use tokio::time::Instant;
use tonic::Code;

use crate::{runs, started, state};

fn service(runs: &Runs) -> Transport {
    grpc_kit::local(&Services::new().add(runs.service()))
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

fn child(runs: &Runs, run_id: &str) -> ChildRun {
    ChildRun::of(&service(runs), &CallContext::outermost(), run_id)
}

#[tokio::test]
async fn a_run_is_followed_from_an_event_to_its_end() {
    let (runs, _directory) = runs().await;
    let run_id = started(&runs, |recorder, _| async move {
        for text in ["one", "two"] {
            let text = text.to_owned();
            let kind = Kind::Text(TextDelta { text });
            recorder.record(vec![kind]).await.unwrap();
        }
        End::Finished(outcome::succeeded("42".to_owned()))
    })
    .await;
    let run = child(&runs, &run_id);
    let ended = run.end(soon()).await.unwrap();
    assert_eq!(ended.outcome.unwrap().result_json, "42");
    // The run started, and it wrote the first text.
    let (mut texts, mut ended) = (Vec::new(), None);
    let mut followed = Box::pin(run.follow(2, soon()));
    while let Some(next) = followed.next().await {
        match next.unwrap() {
            Followed::Event(event) => match event.kind {
                Some(Kind::Text(text)) => texts.push(text.text),
                _ => assert!(!texts.is_empty()),
            },
            Followed::Ended(run) => ended = Some(*run),
        }
    }
    assert_eq!(texts, ["two"]);
    assert_eq!(state(&ended.unwrap()), "SUCCEEDED");
}

#[tokio::test]
async fn a_cancelled_run_ends_within_its_grace_whether_or_not_its_work_stops() {
    let (runs, _directory) = runs().await;
    let obeys = started(&runs, |_, control| async move {
        control.cancelled().await;
        let reason = control.why().unwrap();
        End::Finished(outcome::stopped(&reason, Vec::new()))
    });
    let is_deaf = started(&runs, |_, _| pending());
    for run_id in [obeys.await, is_deaf.await] {
        let run = child(&runs, &run_id);
        let cancelled = run.cancel("enough", RUN_GRACE).await.unwrap();
        assert_eq!(cancelled.ended.as_ref().map(state), Some("CANCELLED"));
        assert!(cancelled.still_running.is_empty());
    }
}

#[tokio::test]
async fn a_cancelled_run_whose_service_does_not_answer_still_runs() {
    // It accepts connections and does not read from them.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", silent.local_addr().unwrap());
    let settings = ClientSettings::to(address);
    let service = grpc_kit::remote(&settings).unwrap();
    let run = ChildRun::of(&service, &CallContext::outermost(), "wf_1");
    let cancelled = run.cancel("enough", RUN_GRACE).await.unwrap();
    assert!(cancelled.ended.is_none());
    let ids = cancelled.still_running.into_iter().map(|work| work.id);
    assert_eq!(ids.collect::<Vec<_>>(), ["wf_1"]);
}

#[tokio::test]
async fn a_run_that_does_not_exist_has_no_end() {
    let (runs, _directory) = runs().await;
    let run = child(&runs, "wf_00000000000000000000000000000001");
    assert!(run.end_at_last(Duration::from_secs(60)).await.is_none());
    assert_eq!(run.end(soon()).await.unwrap_err().code(), Code::NotFound);
    let cancelled = run.cancel("enough", RUN_GRACE).await;
    assert_eq!(cancelled.unwrap_err().code(), Code::NotFound);
}

#[tokio::test]
async fn a_start_that_was_refused_has_surely_started_nothing() {
    let request = ChildRequest::Workflow(Box::new(StartRunRequest {
        request_id: "effect-1".to_owned(),
        ..StartRunRequest::default()
    }));
    let (runs, _directory) = runs().await;
    let (service, context) = (service(&runs), CallContext::outermost());
    let refused = ChildRun::start(&service, &context, request, soon()).await;
    let refused = refused.unwrap_err();
    assert_eq!(refused.status.code(), Code::Unimplemented);
    assert!(!refused.may_have_started);
}
