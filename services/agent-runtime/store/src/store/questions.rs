//! Questions to people whose answer opens a turn.

use async_trait::async_trait;
use sqlx::Row;

use super::{AgentStore, StoreError};

/// A question whose answer opens a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenQuestion {
    /// The run that waits for the answer.
    pub run_id: String,
    /// The conversation of the question.
    pub conversation_id: String,
    /// The agent that asked.
    pub profile_id: String,
    /// The prompt.
    pub prompt: String,
}

/// Stores questions to people whose answer opens a turn.
#[async_trait]
pub trait QuestionStore: Send + Sync + std::fmt::Debug {
    /// Returns the questions whose answer has not opened a turn.
    ///
    /// # Errors
    /// A database that does not work.
    async fn open_questions(&self) -> Result<Vec<OpenQuestion>, StoreError>;

    /// Stores a question; storing it again changes nothing. Returns whether it was new.
    ///
    /// # Errors
    /// A database that does not work.
    async fn open_question(&self, question: &OpenQuestion) -> Result<bool, StoreError>;

    /// Deletes a question whose answer has opened a turn, or never will.
    ///
    /// # Errors
    /// A database that does not work.
    async fn close_question(&self, run_id: &str) -> Result<(), StoreError>;
}

#[async_trait]
impl QuestionStore for AgentStore {
    async fn open_questions(&self) -> Result<Vec<OpenQuestion>, StoreError> {
        let rows =
            sqlx::query("SELECT run_id, conversation_id, profile_id, prompt FROM open_questions");
        let rows = rows.fetch_all(self.database.reader()).await?;
        let question = |row: &sqlx::sqlite::SqliteRow| {
            Ok(OpenQuestion {
                run_id: row.try_get(0)?,
                conversation_id: row.try_get(1)?,
                profile_id: row.try_get(2)?,
                prompt: row.try_get(3)?,
            })
        };
        rows.iter().map(question).collect()
    }

    async fn open_question(&self, question: &OpenQuestion) -> Result<bool, StoreError> {
        let mut transaction = self.database.begin_write().await?;
        let stored = sqlx::query(
            "INSERT INTO open_questions (run_id, conversation_id, profile_id, prompt) \
             VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO NOTHING",
        )
        .bind(&question.run_id)
        .bind(&question.conversation_id)
        .bind(&question.profile_id)
        .bind(&question.prompt)
        .execute(&mut *transaction)
        .await?;
        transaction.commit().await?;
        Ok(stored.rows_affected() > 0)
    }

    async fn close_question(&self, run_id: &str) -> Result<(), StoreError> {
        let mut transaction = self.database.begin_write().await?;
        sqlx::query("DELETE FROM open_questions WHERE run_id = ?1")
            .bind(run_id)
            .execute(&mut *transaction)
            .await?;
        Ok(transaction.commit().await?)
    }
}
