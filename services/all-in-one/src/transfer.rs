//! `tavern import`, `tavern export` and `tavern verify`: the data of a Tavern that does not run.

use std::io::{Write, stderr};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, ensure};
use clap::Args;
use data_home::{DataHome, HomeError, Moved, ServiceData};
use grpc_kit::program::print;

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
/// are there already stay, so a command that ended in between is repeated. Every run is verified on the way, and its chain of hashes is
/// the same afterwards. Blobs, files of conversations and package sets stay in the directory: serve the database with it.
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

impl Import {
    /// Copies the data.
    pub(crate) async fn execute(self) -> anyhow::Result<ExitCode> {
        ensure!(
            ALL.iter().any(|data| self.from.join(data.file).is_file()),
            "{} is no data directory: it has none of the files {}",
            self.from.display(),
            ALL.map(|data| data.file).join(", ")
        );
        let files = DataHome::of_files(self.from).map_err(HomeError::of_program)?;
        let server = at_database(&self.database).await?;
        let copied = copy(&files, &server).await;
        server.close().await;
        copied?;
        Ok(ExitCode::SUCCESS)
    }
}

impl Export {
    /// Copies the data.
    pub(crate) async fn execute(self) -> anyhow::Result<ExitCode> {
        let files = DataHome::of_files(self.to).map_err(HomeError::of_program)?;
        let server = at_database(&self.database).await?;
        let copied = copy(&server, &files).await;
        server.close().await;
        copied?;
        Ok(ExitCode::SUCCESS)
    }
}

impl Verify {
    /// Recomputes the chains.
    pub(crate) async fn execute(self) -> anyhow::Result<ExitCode> {
        ensure!(
            self.place.is_named(),
            "name the place of the data by `--data-dir` or `--database`"
        );
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

async fn copy(from: &DataHome, to: &DataHome) -> anyhow::Result<()> {
    // The key first: records of the audit that are made under another one cannot be compared with those of before.
    tool_registry::copy_audit_key(from, to).await?;
    for data in &ALL {
        let copied = from.copy_to(to, data, |part| show(data, &part)).await;
        copied.context(data.service)?;
    }
    agent_runtime::index_knowledge(to).await?;
    Ok(())
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
    use sql_store::{SqliteDatabase, SqliteOptions, TableShape, copy::tables_of_file};

    use super::*;

    #[tokio::test]
    async fn every_table_of_a_file_has_one_at_a_server() {
        let migrations = [SHARED_MIGRATIONS.as_slice(), &MIGRATIONS].concat();
        let database = postgres_kit::databases::at_server(&migrations).await;
        let Some(sql_store::Database::Postgres(server)) = database else {
            return;
        };
        let names = async |schema: &str| {
            let shapes = TableShape::of_schema(&server, schema).await;
            let names = shapes.expect("they are read").into_iter();
            names.map(|table| table.name).collect::<BTreeSet<_>>()
        };
        let shared = names("core").await;
        for data in &ALL {
            let directory = tempfile::tempdir().expect("a directory");
            let options = SqliteOptions::new(directory.path().join(data.file));
            let file = SqliteDatabase::open(options, data.in_file).await;
            let file = file.expect("it opens");
            let own = names(data.schema).await;
            let in_file = tables_of_file(&file).await.expect("they are read");
            assert!(in_file.len() > 3, "{in_file:?}");
            for table in in_file {
                assert!(
                    own.contains(&table) || shared.contains(&table),
                    "{} would lose {table}",
                    data.service
                );
            }
            file.close().await;
        }
    }
}
