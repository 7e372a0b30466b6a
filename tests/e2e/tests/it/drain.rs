//! A service that is told to end answers those whom it has begun to serve.

use contracts::tavern::{
    common::v1::ErrorReason,
    sandbox::v1::{
        ExecuteRequest, ExecuteStreamRequest, execute_request::Program,
        execute_stream_request::Message, execute_stream_response::Event, verdict::Kind,
    },
};
use testkit::{Stack, eventually};
use tonic::Code;

use crate::cancel::processes_with;

#[tokio::test(flavor = "multi_thread")]
async fn scripts_that_outlast_the_grace_are_ended_and_their_callers_told() -> anyhow::Result<()> {
    let mut stack = Stack::builder()
        .separate()
        .env("TAVERN_SANDBOX__SERVER__DRAIN_GRACE", "12s")
        .start()
        .await?;
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

    // Whoever waits for the answer alone may run the script once more.
    let status = call.await?.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert_eq!(grpc_kit::reason(&status), Some(ErrorReason::Draining));
    assert!(grpc_kit::may_have_arrived(&status));
    // Whoever talks with it has heard what it said.
    let (mut said, mut verdict) = (Vec::new(), None);
    while let Some(told) = talk.message().await? {
        match told.event {
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
