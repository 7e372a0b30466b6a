//! Calls of a plugin that is updated again and again: none fails for that, and each runs one package, whole.
//!
//! Most calls are of a node, as two cores do not start scripts as often.
//! `TAVERN_TEST_UPDATES` sets the updates, and `TAVERN_TEST_CALLS` the calls a second; `make bars` sets 200 and 500.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::ensure;
use futures::{StreamExt, TryStreamExt};
use serde_json::json;
use testkit::{Stack, size};

use super::kills::{NODE, SCRIPT, is_of_one, number_of, numbered};
use super::{call_by, install};

/// Updates, and calls a second, in `make test`.
const UPDATES: u32 = 8;
const CALLS: u32 = 20;

/// Of so many calls one is of a script.
const SCRIPTS: u64 = 20;

/// The time from one update to the next.
const BETWEEN_UPDATES: Duration = Duration::from_millis(100);

/// The most calls at the same time.
const AT_ONCE: usize = 64;

#[tokio::test(flavor = "multi_thread")]
async fn calls_during_updates_run_one_package_each_and_none_fails() -> anyhow::Result<()> {
    let updates = size("TAVERN_TEST_UPDATES", UPDATES)?;
    let pause = Duration::from_secs(1) / size("TAVERN_TEST_CALLS", CALLS)?;
    let stack = Stack::all_in_one().await?;
    install(&stack, &numbered(1)?).await?;
    // The number of the last package whose install was acknowledged.
    let acknowledged = AtomicU32::new(1);
    let (begin, stack, acknowledged) = (std::time::Instant::now(), &stack, &acknowledged);
    let update = async {
        let mut ticks = tokio::time::interval(BETWEEN_UPDATES);
        for number in 2..=updates + 1 {
            ticks.tick().await;
            install(stack, &numbered(number)?).await?;
            acknowledged.store(number, Ordering::Release);
        }
        anyhow::Ok(())
    };
    let ticks = (0, tokio::time::interval(pause));
    let ticks = futures::stream::unfold(ticks, |(count, mut ticks)| async move {
        let is_over = acknowledged.load(Ordering::Acquire) > updates;
        ticks.tick().await;
        (!is_over).then_some((count, (count + 1, ticks)))
    });
    let client = &stack.calls();
    let calls = ticks.map(|count: u64| async move {
        let least = acknowledged.load(Ordering::Acquire);
        // One more may be in force and not acknowledged.
        let since = || least..=acknowledged.load(Ordering::Acquire) + 1;
        let (tool, arguments) = match count.is_multiple_of(SCRIPTS) {
            true => (SCRIPT, json!({})),
            false => (NODE, json!({"a": 6, "b": 3})),
        };
        let result = call_by(client.clone(), (tool, ""), arguments).await?;
        let is_one = match tool {
            SCRIPT => since().contains(&number_of(&result)?),
            _ => is_of_one(&result, since())?,
        };
        ensure!(is_one, "a package before {least} was called");
        anyhow::Ok(())
    });
    let calls = calls.buffer_unordered(AT_ONCE);
    let calls = calls.try_fold(0_u64, |count, ()| async move { Ok(count + 1) });
    let ((), called) = futures::try_join!(update, calls)?;
    let whole = begin.elapsed();
    eprintln!("{called} calls beside {updates} updates in {whole:?}");
    ensure!(called > u64::from(updates), "{called} calls");
    Ok(())
}
