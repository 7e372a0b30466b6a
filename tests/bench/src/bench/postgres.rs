//! Steps of the run log in PostgreSQL, compared with a commit of the server, and pages of a large table.
//!
//! A step is two events, as in the benchmark of the file. The server runs on the same machine with its usual settings;
//! the floor inserts one row of the same size.

use std::{sync::Arc, time::Instant};

use anyhow::{Context, ensure};
use core_types::RunId;
use membership::{MemberSettings, Membership};
use postgres_kit::Server;
use run_log::{RunLogs, RunWriter};
use sql_store::{PostgresDatabase, PostgresOptions};
use sqlx::PgPool;

use super::durable::{EVENT_BYTES, RUNS, events, new_run, step};
use crate::harness::{Effort, at_once, one_by_one};
use crate::series::{Series, Unit};
use crate::table::Figure;

/// The events of one append that fills the table.
const FILLED_TOGETHER: usize = 256;

/// The events of a page, as a follower reads it.
const PAGE: usize = 256;

/// The runs among which the events of the large table are.
const FILLED_RUNS: usize = 16;

pub(super) async fn run(effort: &Effort) -> anyhow::Result<Vec<Figure>> {
    let server =
        Server::start(&[])?.context("PostgreSQL is missing; install the package postgresql")?;
    let database = server.database()?;
    let migrations = [membership::MIGRATIONS, run_log::SERVER_MIGRATIONS];
    let owner = PostgresOptions::new(&database.owner_url);
    let (runtime, role) = (tokio::runtime::Handle::current(), database.app_role);
    // Migrations of sqlx are futures of one thread.
    tokio::task::spawn_blocking(move || {
        runtime.block_on(PostgresDatabase::migrate(&owner, &migrations, role))
    })
    .await??;
    server.query(
        &database.name,
        "CREATE TABLE core.bare (row bytea); GRANT INSERT ON core.bare TO tavern",
    )?;
    let opened = PostgresDatabase::open(PostgresOptions::new(&database.url), &migrations).await?;
    let bare = opened.reader().clone();
    let settings = MemberSettings::new("workflow-execution", "127.0.0.1:7702");
    let membership = Membership::join(opened, settings).await?;
    let log = RunLogs::open_shared(membership.clone(), "flow").await?;
    let figures = vec![
        one_run(&log, &bare, effort).await?,
        many_runs(&log, &bare, effort).await?,
        pages(&log, effort).await?,
    ];
    log.close().await;
    membership.leave().await?;
    Ok(figures)
}

async fn one_run(log: &RunLogs, bare: &PgPool, effort: &Effort) -> anyhow::Result<Figure> {
    let writer = new_run(log).await?;
    let (mut steps, mut floor) = (Vec::new(), Vec::new());
    for round in 0..=effort.times(30) {
        let committed = commits(bare, 100).await?;
        let appended = one_by_one(100, || step(&writer)).await?;
        if round > 0 {
            floor.extend(committed);
            steps.extend(appended);
        }
    }
    let floor = Series::seconds(floor);
    let goal = floor.median() + 1e-3;
    let figure = Figure::new(
        "durable step in PostgreSQL, one run",
        Series::seconds(steps),
    );
    Ok(figure.floor("commit of one row", floor).goal(goal))
}

async fn many_runs(log: &RunLogs, bare: &PgPool, effort: &Effort) -> anyhow::Result<Figure> {
    let mut writers = Vec::with_capacity(RUNS);
    for _ in 0..RUNS {
        writers.push(new_run(log).await?);
    }
    let writers: Arc<[RunWriter]> = writers.into();
    let append = move |run: usize| {
        let writers = Arc::clone(&writers);
        async move { step(&writers[run]).await }
    };
    let (mut rates, mut floor) = (Vec::new(), Vec::new());
    for round in 0..=effort.times(20) {
        let rate = at_once(RUNS, 200, append.clone()).await?;
        let committed = commits(bare, 100).await?;
        if round > 0 {
            rates.push(rate);
            floor.push(committed.len() as f64 / committed.iter().sum::<f64>());
        }
    }
    let rate = |values| Series::new(Unit::PerSecond, values);
    let name = format!("durable steps in PostgreSQL, {RUNS} runs at once");
    let figure = Figure::new(name, rate(rates));
    Ok(figure
        .floor("commits of one row, one by one", rate(floor))
        .goal(20e3))
}

/// Reads pages all over a table with the events of the effort.
async fn pages(log: &RunLogs, effort: &Effort) -> anyhow::Result<Figure> {
    let mut runs = Vec::new();
    let each = usize::try_from(effort.log_events)? / FILLED_RUNS;
    for _ in 0..FILLED_RUNS {
        let writer = new_run(log).await?;
        for _ in 0..each.div_ceil(FILLED_TOGETHER) {
            writer.append(events(FILLED_TOGETHER)).await?;
        }
        runs.push((writer.run(), writer.last_sequence()));
    }
    let mut seconds = Vec::new();
    for round in 0..effort.times(1_000) {
        let (run, last) = runs[round % runs.len()];
        // Places that do not follow each other.
        let after = (round as u64 * 7_919 * PAGE as u64) % last.saturating_sub(PAGE as u64).max(1);
        let begin = Instant::now();
        page(log, run, after).await?;
        seconds.push(begin.elapsed().as_secs_f64());
    }
    let name = format!(
        "page of {PAGE} events in PostgreSQL, of {}",
        effort.log_events
    );
    Ok(Figure::new(name, Series::seconds(seconds)).goal_of_tail(5e-3))
}

async fn page(log: &RunLogs, run: RunId, after: u64) -> anyhow::Result<()> {
    let read = log.read(run, after, PAGE).await?;
    ensure!(read.len() == PAGE, "a page has {} events", read.len());
    Ok(())
}

/// Commits rows of the size of a step, one by one. Returns the seconds of each.
async fn commits(bare: &PgPool, count: usize) -> anyhow::Result<Vec<f64>> {
    let mut seconds = Vec::with_capacity(count);
    for _ in 0..count {
        let begin = Instant::now();
        sqlx::query("INSERT INTO bare VALUES ($1)")
            .bind(vec![b'e'; 2 * EVENT_BYTES])
            .execute(bare)
            .await?;
        seconds.push(begin.elapsed().as_secs_f64());
    }
    Ok(seconds)
}
