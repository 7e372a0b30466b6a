//! An installation moves to a server and back.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::ensure;
use contracts::tavern::common::v1::RunState;
use contracts::tavern::registry::v1::ListPrincipalsRequest;
use testkit::{Stack, binary, migrated, size};

use super::{done, runs, tavern};
use crate::files::client::Client;
use crate::kills::{check, child, durability_of, parent, start};
use crate::ledger::World;

/// Kills of a move in `make test`.
const KILLS: u32 = 3;

async fn principals(stack: &Stack) -> anyhow::Result<usize> {
    let mut identities = stack.identities();
    let listed = identities.list_principals(ListPrincipalsRequest::default());
    Ok(listed.await?.into_inner().principals.len())
}

/// Returns a client of the files of a conversation.
fn files(world: &World) -> Client {
    Client::of(&world.stack, "report").with_key(world.stack.key().unwrap_or_default())
}

/// Returns the lines about logs, which have the numbers of runs and events.
fn logs(printed: &str) -> Vec<&str> {
    printed
        .lines()
        .filter(|line| line.contains(": log "))
        .collect()
}

/// Kills the command `killed` times, later each time. `took` is the time of a command that was not killed. Returns the
/// number of those that had ended before.
fn kill_over_and_over(arguments: &[&str], killed: u32, took: Duration) -> anyhow::Result<u32> {
    let mut ended = 0;
    for kill in 0..killed {
        let mut moving = Command::new(binary("tavern")?)
            .args(arguments)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        std::thread::sleep(took * (kill + 1) / (killed + 1));
        // It may have ended, as the runs that the ones before have moved are skipped.
        ended += u32::from(moving.try_wait()?.is_some());
        let _ = moving.kill();
        moving.wait()?;
    }
    Ok(ended)
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
    let upload = "month,sum\nJan,10\n".as_bytes();
    let put = files(&world).put("out/a.csv", "", upload).await?;
    ensure!(put.status == 201, "{}", put.status);
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
    let elsewhere = migrated(server).await?;
    let began = Instant::now();
    let imported = done(&["import", "--from", &data, "--database", &elsewhere])?;
    ensure!(imported.contains("rows of principal"), "{imported}");
    let killed = size("TAVERN_TEST_MOVE_KILLS", KILLS)?;
    let ended = kill_over_and_over(&from, killed, began.elapsed())?;
    println!("{ended} of {killed} had ended before they were killed");
    ensure!(ended < killed, "none was killed");
    done(&from)?;
    let again = done(&from)?;
    for line in logs(&again) {
        ensure!(line.contains(" 0 runs with 0 events"), "{line}");
    }
    let verified = done(&["verify", "--database", &database])?;
    let whole = done(&["verify", "--database", &elsewhere])?;
    ensure!(logs(&verified) == logs(&whole), "{verified} {whole}");
    ensure!(logs(&verified) == logs(&done(&["verify", "--data-dir", &data])?));
    done(&["audit", "verify", "--database", &database])?;

    // Runs that were cut off continue at the server, whose files are not those of the directory.
    std::fs::rename(&data, format!("{data}-before"))?;
    world.stack.move_to(&database);
    world.stack.restart().await?;
    for (run_id, name) in &begun {
        let state = check(&world, run_id, name).await?;
        ensure!(state == RunState::Succeeded, "{name} ended as {state:?}");
    }
    ensure!(files(&world).get("out/a.csv", "").await?.body == upload);
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
    std::fs::rename(&data, format!("{data}-of-copies"))?;
    let exported = done(&["export", "--database", &database, "--to", &data])?;
    let verified = done(&["verify", "--database", &database])?;
    ensure!(logs(&exported) == logs(&verified), "{exported} {verified}");
    ensure!(logs(&verified) == logs(&done(&["verify", "--data-dir", &data])?));
    world.stack.move_to("");
    world.stack.restart().await?;
    ensure!(runs(&world.stack).await? == there);
    ensure!(principals(&world.stack).await? == keys);
    ensure!(files(&world).get("out/a.csv", "").await?.body == upload);
    Ok(())
}
