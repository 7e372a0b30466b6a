//! `tavern conversations`: those of agents, and what is replaced in them by a summary.

use std::process::ExitCode;

use anyhow::Context;
use clap::Subcommand;
use contracts::tavern::agent::v1::conversation_service_client::ConversationServiceClient;
use contracts::tavern::agent::v1::{CompactConversationRequest, ListConversationsRequest};

use super::{Remote, json, print_table, refusal, runs};
use crate::timeline::Style;

#[derive(Subcommand)]
pub(crate) enum Command {
    /// List conversations, the newest first.
    List,
    /// Replace the earlier turns of a conversation by a summary for the model, and follow that.
    Compact {
        /// The id of the conversation.
        conversation_id: String,
        /// The agent that summarises. Default: that of the last turn.
        #[arg(long, default_value = "")]
        agent: String,
    },
}

impl Command {
    pub(super) async fn execute(self, remote: &Remote) -> anyhow::Result<ExitCode> {
        let mut client = ConversationServiceClient::new(remote.connect()?);
        match self {
            Self::List => {
                let mut rows = vec![["CONVERSATION", "TURN"].map(str::to_owned).to_vec()];
                let mut request = ListConversationsRequest::default();
                loop {
                    let page = client.list_conversations(request.clone()).await;
                    let page = page.map_err(|status| refusal(&status))?.into_inner();
                    for conversation in page.conversations {
                        if remote.json {
                            json::print_line("tavern.agent.v1.Conversation", &conversation)?;
                        }
                        rows.push(vec![
                            conversation.conversation_id,
                            conversation.active_run_id,
                        ]);
                    }
                    if page.next_page_token.is_empty() {
                        break;
                    }
                    request.page_token = page.next_page_token;
                }
                if !remote.json {
                    print_table(&rows, Style::of_stdout().width);
                }
                Ok(ExitCode::SUCCESS)
            }
            Self::Compact {
                conversation_id,
                agent,
            } => {
                let request = CompactConversationRequest {
                    conversation_id,
                    profile_id: agent,
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
