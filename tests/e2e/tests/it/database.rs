//! Tavern on PostgreSQL: an installation moves there and back, and the server and processes fail.
//!
//! The tests of this crate that open no file of Tavern run on PostgreSQL with `TAVERN_TEST_DATABASE=postgres`; these
//! always do. A host without it does not run them. `TAVERN_TEST_SERVER_RESTARTS` sets the number of restarts of the server; `make bars` sets 30.

use std::process::{Command, Output};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use contracts::tavern::common::v1::{CallStatus, RunState};
use contracts::tavern::registry::v1::{
    CallToolRequest, ListPrincipalsRequest, call_tool_response::Record,
};
use contracts::tavern::run::v1::ListRunsRequest;
use testkit::{Stack, binary, eventually, migrated};

use crate::kills::{check, child, durability_of, parent, start};
use crate::ledger::World;

/// Restarts of the server in `make test`.
const RESTARTS: usize = 3;

/// The longest time from the return of a server to the end of every run.
const SETTLED: Duration = Duration::from_secs(60);

fn tavern(arguments: &[&str]) -> anyhow::Result<Output> {
    Ok(Command::new(binary("tavern")?).args(arguments).output()?)
}

/// Runs a command, which must succeed. Returns its output.
fn done(arguments: &[&str]) -> anyhow::Result<String> {
    let output = tavern(arguments)?;
    ensure!(output.status.success(), "{arguments:?}: {output:?}");
    Ok(String::from_utf8(output.stdout)?)
}

/// Returns the ids of all runs with their states and last sequences.
async fn runs(stack: &Stack) -> anyhow::Result<Vec<(String, RunState, u64)>> {
    let request = ListRunsRequest {
        page_size: 1_000,
        ..ListRunsRequest::default()
    };
    let listed = stack.runs().list_runs(request).await?.into_inner();
    ensure!(listed.next_page_token.is_empty(), "there are more");
    let runs = listed.runs.into_iter();
    Ok(runs
        .map(|run| (run.run_id.clone(), run.state(), run.last_sequence))
        .collect())
}

async fn principals(stack: &Stack) -> anyhow::Result<usize> {
    let mut identities = stack.identities();
    let listed = identities.list_principals(ListPrincipalsRequest::default());
    Ok(listed.await?.into_inner().principals.len())
}

/// Returns the lines about logs, which have the numbers of runs and events.
fn logs(printed: &str) -> Vec<&str> {
    printed
        .lines()
        .filter(|line| line.contains(": log "))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_installation_moves_to_a_server_and_back_with_its_runs_and_keys() -> anyhow::Result<()> {
    let Some(server) = postgres_kit::shared() else {
        return Ok(());
    };
    let mut world = World::new(Stack::builder().with_keys().database("").start().await?).await?;
    world.put_workflow("note", &child()).await?;
    world.put_workflow("notes", &parent()).await?;
    let mut begun = Vec::new();
    for at in 0..4 {
        let name = format!("run{at}");
        let run = start(
            &world.stack,
            &name,
            "ledger.append_idempotent",
            durability_of(at),
        );
        begun.push((run.await?, name));
    }
    world.stack.kill()?;
    let data = world.stack.directory().join("data").display().to_string();
    let database = migrated(server).await?;
    let from = ["import", "--from", &data, "--database", &database];
    let mistyped = format!("{data}-mistyped");
    for refused in [
        ["import", "--from", &mistyped, "--database", &database].as_slice(),
        &["verify", "--data-dir", &mistyped],
    ] {
        let output = tavern(refused)?;
        ensure!(!output.status.success(), "{refused:?}: {output:?}");
        ensure!(!std::path::Path::new(&mistyped).exists(), "{refused:?}");
    }
    let imported = done(&from)?;
    ensure!(imported.contains("rows of principal"), "{imported}");
    let again = done(&from)?;
    for line in logs(&again) {
        ensure!(line.contains(" 0 runs with 0 events"), "{line}");
    }
    let verified = done(&["verify", "--database", &database])?;
    ensure!(logs(&verified) == logs(&done(&["verify", "--data-dir", &data])?));
    done(&["audit", "verify", "--database", &database])?;

    // Runs that were cut off continue at the server.
    world.stack.move_to(&database);
    world.stack.restart().await?;
    for (run_id, name) in &begun {
        let state = check(&world, run_id, name).await?;
        ensure!(state == RunState::Succeeded, "{name} ended as {state:?}");
    }
    let served = tavern(&["verify", "--database", &database])?;
    let refusal = String::from_utf8(served.stderr)?;
    ensure!(
        !served.status.success() && refusal.contains("stop it first"),
        "{refusal}"
    );
    let (there, keys) = (runs(&world.stack).await?, principals(&world.stack).await?);
    ensure!(there.len() >= begun.len() && keys > 0, "{there:?}");
    world.stack.terminate()?;

    // And back into an empty directory.
    std::fs::rename(&data, format!("{data}-before"))?;
    let exported = done(&["export", "--database", &database, "--to", &data])?;
    let verified = done(&["verify", "--database", &database])?;
    ensure!(logs(&exported) == logs(&verified), "{exported} {verified}");
    ensure!(logs(&verified) == logs(&done(&["verify", "--data-dir", &data])?));
    world.stack.move_to("");
    world.stack.restart().await?;
    ensure!(runs(&world.stack).await? == there);
    ensure!(principals(&world.stack).await? == keys);
    Ok(())
}

fn restarts() -> anyhow::Result<usize> {
    match std::env::var("TAVERN_TEST_SERVER_RESTARTS") {
        Ok(number) => number
            .parse()
            .context("TAVERN_TEST_SERVER_RESTARTS is no number"),
        Err(_) => Ok(RESTARTS),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_lose_and_repeat_nothing_when_their_server_crashes() -> anyhow::Result<()> {
    let Some(server) = postgres_kit::Server::start(&["fsync=on"])? else {
        return Ok(());
    };
    let database = migrated(&server).await?;
    let stack = Stack::builder().database(database).start().await?;
    let world = World::new(stack).await?;
    world.put_workflow("note", &child()).await?;
    world.put_workflow("notes", &parent()).await?;
    let mut random = fastrand::Rng::new();
    println!("seed {}", random.get_seed());
    let mut begun = Vec::new();
    for at in 0..restarts()? {
        for number in 0..3 {
            let name = format!("run{at}-{number}");
            // A start that the server cut off is repeated under its request id.
            let run_id = eventually("the run to start", || async {
                let started = start(
                    &world.stack,
                    &name,
                    "ledger.append_idempotent",
                    durability_of(number),
                );
                started.await.ok()
            });
            begun.push((run_id.await?, name));
        }
        tokio::time::sleep(Duration::from_micros(random.u64(0..60_000))).await;
        server.stop("immediate")?;
        let asked = Instant::now();
        let refused = runs(&world.stack).await;
        ensure!(refused.is_err(), "the server is away");
        println!("refused after {:?}", asked.elapsed());
        server.run_up()?;
    }
    let settled = async {
        for (run_id, name) in begun {
            let state = check(&world, &run_id, &name).await?;
            ensure!(state == RunState::Succeeded, "{name} ended as {state:?}");
        }
        Ok(())
    };
    tokio::time::timeout(SETTLED, settled).await?
}

#[tokio::test(flavor = "multi_thread")]
async fn no_call_leaves_while_another_process_may_take_over() -> anyhow::Result<()> {
    let Some(server) = postgres_kit::Server::start(&[])? else {
        return Ok(());
    };
    let database = migrated(&server).await?;
    let stack = Stack::builder().database(database).start().await?;
    let call = async || -> anyhow::Result<_> {
        let request = CallToolRequest {
            tool_id: "system:get_current_time".to_owned(),
            arguments_json: "{}".to_owned(),
            ..CallToolRequest::default()
        };
        let mut records = stack.calls().call_tool(request).await?.into_inner();
        while let Some(record) = records.message().await? {
            if let Some(Record::Result(result)) = record.record {
                return Ok(result.status());
            }
        }
        bail!("there is no result")
    };
    ensure!(call().await? == CallStatus::Succeeded);
    server.stop("immediate")?;
    eventually("the lease to be too old", || async {
        call().await.err().map(drop)
    })
    .await?;
    for _ in 0..20 {
        ensure!(call().await.is_err(), "a call left");
    }
    server.run_up()?;
    eventually("the lease to be renewed", || async {
        call().await.ok().map(drop)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_another_replaced_ends_with_75() -> anyhow::Result<()> {
    let Some(server) = postgres_kit::shared() else {
        return Ok(());
    };
    let database = migrated(server).await?;
    let mut paused = Stack::builder().database(&database).start().await?;
    let id = paused.processes()[0].id().to_string();
    ensure!(
        Command::new("kill")
            .args(["-STOP", &id])
            .status()?
            .success()
    );
    let replaced = Stack::builder().database(&database).start().await?;
    ensure!(runs(&replaced).await?.is_empty());
    ensure!(
        Command::new("kill")
            .args(["-CONT", &id])
            .status()?
            .success()
    );
    let ended = paused.processes()[0].wait()?;
    ensure!(ended.code() == Some(75), "{ended:?}");
    Ok(())
}
