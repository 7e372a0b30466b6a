//! The workspaces of conversations, as far as the caller reaches the conversations.

mod transfer;

use std::time::Duration;

use call_outcome::{Category, Failure};
use contracts::tavern::agent::v1::{
    GetConversationRequest, conversation_service_client::ConversationServiceClient,
};
use core_types::{ConversationId, Principal};
use grpc_kit::{CallContext, Patience, Transport};
use tokio::time::Instant;
use tonic::Code;
use workspace_store::{Workspace, Workspaces, check_conversation, failure::no_such_conversation};

pub use transfer::copy_files;

/// The directory of the workspaces.
pub(crate) const WORKSPACES: &str = "workspaces";

/// The longest wait for agent-runtime.
const PATIENCE: Duration = Duration::from_secs(10);

/// Opens the workspaces of conversations.
#[derive(Clone, Debug)]
pub struct ConversationFiles {
    workspaces: Workspaces,
    agent: Transport,
}

impl ConversationFiles {
    /// Takes the workspaces, and agent-runtime, which has the conversations.
    pub fn new(workspaces: Workspaces, agent: Transport) -> Self {
        Self { workspaces, agent }
    }

    /// All workspaces.
    pub(crate) fn all(&self) -> &Workspaces {
        &self.workspaces
    }

    /// Opens the workspace of a conversation, if it has one.
    ///
    /// # Errors
    /// The caller reaches no conversation of this id.
    pub(crate) async fn find(
        &self,
        context: &CallContext,
        conversation: &ConversationId,
    ) -> Result<Option<Workspace>, Failure> {
        if let Some(workspace) = self.existing(context, conversation).await? {
            return Ok(Some(workspace));
        }
        match self.owner(context, conversation).await? {
            Some(_) => Ok(None),
            None => Err(no_such_conversation(conversation)),
        }
    }

    /// Opens the workspace of a conversation, and makes it if there is none. A conversation that has not begun belongs
    /// to the caller from now on.
    ///
    /// # Errors
    /// The conversation of this id is out of reach, or the disk fails.
    pub(crate) async fn open(
        &self,
        context: &CallContext,
        conversation: &ConversationId,
    ) -> Result<Workspace, Failure> {
        if let Some(workspace) = self.existing(context, conversation).await? {
            return Ok(workspace);
        }
        // No call of a text or a workflow waits for agent-runtime: the conversation is its run's own.
        let owner = match conversation.is_of_run() {
            true => None,
            false => self.owner(context, conversation).await?,
        };
        let owner = owner.unwrap_or_else(|| context.principal().clone());
        let (context, conversation) = (context.clone(), conversation.clone());
        let workspaces = self.workspaces.clone();
        blocking(move || workspaces.of_conversation_of(&context, &conversation, &owner)).await
    }

    async fn existing(
        &self,
        context: &CallContext,
        conversation: &ConversationId,
    ) -> Result<Option<Workspace>, Failure> {
        check_conversation(conversation)?;
        let (context, conversation) = (context.clone(), conversation.clone());
        let workspaces = self.workspaces.clone();
        blocking(move || workspaces.find(&context, &conversation)).await
    }

    /// Returns the principal of a conversation; `None` if it has not begun.
    async fn owner(
        &self,
        context: &CallContext,
        conversation: &ConversationId,
    ) -> Result<Option<Principal>, Failure> {
        let everyone = CallContext::of_tenant(context.tenant());
        let mut client = ConversationServiceClient::new(self.agent.with(&everyone));
        let mut patience = Patience::new(PATIENCE, Instant::now() + PATIENCE);
        let found = loop {
            let asked = client.get_conversation(GetConversationRequest {
                conversation_id: conversation.to_string(),
            });
            match asked.await {
                Ok(answer) => break answer.into_inner().conversation.unwrap_or_default(),
                Err(status) if status.code() == Code::NotFound => return Ok(None),
                // A service that starts again is worth a wait.
                Err(status) if patience.wait_after(&status).await => {}
                Err(status) => {
                    tracing::warn!(%status, "the owner of a conversation cannot be read");
                    let message = "the conversation cannot be looked up now; try again later";
                    let failure = Failure::new(Category::Dependency, "agent_unavailable", message);
                    return Err(failure.retryable());
                }
            }
        };
        match Principal::new(&found.principal) {
            Ok(owner) if context.sees(&owner) => Ok(Some(owner)),
            _ => Err(no_such_conversation(conversation)),
        }
    }
}

/// Runs work on a thread that may block.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => {
            tracing::error!(%error, "work on files panicked");
            let message = "the tool failed inside the platform; the log has the reason";
            Err(Failure::new(Category::Internal, "internal", message))
        }
    }
}
