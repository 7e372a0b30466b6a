//! Cancel means cancelled: the model request, the call and every process of a script.

use std::process::Command;

use contracts::tavern::common::v1::{RunState, run_event::Kind};
use contracts::tavern::run::v1::CancelRunRequest;
use testkit::{Stack, collect, eventually, until};

use crate::text::{failing_agents, model_text, user_message};

/// Counts processes whose command line holds `mark`.
pub(crate) fn processes_with(mark: &str) -> usize {
    let listed = Command::new("ps")
        .args(["-eo", "args"])
        .output()
        .expect("ps runs");
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    listed.lines().filter(|line| line.contains(mark)).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_ends_every_process_of_a_script() -> anyhow::Result<()> {
    let stack = Stack::all_in_one().await?;
    let mark = format!("sleep 86{}", 400 + std::process::id() % 10_000);
    let code = format!(
        "import subprocess\nsubprocess.Popen(['sh', '-c', '{mark}; true'])\nsubprocess.run(['sh', '-c', '{mark}; true'])"
    );
    let call = format!(
        "<ACTION><CodeInterpreter:execute><language>python</language><code><![CDATA[\n{code}\n]]></code>\
         </CodeInterpreter:execute></ACTION>"
    );
    let gateway = stack.gateway();
    let dispatched = |event: &contracts::tavern::common::v1::RunEvent| {
        matches!(event.kind, Some(Kind::CallDispatched(_)))
    };
    let (run_id, _) = until(&gateway, model_text(&call), dispatched).await?;
    eventually("the script to start", || async {
        (processes_with(&mark) >= 2).then_some(())
    })
    .await?;
    let request = CancelRunRequest {
        run_id: run_id.clone(),
        reason: "enough".into(),
    };
    let cancelled = stack.runs().cancel_run(request).await?.into_inner();
    // Work that has not ended after the time that the contract allows would be named.
    assert_eq!(cancelled.still_running, []);
    assert_eq!(
        cancelled.run.unwrap_or_default().state(),
        RunState::Cancelled
    );
    eventually("the processes to be gone", || async {
        (processes_with(&mark) == 0).then_some(())
    })
    .await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_ends_the_request_to_a_model() -> anyhow::Result<()> {
    let stack = Stack::builder().deploy(failing_agents()).start().await?;
    let gateway = stack.gateway();
    let asked = |event: &contracts::tavern::common::v1::RunEvent| {
        matches!(event.kind, Some(Kind::ModelRequested(_)))
    };
    let (run_id, _) = until(&gateway, user_message("slow_thinker", "Think."), asked).await?;
    let request = CancelRunRequest {
        run_id: run_id.clone(),
        reason: String::new(),
    };
    let cancelled = stack.runs().cancel_run(request).await?.into_inner();
    assert_eq!(cancelled.still_running, []);
    let ended = collect(&stack.runs(), &run_id, 0).await?;
    assert_eq!(ended.run.state(), RunState::Cancelled);
    Ok(())
}
