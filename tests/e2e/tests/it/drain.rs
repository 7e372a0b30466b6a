//! A service that receives a request to end answers the calls that it has begun.

use contracts::tavern::{
    common::v1::{ErrorReason, RunEvent, RunState},
    sandbox::v1::{
        ExecuteRequest, ExecuteStreamRequest, execute_request::Program,
        execute_stream_request::Message, execute_stream_response::Event, verdict::Kind,
    },
};
use serde_json::json;
use testkit::{Stack, collect, eventually, until};
use tonic::Code;

use crate::{
    cancel::processes_with,
    doubt::await_doubt,
    ledger::{World, dispatched},
    text::{failing_agents, model_text, user_message},
};

/// Services of which the sandbox ends its scripts after three quarters of this grace.
async fn with_grace(grace: &str) -> anyhow::Result<Stack> {
    Stack::builder()
        .separate()
        .deploy(failing_agents())
        .env("TAVERN_SANDBOX__SERVER__DRAIN_GRACE", grace)
        .start()
        .await
}

/// Replaces the sandbox while a script runs.
async fn replace_under(stack: &mut Stack, mark: &str) -> anyhow::Result<()> {
    eventually("the script to run", || async {
        (processes_with(mark) > 0).then_some(())
    })
    .await?;
    assert!(stack.terminate_service("script-sandbox")?.success());
    assert_eq!(processes_with(mark), 0);
    stack.restart_service("script-sandbox").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workflow_runs_its_script_again_when_its_sandbox_was_replaced() -> anyhow::Result<()> {
    let mut world = World::new(with_grace("4s").await?).await?;
    // Longer than the grace, so that it is ended, and short enough to be waited for once more.
    let mark = format!("sleep 6.0{}", std::process::id());
    let code = format!("import subprocess\nsubprocess.run('{mark}; true', shell=True)\n");
    let definition = json!({
        "name": "nap",
        "nodes": [{ "id": "nap", "type": "core:Script", "inputValues": { "code": code } }],
    });
    world.put_workflow("chain", &definition).await?;
    let in_workflow = |event: &RunEvent| !event.parent_path.is_empty();
    let request = user_message("delegate", "Sleep.");
    let (run_id, _) = until(&world.stack.gateway(), request, in_workflow).await?;
    replace_under(&mut world.stack, &mark).await?;
    let ended = collect(&world.stack.runs(), &run_id, 0).await?;
    assert_eq!(ended.run.state(), RunState::Succeeded, "{:?}", ended.run);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_that_may_not_be_repeated_is_in_doubt_when_its_script_was_ended()
-> anyhow::Result<()> {
    let mut stack = with_grace("4s").await?;
    let seconds = 900_000 + std::process::id() % 90_000;
    let mark = format!("sleep {seconds}");
    let text = format!("<ACTION><Nap><seconds>{seconds}</seconds></Nap></ACTION>");
    let (run_id, _) = until(&stack.gateway(), model_text(&text), dispatched).await?;
    replace_under(&mut stack, &mark).await?;
    let call = await_doubt(&stack).await?;
    assert_eq!(call.run_id, run_id);
    assert_eq!(processes_with(&mark), 0, "nothing runs twice");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn scripts_that_outlast_the_grace_are_ended_and_their_callers_notified() -> anyhow::Result<()>
{
    let mut stack = with_grace("12s").await?;
    let mark = format!("sleep 87{}", 400 + std::process::id() % 10_000);
    let asked = ExecuteRequest {
        runtime: "bash".to_owned(),
        program: Some(Program::SourceText(format!("echo begun; {mark}; true"))),
        ..ExecuteRequest::default()
    };
    let mut client = stack.sandbox();
    let mut talking = client.clone();
    let start = ExecuteStreamRequest {
        message: Some(Message::Start(asked.clone())),
    };
    let call = tokio::spawn(async move { client.execute(asked).await });
    let talk = talking.execute_stream(tokio_stream::iter([start]));
    let mut talk = talk.await?.into_inner();
    eventually("the scripts to run", || async {
        (processes_with(&mark) > 1).then_some(())
    })
    .await?;
    assert!(stack.terminate_service("script-sandbox")?.success());

    // A client that waits for the answer alone may run the script once more.
    let status = call.await?.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert_eq!(grpc_kit::reason(&status), Some(ErrorReason::Draining));
    assert!(grpc_kit::may_have_arrived(&status));
    // A client that talks with it has read its output.
    let (mut said, mut verdict) = (Vec::new(), None);
    while let Some(response) = talk.message().await? {
        match response.event {
            Some(Event::Output(chunk)) => said.extend_from_slice(&chunk.data),
            Some(Event::Ended(ended)) => verdict = ended.verdict.and_then(|verdict| verdict.kind),
            _ => {}
        }
    }
    assert!(matches!(verdict, Some(Kind::Cancelled(_))), "{verdict:?}");
    assert_eq!(said, b"begun\n");
    assert_eq!(processes_with(&mark), 0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_request_to_end_ends_at_once() -> anyhow::Result<()> {
    let mut stack = Stack::all_in_one().await?;
    let mark = format!("sleep 88{}", 400 + std::process::id() % 10_000);
    let asked = ExecuteRequest {
        runtime: "bash".to_owned(),
        program: Some(Program::SourceText(format!("{mark}; true"))),
        ..ExecuteRequest::default()
    };
    let mut client = stack.sandbox();
    let call = tokio::spawn(async move { client.execute(asked).await });
    eventually("the script to run", || async {
        (processes_with(&mark) > 0).then_some(())
    })
    .await?;
    let process = &mut stack.processes()[0];
    process.signal()?;
    eventually("the drain to begin", || {
        let began = process.output().contains("shutdown requested");
        async move { began.then_some(()) }
    })
    .await?;
    // 143 if work is still open after the short grace of an abort, 0 otherwise.
    let status = process.terminate()?;
    let output = process.output();
    assert!(matches!(status.code(), Some(143 | 0)), "{output}");
    assert!(output.contains("aborting open work"), "{output}");
    assert!(call.await?.is_err());
    Ok(())
}
