//! A statement whose one text serves both databases, and the pool that runs it.

use std::{borrow::Cow, time::Duration};

use futures::TryStreamExt;
use sqlx::{
    AssertSqlSafe, ConnectOptions, Connection, FromRow, Postgres,
    pool::PoolConnection,
    postgres::{PgPool, PgRow},
    sqlite::{SqlitePool, SqliteRow},
};

use crate::{ErrorClass, NulText, classify};

/// The largest number of repeats of a statement whose connection was lost; more than a pool has connections.
const REPEATS: u32 = 16;

/// The time between two looks at a server while a connection is awaited.
const LOOK: Duration = Duration::from_millis(150);

/// A statement with its arguments. Its text consists of parts that are written in the program, and names the
/// arguments `$1`, `$2` and so on, in the order in which they are bound.
#[derive(Clone, Debug)]
pub struct Statement {
    text: Cow<'static, str>,
    arguments: Vec<Value>,
}

/// An argument of a [`Statement`].
#[derive(Clone, Debug)]
pub enum Value {
    /// A whole number; a larger one than the databases store becomes the largest.
    Integer(Option<i64>),
    /// A text.
    Text(Option<String>),
    /// Bytes.
    Bytes(Option<Vec<u8>>),
    /// A truth value.
    Boolean(Option<bool>),
}

macro_rules! values {
    ($($source:ty => $variant:ident, $convert:expr;)*) => {$(
        impl From<$source> for Value {
            fn from(value: $source) -> Self {
                Self::$variant(Some($convert(value)))
            }
        }

        impl From<Option<$source>> for Value {
            fn from(value: Option<$source>) -> Self {
                Self::$variant(value.map($convert))
            }
        }
    )*};
}

values! {
    i64 => Integer, |number| number;
    i32 => Integer, i64::from;
    usize => Integer, |number| i64::try_from(number).unwrap_or(i64::MAX);
    u32 => Integer, i64::from;
    String => Text, |text| text;
    &str => Text, str::to_owned;
    &String => Text, String::clone;
    Vec<u8> => Bytes, |bytes| bytes;
    bool => Boolean, |truth| truth;
}

impl Statement {
    /// Makes a statement of a text, whose arguments are bound in turn.
    pub fn new(text: &'static str) -> Self {
        Self {
            text: Cow::Borrowed(text),
            arguments: Vec::new(),
        }
    }

    /// Makes a statement of a text with names of tables and columns, which come from a database or from the names of
    /// tenants: those have no quotation mark.
    pub fn of_names(text: String) -> Self {
        Self {
            text: Cow::Owned(text),
            arguments: Vec::new(),
        }
    }

    /// Appends a part of the text with such names.
    pub(crate) fn push_names(&mut self, part: &str) -> &mut Self {
        self.text.to_mut().push_str(part);
        self
    }

    /// Binds the next argument that the text names.
    #[must_use]
    pub fn bind(mut self, value: impl Into<Value>) -> Self {
        self.arguments.push(value.into());
        self
    }

    /// Appends the places of arguments with commas between them, and binds them. An empty list becomes NULL, so that
    /// `IN` finds nothing; `NOT IN` would not find anything either.
    pub fn push_list<V: Into<Value>>(&mut self, values: impl IntoIterator<Item = V>) -> &mut Self {
        let mut values = values.into_iter();
        match values.next() {
            None => self.push("NULL"),
            Some(first) => self.push_bind(first),
        };
        for value in values {
            self.push(", ").push_bind(value);
        }
        self
    }

    /// Returns the text, whose parts are written in the program, and the arguments.
    ///
    /// # Errors
    /// [`NulText`], in an encoding error: PostgreSQL stores no such text, so neither database does.
    pub(crate) fn into_parts(self) -> Result<(AssertSqlSafe<String>, Vec<Value>), sqlx::Error> {
        let has_nul =
            |value: &Value| matches!(value, Value::Text(Some(text)) if text.contains('\0'));
        match self.arguments.iter().any(has_nul) {
            true => Err(sqlx::Error::Encode(NulText.into())),
            false => Ok((AssertSqlSafe(self.text.into_owned()), self.arguments)),
        }
    }

    /// Appends a part of the text.
    pub fn push(&mut self, part: &'static str) -> &mut Self {
        self.text.to_mut().push_str(part);
        self
    }

    /// Appends the place of an argument, and binds it.
    pub fn push_bind(&mut self, value: impl Into<Value>) -> &mut Self {
        self.arguments.push(value.into());
        let place = format!("${}", self.arguments.len());
        self.text.to_mut().push_str(&place);
        self
    }
}

/// A row that is read from either database.
pub trait StoredRow:
    for<'r> FromRow<'r, SqliteRow> + for<'r> FromRow<'r, PgRow> + Send + Unpin
{
}

impl<T> StoredRow for T where
    T: for<'r> FromRow<'r, SqliteRow> + for<'r> FromRow<'r, PgRow> + Send + Unpin
{
}

/// The pool of reading connections of a database. Clones are handles of the same pool.
#[derive(Clone, Debug)]
pub enum Reader {
    /// Connections to a file.
    Sqlite(SqlitePool),
    /// Connections to a server.
    Postgres(PgPool),
}

/// Binds the arguments of a statement to a query of either database.
macro_rules! bound {
    ($query:expr, $arguments:expr) => {{
        let mut query = $query;
        for argument in $arguments {
            query = match argument {
                Value::Integer(value) => query.bind(value),
                Value::Text(value) => query.bind(value),
                Value::Bytes(value) => query.bind(value),
                Value::Boolean(value) => query.bind(value),
            };
        }
        query
    }};
}
pub(crate) use bound;

/// Runs a statement on the pool of a reader, as rows of type `$row`.
macro_rules! on {
    ($reader:expr, $statement:expr, $row:ty, |$query:ident, $pool:ident| $run:expr) => {{
        let (text, arguments) = $statement.into_parts()?;
        match $reader {
            Reader::Sqlite($pool) => {
                let $query = bound!(sqlx::query_as::<_, $row>(text), arguments);
                $run
            }
            Reader::Postgres(pool) => {
                let mut connection = connection(pool).await?;
                let $pool = &mut *connection;
                let $query = bound!(sqlx::query_as::<_, $row>(text), arguments);
                $run
            }
        }
    }};
}

impl Reader {
    /// Returns all rows.
    ///
    /// # Errors
    /// The database's error.
    pub async fn fetch_all<T: StoredRow>(
        &self,
        statement: Statement,
    ) -> Result<Vec<T>, sqlx::Error> {
        self.fetch_while(statement, |_| true).await
    }

    /// Returns the first row, or `None`.
    ///
    /// # Errors
    /// The database's error.
    pub async fn fetch_optional<T: StoredRow>(
        &self,
        statement: Statement,
    ) -> Result<Option<T>, sqlx::Error> {
        let read = || async {
            on!(self, statement.clone(), T, |query, pool| query
                .fetch_optional(pool)
                .await)
        };
        self.repeated(read).await
    }

    /// Returns the one row.
    ///
    /// # Errors
    /// The database's error, [`sqlx::Error::RowNotFound`] among them.
    pub async fn fetch_one<T: StoredRow>(&self, statement: Statement) -> Result<T, sqlx::Error> {
        let row = self.fetch_optional(statement).await?;
        row.ok_or(sqlx::Error::RowNotFound)
    }

    /// Returns the rows in front of the first that `keep` refuses; later ones are not read.
    ///
    /// # Errors
    /// The database's error.
    pub async fn fetch_while<T: StoredRow>(
        &self,
        statement: Statement,
        mut keep: impl FnMut(&T) -> bool + Send,
    ) -> Result<Vec<T>, sqlx::Error> {
        // Rows may have been counted by `keep` before a connection was lost, so only its first row is repeated.
        let mut rows = Vec::new();
        let mut begun = false;
        let mut repeats = 0..REPEATS;
        loop {
            let read = async {
                on!(self, statement.clone(), T, |query, pool| {
                    let mut stream = query.fetch(pool);
                    while let Some(row) = stream.try_next().await? {
                        begun = true;
                        if !keep(&row) {
                            break;
                        }
                        rows.push(row);
                    }
                    Ok(())
                })
            };
            match read.await {
                Ok(()) => return Ok(rows),
                Err(error)
                    if !begun && repeats.next().is_some() && self.may_repeat(&error).await => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Makes attempts until one does not meet a dead connection.
    pub(crate) async fn repeated<T, A>(&self, attempt: impl Fn() -> A) -> Result<T, sqlx::Error>
    where
        A: Future<Output = Result<T, sqlx::Error>>,
    {
        let mut repeats = 0..REPEATS;
        loop {
            match attempt().await {
                Err(error) if repeats.next().is_some() && self.may_repeat(&error).await => {}
                done => return done,
            }
        }
    }

    /// Whether an attempt that failed may be repeated: its connection had died with its server, and one that lives can be
    /// had. The pool drops a dead connection once it is met.
    async fn may_repeat(&self, error: &sqlx::Error) -> bool {
        let Self::Postgres(pool) = self else {
            return false;
        };
        if classify(error) != ErrorClass::Disconnected {
            return false;
        }
        for _ in 0..=pool.size() {
            let asked = async {
                let mut connection = connection(pool).await?;
                sqlx::query("SELECT 1").execute(&mut *connection).await
            };
            match asked.await {
                Ok(_) => return true,
                Err(error) if classify(&error) == ErrorClass::Disconnected => {}
                Err(_) => return false,
            }
        }
        false
    }
}

/// Returns a connection of a pool. A pool that has none waits alike for its users and for a server that refuses; the
/// second is reported soon.
///
/// # Errors
/// The database's error.
pub(crate) async fn connection(pool: &PgPool) -> Result<PoolConnection<Postgres>, sqlx::Error> {
    match pool.try_acquire() {
        Some(idle) => Ok(idle),
        // It is rare, and its state is large.
        None => Box::pin(new_connection(pool)).await,
    }
}

async fn new_connection(pool: &PgPool) -> Result<PoolConnection<Postgres>, sqlx::Error> {
    tokio::select! {
        acquired = pool.acquire() => acquired,
        refusal = refusal(pool) => Err(refusal),
    }
}

/// Looks at a server from time to time, and returns its error once it refuses a connection.
async fn refusal(pool: &PgPool) -> sqlx::Error {
    loop {
        tokio::time::sleep(LOOK).await;
        match pool.connect_options().connect().await {
            Ok(connection) => {
                // It works, so the pool is busy.
                let _ = connection.close().await;
            }
            Err(error) => return error,
        }
    }
}
