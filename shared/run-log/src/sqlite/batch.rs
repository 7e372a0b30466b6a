//! The statements that store a group of steps.

mod runs;

use std::{fmt::Write as _, sync::Arc};

use core_types::{Durability, Timestamp};
use sqlx::{AssertSqlSafe, SqliteConnection};

use crate::{
    Event, NewRun,
    rows::integer,
    step::{Deletion, Step},
};

/// The most rows of one statement.
pub(super) const MAX_ROWS: usize = 256;

/// The texts of the statements that insert 1 to [`MAX_ROWS`] events, made on first use.
///
/// One statement of just the right size makes group commit fast: split over fixed sizes,
/// a group costs several trips to the connection's thread.
#[derive(Debug)]
pub(super) struct InsertTexts(Vec<Option<Arc<str>>>);

impl InsertTexts {
    pub(super) fn new() -> Self {
        Self(vec![None; MAX_ROWS])
    }

    fn of(&mut self, rows: usize) -> Arc<str> {
        let text = self.0[rows - 1].get_or_insert_with(|| {
            let mut text = String::from(
                "INSERT INTO events (run, sequence, time, kind, payload, hash) VALUES ",
            );
            for row in 0..rows {
                let comma = if row == 0 { "" } else { "," };
                write!(text, "{comma}(?,?,?,?,?,?)").expect("a string takes any text");
            }
            text.into()
        });
        Arc::clone(text)
    }
}

/// Stores `steps` in one commit. Returns the indexes of steps whose run already exists; they were
/// not stored.
pub(super) async fn store(
    connection: &mut SqliteConnection,
    texts: &mut InsertTexts,
    steps: &[Step],
) -> Result<Vec<usize>, sqlx::Error> {
    let rows: usize = steps.iter().map(|step| step.events.len()).sum();
    if steps.iter().all(only_appends) && rows <= MAX_ROWS {
        // A single statement is its own transaction.
        insert_events(connection, texts, &event_rows(steps, &[])).await?;
        return Ok(Vec::new());
    }
    sqlx::query("BEGIN IMMEDIATE")
        .execute(&mut *connection)
        .await?;
    let stored = match store_mixed(connection, texts, steps).await {
        Ok(duplicates) => sqlx::query("COMMIT")
            .execute(&mut *connection)
            .await
            .map(|_| duplicates),
        Err(error) => Err(error),
    };
    if stored.is_err() {
        // SQLite may have rolled back by itself, and then refuses; the first error counts.
        sqlx::query("ROLLBACK")
            .execute(&mut *connection)
            .await
            .map(drop)
            .unwrap_or_default();
    }
    stored
}

fn only_appends(step: &Step) -> bool {
    step.create.is_none()
        && step.finish.is_none()
        && step.phase.is_none()
        && !step.takes_over
        && step.deletion.is_none()
}

/// Returns whether a step whose commit failed is stored after all.
pub(super) async fn is_stored(
    connection: &mut SqliteConnection,
    step: &Step,
) -> Result<bool, sqlx::Error> {
    if step.deletion.is_some() {
        // It is repeated by its caller or at the next start, which does no harm.
        return Ok(false);
    }
    let Some(last) = step.events.last() else {
        let sql = "SELECT EXISTS (SELECT 1 FROM runs WHERE key = ?)";
        return sqlx::query_scalar(sql)
            .bind(step.key)
            .fetch_one(connection)
            .await;
    };
    let sql = "SELECT hash FROM events WHERE run = ? AND sequence = ?";
    let hash: Option<Vec<u8>> = sqlx::query_scalar(sql)
        .bind(step.key)
        .bind(integer(last.sequence))
        .fetch_optional(connection)
        .await?;
    Ok(hash.is_some_and(|hash| hash == last.hash.0))
}

async fn store_mixed(
    connection: &mut SqliteConnection,
    texts: &mut InsertTexts,
    steps: &[Step],
) -> Result<Vec<usize>, sqlx::Error> {
    let mut duplicates = Vec::new();
    for (index, step) in steps.iter().enumerate() {
        if let Some(run) = &step.create
            && !insert_run(connection, step.key, run).await?
        {
            duplicates.push(index);
        }
    }
    // Later steps of a run that was not created belong to no run.
    let missing: Vec<i64> = duplicates.iter().map(|index| steps[*index].key).collect();
    let follows = |step: &Step| missing.contains(&step.key);
    if !missing.is_empty() {
        let all = steps.iter().enumerate();
        let all = all.filter(|(_, step)| follows(step));
        duplicates = all.map(|(index, _)| index).collect();
    }
    for rows in event_rows(steps, &duplicates).chunks(MAX_ROWS) {
        insert_events(connection, texts, rows).await?;
    }
    runs::enter_phases(connection, steps).await?;
    runs::finish(connection, steps).await?;
    for step in steps {
        delete_run(connection, step).await?;
    }
    Ok(duplicates)
}

fn event_rows<'a>(steps: &'a [Step], without: &[usize]) -> Vec<(i64, &'a Event)> {
    let stored = steps
        .iter()
        .enumerate()
        .filter(|(index, _)| !without.contains(index));
    stored
        .flat_map(|(_, step)| step.events.iter().map(|event| (step.key, event)))
        .collect()
}

async fn insert_events(
    connection: &mut SqliteConnection,
    texts: &mut InsertTexts,
    rows: &[(i64, &Event)],
) -> Result<(), sqlx::Error> {
    if rows.is_empty() {
        return Ok(());
    }
    // The text holds only question marks.
    let mut query = sqlx::query(AssertSqlSafe(texts.of(rows.len())));
    for (key, event) in rows {
        query = query
            .bind(*key)
            .bind(integer(event.sequence))
            .bind(event.time.unix_nanos())
            .bind(event.kind)
            .bind(event.payload.to_vec())
            .bind(event.hash.0.to_vec());
    }
    query.execute(connection).await.map(drop)
}

/// Returns whether the run was new.
async fn insert_run(
    connection: &mut SqliteConnection,
    key: i64,
    run: &NewRun,
) -> Result<bool, sqlx::Error> {
    let request = run.request.as_ref();
    let inserted = sqlx::query(
        "INSERT INTO runs (key, id, tenant, principal, kind, subject, conversation, scope, request_id, \
         body_hash, parent, forks, created, deadline, meta, batched) \
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
    )
    .bind(key)
    .bind(run.id.to_string())
    .bind(run.owner.tenant().to_string())
    .bind(run.owner.as_str())
    .bind(&run.kind)
    .bind(&run.subject)
    .bind(&run.conversation)
    .bind(request.map(|request| &request.scope))
    .bind(request.map(|request| request.request_id.as_str()))
    .bind(request.map(|request| request.body_hash.0.to_vec()))
    .bind(run.parent.map(|parent| parent.to_string()))
    .bind(run.forks.map(|forks| forks.to_string()))
    .bind(run.created.unix_nanos())
    .bind(run.deadline.map(Timestamp::unix_nanos))
    .bind(run.meta.to_vec())
    .bind(run.durability == Durability::Batched)
    .execute(connection)
    .await?;
    Ok(inserted.rows_affected() == 1)
}

async fn delete_run(connection: &mut SqliteConnection, step: &Step) -> Result<(), sqlx::Error> {
    match step.deletion {
        None => Ok(()),
        Some(Deletion::Hide) => {
            let sql = "UPDATE runs SET deleted = TRUE, hidden = TRUE \
                       WHERE key = ? AND state IS NOT NULL AND NOT deleted";
            let hidden = sqlx::query(sql).bind(step.key);
            hidden.execute(connection).await.map(drop)
        }
        Some(Deletion::Events { up_to }) => {
            let deleted = sqlx::query("DELETE FROM events WHERE run = ? AND sequence <= ?")
                .bind(step.key)
                .bind(integer(up_to));
            deleted.execute(connection).await.map(drop)
        }
        Some(Deletion::Run) => {
            let deleted =
                sqlx::query("DELETE FROM runs WHERE key = ? AND hidden AND scope IS NULL")
                    .bind(step.key);
            deleted.execute(&mut *connection).await?;
            let emptied =
                sqlx::query("UPDATE runs SET hidden = FALSE, meta = x'' WHERE key = ? AND hidden")
                    .bind(step.key);
            emptied.execute(connection).await.map(drop)
        }
        Some(Deletion::Forget) => {
            let events = sqlx::query("DELETE FROM events WHERE run = ?").bind(step.key);
            events.execute(&mut *connection).await?;
            let run = sqlx::query("DELETE FROM runs WHERE key = ? AND state IS NOT NULL");
            run.bind(step.key).execute(connection).await.map(drop)
        }
    }
}
