//! The same request id replays its first answer.

use contracts::tavern::common::v1::{CallStatus, run_event::Kind};
use testkit::{Stack, invoke};
use tonic::Code;

use crate::text::{model_text, write_file};

#[tokio::test(flavor = "multi_thread")]
async fn the_same_request_id_gives_the_same_run() -> anyhow::Result<()> {
    let mut stack = Stack::all_in_one().await?;
    let mut request = model_text(&write_file("a.txt", "one"));
    request.request_id = "request-1".into();
    let first = invoke(&stack.gateway(), request.clone()).await?;
    assert!(!first.replayed);
    let second = invoke(&stack.gateway(), request.clone()).await?;
    assert!(second.replayed);
    assert_eq!(second.events, first.events);
    stack.kill()?;
    stack.restart().await?;
    let third = invoke(&stack.gateway(), request).await?;
    assert!(third.replayed);
    assert_eq!(third.events, first.events);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn one_request_id_with_another_body_is_refused() -> anyhow::Result<()> {
    let stack = Stack::all_in_one().await?;
    let mut request = model_text(&write_file("a.txt", "one"));
    request.request_id = "request-1".into();
    invoke(&stack.gateway(), request.clone()).await?;
    let mut other = model_text(&write_file("a.txt", "two"));
    other.request_id = request.request_id;
    let error = invoke(&stack.gateway(), other).await.unwrap_err();
    assert_eq!(
        error.downcast::<tonic::Status>()?.code(),
        Code::AlreadyExists
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_repeats_at_once_write_the_file_once() -> anyhow::Result<()> {
    let stack = Stack::all_in_one().await?;
    let append = "<ACTION><FileOperator.AppendFile><filePath>a.txt</filePath>\
                  <content>x</content></FileOperator.AppendFile></ACTION>";
    let mut request = model_text(append);
    request.request_id = "request-1".into();
    request.conversation_id = "shared".into();
    let shared = stack.gateway();
    let mut repeats = tokio::task::JoinSet::new();
    for _ in 0..100 {
        let (gateway, request) = (shared.clone(), request.clone());
        repeats.spawn(async move { invoke(&gateway, request).await });
    }
    let mut new = 0;
    while let Some(repeat) = repeats.join_next().await {
        new += usize::from(!repeat??.replayed);
    }
    assert_eq!(new, 1);
    let mut read = model_text(
        "<ACTION><FileOperator.ReadFile><filePath>a.txt</filePath></FileOperator.ReadFile></ACTION>",
    );
    read.conversation_id = "shared".into();
    let read = invoke(&stack.gateway(), read).await?;
    let settled = read.events.iter().find_map(|event| match &event.kind {
        Some(Kind::CallSettled(settled)) => settled.result.clone(),
        _ => None,
    });
    let settled = settled.expect("the file was read");
    assert_eq!(settled.status(), CallStatus::Succeeded);
    assert_eq!(settled.output_json, r#""x""#);
    Ok(())
}
