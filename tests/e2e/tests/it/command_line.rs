//! The commands of `tavern` that talk to a Tavern.

mod agents;
mod backends;
mod calls;
mod files;
mod keys;
mod local;
mod plugins;

use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};
use testkit::{Stack, binary};

use crate::text::write_file;

fn tavern(stack: &Stack, arguments: &[&str]) -> anyhow::Result<Output> {
    run("tavern", stack, arguments)
}

fn run(program: &str, stack: &Stack, arguments: &[&str]) -> anyhow::Result<Output> {
    let mut command = Command::new(binary(program)?);
    command
        .args(arguments)
        .env("TAVERN_ADDRESS", stack.address());
    Ok(command.output()?)
}

/// Returns the output of a command that succeeds.
fn printed(stack: &Stack, arguments: &[&str]) -> anyhow::Result<String> {
    let output = tavern(stack, arguments)?;
    anyhow::ensure!(output.status.success(), "{arguments:?}: {output:?}");
    Ok(text(&output.stdout))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_text_is_invoked_and_its_run_is_listed_and_shown() -> anyhow::Result<()> {
    let stack = Stack::all_in_one().await?;
    let invoked = tavern(&stack, &["invoke", &write_file("a.txt", "one")])?;
    let timeline = text(&invoked.stdout);
    assert!(invoked.status.success(), "{timeline}");
    let run_id = timeline.lines().next().unwrap_or_default().to_owned();
    assert!(run_id.starts_with("call_"), "{timeline}");
    assert!(
        timeline.contains("call      FileOperator.WriteFile"),
        "{timeline}"
    );

    let address = stack.address();
    for arguments in [
        &["runs", "list", "--json"][..],
        &["--json", "runs", "list"],
        &["--address", &address, "runs", "--json", "list"],
        &["runs", "list", "--json", "--address", &address],
    ] {
        let listed = tavern(&stack, arguments)?;
        let run: Value = serde_json::from_slice(&listed.stdout)?;
        assert_eq!(run["runId"], run_id.as_str(), "{arguments:?}");
    }
    let shown = text(&tavern(&stack, &["runs", "show", &run_id])?.stdout);
    assert!(shown.contains("state         succeeded"), "{shown}");
    let watched = text(&tavern(&stack, &["runs", "watch", &run_id, "--after", "2"])?.stdout);
    let followed = watched.lines().count();
    assert!(
        followed > 0 && followed < timeline.lines().count(),
        "{watched}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_client_alone_has_the_commands_of_tavern_and_its_own_name() -> anyhow::Result<()> {
    let stack = Stack::builder().separate().start().await?;
    let client = |arguments: &[&str]| run("tavern-cli", &stack, arguments);
    assert!(client(&["healthcheck"])?.status.success());
    let invoked = client(&["invoke", "<ACTION><system:get_current_time/></ACTION>"])?;
    let timeline = text(&invoked.stdout);
    assert!(invoked.status.success(), "{invoked:?}");
    let run_id = timeline.lines().next().unwrap_or_default();
    for arguments in [&["runs", "list"][..], &["runs", "show", run_id]] {
        let printed = client(arguments)?.stdout;
        assert!(text(&printed).contains(run_id), "{arguments:?}");
        assert_eq!(printed, tavern(&stack, arguments)?.stdout, "{arguments:?}");
    }
    let help = text(&client(&["calls", "resolve", "--help"])?.stdout);
    for part in [
        "Usage: tavern-cli calls resolve",
        "  tavern-cli calls resolve EFFECT --did-not",
    ] {
        assert!(help.contains(part), "{part} is not in {help}");
    }
    for absent in [&["serve"][..], &["runs", "replay", "turn.jsonl"]] {
        let refused = client(absent)?;
        assert_eq!(refused.status.code(), Some(2), "{absent:?}: {refused:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_is_printed_whole() -> anyhow::Result<()> {
    let stack = Stack::all_in_one().await?;
    let answer: String = (0..12)
        .map(|at| format!("{at}{}|\n", "x".repeat(300)))
        .collect();
    let code = format!("print('{}')", "y".repeat(300));
    let call = format!(
        "<ACTION><CodeInterpreter:execute><language>python</language><code>{code}</code>\
         </CodeInterpreter:execute></ACTION>"
    );
    let printed = printed(&stack, &["invoke", &format!("{answer}{call}")])?;
    assert_eq!(printed.matches("x|").count(), 12, "{printed}");
    assert!(printed.contains(&"y".repeat(300)), "{printed}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_is_called_and_a_failed_call_is_an_exit_code() -> anyhow::Result<()> {
    let stack = Stack::all_in_one().await?;
    let listed = text(&tavern(&stack, &["tools", "list"])?.stdout);
    assert!(listed.contains("system:get_current_time"), "{listed}");
    let called = tavern(&stack, &["tools", "call", "system:get_current_time"])?;
    assert!(called.status.success());
    let output: Value = serde_json::from_slice(&called.stdout)?;
    assert!(output["unix_seconds"].is_i64(), "{output}");
    let wrong = tavern(
        &stack,
        &["tools", "call", "GetPlayerInfo", r#"{"playerId": "x"}"#],
    )?;
    assert!(!wrong.status.success(), "{wrong:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_has_read_enough_ends_a_command_quietly() -> anyhow::Result<()> {
    let stack = Stack::all_in_one().await?;
    let mut command = Command::new(binary("tavern")?)
        .args(["tools", "list", "--address", &stack.address()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    drop(command.stdout.take());
    let ended = command.wait_with_output()?;
    assert!(ended.status.success(), "{ended:?}");
    assert_eq!(text(&ended.stderr), "");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workflow_is_checked_stored_run_and_deleted() -> anyhow::Result<()> {
    let stack = Stack::all_in_one().await?;
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("greet.json");
    let path = file.to_string_lossy().into_owned();
    let definition = |full_type: &str| {
        json!({
            "nodes": [{"id": "a", "fullType": full_type, "configValues": {}}],
            "edges": [],
            "interfaceInputs": {},
            "interfaceOutputs": {},
        })
    };
    std::fs::write(&file, definition("core:NoSuchNode").to_string())?;
    let checked = tavern(&stack, &["workflows", "check", &path])?;
    assert!(!checked.status.success());
    assert!(text(&checked.stdout).contains("core:NoSuchNode"));
    std::fs::write(&file, "greet")?;
    let checked = text(&tavern(&stack, &["workflows", "check", &path])?.stdout);
    assert!(
        checked.starts_with(&format!("{path}: expected ")),
        "{checked}"
    );
    assert!(checked.contains("line 1, column 1"), "{checked}");

    std::fs::write(&file, definition("core:MathOperation").to_string())?;
    let checked = tavern(&stack, &["workflows", "check", &path])?;
    assert!(checked.status.success(), "{checked:?}");
    let forecast = "valid; at most 1 executions, 0 of which may change something";
    assert!(text(&checked.stdout).contains(forecast), "{checked:?}");
    let stored = tavern(&stack, &["workflows", "put", &path])?;
    assert!(text(&stored.stdout).starts_with("greet\n"), "{stored:?}");
    let listed = text(&tavern(&stack, &["workflows", "list"])?.stdout);
    assert!(listed.contains("greet"), "{listed}");
    let run = tavern(&stack, &["workflows", "run", "greet"])?;
    assert!(run.status.success(), "{run:?}");
    assert!(text(&run.stdout).contains("succeeded"), "{run:?}");
    assert!(text(&run.stdout).ends_with("\n{}\n"), "{run:?}");
    let deleted = tavern(&stack, &["workflows", "delete", "greet"])?;
    assert!(deleted.status.success(), "{deleted:?}");
    assert!(
        !tavern(&stack, &["workflows", "show", "greet"])?
            .status
            .success()
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_values_of_a_stream_are_an_entry_each() -> anyhow::Result<()> {
    let stack = Stack::all_in_one().await?;
    let inputs = json!({"tabs": "Ada: 10.5\nBo: 0.5"}).to_string();
    let run = tavern(&stack, &["workflows", "run", "tally_tabs", &inputs])?;
    let timeline = text(&run.stdout);
    for entry in [
        r#"value     tabs: {"guest":"Ada","amount":10.5}"#,
        r#"value     tabs: {"guest":"Bo","amount":0.5}"#,
        "value     prices: 12.6",
    ] {
        assert!(timeline.contains(entry), "{timeline}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_result_of_a_workflow_stands_behind_its_timeline() -> anyhow::Result<()> {
    let stack = Stack::all_in_one().await?;
    let inputs = json!({"principal": 1000, "rate": 0.05, "years": 3}).to_string();
    let timeline = printed(&stack, &["workflows", "run", "compound_interest", &inputs])?;
    let run_id = timeline.lines().next().unwrap_or_default();
    let watched = printed(&stack, &["runs", "watch", run_id, "--after", "2"])?;
    let shown: Value =
        serde_json::from_str(&printed(&stack, &["--json", "runs", "show", run_id])?)?;
    let expected: Value = serde_json::from_str(shown["outcome"]["resultJson"].as_str().unwrap())?;
    assert!(!expected.as_object().unwrap().is_empty(), "{shown}");
    for printed in [timeline.as_str(), &watched] {
        let result = printed.split_once("\n{\n").expect(printed).1;
        let result: Value = serde_json::from_str(&format!("{{{result}"))?;
        assert_eq!(result, expected, "{printed}");
    }
    let failed = tavern(&stack, &["workflows", "run", "compound_interest"])?;
    assert!(!failed.status.success());
    Ok(())
}

#[test]
fn a_tavern_that_does_not_answer_is_named_with_its_address() -> anyhow::Result<()> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    let address = format!("http://{}", listener.local_addr()?);
    drop(listener);
    for arguments in [
        &["runs", "list"][..],
        &["runs", "watch", "flow_00000000000000000000000000000000"],
        &["workflows", "run", "greet"],
        &["tools", "call", "system:get_current_time"],
        &["invoke", "--agent", "ada", "Hello."],
        &["play", "--examples", "../../deploy/examples"],
        &["healthcheck"],
    ] {
        let mut command = Command::new(binary("tavern")?);
        let output = command
            .args(arguments)
            .args(["--address", &address])
            .output()?;
        assert!(!output.status.success(), "{arguments:?}");
        let message = text(&output.stderr);
        assert!(message.contains(&address), "{arguments:?}: {message}");
        assert_eq!(message.lines().count(), 1, "{message}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_is_one_message_without_a_backtrace() -> anyhow::Result<()> {
    let stack = Stack::all_in_one().await?;
    let refused = tavern(&stack, &["runs", "show", "turn_1"])?;
    assert!(!refused.status.success());
    let message = text(&refused.stderr);
    assert!(
        message.starts_with("error: `turn_1` is not a run id"),
        "{message}"
    );
    assert_eq!(message.lines().count(), 1, "{message}");
    let refused = tavern(&stack, &["approvals", "show", "x"])?;
    assert_eq!(text(&refused.stderr), "error: no approval has the id `x`\n");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn g1001_a_turn_is_exported_and_replays_without_a_tavern() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let stack = Stack::all_in_one().await?;
    let invoked = tavern(
        &stack,
        &[
            "invoke",
            "--agent",
            "weather_guide",
            "What is the weather like, and who is player123?",
        ],
    )?;
    let run_id = text(&invoked.stdout)
        .lines()
        .next()
        .unwrap_or_default()
        .to_owned();
    let exported = tavern(&stack, &["runs", "export", &run_id])?;
    assert!(exported.status.success(), "{}", text(&exported.stderr));
    let file = directory.path().join("turn.jsonl");
    std::fs::write(&file, &exported.stdout)?;
    let file = file.display().to_string();
    drop(stack);
    let replay = || {
        Command::new(binary("tavern")?)
            .args(["runs", "replay", &file])
            .output()
            .map_err(anyhow::Error::from)
    };
    let replayed = replay()?;
    assert!(replayed.status.success(), "{}", text(&replayed.stderr));
    assert!(text(&replayed.stdout).contains("events compared"));
    let other = text(&exported.stdout).replacen("\"text\":\"Observation: ", "\"text\":\"Not: ", 1);
    assert_ne!(other, text(&exported.stdout), "no call was observed");
    std::fs::write(&file, other)?;
    let diverged = replay()?;
    assert!(!diverged.status.success());
    let said = text(&diverged.stderr);
    assert!(said.contains("differs at `/observation/text`"), "{said}");
    let exported = text(&exported.stdout);
    let half = exported.lines().count() / 2;
    let half: Vec<&str> = exported.lines().take(half).collect();
    std::fs::write(&file, half.join("\n"))?;
    let refused = replay()?;
    assert!(!refused.status.success(), "half a fixture replays");
    let said = text(&refused.stderr);
    assert!(said.contains("the end of the turn is missing"), "{said}");
    Ok(())
}
