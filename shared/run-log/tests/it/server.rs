//! Faults of the server, of the connection to it, and of a process that was paused (P3, P6, P12 of the promises).
//!
//! The sizes here are small; a variable of the environment states the full one.

mod fence;
mod lost;

use std::{env, time::Duration};

use membership::Membership;
use run_log::{Event, RunLogs, Verification};

use crate::fixture::{MIGRATIONS, join, run_id};

/// Returns the number of repeats that a variable states, or the small one.
fn repeats(variable: &str, small: u32) -> u32 {
    let stated = env::var(variable).ok();
    stated.map_or(small, |number| number.parse().unwrap())
}

/// Returns the log of a new member at an address.
async fn log_at(url: &str) -> (RunLogs, Membership) {
    log_of(join(url).await).await
}

async fn log_of(membership: Membership) -> (RunLogs, Membership) {
    let log = RunLogs::open_shared(membership.clone(), "flow");
    (log.await.unwrap(), membership)
}

/// Checks that a run has exactly `events` events with an intact chain, each payload once.
async fn check(log: &RunLogs, number: u128, events: u64) {
    let verified = log.verify(run_id(number)).await.unwrap();
    assert!(
        matches!(verified, Verification::Intact { events: found, .. } if found == events),
        "run {number}: {verified:?}, expected {events} events"
    );
    let mut read: Vec<Event> = Vec::new();
    loop {
        let after = read.last().map_or(0, |event| event.sequence);
        let page = log.read(run_id(number), after, 1_000).await.unwrap();
        if page.is_empty() {
            break;
        }
        read.extend(page);
    }
    let payloads: std::collections::BTreeSet<_> =
        read.iter().map(|event| event.payload.clone()).collect();
    assert_eq!(
        payloads.len(),
        read.len(),
        "run {number} has an event twice"
    );
}

/// Waits until a condition of the server holds.
async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..600 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{what} did not happen within 30 s");
}
