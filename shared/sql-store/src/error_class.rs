//! The few kinds of database failure that a caller can act on.

use std::io::ErrorKind;

use sqlx::{Error, postgres::PgDatabaseError};

/// The kind of failure that a database reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorClass {
    /// A row with the same unique key already exists.
    UniqueViolation,
    /// Another constraint refused the row.
    Constraint,
    /// Another connection holds the lock or every connection is in use; a retry can help.
    Busy,
    /// The disk is full, or the file has reached its quota.
    DiskFull,
    /// Reading, writing or syncing the file failed, or it may not be written.
    Io,
    /// The stored data is damaged, or was not written by this program.
    Corrupt,
    /// The server cannot be reached, or the connection to it was lost; after a statement it is not known whether it was
    /// carried out.
    Disconnected,
    /// Any other failure: a wrong statement, a closed pool.
    Other,
}

/// A text has the character NUL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a text has the character NUL (U+0000), which is not stored; leave it out")]
pub struct NulText;

/// The reason for which a store failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The disk is full.
    #[error("the disk is full")]
    Full(#[source] Error),
    /// A stored row was not written by this program.
    #[error("a row of table {table} is damaged, column {column}")]
    Damaged {
        /// The table.
        table: &'static str,
        /// The column.
        column: &'static str,
    },
    /// A text of the request cannot be stored.
    #[error(transparent)]
    Nul(NulText),
    /// Any other failure.
    #[error("the database failed")]
    Failed(#[source] Error),
}

impl From<Error> for StoreError {
    fn from(error: Error) -> Self {
        if matches!(&error, Error::Encode(source) if source.is::<NulText>()) {
            return Self::Nul(NulText);
        }
        match classify(&error) {
            ErrorClass::DiskFull => Self::Full(error),
            _ => Self::Failed(error),
        }
    }
}

/// Sorts a database error into its class.
pub fn classify(error: &Error) -> ErrorClass {
    match error {
        Error::Database(error) => {
            let code = error.code().unwrap_or_default();
            match error.try_downcast_ref::<PgDatabaseError>() {
                Some(_) => of_postgres(&code),
                None => code.parse().map_or(ErrorClass::Other, of_sqlite),
            }
        }
        Error::PoolTimedOut => ErrorClass::Busy,
        Error::Io(error) => match error.kind() {
            ErrorKind::StorageFull => ErrorClass::DiskFull,
            // Of a server's socket; SQLite reports codes of its own.
            ErrorKind::ConnectionRefused
            | ErrorKind::ConnectionReset
            | ErrorKind::ConnectionAborted
            | ErrorKind::NotConnected
            | ErrorKind::BrokenPipe
            | ErrorKind::UnexpectedEof
            | ErrorKind::TimedOut
            | ErrorKind::HostUnreachable
            | ErrorKind::NetworkUnreachable
            | ErrorKind::NotFound => ErrorClass::Disconnected,
            _ => ErrorClass::Io,
        },
        Error::ColumnDecode { .. } | Error::Decode(_) => ErrorClass::Corrupt,
        _ => ErrorClass::Other,
    }
}

/// Sorts an extended result code of SQLite; its low byte is the primary code.
fn of_sqlite(code: u32) -> ErrorClass {
    const CONSTRAINT_UNIQUE: u32 = 2067;
    const CONSTRAINT_PRIMARY_KEY: u32 = 1555;
    const CONSTRAINT_ROWID: u32 = 2579;
    match (code, code & 0xff) {
        (CONSTRAINT_UNIQUE | CONSTRAINT_PRIMARY_KEY | CONSTRAINT_ROWID, _) => {
            ErrorClass::UniqueViolation
        }
        (_, 19) => ErrorClass::Constraint,
        (_, 5 | 6) => ErrorClass::Busy,
        (_, 13) => ErrorClass::DiskFull,
        (_, 8 | 10 | 14) => ErrorClass::Io,
        (_, 11 | 26) => ErrorClass::Corrupt,
        _ => ErrorClass::Other,
    }
}

/// Sorts a SQLSTATE of PostgreSQL (PostgreSQL 15, appendix A).
fn of_postgres(code: &str) -> ErrorClass {
    match code {
        "23505" => ErrorClass::UniqueViolation,
        "53100" => ErrorClass::DiskFull,
        "58030" => ErrorClass::Io,
        // Lock and statement timeouts, deadlocks, and too many connections.
        "55P03" | "57014" | "40001" | "40P01" | "53300" => ErrorClass::Busy,
        // The server shuts down, crashed or starts, or the connection failed.
        "57P01" | "57P02" | "57P03" | "57P05" | "25P03" => ErrorClass::Disconnected,
        "XX001" | "XX002" => ErrorClass::Corrupt,
        // A message that the server cannot read would be refused again.
        _ if code.starts_with("08") && code != "08P01" => ErrorClass::Disconnected,
        _ if code.starts_with("23") => ErrorClass::Constraint,
        _ => ErrorClass::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_its_class() {
        for (code, class) in [
            (2067, ErrorClass::UniqueViolation),
            (1555, ErrorClass::UniqueViolation),
            (787, ErrorClass::Constraint),
            (5, ErrorClass::Busy),
            (517, ErrorClass::Busy),
            (13, ErrorClass::DiskFull),
            (778, ErrorClass::Io),
            (1034, ErrorClass::Io),
            (11, ErrorClass::Corrupt),
            (26, ErrorClass::Corrupt),
            (1, ErrorClass::Other),
        ] {
            assert_eq!(of_sqlite(code), class, "code {code}");
        }
    }

    #[test]
    fn every_state_of_a_server_has_its_class() {
        for (code, class) in [
            ("23505", ErrorClass::UniqueViolation),
            ("23514", ErrorClass::Constraint),
            ("53100", ErrorClass::DiskFull),
            ("40P01", ErrorClass::Busy),
            ("57P01", ErrorClass::Disconnected),
            ("08006", ErrorClass::Disconnected),
            ("XX001", ErrorClass::Corrupt),
            ("42601", ErrorClass::Other),
        ] {
            assert_eq!(of_postgres(code), class, "state {code}");
        }
    }
}
