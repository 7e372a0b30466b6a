//! The statements that store a group of steps: each one is its own transaction, locks the writer's row first, and stores
//! nothing if another epoch stands there.

mod rows;

use std::collections::{BTreeMap, BTreeSet};

use membership::{Writer, writer::LOCK};
use sqlx::{AssertSqlSafe, PgConnection};

use crate::{
    committer::StepOutcome,
    rows::integer,
    step::{Deletion, Step},
};
use rows::{Changes, Events, NewRuns, Outcome};

/// The writer of a statement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Session<'a> {
    pub(super) writer: Writer,
    pub(super) member: &'a str,
    pub(super) log: &'static str,
}

/// Returns the runs of steps whose last acknowledged event is not there, after a new connection was made: it was lost
/// with the server. The head of a run is compared once per connection.
pub(super) async fn behind(
    connection: &mut PgConnection,
    steps: &[Step],
    generation: u64,
) -> Result<BTreeSet<i64>, sqlx::Error> {
    let new = steps.iter().filter(|step| step.create.is_some());
    let new: BTreeSet<i64> = new.map(|step| step.key).collect();
    let mut heads = BTreeMap::new();
    for step in steps {
        // A run that is taken over is read after this step.
        let is_read = step.takes_over || step.deletion.is_some() || new.contains(&step.key);
        if !is_read && !step.cell.is_confirmed(generation) {
            heads.insert(step.key, step.cell.chain().durable().head);
        }
    }
    if heads.is_empty() {
        return Ok(BTreeSet::new());
    }
    let keys: Vec<i64> = heads.keys().copied().collect();
    let sequences: Vec<i64> = heads.values().map(|head| integer(head.sequence)).collect();
    let hashes: Vec<&[u8]> = heads.values().map(|head| &head.hash.0[..]).collect();
    let behind: Vec<i64> = sqlx::query_scalar(
        "SELECT run FROM unnest($1::bigint[], $2::bigint[], $3::bytea[]) AS head (run, sequence, hash) \
         WHERE NOT EXISTS (SELECT 1 FROM events WHERE events.run = head.run \
             AND events.sequence = head.sequence AND events.hash = head.hash) \
         AND (head.sequence > 0 OR NOT EXISTS (SELECT 1 FROM runs WHERE runs.key = head.run))",
    )
    .bind(keys)
    .bind(sequences)
    .bind(hashes)
    .fetch_all(connection)
    .await?;
    Ok(behind.into_iter().collect())
}

/// Stores steps in one commit, all but those of runs that are `behind`. Returns their outcomes, or `None` if the writer
/// is fenced. A deletion stands alone.
pub(super) async fn store(
    connection: &mut PgConnection,
    session: &Session<'_>,
    steps: &[Step],
    behind: &BTreeSet<i64>,
) -> Result<Option<Vec<StepOutcome>>, sqlx::Error> {
    if let [
        Step {
            key,
            deletion: Some(deletion),
            ..
        },
    ] = steps
    {
        let fence = delete(connection, session, *key, *deletion).await?;
        return Ok((fence > 0).then(|| vec![StepOutcome::Stored]));
    }
    let kept = || steps.iter().filter(|step| !behind.contains(&step.key));
    let (new, changes) = (NewRuns::of(kept()), Changes::of(kept()));
    let events = Events::of(kept());
    let only_events = new.is_empty() && changes.is_empty();
    let text = match only_events {
        true => &*rows::EVENTS,
        false => &*rows::MIXED,
    };
    let query = sqlx::query_as(AssertSqlSafe(text.as_str()));
    let query = query.bind(session.writer.id).bind(session.writer.epoch);
    let query = events.bind(query);
    let query = match only_events {
        true => query,
        false => {
            let query = query.bind(session.member).bind(session.log);
            changes.bind(new.bind(query))
        }
    };
    let (fence, created, changed): Outcome = query.fetch_one(connection).await?;
    if fence == 0 {
        return Ok(None);
    }
    let (created, changed) = (set(created), set(changed));
    let place = |step: &Step| {
        if behind.contains(&step.key) {
            StepOutcome::Behind
        } else if new.contains(step.key) && !created.contains(&step.key) {
            // Later steps of a run that was not created belong to no run.
            StepOutcome::Duplicate
        } else if step.takes_over && !changed.contains(&step.key) {
            StepOutcome::HeldElsewhere
        } else {
            StepOutcome::Stored
        }
    };
    Ok(Some(steps.iter().map(place).collect()))
}

/// Returns the outcomes of steps whose commit was not answered, or `None` if they are not stored, or if storing them
/// again changes nothing.
pub(super) async fn outcome(
    connection: &mut PgConnection,
    member: &str,
    steps: &[Step],
) -> Result<Option<Vec<StepOutcome>>, sqlx::Error> {
    let events = Events::of(steps.iter());
    let stored: Vec<i64> = sqlx::query_scalar(
        "SELECT run FROM unnest($1::bigint[], $2::bigint[], $3::bytea[]) AS e (run, sequence, hash) \
         JOIN events USING (run, sequence, hash) GROUP BY run",
    )
    .bind(events.runs())
    .bind(events.sequences())
    .bind(events.hashes())
    .fetch_all(&mut *connection)
    .await?;
    let keys: Vec<i64> = steps.iter().map(|step| step.key).collect();
    let rows: Vec<(i64, bool)> =
        sqlx::query_as("SELECT key, holder IS NOT DISTINCT FROM $2 FROM runs WHERE key = ANY($1)")
            .bind(keys)
            .bind(member)
            .fetch_all(connection)
            .await?;
    let rows: BTreeMap<i64, bool> = rows.into_iter().collect();
    let stored = set(stored);
    let new: BTreeSet<i64> = steps
        .iter()
        .filter(|step| step.create.is_some())
        .map(|step| step.key)
        .collect();
    let is_stored = !stored.is_empty() || new.iter().any(|key| rows.contains_key(key));
    let place = |step: &Step| match rows.get(&step.key) {
        None if new.contains(&step.key) => StepOutcome::Duplicate,
        Some(false) if step.takes_over => StepOutcome::HeldElsewhere,
        _ if !step.events.is_empty() && !stored.contains(&step.key) => StepOutcome::Behind,
        _ => StepOutcome::Stored,
    };
    Ok(is_stored.then(|| steps.iter().map(place).collect()))
}

/// Frees the runs of a log that a member holds, and deletes the writer.
pub(super) async fn release(
    connection: &mut PgConnection,
    writer: Writer,
    (member, log): (&str, &str),
) -> Result<(), sqlx::Error> {
    let text = format!(
        "WITH fence AS MATERIALIZED ({LOCK}), freed AS (UPDATE runs SET holder = NULL FROM fence \
         WHERE runs.holder = $3 AND runs.log = $4) \
         DELETE FROM writers USING fence WHERE writers.id = fence.id"
    );
    let freed = sqlx::query(AssertSqlSafe(text))
        .bind(writer.id)
        .bind(writer.epoch)
        .bind(member)
        .bind(log);
    freed.execute(connection).await.map(drop)
}

/// Deletes a part of a run that has ended. Returns the number of writers found, one or none.
async fn delete(
    connection: &mut PgConnection,
    session: &Session<'_>,
    key: i64,
    deletion: Deletion,
) -> Result<i64, sqlx::Error> {
    let changes = match deletion {
        Deletion::Hide => {
            "hidden AS (UPDATE runs SET deleted = TRUE, hidden = TRUE FROM fence \
             WHERE key = $3 AND state IS NOT NULL AND NOT deleted)"
        }
        Deletion::Events { .. } => {
            "deleted AS (DELETE FROM events USING fence WHERE run = $3 AND sequence <= $4)"
        }
        Deletion::Run => {
            "deleted AS (DELETE FROM runs USING fence WHERE key = $3 AND hidden AND scope IS NULL), \
             emptied AS (UPDATE runs SET hidden = FALSE, meta = '' FROM fence \
             WHERE key = $3 AND hidden AND scope IS NOT NULL)"
        }
        Deletion::Forget => {
            "emptied AS (DELETE FROM events USING fence, runs \
             WHERE run = $3 AND runs.key = run AND runs.state IS NOT NULL), \
             deleted AS (DELETE FROM runs USING fence WHERE key = $3 AND state IS NOT NULL)"
        }
    };
    let text = format!("WITH fence AS MATERIALIZED ({LOCK}), {changes} SELECT count(*) FROM fence");
    let query = sqlx::query_scalar(AssertSqlSafe(text))
        .bind(session.writer.id)
        .bind(session.writer.epoch)
        .bind(key);
    let query = match deletion {
        Deletion::Events { up_to } => query.bind(integer(up_to)),
        _ => query,
    };
    query.fetch_one(connection).await
}

fn set(keys: Vec<i64>) -> BTreeSet<i64> {
    keys.into_iter().collect()
}
