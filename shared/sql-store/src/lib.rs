//! Database pools, migrations and error classes.
//!
//! In order: [`data_dir`] is the directory that holds every file of an embedded installation,
//! [`sqlite`] opens one database file in it, [`migrations`] brings that file to the present shape,
//! [`vacuum`] returns the space of deleted rows, [`tenant_rows`] deletes those of a tenant, and [`error_class`] sorts the errors of a database
//! into the few cases that a caller acts on.
//!
//! # One file per component
//!
//! Each service opens a file of its own, and its run log has another. SQLite has one writer per
//! file, so components that shared a file would wait for each other's transactions; above all, the
//! group commit of the run log would wait. Migrations carry a namespace all the same, so that two
//! components *may* live in one file where that matters more than speed.
//!
//! A file belongs to one process: opening takes a lock that the kernel frees when the process
//! ends, however it ends. A second owner is refused by name instead of corrupting sequences.
//!
//! # PostgreSQL
//!
//! [`postgres`] is a database of a server, which all services share, in a schema of each and `core`. [`statement`] runs
//! one text on either [`database`], where their SQL agrees, and [`copy`] takes tables from one to the other.

pub mod copy;
pub mod data_dir;
pub mod database;
pub mod error_class;
pub mod migrations;
pub mod postgres;
pub mod sqlite;
pub mod statement;
pub mod tenant_rows;
pub mod vacuum;

pub use copy::TableShape;
pub use data_dir::{DataDir, DataDirError};
pub use database::{Database, Session, Transaction};
pub use error_class::{ErrorClass, NulText, StoreError, classify};
pub use migrations::{Migrations, ServerMigration};
pub use postgres::{PostgresDatabase, PostgresError, PostgresOptions, ServerFault};
pub use sqlite::{OpenError, SqliteDatabase, SqliteOptions};
pub use statement::{Reader, Statement, StoredRow, Value};
pub use tenant_rows::{TenantTable, count_rows, remove_rows};
