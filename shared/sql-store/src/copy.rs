//! Copies of tables between a file and a server.
//!
//! The shape of a table is read from the server; the columns of both have the same names. Rows that are there already
//! stay as they are, so a copy that ended in between is repeated.

use sqlx::{FromRow, Row, postgres::PgPool};

use crate::{Database, PostgresDatabase, SqliteDatabase, Statement, Value, statement::bound};

/// The number of rows that are copied together.
const ROWS: usize = 200;

/// A table of a server that a file has too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableShape {
    /// The name, as both databases find it.
    pub name: String,
    /// The columns with values that are copied; numbers that a database assigns by itself are not.
    columns: Vec<Column>,
    /// The columns that identify a row.
    key: Vec<String>,
}

/// A column, as a server describes it.
#[derive(Clone, Debug, PartialEq, Eq, FromRow)]
struct Column {
    name: String,
    kind: String,
}

/// Reads the rows of a query by the kinds of its columns.
macro_rules! cells {
    ($database:expr, $query:expr, $columns:expr) => {{
        let mut rows = Vec::new();
        for row in $query.fetch_all($database.reader()).await? {
            let mut cells = Vec::with_capacity($columns.len());
            for (place, column) in $columns.iter().enumerate() {
                cells.push(match column.kind.as_str() {
                    "boolean" => Value::Boolean(row.try_get(place)?),
                    "bytea" => Value::Bytes(row.try_get(place)?),
                    "text" => Value::Text(row.try_get(place)?),
                    _ => Value::Integer(row.try_get(place)?),
                });
            }
            rows.push(cells);
        }
        Ok(rows)
    }};
}

/// The rows of one copy, in the order of the shape's columns.
type Rows = Vec<Vec<Value>>;

impl TableShape {
    /// Returns the shapes of the tables of a schema, by name. A table whose rows only a number of the server identifies
    /// is left out.
    ///
    /// # Errors
    /// The database's error.
    pub async fn of_schema(
        server: &PostgresDatabase,
        schema: &str,
    ) -> Result<Vec<Self>, sqlx::Error> {
        let names: Vec<String> = sqlx::query_scalar(
            "SELECT relname::text FROM pg_class WHERE relkind = 'r' AND NOT relispartition \
             AND relnamespace = $1::regnamespace AND relname NOT LIKE '\\_migrations\\_%' ORDER BY relname",
        )
        .bind(schema)
        .fetch_all(server.reader())
        .await?;
        let mut shapes = Vec::new();
        for name in names {
            shapes.extend(Self::read(server.reader(), schema, name).await?);
        }
        Ok(shapes)
    }

    async fn read(pool: &PgPool, schema: &str, name: String) -> Result<Option<Self>, sqlx::Error> {
        let table = format!("{schema}.{name}");
        let columns = sqlx::query_as(
            "SELECT attname::text AS name, format_type(atttypid, NULL) AS kind FROM pg_attribute \
             WHERE attrelid = $1::regclass AND attnum > 0 AND NOT attisdropped AND attidentity = '' ORDER BY attnum",
        );
        let columns: Vec<Column> = columns.bind(&table).fetch_all(pool).await?;
        // A key without a number that the server assigns, the primary one if there are several.
        let key = sqlx::query_scalar(
            "SELECT array(SELECT attname::text FROM unnest(indkey::smallint[]) WITH ORDINALITY AS part (number, place) \
             JOIN pg_attribute ON attrelid = indrelid AND attnum = number ORDER BY place) FROM pg_index \
             WHERE indrelid = $1::regclass AND indisunique AND indpred IS NULL AND NOT EXISTS (SELECT 1 FROM pg_attribute \
             WHERE attrelid = indrelid AND attnum = ANY (indkey::smallint[]) AND attidentity <> '') \
             ORDER BY indisprimary DESC LIMIT 1",
        );
        let key: Option<Vec<String>> = key.bind(&table).fetch_optional(pool).await?;
        Ok(key.map(|key| Self { name, columns, key }))
    }

    /// Copies the rows that meet a condition, which is written in the program, to another database; all for an empty one.
    /// Returns the number of those that were not there.
    ///
    /// # Errors
    /// The database's error.
    pub async fn copy(
        &self,
        from: &Database,
        to: &Database,
        condition: &str,
    ) -> Result<u64, sqlx::Error> {
        let mut copied = 0;
        let mut last: Option<Vec<Value>> = None;
        loop {
            let rows = self.page(from, condition, last.as_deref()).await?;
            let Some(end) = rows.last() else {
                return Ok(copied);
            };
            last = Some(self.key_of(end));
            let mut transaction = to.begin().await?;
            copied += transaction.session().execute(self.insert(rows)).await?;
            transaction.commit().await?;
        }
    }

    /// Returns the columns that identify a row, in the order of the key.
    fn key_of(&self, row: &[Value]) -> Vec<Value> {
        let places = self
            .key
            .iter()
            .filter_map(|name| self.names().position(|it| it == name));
        places.filter_map(|place| row.get(place).cloned()).collect()
    }

    /// Returns the names of the columns that are copied.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.columns.iter().map(|column| column.name.as_str())
    }

    /// Returns the names of columns, quoted, as some are words of SQL.
    fn list<'n>(names: impl Iterator<Item = &'n str>) -> String {
        let quoted = names.map(|name| format!("\"{name}\""));
        quoted.collect::<Vec<_>>().join(", ")
    }

    /// Reads the rows after one, by the key.
    async fn page(
        &self,
        from: &Database,
        condition: &str,
        last: Option<&[Value]>,
    ) -> Result<Rows, sqlx::Error> {
        let columns = Self::list(self.names());
        let key = Self::list(self.key.iter().map(String::as_str));
        let mut page = Statement::of_names(format!("SELECT {columns} FROM {} WHERE ", self.name));
        match condition.is_empty() {
            true => page.push("1 = 1"),
            false => page.push_names(condition),
        };
        if let Some(last) = last {
            page.push_names(&format!(" AND ({key}) > ("));
            page.push_list(last.iter().cloned()).push(")");
        }
        page.push_names(&format!(" ORDER BY {key} LIMIT {ROWS}"));
        let (text, arguments) = page.into_parts()?;
        match from {
            Database::Sqlite(file) => {
                cells!(file, bound!(sqlx::query(text), arguments), self.columns)
            }
            Database::Postgres(server) => {
                cells!(server, bound!(sqlx::query(text), arguments), self.columns)
            }
        }
    }

    fn insert(&self, rows: Rows) -> Statement {
        let columns = Self::list(self.names());
        let mut insert =
            Statement::of_names(format!("INSERT INTO {} ({columns}) VALUES ", self.name));
        for (number, row) in rows.into_iter().enumerate() {
            insert.push(if number == 0 { "(" } else { ", (" });
            insert.push_list(row).push(")");
        }
        insert.push(" ON CONFLICT DO NOTHING");
        insert
    }
}

/// Returns the tables of a file and the columns of each, apart from those of SQLite, of migrations and of full-text
/// indexes.
///
/// # Errors
/// The database's error.
pub async fn columns_of_file(file: &SqliteDatabase) -> Result<Vec<(String, String)>, sqlx::Error> {
    sqlx::query_as(
        "SELECT it.name, info.name FROM pragma_table_list AS it JOIN pragma_table_info(it.name) AS info \
         WHERE it.schema = 'main' AND it.type = 'table' AND it.name NOT LIKE 'sqlite\\_%' ESCAPE '\\' \
         AND it.name NOT LIKE '\\_migrations\\_%' ESCAPE '\\' ORDER BY it.name, info.cid",
    )
    .fetch_all(file.reader())
    .await
}
