//! The server or a process of Tavern fails.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use contracts::tavern::common::v1::{CallStatus, RunState};
use contracts::tavern::registry::v1::{CallToolRequest, call_tool_response::Record};
use postgres_kit::{Proxy, Server};
use testkit::{Stack, eventually, migrate, migrated, size};
use tonic::{Code, Status};

use super::{done, runs};
use crate::kills::{check, check_once, child, durability_of, parent, start};
use crate::ledger::World;
use crate::text::result_of;

/// Restarts of the server in `make test`.
const RESTARTS: usize = 3;

/// Failovers in `make test`.
const FAILOVERS: usize = 1;

/// Times that the disk of the server is full in `make test`.
const FULL_DISKS: usize = 1;

/// The longest wait for a start that the server refuses because its disk is full.
const REFUSED: Duration = Duration::from_secs(10);

/// The longest time from the return of a server to the end of every run.
const SETTLED: Duration = Duration::from_secs(60);

/// The time over which the statements of an idle process are counted, and the most of a second.
const IDLE: (Duration, u64) = (Duration::from_secs(10), 5);

/// A text with a call.
const NOW: &str = "<ACTION><system:get_current_time></system:get_current_time></ACTION>";

/// Starts Tavern on a database, with the workflows of the runs.
pub(super) async fn world_at(database: &str) -> anyhow::Result<World> {
    let world = World::new(Stack::builder().database(database).start().await?).await?;
    prepare(&world).await?;
    Ok(world)
}

/// Puts the workflows of the runs.
pub(super) async fn prepare(world: &World) -> anyhow::Result<()> {
    world.put_workflow("note", &child()).await?;
    world.put_workflow("notes", &parent()).await
}

/// Starts a run, repeatable under its name, with a durability by its number.
async fn begin(world: &World, name: &str, number: usize) -> anyhow::Result<String> {
    let durability = durability_of(number);
    start(&world.stack, name, "ledger.append_idempotent", durability).await
}

/// Waits until runs have succeeded, with each effect once.
pub(super) async fn settle(world: &World, begun: &[(String, String)]) -> anyhow::Result<()> {
    let settled = async {
        for (run_id, name) in begun {
            let state = check(world, run_id, name).await?;
            ensure!(state == RunState::Succeeded, "{name} ended as {state:?}");
        }
        Ok(())
    };
    tokio::time::timeout(SETTLED, settled).await?
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_lose_and_repeat_nothing_when_their_server_crashes() -> anyhow::Result<()> {
    let Some(server) = Server::start(&["fsync=on"])? else {
        return Ok(());
    };
    let world = world_at(&migrated(&server).await?).await?;
    let mut random = fastrand::Rng::new();
    println!("seed {}", random.get_seed());
    let mut begun = Vec::new();
    for at in 0..size("TAVERN_TEST_SERVER_RESTARTS", RESTARTS)? {
        for number in 0..3 {
            let name = format!("run{at}-{number}");
            // A start that the server cut off is repeated under its request id.
            let run_id = eventually("the run to start", || async {
                begin(&world, &name, number).await.ok()
            });
            begun.push((run_id.await?, name));
        }
        tokio::time::sleep(Duration::from_micros(random.u64(0..60_000))).await;
        server.stop("immediate")?;
        let asked = Instant::now();
        let refused = runs(&world.stack).await;
        ensure!(refused.is_err(), "the server is away");
        println!("a list was refused after {:?}", asked.elapsed());
        let asked = Instant::now();
        let refused = result_of(&world.stack, "talk", NOW.to_owned()).await;
        ensure!(refused.is_err(), "the server is away");
        println!("a text was refused after {:?}", asked.elapsed());
        server.run_up()?;
    }
    settle(&world, &begun).await
}

#[tokio::test(flavor = "multi_thread")]
async fn no_call_leaves_while_another_process_may_take_over() -> anyhow::Result<()> {
    let Some(server) = Server::start(&[])? else {
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

/// Starts a standby without which the primary acknowledges no commit.
async fn synchronous_standby(primary: &Server) -> anyhow::Result<Server> {
    let standby = primary.standby()?;
    primary.query(
        "postgres",
        "ALTER SYSTEM SET synchronous_standby_names = '*'",
    )?;
    primary.query("postgres", "SELECT pg_reload_conf()")?;
    eventually("the standby to keep up", || async {
        let state = primary.query("postgres", "SELECT sync_state FROM pg_stat_replication");
        state.ok().filter(|state| state == "sync").map(drop)
    })
    .await?;
    Ok(standby)
}

#[tokio::test(flavor = "multi_thread")]
async fn f11_runs_lose_and_repeat_nothing_over_a_failover_to_a_standby() -> anyhow::Result<()> {
    let Some(mut primary) = Server::start(&["fsync = on"])? else {
        return Ok(());
    };
    let made = primary.database()?;
    migrate(&made).await?;
    let proxy = Proxy::start(primary.socket()).await?;
    let database = proxy.url(&made.name, made.app_role);
    let mut world = world_at(&database).await?;
    let mut begun = Vec::new();
    for at in 0..size("TAVERN_TEST_FAILOVERS", FAILOVERS)? {
        let standby = synchronous_standby(&primary).await?;
        for number in 0..3 {
            let name = format!("run{at}-{number}");
            begun.push((begin(&world, &name, number).await?, name));
        }
        tokio::time::sleep(Duration::from_micros(fastrand::u64(0..60_000))).await;
        primary.stop("immediate")?;
        standby.promote()?;
        proxy.lead_to(standby.socket());
        let ended = world.stack.processes()[0].wait()?;
        ensure!(ended.code() == Some(75), "{ended:?}");
        world.stack.restart().await?;
        primary = standby;
    }
    settle(&world, &begun).await?;
    world.stack.terminate()?;
    done(&["verify", "--database", &database]).map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn f12_runs_that_a_full_disk_of_the_server_stopped_continue_once_it_is_free()
-> anyhow::Result<()> {
    let settings = ["min_wal_size = 32MB", "max_wal_size = 48MB"];
    let Some(server) = Server::start_on_small_disk(&settings, 160)? else {
        return Ok(());
    };
    let world = world_at(&migrated(&server).await?).await?;
    let mut begun = Vec::new();
    for at in 0..size("TAVERN_TEST_FULL_DISKS", FULL_DISKS)? {
        for number in 0.. {
            // The first ones are at work as the disk fills up.
            if number == 3 {
                server.fill_disk()?;
            }
            let name = format!("run{at}-{number}");
            let started = tokio::time::timeout(REFUSED, begin(&world, &name, number)).await;
            let refusal = match started {
                Ok(Ok(run_id)) => {
                    begun.push((name, number, Some(run_id)));
                    continue;
                }
                Ok(Err(refusal)) => Some(refusal.downcast::<Status>()?),
                Err(_) => None,
            };
            println!("{name} was refused: {refusal:?}");
            let code = refusal.map(|refusal| refusal.code());
            // A run that is left open takes no signal, and without room for its own log a server ends.
            let is_refusal = matches!(code, Some(Code::ResourceExhausted | Code::Unavailable));
            ensure!(is_refusal || !server.is_up(), "{code:?}");
            begun.push((name, number, None));
            break;
        }
        server.free_disk()?;
        if !server.is_up() {
            server.run_up()?;
        }
    }
    let settled = async {
        for (name, number, run_id) in begun {
            // A refused start is repeated under its request id.
            let run_id = match run_id {
                Some(run_id) => run_id,
                None => {
                    eventually("the run to start", || async {
                        begin(&world, &name, number).await.ok()
                    })
                    .await?
                }
            };
            match check_once(&world, &run_id, &name).await? {
                (RunState::Succeeded, missing) if missing.is_empty() => {}
                // A call of it was refused for want of room.
                (RunState::Failed, _) => {}
                ended => bail!("{name} ended as {ended:?}"),
            }
        }
        Ok(())
    };
    tokio::time::timeout(SETTLED, settled).await?
}

#[tokio::test(flavor = "multi_thread")]
async fn s205_an_idle_tavern_sends_at_most_five_statements_a_second() -> anyhow::Result<()> {
    let Some(server) = Server::start(&["fsync = on"])? else {
        return Ok(());
    };
    let database = server.database()?;
    migrate(&database).await?;
    let stack = Stack::builder().database(&database.url).start().await?;
    let query = format!(
        "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = '{}'",
        database.name
    );
    let sent = || -> anyhow::Result<u64> { Ok(server.query("postgres", &query)?.parse()?) };
    let (time, most) = IDLE;
    // The first seconds are those of the start.
    eventually("a rest", || async {
        let before = sent().ok()?;
        tokio::time::sleep(time).await;
        let statements = sent().ok()? - before;
        println!("{statements} in {time:?}");
        (statements <= most * time.as_secs()).then_some(())
    })
    .await?;
    ensure!(runs(&stack).await?.is_empty());
    Ok(())
}
