//! `tavern questions`: the questions to people, over all runs.

use std::process::ExitCode;

use clap::Subcommand;
use contracts::tavern::run::v1::run_service_client::RunServiceClient;
use contracts::tavern::run::v1::{ListQuestionsRequest, Question};
use grpc_kit::Outbound;

use super::{Remote, list, runs};

#[derive(Subcommand)]
pub enum Command {
    /// List every open question, the questions of the newest runs first.
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

async fn list(client: &mut RunServiceClient<Outbound>, as_json: bool) -> anyhow::Result<ExitCode> {
    let head = ["RUN", "WAIT", "QUESTION", "ANSWERS", "ASKED BY", "UNTIL"];
    list::print_all(as_json, head, row, async |page_token| {
        let request = ListQuestionsRequest {
            page_token,
            ..ListQuestionsRequest::default()
        };
        let page = client.list_questions(request).await?.into_inner();
        Ok((page.questions, page.next_page_token))
    })
    .await?;
    Ok(ExitCode::SUCCESS)
}

fn row(question: &Question) -> [String; 6] {
    let wait = question.wait.clone().unwrap_or_default();
    let asker = question.parent_path.last().unwrap_or(&question.subject);
    let (answers, due) = runs::answers_and_due(&wait);
    [
        question.run_id.clone(),
        wait.wait_id,
        wait.name.replace('\n', " "),
        answers,
        asker.clone(),
        due,
    ]
}
