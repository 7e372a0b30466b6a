//! The waits of a run, and the requests that end them.

use std::process::ExitCode;

use clap::Args;
use contracts::tavern::common::v1::Wait;
use contracts::tavern::run::v1::run_service_client::RunServiceClient;
use contracts::tavern::run::v1::{AnswerWaitRequest, ListWaitsRequest, SignalRunRequest};
use grpc_kit::Outbound;

use super::super::{list, refusal};
use crate::timeline::name;

type Runs = RunServiceClient<Outbound>;

/// Prints every wait of a run.
pub(super) async fn list(
    runs: &mut Runs,
    run_id: String,
    as_json: bool,
) -> anyhow::Result<ExitCode> {
    let head = ["WAIT", "KIND", "FOR", "ANSWERS", "UNTIL"];
    list::print_all(as_json, head, row, async |page_token| {
        let request = ListWaitsRequest {
            run_id: run_id.clone(),
            page_token,
            ..ListWaitsRequest::default()
        };
        let page = runs.list_waits(request).await?.into_inner();
        Ok((page.waits, page.next_page_token))
    })
    .await?;
    Ok(ExitCode::SUCCESS)
}

fn row(wait: &Wait) -> [String; 5] {
    let kind = name(wait.kind().as_str_name(), "WAIT_KIND_");
    let (answers, due) = answers_and_due(wait);
    [wait.wait_id.clone(), kind, wait.name.clone(), answers, due]
}

/// Returns the possible answers to a wait, and its due time.
pub(crate) fn answers_and_due(wait: &Wait) -> (String, String) {
    let answers: Vec<&str> = wait.choices.iter().map(|choice| &*choice.value).collect();
    let due = wait.due.as_ref().map(ToString::to_string);
    (answers.join(", "), due.unwrap_or_default())
}

/// Sends a signal.
pub(super) async fn signal(
    runs: &mut Runs,
    run_id: String,
    name: String,
    payload_json: String,
    signal_id: String,
) -> anyhow::Result<ExitCode> {
    let request = SignalRunRequest {
        run_id,
        name,
        payload_json,
        signal_id,
    };
    let sent = runs.signal_run(request).await;
    sent.map_err(|status| refusal(&status))?;
    Ok(ExitCode::SUCCESS)
}

/// An answer to a question.
#[derive(Args)]
pub struct Answer {
    /// The id of the run.
    run_id: String,
    /// The id of the wait, as `questions list` and `runs waits` print it.
    wait_id: String,
    /// The answer as JSON; a text that is not JSON is used as a string.
    answer: String,
    /// The person who answers, for the log.
    #[arg(long)]
    by: Option<String>,
}

impl Answer {
    /// Answers the wait.
    pub(crate) async fn send(self, runs: &mut Runs) -> anyhow::Result<ExitCode> {
        let parsed: Result<serde_json::Value, _> = serde_json::from_str(&self.answer);
        let answer_json = match parsed {
            Ok(_) => self.answer,
            Err(_) => serde_json::Value::String(self.answer).to_string(),
        };
        let request = AnswerWaitRequest {
            run_id: self.run_id,
            wait_id: self.wait_id,
            answer_json,
            answered_by: self.by.unwrap_or_default(),
            request_id: String::new(),
        };
        let answered = runs.answer_wait(request).await;
        answered.map_err(|status| refusal(&status))?;
        Ok(ExitCode::SUCCESS)
    }
}
