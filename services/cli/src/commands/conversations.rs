//! `tavern conversations`: lists conversations, and replaces their earlier turns by a summary.

use std::process::ExitCode;

use anyhow::Context;
use clap::Subcommand;
use contracts::tavern::agent::v1::conversation_service_client::ConversationServiceClient;
use contracts::tavern::agent::v1::{
    CompactConversationRequest, Conversation, ListConversationsRequest,
};

use super::{Remote, list, refusal, runs};

#[derive(Subcommand)]
pub enum Command {
    /// List conversations, the newest first.
    List,
    /// Replace the earlier turns of a conversation by a summary for the model, and follow the run.
    Compact {
        /// The id of the conversation.
        conversation_id: String,
        /// The agent that summarises. Default: the agent of the last turn.
        #[arg(long)]
        agent: Option<String>,
    },
}

impl Command {
    pub(super) async fn execute(self, remote: &Remote) -> anyhow::Result<ExitCode> {
        let mut client = ConversationServiceClient::new(remote.connect()?);
        match self {
            Self::List => {
                let row = |conversation: &Conversation| {
                    [
                        conversation.conversation_id.clone(),
                        conversation.active_run_id.clone(),
                    ]
                };
                let head = ["CONVERSATION", "TURN"];
                list::print_all(remote.json, head, row, async |page_token| {
                    let request = ListConversationsRequest {
                        page_token,
                        ..ListConversationsRequest::default()
                    };
                    let page = client.list_conversations(request).await?.into_inner();
                    Ok((page.conversations, page.next_page_token))
                })
                .await?;
                Ok(ExitCode::SUCCESS)
            }
            Self::Compact {
                conversation_id,
                agent,
            } => {
                let request = CompactConversationRequest {
                    conversation_id,
                    profile_id: agent.unwrap_or_default(),
                    request_id: String::new(),
                };
                let started = client.compact_conversation(request).await;
                let started = started.map_err(|status| refusal(&status))?.into_inner();
                let run = started.run.context("the answer has no run")?;
                runs::follow(remote, run.run_id).await
            }
        }
    }
}
