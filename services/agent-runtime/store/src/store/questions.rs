//! Questions to people whose answer opens a turn.

use async_trait::async_trait;
use core_types::{Principal, Reach, Tenant};
use sql_store::Statement;

use super::{AgentStore, StoreError};

/// A question whose answer opens a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenQuestion {
    /// The tenant of the conversation.
    pub tenant: Tenant,
    /// The principal for which the turn of the answer acts, and the objects that its calls can see; none for a question
    /// of an earlier version, whose turn acts for the principal of the run.
    pub asker: Option<(Principal, Reach)>,
    /// The run that waits for the answer.
    pub run_id: String,
    /// The conversation of the question.
    pub conversation_id: String,
    /// The agent that asked.
    pub profile_id: String,
    /// The prompt.
    pub prompt: String,
}

/// The columns of a question in the order of the table.
type StoredQuestion = (
    String,
    String,
    String,
    String,
    String,
    Option<String>,
    Option<String>,
);

/// Stores questions to people whose answer opens a turn.
#[async_trait]
pub trait QuestionStore: Send + Sync + std::fmt::Debug {
    /// Returns the questions of all tenants whose answer has not opened a turn.
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
    async fn close_question(&self, tenant: Tenant, run_id: &str) -> Result<(), StoreError>;
}

#[async_trait]
impl QuestionStore for AgentStore {
    async fn open_questions(&self) -> Result<Vec<OpenQuestion>, StoreError> {
        let rows = Statement::new(
            "SELECT tenant, run_id, conversation_id, profile_id, prompt, principal, reach FROM open_questions",
        );
        let rows: Vec<StoredQuestion> = self.database.reader().fetch_all(rows).await?;
        rows.into_iter().map(read).collect()
    }

    async fn open_question(&self, question: &OpenQuestion) -> Result<bool, StoreError> {
        let mut transaction = self.database.begin().await?;
        let asker = question.asker.as_ref();
        let insert = Statement::new(
            "INSERT INTO open_questions (tenant, run_id, conversation_id, profile_id, prompt, principal, reach) \
             VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING",
        )
        .bind(question.tenant.as_str())
        .bind(&question.run_id)
        .bind(&question.conversation_id)
        .bind(&question.profile_id)
        .bind(&question.prompt)
        .bind(asker.map(|(principal, _)| principal.as_str()))
        .bind(asker.map(|(_, reach)| reach.name()));
        let stored = transaction.session().execute(insert).await?;
        transaction.commit().await?;
        Ok(stored > 0)
    }

    async fn close_question(&self, tenant: Tenant, run_id: &str) -> Result<(), StoreError> {
        let delete = Statement::new("DELETE FROM open_questions WHERE tenant = $1 AND run_id = $2");
        let delete = delete.bind(tenant.as_str()).bind(run_id);
        Ok(self.database.execute(delete).await?)
    }
}

fn read(
    (tenant, run_id, conversation_id, profile_id, prompt, principal, reach): StoredQuestion,
) -> Result<OpenQuestion, StoreError> {
    let damaged = |column| StoreError::Damaged {
        table: "open_questions",
        column,
    };
    let asker = principal.zip(reach).map(|(principal, reach)| {
        let principal = Principal::new(&principal).map_err(|_| damaged("principal"))?;
        let reach = Reach::of_name(&reach).ok_or_else(|| damaged("reach"))?;
        Ok::<_, StoreError>((principal, reach))
    });
    Ok(OpenQuestion {
        tenant: Tenant::new(&tenant).map_err(|_| damaged("tenant"))?,
        asker: asker.transpose()?,
        run_id,
        conversation_id,
        profile_id,
        prompt,
    })
}
