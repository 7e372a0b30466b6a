//! Tavern on PostgreSQL: an installation moves there and back, and the server and processes fail.
//!
//! The tests of this crate that open no file of Tavern run on PostgreSQL with `TAVERN_TEST_DATABASE=postgres`; these
//! always do. A host without it does not run them.

mod faults;
mod files;
mod moves;
mod power;

use std::process::{Command, Output};

use anyhow::ensure;
use contracts::tavern::common::v1::RunState;
use contracts::tavern::run::v1::ListRunsRequest;
use testkit::{Stack, binary};

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
