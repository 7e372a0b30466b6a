//! The properties that a server must have, and the sentence for each one that it lacks.

use std::time::Duration;

use postgres_kit::{Database, Server, databases::options};
use sql_store::{ErrorClass, Migrations, PostgresDatabase, PostgresOptions, Statement, classify};

/// The component of these tests.
fn component() -> [Migrations; 1] {
    let statements = [
        "CREATE TABLE core.counters (name text COLLATE \"C\" PRIMARY KEY, value bigint NOT NULL)",
        "ALTER TABLE core.counters ADD COLUMN note text",
    ];
    [crate::migrations("counters", &statements)]
}

async fn migrate(database: &Database) -> Result<(), String> {
    let owner = options(&database.owner_url);
    let component = component();
    let migrated = PostgresDatabase::migrate(&owner, &component, database.app_role);
    migrated.await.map_err(|error| error.to_string())
}

/// Returns the sentence with which a database is refused.
async fn refusal(options: PostgresOptions) -> String {
    match PostgresDatabase::open(options, &component()).await {
        Ok(_) => "accepted".to_owned(),
        Err(error) => error.to_string(),
    }
}

#[tokio::test]
async fn a_database_that_is_migrated_is_accepted_and_migrating_again_changes_nothing() {
    let Some(server) = postgres_kit::shared() else {
        return;
    };
    let database = server.database().unwrap();
    let open = || refusal(options(&database.url));
    assert_eq!(
        open().await,
        "the tables of 'counters' are not up to date; run `tavern migrate`"
    );
    let as_app = options(&database.url);
    let refused = PostgresDatabase::migrate(&as_app, &component(), database.app_role).await;
    let refused = refused.unwrap_err().to_string();
    assert!(
        refused.starts_with("the role may not change the tables"),
        "{refused}"
    );
    for _ in 0..2 {
        migrate(&database).await.unwrap();
        assert_eq!(open().await, "accepted");
    }
    server
        .query(
            &database.name,
            "UPDATE core._migrations_counters SET success = FALSE WHERE version = 2",
        )
        .unwrap();
    assert!(open().await.contains("are not up to date"));
    let later = "UPDATE core._migrations_counters SET success = TRUE; \
                 INSERT INTO core._migrations_counters SELECT 99, description, now(), TRUE, checksum, 1 \
                 FROM core._migrations_counters LIMIT 1";
    server.query(&database.name, later).unwrap();
    assert!(open().await.contains("of a later version"));
}

#[tokio::test]
async fn each_obstacle_is_one_line_with_its_remedy_and_never_the_password() {
    let Some(server) = postgres_kit::shared() else {
        return;
    };
    let database = server.database().unwrap();
    migrate(&database).await.unwrap();
    let name = &database.name;
    server
        .query(
            "postgres",
            &format!(
                "CREATE DATABASE {name}_ascii ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0"
            ),
        )
        .unwrap();
    let with_password = |url: String| url.replace("@localhost", ":s3cret@localhost");
    let with_syncs = PostgresOptions::new(with_password(database.url.clone()));
    for (refused, expected) in [
        (
            options("mysql://s3cret@host/db"),
            "is not an address of PostgreSQL",
        ),
        (
            options("postgres://[s3cret"),
            "is not an address of PostgreSQL",
        ),
        (
            options("postgres://tavern:s3cret@127.0.0.1:1/db"),
            "cannot be reached",
        ),
        (
            options(&with_password(server.url("absent", "tavern"))),
            "no such database",
        ),
        (
            options(&with_password(server.url(name, "stranger"))),
            "refused the login",
        ),
        (
            options(&with_password(server.url(name, "postgres"))),
            "is a superuser",
        ),
        (
            options(&with_password(database.owner_url.clone())),
            "owns the tables",
        ),
        (
            options(&with_password(
                server.url(&format!("{name}_ascii"), "tavern"),
            )),
            "encoding SQL_ASCII",
        ),
        (
            options(&with_password(format!("{}&sslmode=require", database.url))),
            "refused TLS",
        ),
        (with_syncs, "fsync = off"),
    ] {
        let url = refused.url.clone();
        let sentence = refusal(refused).await;
        assert!(sentence.contains(expected), "{url}: {sentence}");
        assert!(
            !sentence.contains('\n') && !sentence.contains("s3cret"),
            "{sentence}"
        );
    }
    let (owner, component) = (options(&database.owner_url), component());
    let unknown = PostgresDatabase::migrate(&owner, &component, "absent").await;
    assert_eq!(
        unknown.unwrap_err().to_string(),
        "there is no role 'absent'; create it: createuser -P absent"
    );
    assert!(!format!("{:?}", options("postgres://tavern:s3cret@host/db")).contains("s3cret"));
}

#[tokio::test]
async fn a_standby_is_refused_until_it_is_promoted() {
    let Some(primary) = Server::start(&["fsync = off"]).unwrap() else {
        return;
    };
    let database = primary.database().unwrap();
    migrate(&database).await.unwrap();
    let standby = primary.standby().unwrap();
    let url = standby.url(&database.name, database.app_role);
    assert_eq!(
        refusal(options(&url)).await,
        "the server is a standby; connect to the primary"
    );
    primary.stop("immediate").unwrap();
    standby.promote().unwrap();
    assert_eq!(refusal(options(&url)).await, "accepted");
}

#[tokio::test]
async fn a_statement_runs_again_where_its_connection_had_died() {
    let Some(server) = postgres_kit::shared() else {
        return;
    };
    let database = server.database().unwrap();
    migrate(&database).await.unwrap();
    let opened = PostgresDatabase::open(options(&database.url), &component()).await;
    let opened = opened.unwrap();
    let mut beside = opened.connect().await.unwrap();
    let counters = sql_store::Database::from(opened);
    for number in 0..3_i64 {
        let put = Statement::new(
            "INSERT INTO counters (name, value) VALUES ('a', $1) \
             ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        );
        counters.execute(put.bind(number)).await.unwrap();
        let read = Statement::new("SELECT value FROM counters WHERE name = 'a'");
        let (value,): (i64,) = counters.reader().fetch_one(read).await.unwrap();
        assert_eq!(value, number);
        let kill = "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity \
                    WHERE datname = current_database() AND pid <> pg_backend_pid()";
        sqlx::query(kill).execute(&mut beside).await.unwrap();
    }
}

#[tokio::test]
async fn a_server_that_refuses_is_reported_before_the_wait_for_a_connection_ends() {
    let Some(server) = postgres_kit::Server::start(&[]).unwrap() else {
        return;
    };
    let database = server.database().unwrap();
    migrate(&database).await.unwrap();
    let patient = PostgresOptions {
        acquire_timeout: Duration::from_secs(600),
        ..options(&database.url)
    };
    let opened = PostgresDatabase::open(patient, &component()).await;
    let counters = sql_store::Database::from(opened.unwrap());
    let read = || Statement::new("SELECT value FROM counters");
    let (none, any): (Vec<(i64,)>, _) = (Vec::new(), counters.reader());
    assert_eq!(any.fetch_all::<(i64,)>(read()).await.unwrap(), none);
    server.stop("immediate").unwrap();
    let asked = async {
        let errors = [
            any.fetch_all::<(i64,)>(read()).await.map(drop),
            any.fetch_optional::<(i64,)>(read()).await.map(drop),
            counters
                .execute(Statement::new("DELETE FROM counters"))
                .await,
            counters.begin().await.map(drop),
        ];
        for error in errors {
            let class = classify(&error.unwrap_err());
            assert_eq!(class, ErrorClass::Disconnected);
        }
    };
    tokio::time::timeout(Duration::from_secs(120), asked)
        .await
        .unwrap();
    server.run_up().unwrap();
    assert_eq!(any.fetch_all::<(i64,)>(read()).await.unwrap(), none);
}

#[tokio::test]
async fn a_server_that_accepts_too_few_connections_is_refused() {
    let settings = ["fsync = off", "max_connections = 14"];
    let Some(server) = Server::start(&settings).unwrap() else {
        return;
    };
    let database = server.database().unwrap();
    migrate(&database).await.unwrap();
    let needing = |connections| PostgresOptions {
        connections,
        ..options(&database.url)
    };
    // Three are the superuser's.
    assert_eq!(refusal(needing(11)).await, "accepted");
    assert_eq!(
        refusal(needing(12)).await,
        "the server accepts 11 more connections and this process uses up to 12; raise max_connections, or stop other \
         clients"
    );
}
