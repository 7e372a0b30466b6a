//! A steady rate of turns, each with a call and a conversation, in a directory that does not grow.
//!
//! `TAVERN_TEST_GROWTH` sets the number of turns; `make bars` has 100,000 of them, with a retention of a minute.
//! `TAVERN_TEST_RATE` and `TAVERN_TEST_KEPT` change their number a second and the seconds for which they are kept,
//! for a machine that deletes fewer than 100 a second along with as many new ones.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::ensure;
use contracts::tavern::common::v1::RunState;
use contracts::tavern::registry::v1::ListCallsRequest;
use contracts::tavern::run::v1::ListRunsRequest;
use serde_json::json;
use testkit::{Stack, eventually, invoke, size};
use tokio::sync::Semaphore;
use tokio::time::MissedTickBehavior;

use super::keep_for;
use crate::forks::write_scribe;
use crate::text::user_message;

/// Turns in `make test`.
const TURNS: u32 = 300;
/// Turns a second, and seconds for which runs are kept, in the full size.
const RATE: u32 = 100;
const KEPT: u32 = 60;
/// The most turns in progress at once.
const AT_ONCE: usize = 16;
/// The largest size at the end, in hundredths of that after the first turns.
const MOST_GROWTH: u64 = 120;

/// The extent of the test.
struct Size {
    /// The number of turns before the first measurement.
    first: u32,
    /// The number of turns before the second one.
    turns: u32,
    /// The time from the start of a turn to the start of the next.
    pace: Duration,
    /// The time for which runs are kept.
    kept: Duration,
    /// The largest number of runs that are kept at a measurement.
    most: usize,
}

fn size_of_run() -> anyhow::Result<Size> {
    let turns = size("TAVERN_TEST_GROWTH", 0)?;
    if turns == 0 {
        return Ok(Size {
            first: TURNS / 3,
            turns: TURNS,
            pace: Duration::from_millis(20),
            kept: Duration::from_secs(1),
            most: 0,
        });
    }
    let rate = size("TAVERN_TEST_RATE", RATE)?;
    let seconds = size("TAVERN_TEST_KEPT", KEPT)?;
    Ok(Size {
        first: turns / 10,
        turns,
        pace: Duration::from_secs(1) / rate,
        kept: Duration::from_secs(seconds.into()),
        most: (rate * seconds) as usize,
    })
}

fn prepare(deploy: &Path) -> anyhow::Result<()> {
    let call = "<ACTION><UpdatePrivateStateTool><key>mood</key><value>merry</value>\
                </UpdatePrivateStateTool></ACTION>";
    let turns = json!([{"answer": {"text": call}}, {"answer": {"text": "Done."}}]);
    write_scribe(deploy, &["UpdatePrivateStateTool"], &turns)
}

/// Plays turns, one after each pace.
async fn play(stack: &Stack, turns: u32, pace: Duration) -> anyhow::Result<()> {
    let mut ticks = tokio::time::interval(pace);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let room = Arc::new(Semaphore::new(AT_ONCE));
    let mut playing = tokio::task::JoinSet::new();
    for _ in 0..turns {
        ticks.tick().await;
        let place = Arc::clone(&room).acquire_owned().await?;
        let gateway = stack.gateway();
        playing.spawn(async move {
            let turn = invoke(&gateway, user_message("scribe", "Be merry.")).await?;
            drop(place);
            ensure!(turn.run.state() == RunState::Succeeded, "{:?}", turn.run);
            Ok(())
        });
    }
    while let Some(played) = playing.join_next().await {
        played??;
    }
    Ok(())
}

/// Returns the number of runs that are kept.
async fn kept(stack: &Stack) -> anyhow::Result<usize> {
    let mut request = ListRunsRequest {
        page_size: 500,
        ..ListRunsRequest::default()
    };
    let mut kept = 0;
    loop {
        let page = stack.runs().list_runs(request.clone()).await?.into_inner();
        kept += page.runs.len();
        if page.next_page_token.is_empty() {
            return Ok(kept);
        }
        request.page_token = page.next_page_token;
    }
}

async fn until_kept(stack: &Stack, most: usize) -> anyhow::Result<()> {
    eventually("old runs and their calls to go", || async {
        let calls = stack.calls().list_calls(ListCallsRequest::default()).await;
        let calls = calls.ok()?.into_inner().calls.len();
        (kept(stack).await.ok()? <= most && (most > 0 || calls == 0)).then_some(())
    })
    .await
}

/// Returns the sizes of the files once no more than `most` runs are kept, and starts the services again.
async fn measure(stack: &mut Stack, most: usize) -> anyhow::Result<BTreeMap<PathBuf, u64>> {
    until_kept(stack, most).await?;
    if most == 0 {
        // Until this turn is deleted too, whole passes run, which return the space of the earlier
        // turns.
        play(stack, 1, Duration::from_millis(1)).await?;
        until_kept(stack, 0).await?;
    }
    // The content of write-ahead logs moves into the files.
    stack.terminate()?;
    let mut sizes = BTreeMap::new();
    note_sizes(&stack.directory().join("data"), &mut sizes)?;
    stack.restart().await?;
    Ok(sizes)
}

fn note_sizes(directory: &Path, sizes: &mut BTreeMap<PathBuf, u64>) -> anyhow::Result<()> {
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        match metadata.is_dir() {
            true => note_sizes(&entry.path(), sizes)?,
            false => drop(sizes.insert(entry.path(), metadata.len())),
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_does_not_grow_at_a_steady_rate() -> anyhow::Result<()> {
    let Size {
        first,
        turns,
        pace,
        kept,
        most,
    } = size_of_run()?;
    let deploy = tempfile::tempdir()?;
    prepare(deploy.path())?;
    let mut stack = Stack::builder().deploy(deploy.path()).start().await?;
    keep_for(&mut stack, kept);
    stack.restart().await?;
    play(&stack, first, pace).await?;
    let before = measure(&mut stack, most).await?;
    play(&stack, turns - first, pace).await?;
    let after = measure(&mut stack, most).await?;
    let sum = |sizes: &BTreeMap<PathBuf, u64>| sizes.values().sum::<u64>();
    println!(
        "{} bytes after {first} turns, {} after {turns}",
        sum(&before),
        sum(&after)
    );
    ensure!(
        sum(&after) * 100 <= sum(&before) * MOST_GROWTH,
        "{before:#?} after {first} turns became {after:#?} after {turns}"
    );
    Ok(())
}
