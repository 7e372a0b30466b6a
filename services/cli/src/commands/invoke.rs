//! `tavern invoke`.

use std::io::Read;
use std::process::ExitCode;

use anyhow::bail;
use clap::Args;
use contracts::tavern::common::v1::watch_record::Record;
use contracts::tavern::gateway::v1::gateway_service_client::GatewayServiceClient;
use contracts::tavern::gateway::v1::{
    AgentTarget, CallsTarget, InvokeTextRequest, agent_target, invoke_text_request::Target,
};

use super::{Remote, finish, json, print, refusal};
use crate::program;
use crate::timeline::{Style, Timeline};

/// The text to invoke, and its context.
#[derive(Args)]
pub struct Input {
    /// The text of a model, whose calls are executed; with `--agent`, the user's message to the
    /// agent. `-` reads standard input.
    text: String,
    /// The profile id of the agent that gets the message.
    #[arg(long)]
    agent: Option<String>,
    /// The conversation to continue.
    #[arg(long)]
    conversation: Option<String>,
    /// The request id; the same id with the same text returns the same run.
    #[arg(long)]
    request_id: Option<String>,
}

impl Input {
    pub(super) async fn execute(self, remote: &Remote) -> anyhow::Result<ExitCode> {
        let mut gateway = GatewayServiceClient::new(remote.connect()?);
        let request = self.request()?;
        let stream = gateway.invoke_text(request).await;
        let mut stream = stream.map_err(|status| refusal(&status))?.into_inner();
        let mut timeline = Timeline::new(Style::of_stdout());
        let mut run_id = String::new();
        while let Some(response) = stream.message().await.map_err(|status| refusal(&status))? {
            if run_id.is_empty() && !remote.json {
                print(&format!("{}\n", response.run_id));
            }
            run_id.clone_from(&response.run_id);
            if remote.json {
                json::print_line(&response)?;
            }
            match contracts::watch::decode(response.record)? {
                Some(Record::Event(event)) if !remote.json => print(&timeline.event(&event)),
                Some(Record::Terminal(terminal)) => {
                    let run = terminal.run.unwrap_or_default();
                    return Ok(finish(timeline, &run, remote.json));
                }
                _ => {}
            }
        }
        bail!(
            "the connection ended before the run; follow it with `{} runs watch {run_id}`",
            program::name()
        )
    }

    fn request(self) -> anyhow::Result<InvokeTextRequest> {
        let mut text = self.text;
        if text == "-" {
            text.clear();
            std::io::stdin().read_to_string(&mut text)?;
        }
        let conversation_id = self.conversation.unwrap_or_default();
        let target = match self.agent {
            Some(profile_id) => Target::Agent(AgentTarget {
                profile_id,
                input: Some(agent_target::Input::UserMessage(text)),
                conversation_id,
                ..AgentTarget::default()
            }),
            None => Target::Calls(CallsTarget {
                text,
                conversation_id,
                ..CallsTarget::default()
            }),
        };
        Ok(InvokeTextRequest {
            request_id: self.request_id.unwrap_or_default(),
            target: Some(target),
            ..InvokeTextRequest::default()
        })
    }
}
