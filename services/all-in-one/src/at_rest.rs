//! The data of a Tavern that does not run, for commands without a server.

use std::path::{Path, PathBuf};

use all_in_one::TavernSettings;
use clap::Args;
use data_home::{DataHome, DatabaseAddress, DatabaseSettings, HomeError, HomeSettings};

/// The place of the data.
#[derive(Args)]
pub(crate) struct AtRest {
    /// The data directory of a Tavern that does not run, in place of the address.
    #[arg(long, value_name = "DIRECTORY")]
    data_dir: Option<PathBuf>,
    /// The PostgreSQL database of a Tavern that does not run, with the password in PGPASSWORD.
    #[arg(long, value_name = "URL", conflicts_with = "data_dir")]
    database: Option<String>,
}

impl AtRest {
    /// Returns the data directory, if it is named.
    pub(crate) fn data_dir(&self) -> Option<&Path> {
        self.data_dir.as_deref()
    }

    /// Whether a place is named.
    pub(crate) fn is_named(&self) -> bool {
        self.data_dir.is_some() || self.database.is_some()
    }

    /// Opens the place. A database is refused while a Tavern serves it.
    ///
    /// # Errors
    /// [`HomeError`], as an error of the program.
    pub(crate) async fn open(&self) -> anyhow::Result<DataHome> {
        let home = match (&self.data_dir, &self.database) {
            (_, Some(database)) => return at_database(database).await,
            (directory, None) => DataHome::of_files(directory.clone().unwrap_or_default()),
        };
        home.map_err(HomeError::of_program)
    }
}

/// Opens a database, which is refused while a Tavern serves it.
///
/// # Errors
/// [`HomeError`], as an error of the program.
pub(crate) async fn at_database(database: &str) -> anyhow::Result<DataHome> {
    let settings = HomeSettings {
        database: DatabaseSettings {
            address: DatabaseAddress::new(database),
            ..DatabaseSettings::default()
        },
        address: "a command".to_owned(),
        // No file is read or written.
        directory: std::env::temp_dir(),
        ..TavernSettings::default().home()
    };
    DataHome::open(settings)
        .await
        .map_err(HomeError::of_program)
}
