//! The same request id replays its first answer.

use contracts::tavern::common::v1::{CallStatus, run_event::Kind};
use contracts::tavern::gateway::v1::{
    CallsTarget, StartTextRequest, invoke_text_request, start_text_request::Target,
};
use testkit::{Stack, invoke};
use tonic::Code;

use crate::text::{calls, model_text, user_message, write_file};

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
async fn a_run_that_was_started_is_found_by_its_request_id_and_followed() -> anyhow::Result<()> {
    let stack = Stack::all_in_one().await?;
    for mut invoked in [
        model_text(&write_file("a.txt", "one")),
        user_message(
            "weather_guide",
            "What is the weather like, and who is player123?",
        ),
    ] {
        invoked.request_id = "request-1".to_owned();
        let target = invoked.target.clone().map(|target| match target {
            invoke_text_request::Target::Calls(calls) => Target::Calls(calls),
            invoke_text_request::Target::Agent(agent) => Target::Agent(agent),
        });
        let request = StartTextRequest {
            request_id: invoked.request_id.clone(),
            target,
            options: invoked.options,
        };
        let started = stack.gateway().start_text(request.clone()).await?;
        let started = started.into_inner();
        assert!(!started.replayed);
        let followed = invoke(&stack.gateway(), invoked).await?;
        assert!(followed.replayed);
        let run_id = started.run.unwrap_or_default().run_id;
        assert_eq!(followed.run.run_id, run_id);
        let again = stack.gateway().start_text(request).await?.into_inner();
        assert!(again.replayed);
        assert_eq!(again.run, Some(followed.run));
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_repeats_at_once_write_the_file_once() -> anyhow::Result<()> {
    let stack = Stack::all_in_one().await?;
    let append = "<ACTION><FileOperator.AppendFile><filePath>a.txt</filePath>\
                  <content>x</content></FileOperator.AppendFile></ACTION>";
    let in_shared = |text: &str| {
        calls(CallsTarget {
            text: text.to_owned(),
            conversation_id: "shared".to_owned(),
            ..CallsTarget::default()
        })
    };
    let mut request = in_shared(append);
    request.request_id = "request-1".into();
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
    let read = in_shared(
        "<ACTION><FileOperator.ReadFile><filePath>a.txt</filePath></FileOperator.ReadFile></ACTION>",
    );
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
