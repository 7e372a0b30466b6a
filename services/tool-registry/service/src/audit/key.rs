//! The key of the audit: in a file that only its owner can read, or in the database that processes share.

use std::{
    fs::OpenOptions,
    io::{self, Read, Write},
    os::unix::fs::OpenOptionsExt,
};

use core_types::secret_bytes;
use data_home::{DataHome, HomeError};
use sql_store::{DataDir, Database, Statement, StoreError};

use crate::store::open_database;

/// The file of the key.
const KEY_FILE: &str = "tool-registry.audit.key";

/// The key.
type Key = [u8; 32];

/// The reason for which the key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AuditKeyError {
    /// The file cannot be used.
    #[error("the file {KEY_FILE} cannot be used")]
    File(#[from] io::Error),
    /// The database cannot be opened.
    #[error(transparent)]
    Home(#[from] HomeError),
    /// The database does not work.
    #[error(transparent)]
    Stored(#[from] StoreError),
    /// The home that is written to has a key, under which its records were made.
    #[error(
        "the audit there has another key, as a Tavern has served that place; copy to one that none has served"
    )]
    Another,
}

/// Returns the key of a home; makes one if there is none.
pub(super) async fn key_of(home: &DataHome, database: &Database) -> Result<Key, AuditKeyError> {
    match home.is_shared() {
        true => Ok(kept_at(database, secret_bytes()).await?),
        false => Ok(kept_in(home.directory(), secret_bytes())?),
    }
}

/// Copies the key of a registry that does not run from files to a database, or back, if it has one.
///
/// # Errors
/// [`AuditKeyError`].
pub async fn copy_audit_key(from: &DataHome, to: &DataHome) -> Result<(), AuditKeyError> {
    let (key, there) = match to.is_shared() {
        true => match read_in(from.directory())? {
            Some(key) => (key, kept_at(&open_database(to).await?, key).await?),
            None => return Ok(()),
        },
        false => match read_at(&open_database(from).await?).await? {
            Some(key) => (key, kept_in(to.directory(), key)?),
            None => return Ok(()),
        },
    };
    match key == there {
        true => Ok(()),
        false => Err(AuditKeyError::Another),
    }
}

/// Reads the key in a data directory, if it has one.
fn read_in(data: &DataDir) -> io::Result<Option<Key>> {
    let mut key = [0; 32];
    match OpenOptions::new()
        .read(true)
        .open(data.path().join(KEY_FILE))
    {
        Ok(mut file) => file.read_exact(&mut key).map(|()| Some(key)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reads the key in a data directory, which is `new` if there was none.
fn kept_in(data: &DataDir, new: Key) -> io::Result<Key> {
    if let Some(key) = read_in(data)? {
        return Ok(key);
    }
    let path = data.path().join(KEY_FILE);
    let written = path.with_extension("key.new");
    let mut options = OpenOptions::new();
    let options = options.write(true).create(true).truncate(true).mode(0o600);
    let mut file = options.open(&written)?;
    file.write_all(&new)?;
    file.sync_all()?;
    std::fs::rename(&written, &path)?;
    Ok(new)
}

/// Reads the key in a database, if it has one.
async fn read_at(database: &Database) -> Result<Option<Key>, StoreError> {
    let stored = Statement::new("SELECT key FROM audit_key");
    let stored: Option<(Vec<u8>,)> = database.reader().fetch_optional(stored).await?;
    let read = stored.map(|(key,)| key.try_into());
    read.transpose().map_err(|_| StoreError::Damaged {
        table: "audit_key",
        column: "key",
    })
}

/// Reads the key in a database, which is `new` if there was none.
async fn kept_at(database: &Database, new: Key) -> Result<Key, StoreError> {
    let insert =
        Statement::new("INSERT INTO audit_key (id, key) VALUES (1, $1) ON CONFLICT DO NOTHING");
    database.execute(insert.bind(new.to_vec())).await?;
    Ok(read_at(database).await?.unwrap_or(new))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_key_stays_and_is_closed_to_others() {
        let directory = tempfile::tempdir().unwrap();
        let data = DataDir::open(directory.path()).unwrap();
        assert_eq!(kept_in(&data, [1; 32]).unwrap(), [1; 32]);
        assert_eq!(kept_in(&data, [2; 32]).unwrap(), [1; 32]);
        let mode = std::fs::metadata(directory.path().join(KEY_FILE)).unwrap();
        assert_eq!(mode.permissions().mode() & 0o777, 0o600);
    }
}
