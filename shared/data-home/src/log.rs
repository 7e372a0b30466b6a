//! The logs of a home.

use std::time::Duration;

use run_log::RunLogs;
use sql_store::SqliteOptions;

use crate::{DataHome, HomeError};

/// The options of a log.
#[derive(Clone, Copy, Debug)]
pub struct LogOptions {
    /// The name of its file.
    pub file: &'static str,
    /// Its name at a server, unlike that of every other log.
    pub name: &'static str,
    /// The time that a batched event waits for its commit.
    pub window: Duration,
    /// The largest size of the file in bytes, if it is bounded. A server has the bounds of its disk.
    pub max_bytes: Option<u64>,
}

impl LogOptions {
    /// Returns the usual options of a log.
    pub const fn new(file: &'static str, name: &'static str) -> Self {
        Self {
            file,
            name,
            window: run_log::BATCH_WINDOW,
            max_bytes: None,
        }
    }
}

impl DataHome {
    /// Opens a log.
    ///
    /// # Errors
    /// [`HomeError`]: the file or the database cannot be used.
    pub async fn log(&self, options: LogOptions) -> Result<RunLogs, HomeError> {
        let LogOptions {
            file,
            name,
            window,
            max_bytes,
        } = options;
        if let Some(membership) = &self.membership {
            let membership = membership.clone();
            return Ok(RunLogs::open_shared_batching(membership, name, window).await?);
        }
        let options = SqliteOptions {
            max_bytes,
            ..SqliteOptions::new(self.directory.file(file)?)
        };
        Ok(RunLogs::open_batching(options, window).await?)
    }
}
