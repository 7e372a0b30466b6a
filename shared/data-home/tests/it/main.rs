//! Homes in files and at a server.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use core_types::{IdSource, RunId, RunOwner, SystemIds, Timestamp};
use data_home::{
    DataHome, DatabaseAddress, DatabaseSettings, HomeError, HomeSettings, LogOptions,
    SHARED_MIGRATIONS,
};
use documents::{Collection, DocumentStore, StoredDocuments};
use grpc_kit::program::Misplaced;
use membership::JoinError;
use postgres_kit::databases::options;
use run_log::{Created, NewRun};
use sql_store::{PostgresDatabase, ServerFault};
use tempfile::TempDir;

const CALLS: LogOptions = LogOptions::new("calls.db", "call");
const EFFECTS: LogOptions = LogOptions::new("effects.db", "effect");

/// The settings of a process at a database.
fn at(directory: &TempDir, address: &str, services: &str) -> HomeSettings {
    HomeSettings {
        directory: directory.path().to_owned(),
        database: DatabaseSettings {
            address: DatabaseAddress::new(address),
            lease: Duration::from_secs(1),
        },
        services: services.to_owned(),
        address: "127.0.0.1:7402".to_owned(),
        migrations: Vec::new(),
    }
}

/// Makes a database with tables. Returns its address, or `None` where PostgreSQL is missing.
async fn database() -> Option<String> {
    let new = postgres_kit::shared()?.database().unwrap();
    let owner = options(&new.owner_url);
    let migrated = PostgresDatabase::migrate(&owner, &SHARED_MIGRATIONS, new.app_role);
    migrated.await.unwrap();
    let sign = if new.url.contains('?') { '&' } else { '?' };
    Some(format!("{}{sign}tavern.allow_fsync_off=true", new.url))
}

/// Keeps a document and an open run of each of two logs at a home, and finds them at the next.
async fn keeps(open: impl AsyncFn() -> DataHome) {
    let profiles = Collection {
        tenant: core_types::Tenant::DEFAULT,
        kind: "profile",
    };
    let ids: [RunId; 2] = [(); 2].map(|()| SystemIds.next_run(RunOwner::Registry));
    let home = open().await;
    let tables = home
        .tables("tables.db", &[documents::MIGRATIONS])
        .await
        .unwrap();
    let stored = StoredDocuments::new(tables.clone());
    let now = Timestamp::from_unix_nanos(1);
    let put = stored.replace(profiles, "ada", "a profile", None, now);
    put.await.unwrap();
    for (log, id) in [CALLS, EFFECTS].into_iter().zip(ids) {
        let log = home.log(log).await.unwrap();
        let created = log.create(NewRun::new(id, "call", now), Vec::new()).await;
        assert!(matches!(created.unwrap(), Created::New(_)));
        log.close().await;
    }
    tables.close().await;
    home.close().await;

    let home = open().await;
    let tables = home
        .tables("tables.db", &[documents::MIGRATIONS])
        .await
        .unwrap();
    let stored = StoredDocuments::new(tables.clone());
    let document = stored.get(profiles, "ada").await.unwrap();
    assert_eq!(document.unwrap().text, "a profile");
    for ((log, id), other) in [CALLS, EFFECTS].into_iter().zip(ids).zip([ids[1], ids[0]]) {
        let log = home.log(log).await.unwrap();
        let open = log.open_runs(None, 9).await.unwrap();
        let open: Vec<RunId> = open.runs.iter().map(|run| run.id).collect();
        assert_eq!(open, [id], "a log has runs of its own");
        log.reopen(id).await.unwrap();
        assert!(log.reopen(other).await.is_err(), "and none of another");
        assert!(log.read(other, 0, 9).await.is_err());
        log.close().await;
    }
    assert!(home.may_start_effects());
    tables.close().await;
    home.close().await;
}

#[tokio::test]
async fn files_keep_tables_and_logs() {
    let directory = tempfile::tempdir().unwrap();
    keeps(async || DataHome::open(at(&directory, "", "x")).await.unwrap()).await;
}

#[tokio::test]
async fn a_server_keeps_tables_and_logs() {
    let Some(address) = database().await else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    keeps(async || DataHome::open(at(&directory, &address, "x")).await.unwrap()).await;
}

#[tokio::test]
async fn a_second_process_of_a_service_is_refused_by_the_name_of_the_first() {
    let Some(address) = database().await else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let first = DataHome::open(at(&directory, &address, "agents,calls"))
        .await
        .unwrap();
    let other = DataHome::open(at(&directory, &address, "flows"))
        .await
        .unwrap();
    let second = DataHome::open(at(&directory, &address, "calls,flows")).await;
    let refused = second.unwrap_err();
    assert!(matches!(refused, HomeError::Join(_)), "{refused:?}");
    let text = refused.to_string();
    assert!(text.contains("127.0.0.1:7402 serves"), "{text}");
    first.close().await;
    other.close().await;
    let second = DataHome::open(at(&directory, &address, "calls,flows")).await;
    second.unwrap().close().await;
}

#[tokio::test]
async fn settings_that_fail_again_end_a_program_with_their_own_code_and_show_no_password() {
    let directory = tempfile::tempdir().unwrap();
    for (address, is_lasting) in [
        ("mysql://u:hunter2@127.0.0.1:1/t", true),
        ("hunter2", true),
        ("postgres://u:hunter2@127.0.0.1:1/t", false),
    ] {
        let refused = DataHome::open(at(&directory, address, "x"))
            .await
            .unwrap_err();
        let error = refused.of_program();
        let text = format!("{error:#}");
        assert_eq!(error.is::<Misplaced>(), is_lasting, "{text}");
        assert!(!text.contains("hunter2"), "{text}");
    }
    let clock = HomeError::Join(JoinError::Clock { ahead_ms: 7_000 });
    assert!(clock.of_program().is::<Misplaced>());
    // Other clients may leave room before the next start.
    let full = ServerFault::NoRoom {
        needed: 12,
        room: 3,
    };
    let full = HomeError::Server(full.into());
    assert!(!full.of_program().is::<Misplaced>());
    let Some(address) = postgres_kit::shared().map(|server| server.database().unwrap()) else {
        return;
    };
    let sign = if address.url.contains('?') { '&' } else { '?' };
    let unmigrated = format!("{}{sign}tavern.allow_fsync_off=true", address.url);
    let refused = DataHome::open(at(&directory, &unmigrated, "x"))
        .await
        .unwrap_err();
    let error = refused.of_program();
    assert!(error.is::<Misplaced>());
    assert!(
        format!("{error:#}").contains("run `tavern migrate`"),
        "{error:#}"
    );
}

#[tokio::test]
async fn a_program_that_does_not_start_leaves_no_lease_for_the_next_start_to_wait_for() {
    let Some(address) = database().await else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let mut settings = at(&directory, &address, "calls");
    settings.database.lease = Duration::from_secs(600);
    let build = async |_home| Err::<(), _>(anyhow::anyhow!("a file is missing"));
    let failed = DataHome::of_program(settings.clone(), build).await;
    assert_eq!(failed.unwrap_err().to_string(), "a file is missing");
    let next = tokio::time::timeout(Duration::from_secs(120), DataHome::open(settings));
    next.await.unwrap().unwrap().close().await;
}
