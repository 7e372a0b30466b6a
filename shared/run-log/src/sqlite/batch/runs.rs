//! The statements that change the rows of many runs at once.

use std::collections::BTreeMap;

use core_types::Timestamp;
use sqlx::{AssertSqlSafe, SqliteConnection};

use crate::{rows::integer, step::Step};

/// The most rows of one statement.
const MAX_ROWS: usize = 256;

/// The changes of a group of steps to the phase of a run, and to the time until which it rests.
#[derive(Clone, Copy, Default)]
struct Entered {
    /// The phase; `None` if it stays.
    phase: Option<i32>,
    due: Option<Timestamp>,
}

/// Enters the phases of the steps, and ends the rests of the runs that are taken over. Of several changes of
/// one run the last counts.
pub(super) async fn enter_phases(
    connection: &mut SqliteConnection,
    steps: &[Step],
) -> Result<(), sqlx::Error> {
    let mut entered: BTreeMap<i64, Entered> = BTreeMap::new();
    for step in steps {
        if step.takes_over {
            entered.entry(step.key).or_default().due = None;
        }
        if let Some(phase) = step.phase {
            let change = Entered {
                phase: Some(phase.code),
                due: phase.due,
            };
            entered.insert(step.key, change);
        }
    }
    let entered: Vec<_> = entered.into_iter().collect();
    for rows in portions(&entered) {
        let text = format!(
            "WITH given (key, phase, due) AS (VALUES {}) UPDATE runs \
             SET phase = coalesce(given.phase, runs.phase), due = given.due \
             FROM given WHERE runs.key = given.key",
            places(rows.len(), 3)
        );
        // The text holds no outside input.
        let mut query = sqlx::query(AssertSqlSafe(text));
        for (key, Entered { phase, due }) in rows {
            let due = due.map(Timestamp::unix_nanos);
            query = query.bind(*key).bind(*phase).bind(due);
        }
        query.execute(&mut *connection).await?;
    }
    Ok(())
}

/// Ends the runs that the steps finish.
pub(super) async fn finish(
    connection: &mut SqliteConnection,
    steps: &[Step],
) -> Result<(), sqlx::Error> {
    let finished = steps.iter().filter_map(|step| Some((step, step.finish?)));
    let finished: Vec<_> = finished.collect();
    for rows in portions(&finished) {
        let text = format!(
            "WITH given (key, state, finished, sequence, hash) AS (VALUES {}) UPDATE runs \
             SET state = given.state, finished = given.finished, \
             end_sequence = given.sequence, end_hash = given.hash \
             FROM given WHERE runs.key = given.key AND runs.state IS NULL",
            places(rows.len(), 5)
        );
        // The text holds no outside input.
        let mut query = sqlx::query(AssertSqlSafe(text));
        for (step, finish) in rows {
            let head = &step.place.head;
            query = query
                .bind(step.key)
                .bind(finish.state)
                .bind(finish.time.unix_nanos())
                .bind(integer(head.sequence))
                .bind(head.hash.0.to_vec());
        }
        query.execute(&mut *connection).await?;
    }
    Ok(())
}

/// Splits rows into portions whose sizes are powers of two, so that few statements are prepared.
fn portions<T>(mut rows: &[T]) -> Vec<&[T]> {
    let mut portions = Vec::new();
    while !rows.is_empty() {
        let size = MAX_ROWS.min(1 << rows.len().ilog2());
        let (portion, rest) = rows.split_at(size);
        portions.push(portion);
        rows = rest;
    }
    portions
}

/// Returns the question marks of rows.
fn places(rows: usize, columns: usize) -> String {
    let row = format!("({})", vec!["?"; columns].join(","));
    vec![row; rows].join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn portions_hold_every_row_once_in_order_and_come_in_few_sizes() {
        for count in [0, 1, 2, 3, 255, 256, 257, 1_024, 1_000] {
            let rows: Vec<usize> = (0..count).collect();
            let portions = portions(&rows);
            assert_eq!(portions.concat(), rows);
            assert!(
                portions
                    .iter()
                    .all(|rows| rows.len().is_power_of_two() && rows.len() <= MAX_ROWS)
            );
            assert!(portions.len() <= 4 + 8, "{count}");
        }
    }
}
