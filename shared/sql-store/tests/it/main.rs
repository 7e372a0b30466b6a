//! Opening, migrating and refusing SQLite files, and databases of a server.

mod server;

use std::{fs, path::Path};

use sql_store::{ErrorClass, Migrations, OpenError, SqliteDatabase, SqliteOptions, classify};
use sqlx::{
    SqlSafeStr,
    migrate::{Migration, MigrationType, Migrator},
};

fn migrations(namespace: &'static str, statements: &[&'static str]) -> Migrations {
    let list = statements.iter().zip(1..).map(|(sql, version)| {
        let sql = sql.into_sql_str();
        Migration::new(version, "change".into(), MigrationType::Simple, sql, false)
    });
    Migrations::new(
        namespace,
        Box::leak(Box::new(Migrator::with_migrations(list.collect()))),
    )
}

async fn open(path: &Path, components: &[Migrations]) -> Result<SqliteDatabase, OpenError> {
    SqliteDatabase::open(SqliteOptions::new(path), components).await
}

#[tokio::test]
async fn connections_have_the_durable_settings() {
    let dir = tempfile::tempdir().unwrap();
    let database = open(&dir.path().join("a.db"), &[]).await.unwrap();
    for (pragma, expected) in [
        ("PRAGMA synchronous", "2"),
        ("PRAGMA journal_mode", "wal"),
        ("PRAGMA foreign_keys", "1"),
        ("PRAGMA wal_autocheckpoint", "4000"),
    ] {
        let row = sqlx::query(pragma)
            .fetch_one(database.writer())
            .await
            .unwrap();
        let value = sqlx::Row::try_get::<i64, _>(&row, 0)
            .map(|number| number.to_string())
            .or_else(|_| sqlx::Row::try_get::<String, _>(&row, 0))
            .unwrap();
        assert_eq!(value, expected, "{pragma}");
    }
}

#[tokio::test]
async fn sqlite_is_built_as_the_workspace_says() {
    let dir = tempfile::tempdir().unwrap();
    let database = open(&dir.path().join("a.db"), &[]).await.unwrap();
    let options: Vec<String> = sqlx::query_scalar("PRAGMA compile_options")
        .fetch_all(database.writer())
        .await
        .unwrap();
    for option in ["ENABLE_QPSG", "DEFAULT_MEMSTATUS=0"] {
        let found = options.iter().any(|found| found == option);
        assert!(found, "{option}; see .cargo/config.toml");
    }
}

#[tokio::test]
async fn two_components_share_a_file_and_migrate_independently() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.db");
    let left = migrations("left", &["CREATE TABLE l (x)"]);
    let first = open(&path, &[left]).await.unwrap();
    first.close().await;
    let left = migrations(
        "left",
        &["CREATE TABLE l (x)", "ALTER TABLE l ADD COLUMN y"],
    );
    let right = migrations("right", &["CREATE TABLE r (x)"]);
    let second = open(&path, &[left, right]).await.unwrap();
    sqlx::query("INSERT INTO l (x, y) VALUES (1, 2)")
        .execute(second.writer())
        .await
        .unwrap();
    sqlx::query("INSERT INTO r (x) VALUES (1)")
        .execute(second.writer())
        .await
        .unwrap();
}

#[tokio::test]
async fn a_file_has_one_owner_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.db");
    let first = open(&path, &[]).await.unwrap();
    assert!(matches!(
        open(&path, &[]).await,
        Err(OpenError::InUse { .. })
    ));
    first.close().await;
    open(&path, &[]).await.unwrap();
}

#[tokio::test]
async fn a_file_is_in_use_while_a_process_has_it_open() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.db");
    assert!(!SqliteDatabase::is_in_use(&path).unwrap());
    assert!(dir.path().read_dir().unwrap().next().is_none());
    let first = open(&path, &[]).await.unwrap();
    assert!(SqliteDatabase::is_in_use(&path).unwrap());
    first.close().await;
    assert!(!SqliteDatabase::is_in_use(&path).unwrap());
}

#[tokio::test]
async fn readers_cannot_write() {
    let dir = tempfile::tempdir().unwrap();
    let table = migrations("a", &["CREATE TABLE t (x)"]);
    let database = open(&dir.path().join("a.db"), &[table]).await.unwrap();
    let refused = sqlx::query("INSERT INTO t VALUES (1)")
        .execute(database.reader())
        .await;
    assert_eq!(classify(&refused.unwrap_err()), ErrorClass::Io);
}

#[tokio::test]
async fn constraint_and_quota_errors_are_distinguished() {
    let dir = tempfile::tempdir().unwrap();
    let table = migrations("a", &["CREATE TABLE t (x UNIQUE NOT NULL)"]);
    let mut options = SqliteOptions::new(dir.path().join("a.db"));
    options.max_bytes = Some(1 << 20);
    let database = SqliteDatabase::open(options, &[table]).await.unwrap();
    let class = async |sql: &'static str| {
        classify(
            &sqlx::query(sql)
                .execute(database.writer())
                .await
                .unwrap_err(),
        )
    };
    sqlx::query("INSERT INTO t VALUES (1)")
        .execute(database.writer())
        .await
        .unwrap();
    assert_eq!(
        class("INSERT INTO t VALUES (1)").await,
        ErrorClass::UniqueViolation
    );
    assert_eq!(
        class("INSERT INTO t VALUES (NULL)").await,
        ErrorClass::Constraint
    );
    assert_eq!(
        class("INSERT INTO t VALUES (zeroblob(2000000))").await,
        ErrorClass::DiskFull
    );
    assert_eq!(
        class("INSERT INTO nowhere VALUES (1)").await,
        ErrorClass::Other
    );
}

#[tokio::test]
async fn damaged_files_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.db");
    let table = || migrations("a", &["CREATE TABLE t (x)"]);
    let database = open(&path, &[table()]).await.unwrap();
    for _ in 0..50 {
        let insert = sqlx::query("INSERT INTO t VALUES (randomblob(3000))");
        insert.execute(database.writer()).await.unwrap();
    }
    database.close().await;
    let sound = fs::read(&path).unwrap();

    let no_database = vec![7_u8; 8192];
    let truncated = sound[..sound.len() / 2].to_vec();
    let mut scrambled = sound.clone();
    // The root page of the table: a page of rubbish in the middle of the tree.
    scrambled[3 * 4096..5 * 4096].fill(0xa5);
    for (name, bytes) in [
        ("no database", no_database),
        ("truncated", truncated),
        ("scrambled", scrambled),
    ] {
        fs::write(&path, bytes).unwrap();
        let refused = open(&path, &[table()]).await;
        assert!(
            matches!(refused, Err(OpenError::Damaged { .. })),
            "{name}: {refused:?}"
        );
    }
    fs::write(&path, sound).unwrap();
    open(&path, &[table()]).await.unwrap();
}

async fn pages(database: &SqliteDatabase) -> Result<(i64, i64), sqlx::Error> {
    let read = async |text| {
        let number = sqlx::query_scalar(text);
        number.fetch_one(database.writer()).await
    };
    let (count, free) = (read("PRAGMA page_count"), read("PRAGMA freelist_count"));
    Ok((count.await?, free.await?))
}

#[tokio::test]
async fn free_pages_go_back_in_steps_until_few_are_left() {
    let dir = tempfile::tempdir().unwrap();
    let filled = migrations(
        "filled",
        &["CREATE TABLE t (x); \
           WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 4000) \
           INSERT INTO t SELECT randomblob(3000) FROM n"],
    );
    let database = open(&dir.path().join("a.db"), &[filled]).await.unwrap();
    let (full, _) = pages(&database).await.unwrap();
    assert_eq!(database.reclaim().await.unwrap(), 0, "nothing is free");
    sqlx::query("DELETE FROM t")
        .execute(database.writer())
        .await
        .unwrap();
    assert_eq!(
        database.reclaim().await.unwrap(),
        1 << 20,
        "a step is 1 MiB"
    );
    let mut steps = 1;
    while database.reclaim().await.unwrap() > 0 {
        steps += 1;
    }
    assert!(steps > 10, "{steps}");
    let (left, free) = pages(&database).await.unwrap();
    assert!(
        left < full / 20 && free <= 16,
        "{left} of {full}, {free} free"
    );
}

#[tokio::test]
async fn a_file_of_an_earlier_version_learns_to_return_its_pages() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.db");
    let table = migrations("table", &["CREATE TABLE t (x)"]);
    open(&path, &[table]).await.unwrap().close().await;
    let earlier = sqlx::sqlite::SqliteConnectOptions::new().filename(&path);
    let mut earlier = sqlx::ConnectOptions::connect(&earlier).await.unwrap();
    for text in [
        "PRAGMA auto_vacuum = NONE",
        "VACUUM",
        "INSERT INTO t VALUES (7)",
    ] {
        sqlx::query(text).execute(&mut earlier).await.unwrap();
    }
    drop(earlier);
    let database = open(&path, &[table]).await.unwrap();
    let mode: i64 = sqlx::query_scalar("PRAGMA auto_vacuum")
        .fetch_one(database.writer())
        .await
        .unwrap();
    assert_eq!(mode, 2);
    let kept: i64 = sqlx::query_scalar("SELECT x FROM t")
        .fetch_one(database.reader())
        .await
        .unwrap();
    assert_eq!(kept, 7);
}
