//! `tavern questions`: what people are asked, over all runs.

use std::process::ExitCode;

use clap::Subcommand;
use contracts::tavern::run::v1::ListQuestionsRequest;
use contracts::tavern::run::v1::run_service_client::RunServiceClient;
use grpc_kit::Transport;

use super::{Remote, json, print_table, refusal, runs};
use crate::timeline::Style;

#[derive(Subcommand)]
pub(crate) enum Command {
    /// List every question that is open, those of the newest runs first.
    List,
    /// Answer a question.
    Answer(runs::Answer),
}

impl Command {
    pub(super) async fn execute(self, remote: &Remote) -> anyhow::Result<ExitCode> {
        let mut client = RunServiceClient::new(remote.connect()?);
        match self {
            Self::List => list(&mut client, remote.json).await,
            Self::Answer(answer) => answer.send(&mut client).await,
        }
    }
}

async fn list(client: &mut RunServiceClient<Transport>, as_json: bool) -> anyhow::Result<ExitCode> {
    let head = ["RUN", "WAIT", "QUESTION", "ANSWERS", "ASKED BY", "UNTIL"].map(str::to_owned);
    let mut rows = vec![head.to_vec()];
    let mut request = ListQuestionsRequest::default();
    loop {
        let page = client.list_questions(request.clone()).await;
        let page = page.map_err(|status| refusal(&status))?.into_inner();
        for question in page.questions {
            if as_json {
                json::print_line("tavern.run.v1.Question", &question)?;
            }
            let wait = question.wait.unwrap_or_default();
            let answers: Vec<&str> = wait.choices.iter().map(|choice| &*choice.value).collect();
            let due = wait.due.as_ref().map(ToString::to_string);
            let asker = question.parent_path.last().unwrap_or(&question.subject);
            rows.push(vec![
                question.run_id,
                wait.wait_id,
                wait.name.replace('\n', " "),
                answers.join(", "),
                asker.clone(),
                due.unwrap_or_default(),
            ]);
        }
        if page.next_page_token.is_empty() {
            break;
        }
        request.page_token = page.next_page_token;
    }
    if !as_json {
        print_table(&rows, Style::of_stdout().width);
    }
    Ok(ExitCode::SUCCESS)
}
