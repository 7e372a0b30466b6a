//! Following a durable run, and resuming to follow inside a long one.

use std::time::Instant;

use anyhow::{Context, ensure};
use bytes::Bytes;
use core_types::{Clock, SystemClock};
use run_log::{Batch, NewEvent, RunLogs, RunWriter};
use sql_store::SqliteOptions;
use sqlx::ConnectOptions;
use sqlx::sqlite::SqliteConnectOptions;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};

use crate::harness::{Effort, one_by_one};
use crate::series::Series;
use crate::table::Figure;

use super::durable::{BareFile, new_run};

/// The followers of a run with many of them.
const MANY: usize = 100;

/// The events appended together when the long log is made.
const EVENTS_PER_APPEND: u64 = 1_000;

pub(super) async fn run(effort: &Effort) -> anyhow::Result<Vec<Figure>> {
    let directory = effort.fresh_directory()?;
    let path = directory.path().join("runs.db");
    let log = RunLogs::open(SqliteOptions::new(&path)).await?;
    let mut bare = BareFile::create(&directory.path().join("bare"))?;
    let mut figures = Vec::new();
    for followers in [1, MANY] {
        figures.extend(visible(&log, &mut bare, followers, effort).await?);
    }
    figures.push(resume(&log, effort).await?);
    log.close().await;
    Ok(figures)
}

/// The time at which a follower saw an event.
struct SeenEvent {
    sequence: u64,
    at: Instant,
}

/// Appends one event after the other and notes when the last of the followers saw it: counted from
/// the acknowledgement, and from the call of append.
async fn visible(
    log: &RunLogs,
    bare: &mut BareFile,
    followers: usize,
    effort: &Effort,
) -> anyhow::Result<Vec<Figure>> {
    let writer = new_run(log).await?;
    let (tell, mut times) = mpsc::unbounded_channel();
    for _ in 0..followers {
        follow(log, &writer, tell.clone()).await?;
    }
    let events = effort.times(2_000);
    let (mut after_acknowledgement, mut after_call) = (Vec::new(), Vec::new());
    let (mut synced, mut handed) = (Vec::new(), Vec::new());
    for round in 0..events + events / 10 {
        let called = Instant::now();
        let sequence = append(&writer, 1).await?;
        let acknowledged = Instant::now();
        let seen = last_seen(&mut times, sequence, followers).await?;
        // The first tenth only warms up.
        if round >= events / 10 {
            after_acknowledgement.push(seen.saturating_duration_since(acknowledged).as_secs_f64());
            after_call.push(seen.saturating_duration_since(called).as_secs_f64());
            synced.push(bare.write_and_sync()?);
            handed.push(hand_over().await?);
        }
    }
    append_last(&writer).await?;
    let who = if followers == 1 {
        "a follower".to_owned()
    } else {
        format!("the last of {followers} followers")
    };
    Ok(vec![
        Figure::new(
            format!("event visible to {who}, after append"),
            Series::seconds(after_acknowledgement),
        )
        .floor("handover between two tasks", Series::seconds(handed))
        .goal_of_tail(5e-3),
        Figure::new(
            format!("event visible to {who}, with append"),
            Series::seconds(after_call),
        )
        .floor("write and fsync of 4 KiB", Series::seconds(synced)),
    ])
}

/// Starts to follow a run and reports when each event came.
async fn follow(
    log: &RunLogs,
    writer: &RunWriter,
    tell: UnboundedSender<SeenEvent>,
) -> anyhow::Result<()> {
    let mut follower = log.follow(writer.run(), 0).await?;
    tokio::spawn(async move {
        while let Ok(Some(Batch::Events(events))) = follower.next_batch().await {
            let at = Instant::now();
            for event in events {
                // No receiver is left when the measurement is over.
                let _ = tell.send(SeenEvent {
                    sequence: event.sequence,
                    at,
                });
            }
        }
    });
    Ok(())
}

/// Waits until all followers have seen an event, and returns when the last of them did.
async fn last_seen(
    times: &mut UnboundedReceiver<SeenEvent>,
    sequence: u64,
    followers: usize,
) -> anyhow::Result<Instant> {
    let mut last = None;
    for _ in 0..followers {
        let seen = times.recv().await.context("the followers have ended")?;
        ensure!(
            seen.sequence == sequence,
            "event {} came where {sequence} was due",
            seen.sequence
        );
        last = last.max(Some(seen.at));
    }
    last.context("there are no followers")
}

/// Hands one value to a task that waits for it, and returns the seconds that it took.
async fn hand_over() -> anyhow::Result<f64> {
    let (give, take) = tokio::sync::oneshot::channel::<Instant>();
    let (ready, waits) = tokio::sync::oneshot::channel();
    let task = tokio::spawn(async move {
        // The task waits before anything is handed to it.
        let _ = ready.send(());
        take.await.map(|given| given.elapsed().as_secs_f64())
    });
    waits.await?;
    let _ = give.send(Instant::now());
    Ok(task.await??)
}

/// Begins to follow at places all over a long run and waits for the first events there.
async fn resume(log: &RunLogs, effort: &Effort) -> anyhow::Result<Figure> {
    let events = effort.log_events.max(EVENTS_PER_APPEND);
    let writer = new_run(log).await?;
    for _ in 0..events / EVENTS_PER_APPEND {
        append(&writer, EVENTS_PER_APPEND).await?;
    }
    let directory = effort.fresh_directory()?;
    let file = SqliteConnectOptions::new()
        .filename(directory.path().join("empty.db"))
        .create_if_missing(true);
    let mut connection = file.connect().await?;
    let (mut resumed, mut queried) = (Vec::new(), Vec::new());
    for round in 0..=effort.times(1_000) as u64 {
        // A large odd step visits places all over the run before it comes back to one.
        let after = round.wrapping_mul(0x9E37_79B9_7F4A_7C15) % (events - 1);
        let took = one_by_one(1, || first_batch(log, &writer, after)).await?;
        let begin = Instant::now();
        sqlx::query("SELECT 1").execute(&mut connection).await?;
        if round > 0 {
            resumed.extend(took);
            queried.push(begin.elapsed().as_secs_f64());
        }
    }
    let figure = Figure::new(
        format!("resume inside a run of {events} events"),
        Series::seconds(resumed),
    );
    Ok(figure
        .floor("an empty query of SQLite", Series::seconds(queried))
        .goal_of_tail(20e-3))
}

async fn first_batch(log: &RunLogs, writer: &RunWriter, after: u64) -> anyhow::Result<()> {
    let mut follower = log.follow(writer.run(), after).await?;
    match follower.next_batch().await?.context("the run has ended")? {
        Batch::Events(events) => {
            let first = events.first().context("an empty batch came")?.sequence;
            ensure!(
                first == after + 1,
                "event {first} came where {} was due",
                after + 1
            );
            Ok(())
        }
        Batch::Gap { next } => anyhow::bail!("events before {next} are gone"),
    }
}

async fn append(writer: &RunWriter, events: u64) -> anyhow::Result<u64> {
    let payload = Bytes::from_static(&[b'e'; 300]);
    let now = SystemClock.now();
    let events = (0..events)
        .map(|_| NewEvent::new(now, 1, payload.clone()))
        .collect();
    Ok(writer.append(events).await?)
}

/// Ends a run, and with it its followers.
async fn append_last(writer: &RunWriter) -> anyhow::Result<()> {
    let last = NewEvent::new(SystemClock.now(), 2, Bytes::new());
    writer.finish(0, vec![last]).await?;
    Ok(())
}
