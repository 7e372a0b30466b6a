//! A service that is told to end answers those whom it has begun to serve.

use contracts::tavern::sandbox::v1::{ExecuteRequest, execute_request::Program, verdict::Kind};
use testkit::{Stack, eventually};

use crate::cancel::processes_with;

#[tokio::test(flavor = "multi_thread")]
async fn a_script_that_outlasts_the_grace_is_cancelled_and_its_caller_told() -> anyhow::Result<()> {
    let mut stack = Stack::builder()
        .separate()
        .env("TAVERN_SANDBOX__SERVER__DRAIN_GRACE", "4s")
        .start()
        .await?;
    let mark = format!("sleep 87{}", 400 + std::process::id() % 10_000);
    let asked = ExecuteRequest {
        runtime: "bash".to_owned(),
        program: Some(Program::SourceText(format!("echo begun; {mark}; true"))),
        ..ExecuteRequest::default()
    };
    let mut client = stack.sandbox();
    let call = tokio::spawn(async move { client.execute(asked).await });
    eventually("the script to run", || async {
        (processes_with(&mark) > 0).then_some(())
    })
    .await?;
    assert!(stack.terminate_service("script-sandbox")?.success());
    let answer = call.await??.into_inner();
    let verdict = answer.verdict.and_then(|verdict| verdict.kind);
    assert!(matches!(verdict, Some(Kind::Cancelled(_))), "{verdict:?}");
    assert_eq!(answer.stdout, b"begun\n");
    assert_eq!(processes_with(&mark), 0);
    Ok(())
}
