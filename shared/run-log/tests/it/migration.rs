//! A file of the version before tenants is migrated whole, also by a process that is killed meanwhile.
//!
//! `TAVERN_TEST_EVENTS` sets the number of events of a file that is migrated, and `TAVERN_TEST_KILLS` the number of
//! kills; `make bars` has 1,000,000 events and 200 kills.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use core_types::{Principal, Tenant};
use run_log::{NewRun, Order, Owners, RunFilter, RunState, Verification};
use sql_store::{Migrations, SqliteDatabase, SqliteOptions};
use sqlx::{Row, SqliteConnection, migrate::Migrator};

use crate::{
    appender::FILE,
    fixture::{at, events, request, run_id, side_door, sqlite_at, start},
};

static MIGRATOR: Migrator = sqlx::migrate!("migrations/sqlite");

/// The last version without tenants.
const BEFORE: i64 = 6;
/// The columns of the runs of that version.
const COLUMNS: &str = "key, id, kind, subject, conversation, scope, request_id, body_hash, parent, forks, state, \
                       phase, batched, deleted, hidden, created, finished, deadline, due, meta, end_sequence, end_hash";
/// The runs that are written by a log, which chains their events.
const RUNS: u128 = 12;
/// The events of each further run, whose content is made up.
const EVENTS_PER_RUN: u64 = 20;

fn number(name: &str, few: u64) -> u64 {
    env::var(name).map_or(few, |number| number.parse().unwrap())
}

/// The stored data of a run, by number, and the owner that it names.
fn meta(number: u128) -> (String, &'static str) {
    match number % 3 {
        0 => (r#"{"subject":"s","path":[]}"#.to_owned(), "local"),
        1 => (r#"{"subject":"s","principal":"ada"}"#.to_owned(), "ada"),
        _ => ("\u{1}no JSON".to_owned(), "local"),
    }
}

/// Makes a file of the version before, with runs of every sort and `events` more events.
async fn old_file(path: &Path, more_events: u64) {
    let source = path.with_extension("source");
    let log = sqlite_at(&source).await;
    for number in 1..=RUNS {
        let run = NewRun {
            request: (number % 2 == 0).then(|| request(&format!("r{number}"), "body")),
            conversation: "talk".to_owned(),
            meta: meta(number).0.into(),
            ..NewRun::new(run_id(number), "flow", at(i64::try_from(number).unwrap()))
        };
        let writer = start(&log, run).await;
        writer.append(events(1..=5)).await.unwrap();
        if number % 3 == 0 {
            writer.finish(1, events(6..=6)).await.unwrap();
        }
    }
    log.delete(run_id(RUNS)).await.unwrap();
    log.close().await;
    let earlier = [Migrations::new("run_log", &MIGRATOR).up_to(BEFORE)];
    let database = SqliteDatabase::open(SqliteOptions::new(path), &earlier).await;
    database.unwrap().close().await;
    let mut file = side_door(path).await;
    let source = source.to_str().unwrap().to_owned();
    let attach = sqlx::query("ATTACH ? AS source").bind(source);
    attach.execute(&mut file).await.unwrap();
    let copies = [
        format!("INSERT INTO runs ({COLUMNS}) SELECT {COLUMNS} FROM source.runs"),
        "INSERT INTO events SELECT * FROM source.events".to_owned(),
        format!(
            "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < {}) \
             INSERT INTO runs (key, id, kind, conversation, created, meta) \
             SELECT 1000 + n, printf('flow_%032x', 1000 + n), 'flow', '', 1000 + n, \
             '{{\"principal\":\"ada\",\"data\":\"' || hex(zeroblob(200)) || '\"}}' FROM n",
            more_events / EVENTS_PER_RUN
        ),
        format!(
            "WITH RECURSIVE n (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM n WHERE n < {}) \
             INSERT INTO events (run, sequence, time, kind, payload, hash) \
             SELECT 1001 + n / {EVENTS_PER_RUN}, 1 + n % {EVENTS_PER_RUN}, n, 7, 'payload', zeroblob(32) FROM n",
            more_events - 1
        ),
    ];
    for copy in copies {
        let copied = sqlx::query(sqlx::AssertSqlSafe(copy));
        copied.execute(&mut file).await.unwrap();
    }
    let leave = sqlx::query("PRAGMA wal_checkpoint(TRUNCATE)");
    leave.execute(&mut file).await.unwrap();
}

/// Returns the content of a file that both versions have, in short.
async fn content(file: &mut SqliteConnection) -> Vec<String> {
    let mut found = Vec::new();
    for sql in [
        "SELECT count(*) || ' ' || hex(max(id)) || ' ' || total(length(meta)) FROM runs".to_owned(),
        format!("SELECT group_concat(quote(id) || quote(request_id) || quote(meta) || quote(end_hash)) FROM \
                 (SELECT {COLUMNS} FROM runs ORDER BY key LIMIT 1000)"),
        "SELECT count(*) || ' ' || total(run) || ' ' || total(sequence) || ' ' || total(length(payload)) FROM events"
            .to_owned(),
        "PRAGMA integrity_check".to_owned(),
    ] {
        let row = sqlx::query(sqlx::AssertSqlSafe(sql));
        let row = row.fetch_one(&mut *file).await.unwrap();
        found.push(row.try_get::<Option<String>, _>(0).unwrap().unwrap_or_default());
    }
    found
}

/// Returns the version of a file, and the names of its tables.
async fn version(file: &mut SqliteConnection) -> (i64, Vec<String>) {
    let version = sqlx::query_scalar("SELECT max(version) FROM _migrations_run_log");
    let version = version.fetch_one(&mut *file).await.unwrap();
    let sql = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%' ORDER BY name";
    let tables = sqlx::query_scalar(sql).fetch_all(file).await.unwrap();
    (version, tables)
}

#[tokio::test]
async fn a_file_without_tenants_keeps_everything() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("runs.db");
    let filler = number("TAVERN_TEST_EVENTS", 2_000);
    old_file(&path, filler).await;
    let before = content(&mut side_door(&path).await).await;
    let log = sqlite_at(&path).await;
    for number in 1..RUNS {
        let owner = Principal::new(meta(number).1).unwrap();
        let run = log.find(run_id(number), &Owners::One(owner.clone())).await;
        let run = run.unwrap().unwrap();
        let last = if number % 3 == 0 { 6 } else { 5 };
        assert_eq!((&run.owner, run.last_sequence), (&owner, last), "{number}");
        assert_eq!(run.meta, meta(number).0.as_bytes());
        let ended = number % 3 == 0;
        assert_eq!(run.state != RunState::Open, ended, "{number}");
        let chain = log.verify(run_id(number)).await.unwrap();
        assert!(matches!(chain, Verification::Intact { events, .. } if events == last));
        if number % 2 == 0 {
            let key = request(&format!("r{number}"), "body");
            let found = log.by_request(owner.tenant(), &key.scope, &key.request_id);
            assert_eq!(found.await.unwrap().map(|run| run.id), Some(run_id(number)));
        }
    }
    assert_eq!(log.summary(run_id(RUNS)).await.unwrap(), None);
    let talk = RunFilter {
        owners: Owners::Tenant(Tenant::DEFAULT),
        conversation: Some("talk".to_owned()),
        ..RunFilter::default()
    };
    let page = log
        .list(&talk, Order::OldestFirst, None, 100)
        .await
        .unwrap();
    let numbers = page.runs.iter().map(|run| run.id.uuid().as_u128());
    assert!(numbers.eq(1..RUNS));
    start(&log, NewRun::new(run_id(77), "flow", at(1))).await;
    log.forget(run_id(3)).await.unwrap();
    log.close().await;
    let mut file = side_door(&path).await;
    let kept = content(&mut file).await;
    assert_eq!(
        (&kept[3], version(&mut file).await.0),
        (&before[3], BEFORE + 1)
    );
    let sum = |events: &str| events.split(' ').next().unwrap().parse::<u64>().unwrap();
    assert_eq!(
        sum(&kept[2]) + 6,
        sum(&before[2]),
        "only the events of a forgotten run are gone"
    );
}

/// Copies a closed file.
fn copy(from: &Path, to: &Path) {
    for end in ["-wal", "-shm"] {
        let mut beside = to.as_os_str().to_owned();
        beside.push(end);
        fs::remove_file(PathBuf::from(beside)).unwrap_or_default();
    }
    fs::copy(from, to).unwrap();
}

/// Migrates a file in a process of its own, and kills it once its write-ahead log has so many bytes.
fn migrate_until(path: &Path, bytes: u64) {
    let mut process = Command::new(env::current_exe().unwrap())
        .args(["--exact", "migration::migrates_for_its_parent", "--quiet"])
        .env(FILE, path)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    while process.try_wait().unwrap().is_none() {
        if wal_bytes(path) >= bytes {
            process.kill().unwrap();
        }
        std::thread::yield_now();
    }
}

fn wal_bytes(path: &Path) -> u64 {
    let mut wal = path.as_os_str().to_owned();
    wal.push("-wal");
    fs::metadata(PathBuf::from(wal)).map_or(0, |wal| wal.len())
}

#[tokio::test]
async fn a_killed_migration_leaves_the_old_file_or_the_new_one() {
    let dir = tempfile::tempdir().unwrap();
    let (original, path) = (dir.path().join("before.db"), dir.path().join("runs.db"));
    old_file(&original, 60_000).await;
    let mut file = side_door(&original).await;
    let whole = content(&mut file).await;
    let (_, old_tables) = version(&mut file).await;
    drop(file);
    // The log of a migration is about as long as the runs with their indices.
    let sql = "SELECT total(length(meta) + 400) FROM runs";
    let most: f64 = sqlx::query_scalar(sql)
        .fetch_one(&mut side_door(&original).await)
        .await
        .unwrap();
    let kills = number("TAVERN_TEST_KILLS", 50);
    let (mut old, mut new) = (0, 0);
    for kill in 0..kills {
        copy(&original, &path);
        let part = 1.3 * most * kill as f64 / kills as f64;
        migrate_until(&path, part as u64);
        let mut file = side_door(&path).await;
        let (found, tables) = version(&mut file).await;
        match found {
            BEFORE => old += 1,
            _ => new += 1,
        }
        assert_eq!(tables, old_tables, "kill {kill} of version {found}");
        assert_eq!(
            content(&mut file).await,
            whole,
            "kill {kill} of version {found}"
        );
        drop(file);
        let log = sqlite_at(&path).await;
        let ada = Principal::new("ada").unwrap();
        let found = log.find(run_id(1), &Owners::One(ada)).await;
        assert!(found.unwrap().is_some(), "kill {kill}");
        log.close().await;
    }
    assert!(old > 0, "no kill came before the end: {old} old, {new} new");
}

/// Does nothing as a test of its own; with a file named by its parent it opens the log.
#[tokio::test]
async fn migrates_for_its_parent() {
    let Some(file) = env::var_os(FILE) else {
        return;
    };
    sqlite_at(Path::new(&file)).await.close().await;
}
