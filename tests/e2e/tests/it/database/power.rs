//! The power of the machine with the data is cut (F14).

use std::fs;
use std::time::Duration;

use anyhow::Context;
use contracts::tavern::common::v1::Durability;
use futures::FutureExt;
use futures::stream::{FuturesUnordered, StreamExt};
use postgres_kit::{PowerDisk, Server};
use testkit::{Stack, eventually, migrated, size};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::faults::{prepare, settle, world_at};
use crate::kills::start;
use crate::ledger::World;

/// Cuts in `make test`.
const CUTS: usize = 2;

/// Runs that are at work when the power is cut.
const RUNS: usize = 4;

/// The latest time of a cut after the starts of the runs.
const LATEST: u64 = 200;

/// The size of the disk, in megabytes.
const DISK: u64 = 600;

async fn begin(world: &World, name: &str) -> anyhow::Result<String> {
    start(
        &world.stack,
        name,
        "ledger.append_idempotent",
        Durability::Sync,
    )
    .await
}

/// Starts runs and cuts the power in between, over and over; then each of them has succeeded, with each effect once. A
/// start that was acknowledged is not repeated. Returns the number of those.
async fn play(
    world: &mut World,
    mut cut: impl AsyncFnMut(&mut World) -> anyhow::Result<()>,
) -> anyhow::Result<usize> {
    let cuts = size("TAVERN_TEST_POWER_CUTS", CUTS)?;
    let mut acknowledged = 0;
    for at in 0..cuts {
        let names: Vec<String> = (0..RUNS).map(|run| format!("run{at}-{run}")).collect();
        let until = Instant::now() + Duration::from_millis(fastrand::u64(..LATEST));
        let mut started = vec![None; RUNS];
        let starts = names.iter().enumerate();
        let mut starts: FuturesUnordered<_> = starts
            .map(|(place, name)| begin(world, name).map(move |run_id| (place, run_id)))
            .collect();
        while let Ok(Some((place, run_id))) = timeout_at(until, starts.next()).await {
            started[place] = Some(run_id?);
        }
        // Those that have not ended by then are dropped with their answers.
        drop(starts);
        sleep_until(until).await;
        cut(world).await?;
        let mut begun = Vec::new();
        for (name, run_id) in names.into_iter().zip(started) {
            acknowledged += usize::from(run_id.is_some());
            let run_id = match run_id {
                Some(run_id) => run_id,
                None => {
                    eventually("the run to start", || async {
                        begin(world, &name).await.ok()
                    })
                    .await?
                }
            };
            begun.push((run_id, name));
        }
        settle(world, &begun).await?;
    }
    Ok(acknowledged)
}

#[tokio::test(flavor = "multi_thread")]
async fn f14_a_server_that_loses_its_power_loses_nothing_that_was_acknowledged()
-> anyhow::Result<()> {
    let Some(server) = Server::start_on_power_disk(DISK)? else {
        return Ok(());
    };
    let mut world = world_at(&migrated(&server).await?).await?;
    let acknowledged = play(&mut world, async |_: &mut World| server.lose_power());
    let acknowledged = acknowledged.await?;
    println!("{acknowledged} starts were acknowledged before a cut");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn f14_a_data_directory_that_loses_its_power_loses_nothing_that_was_acknowledged()
-> anyhow::Result<()> {
    let mut stack = Stack::builder().database("").start().await?;
    stack.kill()?;
    let data = stack.directory().join("data");
    fs::remove_dir_all(&data)?;
    fs::create_dir(&data)?;
    let Some(disk) = PowerDisk::mount(&data, DISK)? else {
        return Ok(());
    };
    stack.restart().await?;
    let mut world = World::new(stack).await?;
    prepare(&world).await?;
    let acknowledged = play(&mut world, async |world: &mut World| {
        disk.cut()?;
        world.stack.kill()?;
        disk.restore()?;
        world.stack.restart().await
    });
    let acknowledged = acknowledged.await?;
    println!("{acknowledged} starts were acknowledged before a cut");
    world.stack.kill().context("it ends before its disk")
}
