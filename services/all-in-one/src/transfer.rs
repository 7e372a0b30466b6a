//! `tavern import`, `tavern export` and `tavern verify`: the data of a Tavern that does not run.

use std::io::{Write, stderr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use all_in_one::settings::BLOBS;
use anyhow::{Context, anyhow, ensure};
use clap::Args;
use data_home::{DataHome, HomeError, Moved, ServiceData};
use grpc_kit::program::print;
use tokio::task::spawn_blocking;
use tool_registry::CopiedFiles;

use crate::at_rest::{AtRest, at_database};

/// The data of all services.
const ALL: [ServiceData; 3] = [
    tool_registry::DATA,
    workflow_execution::DATA,
    agent_runtime::DATA,
];

/// Copy the data of a data directory into a PostgreSQL database.
///
/// Both must be at rest: the files are locked, and a database that a Tavern serves is refused. Rows and runs that
/// are there already stay, so a command that ended in between is repeated. Every run is verified on the way, and its
/// chain of hashes is the same afterwards. Package sets stay in the directory: serve the database with it, or build them
/// anew.
#[derive(Args)]
pub(crate) struct Import {
    /// The data directory.
    #[arg(long, value_name = "DIRECTORY")]
    from: PathBuf,
    /// The PostgreSQL database, with the password in PGPASSWORD.
    #[arg(long, value_name = "URL")]
    database: String,
}

/// Copy the data of a PostgreSQL database into a data directory, the way back from `tavern import`.
#[derive(Args)]
pub(crate) struct Export {
    /// The PostgreSQL database, with the password in PGPASSWORD.
    #[arg(long, value_name = "URL")]
    database: String,
    /// The data directory. Files that are missing are made.
    #[arg(long, value_name = "DIRECTORY")]
    to: PathBuf,
}

/// Recompute the chains of all runs of a Tavern that does not run. The exit code is 1 if one is not as it was written.
#[derive(Args)]
pub(crate) struct Verify {
    #[command(flatten)]
    place: AtRest,
}

/// The way of a move.
enum Direction {
    ToServer,
    ToFiles,
}

impl Import {
    /// Copies the data.
    pub(crate) async fn execute(self) -> anyhow::Result<ExitCode> {
        ensure_data_in(&self.from)?;
        transfer(self.from, &self.database, Direction::ToServer).await
    }
}

impl Export {
    /// Copies the data.
    pub(crate) async fn execute(self) -> anyhow::Result<ExitCode> {
        transfer(self.to, &self.database, Direction::ToFiles).await
    }
}

impl Verify {
    /// Recomputes the chains.
    pub(crate) async fn execute(self) -> anyhow::Result<ExitCode> {
        ensure!(
            self.place.is_named(),
            "name the place of the data by `--data-dir` or `--database`"
        );
        if let Some(directory) = self.place.data_dir() {
            ensure_data_in(directory)?;
        }
        let home = self.place.open().await?;
        let mut verified = Ok(());
        for data in &ALL {
            verified = home.verify(data, |part| show(data, &part)).await;
            if verified.is_err() {
                break;
            }
        }
        home.close().await;
        verified?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Refuses a directory without the files of a Tavern, as after a mistyped name.
fn ensure_data_in(directory: &Path) -> anyhow::Result<()> {
    ensure!(
        ALL.iter().any(|data| directory.join(data.file).is_file()),
        "{} is not a data directory: it has none of the files {}",
        directory.display(),
        ALL.map(|data| data.file).join(", ")
    );
    Ok(())
}

async fn transfer(
    directory: PathBuf,
    database: &str,
    direction: Direction,
) -> anyhow::Result<ExitCode> {
    let files = DataHome::of_files(directory).map_err(HomeError::of_program)?;
    let server = at_database(database).await?;
    let copied = match direction {
        Direction::ToServer => copy(&files, &server).await,
        Direction::ToFiles => copy(&server, &files).await,
    };
    server.close().await;
    copied?;
    Ok(ExitCode::SUCCESS)
}

async fn copy(from: &DataHome, to: &DataHome) -> anyhow::Result<()> {
    // The key first: records of the audit that are made under another one cannot be compared with those of before.
    tool_registry::copy_audit_key(from, to).await?;
    for data in &ALL {
        let copied = from.copy_to(to, data, |part| show(data, &part)).await;
        copied.context(data.service)?;
    }
    agent_runtime::index_knowledge(to).await?;
    let copied = tool_registry::copy_files(from, to).await;
    let copied = copied.map_err(|failure| anyhow!("{}", failure.message))?;
    let CopiedFiles { workspaces, files } = copied;
    print(&format!(
        "tool-registry: {files} files of {workspaces} workspaces\n"
    ));
    let blobs = copy_blobs(from, to).await?;
    print(&format!("script-sandbox: {blobs} blobs\n"));
    Ok(())
}

async fn copy_blobs(from: &DataHome, to: &DataHome) -> anyhow::Result<u64> {
    let path = |home: &DataHome| home.directory().path().join(BLOBS);
    let copied = match (from.files(), to.files()) {
        (None, Some(server)) => {
            let directory = path(from);
            spawn_blocking(move || blob_store::copy_to(&server, &directory)).await?
        }
        (Some(server), None) => {
            let directory = path(to);
            spawn_blocking(move || blob_store::copy_from(&server, &directory)).await?
        }
        _ => return Ok(0),
    };
    Ok(copied?)
}

/// Prints a part that is done, and on standard error the progress of one that takes long.
fn show(data: &ServiceData, part: &Moved) {
    let service = data.service;
    match part {
        Moved::Rows { rows: 0, .. } => {}
        Moved::Rows { table, rows } => print(&format!("{service}: {rows} rows of {table}\n")),
        Moved::Runs {
            log,
            count,
            is_done: true,
        } => {
            let mut line = format!(
                "{service}: log {log}, {} runs with {} events",
                count.runs, count.events
            );
            if count.present > 0 {
                line.push_str(&format!("; {} were there", count.present));
            }
            line.push('\n');
            print(&line);
        }
        Moved::Runs { log, count, .. } => {
            // Progress is for people; the command succeeds without it.
            let _ = writeln!(
                stderr(),
                "{service}: log {log}, {} events so far",
                count.events
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use all_in_one::settings::MIGRATIONS;
    use data_home::SHARED_MIGRATIONS;
    use sql_store::{SqliteDatabase, SqliteOptions, TableShape, copy::columns_of_file};

    use super::*;

    /// The number that each database assigns to an entry by itself.
    const ASSIGNED: (&str, &str) = ("knowledge_entries", "entry");

    #[tokio::test]
    async fn every_column_of_a_file_has_one_at_a_server() {
        let migrations = [SHARED_MIGRATIONS.as_slice(), &MIGRATIONS].concat();
        let database = postgres_kit::databases::at_server(&migrations).await;
        let Some(sql_store::Database::Postgres(server)) = database else {
            return;
        };
        let columns = async |schema: &str| {
            let shapes = TableShape::of_schema(&server, schema).await;
            let shapes = shapes.expect("they are read");
            let columns = shapes.iter().flat_map(|table| {
                let named = |column: &str| (table.name.clone(), column.to_owned());
                table.names().map(named).collect::<Vec<_>>()
            });
            columns.collect::<BTreeSet<_>>()
        };
        let shared = columns("core").await;
        for data in &ALL {
            let directory = tempfile::tempdir().expect("a directory");
            let options = SqliteOptions::new(directory.path().join(data.file));
            let file = SqliteDatabase::open(options, data.in_file).await;
            let file = file.expect("it opens");
            let own = columns(data.schema).await;
            let in_file = columns_of_file(&file).await.expect("they are read");
            assert!(in_file.len() > 20, "{in_file:?}");
            for column in in_file {
                let is_assigned = (column.0.as_str(), column.1.as_str()) == ASSIGNED;
                assert!(
                    own.contains(&column) || shared.contains(&column) || is_assigned,
                    "{} would lose {column:?}",
                    data.service
                );
            }
            file.close().await;
        }
    }
}
