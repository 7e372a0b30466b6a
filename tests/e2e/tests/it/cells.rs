//! Cells of the code interpreter: a cell finds the variables of the earlier cells of its
//! conversation.

use anyhow::Context;
use contracts::tavern::common::v1::{CallResult, CallStatus};
use serde_json::json;
use testkit::Stack;

use crate::text::{output, result_of};

/// Runs a cell of Python in a conversation, as a model would call it.
async fn cell(stack: &Stack, conversation: &str, code: &str) -> anyhow::Result<CallResult> {
    let text = format!(
        "<ACTION><CodeInterpreter:run_cell><language>python</language>\
         <code><![CDATA[{code}]]></code></CodeInterpreter:run_cell></ACTION>"
    );
    result_of(stack, conversation, text).await
}

#[tokio::test(flavor = "multi_thread")]
async fn variables_stay_for_their_conversation_and_for_no_other() -> anyhow::Result<()> {
    let stack = Stack::all_in_one().await?;
    let first = cell(&stack, "a", "sacks = 12").await?;
    assert_eq!(
        output(&first)?,
        json!({"cell": 1, "stdout": "", "stderr": ""})
    );
    let second = cell(&stack, "a", "print('x')\nsacks * 2").await?;
    let value = json!({
        "index": 0, "origin": "expression", "main": true, "data": {"text/plain": "24"}, "metadata": {},
    });
    let expected =
        json!({"cell": 2, "stdout": "x\n", "stderr": "", "value": "24", "results": [value]});
    assert_eq!(output(&second)?, expected);
    let other = cell(&stack, "b", "sacks").await?;
    assert_eq!(other.status(), CallStatus::Failed);
    let error = other.error.context("the cell failed")?;
    assert_eq!(error.code, "code_failed");
    let message = &error.message;
    assert!(message.contains("NameError: name 'sacks'"), "{message}");
    assert!(message.contains("<cell 1>"), "{message}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_interpreter_says_why_the_one_before_it_ended() -> anyhow::Result<()> {
    let stack = Stack::all_in_one().await?;
    cell(&stack, "a", "sacks = 12").await?;
    let ended = cell(&stack, "a", "import os\nos._exit(3)").await?;
    let error = ended.error.context("the cell failed")?;
    assert!(
        error.message.contains("its variables are gone"),
        "{}",
        error.message
    );
    let next = output(&cell(&stack, "a", "'sacks' in globals()").await?)?;
    assert_eq!(
        (&next["cell"], &next["value"]),
        (&json!(1), &json!("False"))
    );
    assert!(next["restarted_because"].is_string(), "{next}");
    let kept = output(&cell(&stack, "a", "1").await?)?;
    assert_eq!(kept.get("restarted_because"), None);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn output_above_the_limit_is_cut_and_its_end_is_shown() -> anyhow::Result<()> {
    let stack = Stack::all_in_one().await?;
    let long = "print('x' * 3000000)\nprint('the end')";
    let cut = cell(&stack, "a", long).await?;
    assert_eq!(cut.status(), CallStatus::Succeeded);
    let shown = cut.long_output.context("it is long")?.total_bytes;
    assert!((1 << 20..2 << 20).contains(&shown), "{shown}");

    let failing = format!("{long}\nraise SystemExit('1 failed')");
    let code = format!(
        "<ACTION><CodeInterpreter:execute><language>python</language>\
         <code><![CDATA[{failing}]]></code></CodeInterpreter:execute></ACTION>"
    );
    let failed = result_of(&stack, "a", code).await?;
    let message = failed.error.context("the code failed")?.message;
    assert!(
        message.contains("The end of standard output:\nx"),
        "{message}"
    );
    assert!(message.contains("x\nthe end"), "{message}");
    assert!(message.contains("1 failed"), "{message}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cell_that_does_not_obey_is_reported_by_the_reason_of_its_interruption()
-> anyhow::Result<()> {
    let stack = Stack::all_in_one().await?;
    let flood = "import os, signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n\
                 while True: os.write(1, b'deaf ' * 10000)";
    let result = cell(&stack, "a", flood).await?;
    let error = result.error.context("the cell failed")?;
    assert_eq!(error.code, "output_limit");
    let message = &error.message;
    for expected in ["wrote too much", "did not obey", "variables are gone"] {
        assert!(message.contains(expected), "{message}");
    }
    assert!(
        message.contains("On standard output") || message.contains("The end of standard output")
    );
    let next = output(&cell(&stack, "a", "1").await?)?;
    let reason = next["restarted_because"].as_str().context("it is new")?;
    assert!(reason.contains("wrote more than"), "{reason}");
    Ok(())
}
