//! A database of either kind, and its transactions.

use sqlx::{PgConnection, Postgres, Sqlite, SqliteConnection};

use crate::{
    PostgresDatabase, Reader, SqliteDatabase, Statement,
    statement::{StoredRow, Value, bound, connection},
};

/// A database of either kind. Clones are handles of the same.
#[derive(Clone, Debug)]
pub enum Database {
    /// A file, which belongs to this process.
    Sqlite(SqliteDatabase),
    /// A database of a server, which other processes share.
    Postgres(PostgresDatabase),
}

impl From<SqliteDatabase> for Database {
    fn from(database: SqliteDatabase) -> Self {
        Self::Sqlite(database)
    }
}

impl From<PostgresDatabase> for Database {
    fn from(database: PostgresDatabase) -> Self {
        Self::Postgres(database)
    }
}

impl Database {
    /// Returns the pool of reading connections.
    pub fn reader(&self) -> Reader {
        match self {
            Self::Sqlite(database) => Reader::Sqlite(database.reader().clone()),
            Self::Postgres(database) => Reader::Postgres(database.reader().clone()),
        }
    }

    /// Begins a transaction that writes. In a file it is the only one; at a server others write at the same time, so that
    /// a value that was read must be compared by the statement that replaces it.
    ///
    /// # Errors
    /// The database's error.
    pub async fn begin(&self) -> Result<Transaction, sqlx::Error> {
        match self {
            Self::Sqlite(database) => Ok(Transaction::Sqlite(database.begin_write().await?)),
            Self::Postgres(database) => {
                let begin = || async {
                    let connection = connection(database.reader()).await?;
                    sqlx::Transaction::begin(connection, None).await
                };
                Ok(Transaction::Postgres(self.reader().repeated(begin).await?))
            }
        }
    }

    /// Runs a statement as a transaction of its own. Its effect must be the same if it runs twice, since it is repeated
    /// where a server's connection had died.
    ///
    /// # Errors
    /// The database's error; if the connection was lost, it is not known whether the changes are durable.
    pub async fn execute(&self, statement: Statement) -> Result<(), sqlx::Error> {
        let attempt = || async {
            let (text, arguments) = statement.clone().into_parts()?;
            match self {
                Self::Sqlite(database) => {
                    let query = bound!(sqlx::query(text), arguments);
                    query.execute(database.writer()).await.map(drop)
                }
                Self::Postgres(database) => {
                    let mut connection = connection(database.reader()).await?;
                    let query = bound!(sqlx::query(text), arguments);
                    query.execute(&mut *connection).await.map(drop)
                }
            }
        };
        self.reader().repeated(attempt).await
    }

    /// Returns free pages of a file to the file system in one step. Returns the number of bytes; a server does that by
    /// itself.
    ///
    /// # Errors
    /// The database's error.
    pub async fn reclaim(&self) -> Result<u64, sqlx::Error> {
        match self {
            Self::Sqlite(database) => database.reclaim().await,
            Self::Postgres(_) => Ok(0),
        }
    }

    /// Closes the connections to a file. Those to a server belong to the process, which closes them once.
    pub async fn close(&self) {
        match self {
            Self::Sqlite(database) => database.close().await,
            Self::Postgres(_) => {}
        }
    }
}

/// A transaction; it is rolled back unless it is committed.
#[derive(Debug)]
pub enum Transaction {
    /// In a file.
    Sqlite(sqlx::Transaction<'static, Sqlite>),
    /// At a server.
    Postgres(sqlx::Transaction<'static, Postgres>),
}

impl Transaction {
    /// Returns the connection, on which statements run within the transaction.
    pub fn session(&mut self) -> Session<'_> {
        match self {
            Self::Sqlite(transaction) => Session::Sqlite(transaction),
            Self::Postgres(transaction) => Session::Postgres(transaction),
        }
    }

    /// Makes the changes durable.
    ///
    /// # Errors
    /// The database's error; if the connection was lost, it is not known whether they are.
    pub async fn commit(self) -> Result<(), sqlx::Error> {
        match self {
            Self::Sqlite(transaction) => transaction.commit().await,
            Self::Postgres(transaction) => transaction.commit().await,
        }
    }
}

/// A connection on which statements run one after the other.
#[derive(Debug)]
pub enum Session<'c> {
    /// To a file.
    Sqlite(&'c mut SqliteConnection),
    /// To a server.
    Postgres(&'c mut PgConnection),
}

impl<'c> From<&'c mut SqliteConnection> for Session<'c> {
    fn from(connection: &'c mut SqliteConnection) -> Self {
        Self::Sqlite(connection)
    }
}

impl Session<'_> {
    /// Runs a statement. Returns the number of rows that it changed.
    ///
    /// # Errors
    /// The database's error.
    pub async fn execute(&mut self, statement: Statement) -> Result<u64, sqlx::Error> {
        let (text, arguments) = statement.into_parts()?;
        Ok(match self {
            Self::Sqlite(connection) => bound!(sqlx::query(text), arguments)
                .execute(&mut **connection)
                .await?
                .rows_affected(),
            Self::Postgres(connection) => bound!(sqlx::query(text), arguments)
                .execute(&mut **connection)
                .await?
                .rows_affected(),
        })
    }

    /// Returns the first row, or `None`.
    ///
    /// # Errors
    /// The database's error.
    pub async fn fetch_optional<T: StoredRow>(
        &mut self,
        statement: Statement,
    ) -> Result<Option<T>, sqlx::Error> {
        let (text, arguments) = statement.into_parts()?;
        match self {
            Self::Sqlite(connection) => {
                let query = bound!(sqlx::query_as::<_, T>(text), arguments);
                query.fetch_optional(&mut **connection).await
            }
            Self::Postgres(connection) => {
                let query = bound!(sqlx::query_as::<_, T>(text), arguments);
                query.fetch_optional(&mut **connection).await
            }
        }
    }

    /// Returns all rows.
    ///
    /// # Errors
    /// The database's error.
    pub async fn fetch_all<T: StoredRow>(
        &mut self,
        statement: Statement,
    ) -> Result<Vec<T>, sqlx::Error> {
        let (text, arguments) = statement.into_parts()?;
        match self {
            Self::Sqlite(connection) => {
                let query = bound!(sqlx::query_as::<_, T>(text), arguments);
                query.fetch_all(&mut **connection).await
            }
            Self::Postgres(connection) => {
                let query = bound!(sqlx::query_as::<_, T>(text), arguments);
                query.fetch_all(&mut **connection).await
            }
        }
    }

    /// Returns the one row.
    ///
    /// # Errors
    /// The database's error, [`sqlx::Error::RowNotFound`] among them.
    pub async fn fetch_one<T: StoredRow>(
        &mut self,
        statement: Statement,
    ) -> Result<T, sqlx::Error> {
        let row = self.fetch_optional(statement).await?;
        row.ok_or(sqlx::Error::RowNotFound)
    }
}
