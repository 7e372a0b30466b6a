//! Denials that are counted and not yet records of the audit.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use sql_store::{Database, Statement};

use crate::store::StoreError;

/// A sort of denials.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Denial {
    /// The principal; empty where none was proven.
    pub(crate) principal: String,
    pub(crate) method: String,
    pub(crate) reason: String,
    /// The tool; empty for methods.
    pub(crate) tool_id: String,
}

/// The denials of one sort in a minute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Counted {
    /// The number of the minute since 1970.
    pub(crate) minute: i64,
    pub(crate) denial: Denial,
    pub(crate) count: u64,
}

/// Counts denials.
///
/// Every method fails with a [`StoreError`] when the database does not work or a row is damaged.
#[async_trait]
pub(crate) trait DenialStore: Send + Sync {
    /// Adds to the counts of minutes, in one step.
    async fn add(&self, counted: &[Counted]) -> Result<(), StoreError>;

    /// Returns the counts of the minutes before one, the oldest first.
    async fn before(&self, minute: i64) -> Result<Vec<Counted>, StoreError>;

    /// Removes counts, in one step.
    async fn remove(&self, counted: &[Counted]) -> Result<(), StoreError>;
}

#[async_trait]
impl DenialStore for Database {
    async fn add(&self, counted: &[Counted]) -> Result<(), StoreError> {
        let mut transaction = self.begin().await?;
        for Counted {
            minute,
            denial,
            count,
        } in counted
        {
            let statement = Statement::new(
                "INSERT INTO audit_denial (minute, denial_json, count) VALUES ($1, $2, $3) \
                 ON CONFLICT (minute, denial_json) DO UPDATE SET count = audit_denial.count + excluded.count",
            );
            let statement = statement.bind(*minute).bind(json(denial));
            let statement = statement.bind(i64::try_from(*count).unwrap_or(i64::MAX));
            transaction.session().execute(statement).await?;
        }
        Ok(transaction.commit().await?)
    }

    async fn before(&self, minute: i64) -> Result<Vec<Counted>, StoreError> {
        let rows = Statement::new(
            "SELECT minute, denial_json, count FROM audit_denial WHERE minute < $1 \
             ORDER BY minute, denial_json",
        );
        let rows: Vec<(i64, String, i64)> = self.reader().fetch_all(rows.bind(minute)).await?;
        let counted = rows.into_iter().map(|(minute, json, count)| {
            let damaged = |column| StoreError::Damaged {
                table: "audit_denial",
                column,
            };
            Ok(Counted {
                minute,
                denial: serde_json::from_str(&json).map_err(|_| damaged("denial_json"))?,
                count: u64::try_from(count).map_err(|_| damaged("count"))?,
            })
        });
        counted.collect()
    }

    async fn remove(&self, counted: &[Counted]) -> Result<(), StoreError> {
        if counted.is_empty() {
            return Ok(());
        }
        let mut transaction = self.begin().await?;
        for Counted { minute, denial, .. } in counted {
            let statement =
                Statement::new("DELETE FROM audit_denial WHERE minute = $1 AND denial_json = $2");
            let statement = statement.bind(*minute).bind(json(denial));
            transaction.session().execute(statement).await?;
        }
        Ok(transaction.commit().await?)
    }
}

fn json(denial: &Denial) -> String {
    serde_json::to_string(denial).expect("a denial has texts only")
}
