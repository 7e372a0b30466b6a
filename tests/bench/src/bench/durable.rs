//! Steps that survive power loss, compared with a bare write with `fsync` on the same file system.
//!
//! A step is two events, made durable together. The floor overwrites one page of an existing file,
//! the least that any log can do.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, bail};
use bytes::Bytes;
use core_types::{Clock, IdSource, RunOwner, SystemClock, SystemIds};
use run_log::{Created, NewEvent, NewRun, RunLogs, RunWriter};
use sql_store::SqliteOptions;

use crate::harness::{Effort, at_once, one_by_one, seconds_of};
use crate::series::{Series, Unit};
use crate::table::Figure;

/// The runs at once where the rate is measured.
pub(super) const RUNS: usize = 64;

/// About the size of an event.
pub(super) const EVENT_BYTES: usize = 300;

const PAGE: usize = 4096;

/// The pages of the bare file; writing begins again at its start behind the last.
const PAGES: u64 = 4096;

pub(super) async fn run(effort: &Effort) -> anyhow::Result<Vec<Figure>> {
    let directory = effort.fresh_directory()?;
    let log = RunLogs::open(SqliteOptions::new(directory.path().join("runs.db"))).await?;
    let mut bare = BareFile::create(&directory.path().join("bare"))?;
    let figures = vec![
        one_run(&log, &mut bare, effort).await?,
        many_runs(&log, &mut bare, effort).await?,
    ];
    log.close().await;
    Ok(figures)
}

async fn one_run(log: &RunLogs, bare: &mut BareFile, effort: &Effort) -> anyhow::Result<Figure> {
    let writer = new_run(log).await?;
    let (mut steps, mut floor) = (Vec::new(), Vec::new());
    for round in 0..=effort.times(30) {
        let synced: Vec<f64> = (0..100)
            .map(|_| bare.write_and_sync())
            .collect::<Result<_, _>>()?;
        let appended = one_by_one(100, || step(&writer)).await?;
        if round > 0 {
            floor.extend(synced);
            steps.extend(appended);
        }
    }
    let floor = Series::seconds(floor);
    let goal = floor.median() + 0.5e-3;
    let figure = Figure::new("durable step, one run", Series::seconds(steps));
    Ok(figure.floor("write and fsync of 4 KiB", floor).goal(goal))
}

async fn many_runs(log: &RunLogs, bare: &mut BareFile, effort: &Effort) -> anyhow::Result<Figure> {
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
        let synced: Vec<f64> = (0..100)
            .map(|_| bare.write_and_sync())
            .collect::<Result<_, _>>()?;
        if round > 0 {
            rates.push(rate);
            floor.push(synced.len() as f64 / synced.iter().sum::<f64>());
        }
    }
    let rate = |values| Series::new(Unit::PerSecond, values);
    let figure = Figure::new(format!("durable steps, {RUNS} runs at once"), rate(rates));
    Ok(figure
        .floor("writes and fsyncs, one by one", rate(floor))
        .goal(20e3))
}

/// Makes one step of a run durable.
///
/// # Errors
/// The log does not take it.
pub(super) async fn step(writer: &RunWriter) -> anyhow::Result<()> {
    writer.append(events(2)).await?;
    Ok(())
}

/// Returns events of the usual size.
pub(super) fn events(count: usize) -> Vec<NewEvent> {
    let now = SystemClock.now();
    let payload = Bytes::from_static(&[b'e'; EVENT_BYTES]);
    (1..)
        .map(|kind| NewEvent::new(now, kind, payload.clone()))
        .take(count)
        .collect()
}

/// Creates a durable run.
///
/// # Errors
/// The log does not take it.
pub(super) async fn new_run(log: &RunLogs) -> anyhow::Result<RunWriter> {
    let run = SystemIds.next_run(RunOwner::Workflow);
    match log
        .create(NewRun::new(run, "bench", SystemClock.now()), Vec::new())
        .await?
    {
        Created::New(writer) => Ok(writer),
        Created::Replayed(_) => bail!("the run was there before"),
    }
}

/// A file whose pages are overwritten in turn.
pub(super) struct BareFile {
    file: File,
    next: u64,
}

impl BareFile {
    /// Creates the file, full and synced, so that later only its content changes.
    ///
    /// # Errors
    /// The file system rejects it.
    pub(super) fn create(path: &Path) -> anyhow::Result<Self> {
        let file =
            File::create_new(path).with_context(|| format!("{} cannot be made", path.display()))?;
        for page in 0..PAGES {
            file.write_all_at(&[0; PAGE], page * PAGE as u64)?;
        }
        file.sync_all()?;
        Ok(Self { file, next: 0 })
    }

    /// Writes one page, waits until the device has it, and returns the seconds that it took.
    ///
    /// # Errors
    /// The device rejects it.
    pub(super) fn write_and_sync(&mut self) -> anyhow::Result<f64> {
        let at = self.next % PAGES * PAGE as u64;
        self.next += 1;
        let page = [self.next as u8; PAGE];
        let mut outcome = Ok(());
        let seconds = seconds_of(|| {
            outcome = self
                .file
                .write_all_at(&page, at)
                .and_then(|()| self.file.sync_all());
        });
        outcome?;
        Ok(seconds)
    }
}
