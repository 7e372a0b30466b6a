//! Logs and events for the tests.

use std::{path::Path, time::Duration};

use core_types::{Durability, RequestId, RunId, RunOwner, Timestamp};
use membership::{MemberSettings, Membership};
use postgres_kit::{Database, databases::options};
use run_log::{
    Batch, Created, Event, Follower, Hash, NewEvent, NewRun, RequestKey, RunLogs, RunWriter,
};
use sql_store::{Migrations, PostgresDatabase, SqliteOptions};
use sqlx::{ConnectOptions, SqliteConnection, sqlite::SqliteConnectOptions};
use tempfile::TempDir;
use uuid::Uuid;

/// A log under test; the directory lives as long as it.
pub(crate) struct Fixture {
    pub(crate) log: RunLogs,
    pub(crate) durability: Durability,
    _dir: TempDir,
}

pub(crate) async fn sqlite_at(path: &Path) -> RunLogs {
    RunLogs::open(SqliteOptions::new(path)).await.unwrap()
}

async fn log_of(durability: Durability) -> Fixture {
    let dir = tempfile::tempdir().unwrap();
    Fixture {
        log: sqlite_at(&dir.path().join("runs.db")).await,
        durability,
        _dir: dir,
    }
}

pub(crate) async fn sqlite() -> Option<Fixture> {
    Some(log_of(Durability::Sync).await)
}

pub(crate) async fn memory() -> Option<Fixture> {
    Some(log_of(Durability::Memory).await)
}

/// Returns a log in a new database of the shared server, or `None` where PostgreSQL is missing.
pub(crate) async fn postgres() -> Option<Fixture> {
    let database = postgres_kit::shared()?.database().unwrap();
    let membership = join(&migrated(&database).await).await;
    Some(Fixture {
        log: RunLogs::open_shared(membership, "flow").await.unwrap(),
        durability: Durability::Sync,
        _dir: tempfile::tempdir().unwrap(),
    })
}

/// The migrations of a run log at a server.
pub(crate) const MIGRATIONS: [Migrations; 2] = [membership::MIGRATIONS, run_log::SERVER_MIGRATIONS];

/// Brings a database to the present shape. Returns the address for the role of the services.
pub(crate) async fn migrated(database: &Database) -> String {
    let owner = options(&database.owner_url);
    PostgresDatabase::migrate(&owner, &MIGRATIONS, database.app_role)
        .await
        .unwrap();
    database.url.clone()
}

/// Becomes a member with a lease of 1 s.
pub(crate) async fn join(url: &str) -> Membership {
    join_for(url, Duration::from_secs(1)).await
}

/// Becomes a member with a lease.
pub(crate) async fn join_for(url: &str, lease: Duration) -> Membership {
    let database = PostgresDatabase::open(options(url), &MIGRATIONS)
        .await
        .unwrap();
    let settings = MemberSettings {
        lease,
        ..MemberSettings::new("workflow-execution", "127.0.0.1:7702")
    };
    Membership::join(database, settings).await.unwrap()
}

/// Opens the file of a log next to the log itself.
pub(crate) async fn side_door(path: &Path) -> SqliteConnection {
    let options = SqliteConnectOptions::new()
        .filename(path)
        .busy_timeout(Duration::from_secs(10));
    options.connect().await.unwrap()
}

pub(crate) fn at(nanos: i64) -> Timestamp {
    Timestamp::from_unix_nanos(nanos)
}

pub(crate) fn run_id(number: u128) -> RunId {
    RunId::new(RunOwner::Workflow, Uuid::from_u128(number))
}

pub(crate) fn event(number: i64) -> NewEvent {
    NewEvent::new(at(number), 7, format!("event {number}").into_bytes())
}

pub(crate) fn events(numbers: std::ops::RangeInclusive<i64>) -> Vec<NewEvent> {
    numbers.map(event).collect()
}

pub(crate) fn request(name: &str, body: &str) -> RequestKey {
    RequestKey {
        scope: "tenant/start".to_owned(),
        request_id: RequestId::new(name).unwrap(),
        body_hash: Hash::of(body.as_bytes()),
    }
}

impl Fixture {
    pub(crate) fn new_run(&self, number: u128) -> NewRun {
        let created = at(i64::try_from(number).unwrap());
        NewRun {
            durability: self.durability,
            ..NewRun::new(run_id(number), "flow", created)
        }
    }

    pub(crate) async fn start(&self, number: u128) -> RunWriter {
        start(&self.log, self.new_run(number)).await
    }
}

pub(crate) async fn start(log: &RunLogs, run: NewRun) -> RunWriter {
    match log.create(run, Vec::new()).await.unwrap() {
        Created::New(writer) => writer,
        Created::Replayed(run) => panic!("{run:?} was there before"),
    }
}

/// The events as a caller appended them, without the log's additions.
pub(crate) fn contents(events: &[Event]) -> Vec<NewEvent> {
    events
        .iter()
        .map(|e| NewEvent::new(e.time, e.kind, e.payload.clone()))
        .collect()
}

/// Follows to the end and checks that sequences have no gaps.
pub(crate) async fn drain(mut follower: Follower) -> Vec<Event> {
    let mut all: Vec<Event> = Vec::new();
    while let Some(batch) = follower.next_batch().await.unwrap() {
        let Batch::Events(events) = batch else {
            panic!("{batch:?}")
        };
        assert!(!events.is_empty());
        for event in events {
            assert!(
                all.last()
                    .is_none_or(|last| last.sequence + 1 == event.sequence)
            );
            all.push(event);
        }
    }
    all
}
