//! PostgreSQL databases with the tables of Tavern.

use anyhow::{Context, ensure};
use postgres_kit::{Database, Server};
use tokio::process::Command;

use crate::process::binary;

/// The variable that states the database of stacks: `postgres`, or files.
const CHOICE: &str = "TAVERN_TEST_DATABASE";

/// Makes a database at the server of all tests, if the run of tests is asked for PostgreSQL. Returns its address.
///
/// # Errors
/// PostgreSQL is missing, or the tables cannot be made.
pub(crate) async fn of_run() -> anyhow::Result<Option<String>> {
    match std::env::var(CHOICE) {
        Err(_) => return Ok(None),
        Ok(choice) => ensure!(choice == "postgres", "{CHOICE} is `postgres` or not set"),
    }
    let server = postgres_kit::shared().context("PostgreSQL is missing")?;
    Ok(Some(migrated(server).await?))
}

/// Makes a database with the tables of Tavern. Returns its address for `tavern serve`.
///
/// # Errors
/// The tables cannot be made.
pub async fn migrated(server: &Server) -> anyhow::Result<String> {
    let database = server.database()?;
    migrate(&database).await?;
    Ok(lax(&database.url))
}

/// Returns an address that allows a server without syncs.
fn lax(url: &str) -> String {
    let sign = if url.contains('?') { '&' } else { '?' };
    format!("{url}{sign}tavern.allow_fsync_off=true")
}

/// Makes the tables of Tavern in a database.
///
/// # Errors
/// The tables cannot be made.
pub async fn migrate(database: &Database) -> anyhow::Result<()> {
    let migrated = Command::new(binary("tavern")?)
        .args(["migrate", "--database", &lax(&database.owner_url)])
        .args(["--app-role", database.app_role])
        .output()
        .await?;
    ensure!(
        migrated.status.success(),
        "the tables cannot be made: {}",
        String::from_utf8_lossy(&migrated.stderr)
    );
    Ok(())
}

/// Returns the settings of a program with tables, whose variables have a prefix: its database, if it has one, and a
/// short lease.
pub(crate) fn settings(address: Option<&str>, prefix: &str) -> Vec<(String, String)> {
    let Some(address) = address.filter(|address| !address.is_empty()) else {
        return Vec::new();
    };
    vec![
        (format!("{prefix}__DATABASE__ADDRESS"), address.to_owned()),
        (format!("{prefix}__DATABASE__LEASE"), "3s".to_owned()),
    ]
}
