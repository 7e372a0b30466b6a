//! Workflows that wait, with services killed meanwhile.

use anyhow::Context;
use contracts::tavern::common::v1::{WaitKind, run_event::Kind};
use contracts::tavern::run::v1::{AnswerWaitRequest, ListWaitsRequest, SignalRunRequest};
use contracts::tavern::workflow::v1::StartRunRequest;
use contracts::tavern::workflow::v1::start_run_request::Target;
use serde_json::{Value, json};
use testkit::{Stack, collect, eventually};

/// Waits until a run waits for something of this kind, and returns the id of the wait.
async fn waits_for(stack: &Stack, run_id: &str, kind: WaitKind) -> anyhow::Result<String> {
    let request = ListWaitsRequest {
        run_id: run_id.to_owned(),
        ..ListWaitsRequest::default()
    };
    eventually("the run to wait", || async {
        // A service that has just started has not resumed the run yet.
        let listed = stack.runs().list_waits(request.clone()).await.ok();
        let waits = listed.map(|listed| listed.into_inner().waits);
        let wait = waits?.into_iter().find(|wait| wait.kind() == kind);
        wait.map(|wait| wait.wait_id)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approval_survives_a_kill_in_the_middle_of_each_of_its_waits() -> anyhow::Result<()> {
    let mut stack = Stack::all_in_one().await?;
    let request = StartRunRequest {
        target: Some(Target::WorkflowId("human_approval".to_owned())),
        inputs_json: json!({"text": "news"}).to_string(),
        ..StartRunRequest::default()
    };
    let started = stack.workflow().start_run(request).await?.into_inner();
    let run_id = started.run.context("the run was started")?.run_id;
    waits_for(&stack, &run_id, WaitKind::HumanInput).await?;
    stack.kill()?;
    stack.restart().await?;
    let wait_id = waits_for(&stack, &run_id, WaitKind::HumanInput).await?;
    let answer = AnswerWaitRequest {
        run_id: run_id.clone(),
        wait_id,
        answer_json: json!("approve").to_string(),
        answered_by: "ada".to_owned(),
        request_id: String::new(),
    };
    stack.runs().answer_wait(answer).await?;
    waits_for(&stack, &run_id, WaitKind::Timer).await?;
    stack.kill()?;
    stack.restart().await?;
    waits_for(&stack, &run_id, WaitKind::Signal).await?;
    stack.kill()?;
    stack.restart().await?;
    waits_for(&stack, &run_id, WaitKind::Signal).await?;
    let signal = SignalRunRequest {
        run_id: run_id.clone(),
        name: "publish".to_owned(),
        payload_json: json!({"channel": "web"}).to_string(),
        signal_id: "publish-1".to_owned(),
    };
    stack.runs().signal_run(signal).await?;
    let ended = collect(&stack.runs(), &run_id, 0).await?;
    let outcome = ended.run.outcome.context("the run has ended")?;
    assert_eq!(outcome.error, None);
    let result: Value = serde_json::from_str(&outcome.result_json)?;
    assert_eq!(
        result,
        json!({"outcome": "published: news", "signal": {"channel": "web"}, "decided_by": "ada"})
    );
    let kinds = ended.events.iter().filter_map(|event| event.kind.as_ref());
    let mut due = Vec::new();
    for (kind, time) in kinds.zip(ended.events.iter().map(|event| event.time)) {
        match kind {
            Kind::NodeWaiting(waiting) => due.extend(waiting.wait.clone()),
            Kind::NodeWoken(woken) if woken.node_id == "cool" => {
                let wait = due.iter().find(|wait| wait.wait_id == woken.wait_id);
                let due = wait.and_then(|wait| wait.due).context("a timer is due")?;
                let time = time.context("an event has a time")?;
                assert!((due.seconds, due.nanos) <= (time.seconds, time.nanos));
            }
            _ => {}
        }
    }
    assert_eq!(due.len(), 3, "each wait began once");
    Ok(())
}
