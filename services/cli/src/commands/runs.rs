//! `tavern runs`.

mod export;
mod fork;
mod in_doubt;
mod steer;
mod waits;

pub(crate) use waits::{Answer, answers_and_due};

use fork::Fork;

use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Subcommand;
use contracts::in_doubt::CallsInDoubt;
use contracts::tavern::common::v1::{Run, RunState, watch_record::Record};
use contracts::tavern::run::v1::run_service_client::RunServiceClient;
use contracts::tavern::run::v1::{
    CancelRunRequest, DeleteRunRequest, GetRunRequest, ListRunsRequest, PauseRunRequest,
    ResumeRunRequest, WatchRunRequest,
};
use grpc_kit::Outbound;

use super::{Remote, finish, json, print, print_fields, print_table, refusal, state_of, words};
use crate::program;
use crate::timeline::{Style, Timeline};

/// The commands about runs.
#[derive(Subcommand)]
pub enum Command {
    /// List runs, the newest first.
    List {
        /// Only runs in this state.
        #[arg(long, value_parser = words::parser(RunState::as_str_name))]
        state: Option<RunState>,
        /// Only runs of this agent profile, workflow or tool.
        #[arg(long)]
        subject: Option<String>,
        /// Only runs of this conversation.
        #[arg(long)]
        conversation: Option<String>,
        /// The number of runs to list, 1 to 500.
        #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(i32).range(1..=500))]
        limit: i32,
    },
    /// Show a run: its state, its result, and its effects in doubt.
    Show {
        /// The id of the run.
        run_id: String,
    },
    /// Follow a run to its end.
    Watch {
        /// The id of the run.
        run_id: String,
        /// The sequence of the last event already seen.
        #[arg(long, default_value_t = 0)]
        after: u64,
    },
    /// Cancel a run with everything below it.
    Cancel {
        /// The id of the run.
        run_id: String,
        /// The reason, for the log.
        #[arg(long)]
        reason: Option<String>,
    },
    /// Pause a run: running steps finish, and no new ones start.
    Pause {
        /// The id of the run.
        run_id: String,
        /// The reason, for the log.
        #[arg(long)]
        reason: Option<String>,
    },
    /// Resume a paused run.
    Resume {
        /// The id of the run.
        run_id: String,
    },
    /// Send a message to a running turn; its model reads it next.
    Steer {
        /// The id of the run.
        run_id: String,
        /// The message.
        message: String,
        /// Drop the model request in flight.
        #[arg(long)]
        interrupt: bool,
    },
    /// Print a finished turn of an agent as a fixture: lines of JSON that `tavern runs replay` reads.
    Export {
        /// The id of the run.
        run_id: String,
    },
    /// List the waits of a run.
    Waits {
        /// The id of the run.
        run_id: String,
    },
    /// Send a signal to a run.
    Signal {
        /// The id of the run.
        run_id: String,
        /// The name of the signal.
        name: String,
        /// The payload as JSON.
        #[arg(default_value = "null")]
        payload: String,
        /// An id that identifies repeats of the signal.
        #[arg(long)]
        id: Option<String>,
    },
    /// Answer a question of a run.
    Answer(Answer),
    /// Start a run that reuses the completed work of another: of a workflow, or with `--at` of an agent's turn.
    Fork(Fork),
    /// Delete a run that has ended, with its log.
    Delete {
        /// The id of the run.
        run_id: String,
    },
}

impl Command {
    /// Executes the command. The exit code is 0 unless a followed run does not succeed.
    ///
    /// # Errors
    /// The reason why the command failed.
    pub async fn execute(self, remote: &Remote) -> anyhow::Result<ExitCode> {
        remote.located(self.answered(remote).await)
    }

    async fn answered(self, remote: &Remote) -> anyhow::Result<ExitCode> {
        let mut runs = RunServiceClient::new(remote.connect()?);
        match self {
            Self::List {
                state,
                subject,
                conversation,
                limit,
            } => {
                let request = ListRunsRequest {
                    state: state.unwrap_or_default().into(),
                    subject: subject.unwrap_or_default(),
                    conversation_id: conversation.unwrap_or_default(),
                    page_size: limit,
                    ..ListRunsRequest::default()
                };
                list(&mut runs, request, remote.json).await
            }
            Self::Show { run_id } => {
                let response = runs.get_run(GetRunRequest { run_id }).await;
                let run = response
                    .map_err(|status| refusal(&status))?
                    .into_inner()
                    .run;
                let run = run.context("the answer has no run")?;
                let waits_on = in_doubt::calls(&mut runs, &run).await?;
                show(&run, &waits_on, remote.json)
            }
            Self::Watch { run_id, after } => watch(&mut runs, run_id, after, remote.json).await,
            Self::Cancel { run_id, reason } => {
                let reason = reason.unwrap_or_default();
                let response = runs.cancel_run(CancelRunRequest { run_id, reason }).await;
                let response = response.map_err(|status| refusal(&status))?.into_inner();
                for work in &response.still_running {
                    print(&format!("still running: {}\n", work.id));
                }
                show_run(Ok(response.run), remote.json)
            }
            Self::Pause { run_id, reason } => {
                let reason = reason.unwrap_or_default();
                let response = runs.pause_run(PauseRunRequest { run_id, reason }).await;
                show_run(response.map(|answer| answer.into_inner().run), remote.json)
            }
            Self::Resume { run_id } => {
                let response = runs.resume_run(ResumeRunRequest { run_id }).await;
                show_run(response.map(|answer| answer.into_inner().run), remote.json)
            }
            Self::Steer {
                run_id,
                message,
                interrupt,
            } => steer::run(remote, run_id, message, interrupt).await,
            Self::Export { run_id } => export::run(remote, run_id).await,
            Self::Waits { run_id } => waits::list(&mut runs, run_id, remote.json).await,
            Self::Signal {
                run_id,
                name,
                payload,
                id,
            } => waits::signal(&mut runs, run_id, name, payload, id.unwrap_or_default()).await,
            Self::Answer(answer) => answer.send(&mut runs).await,
            Self::Fork(fork) => fork.run(remote).await,
            Self::Delete { run_id } => {
                let response = runs.delete_run(DeleteRunRequest { run_id }).await;
                response.map_err(|status| refusal(&status))?;
                Ok(ExitCode::SUCCESS)
            }
        }
    }
}

fn show_run(
    answered: Result<Option<Run>, tonic::Status>,
    as_json: bool,
) -> anyhow::Result<ExitCode> {
    let run = answered.map_err(|status| refusal(&status))?;
    let run = run.context("the answer has no run")?;
    show(&run, &CallsInDoubt::default(), as_json)
}

async fn list(
    runs: &mut RunServiceClient<Outbound>,
    request: ListRunsRequest,
    as_json: bool,
) -> anyhow::Result<ExitCode> {
    let response = runs.list_runs(request).await;
    let page = response.map_err(|status| refusal(&status))?.into_inner();
    if as_json {
        for run in &page.runs {
            json::print_line(run)?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let head = ["RUN", "STATE", "SUBJECT", "TIME", "RESULT"].map(str::to_owned);
    let mut rows = vec![head.to_vec()];
    rows.extend(page.runs.iter().map(|run| {
        vec![
            run.run_id.clone(),
            state_of(run),
            run.subject.clone(),
            duration(run),
            result(run),
        ]
    }));
    print_table(&rows, Some(2));
    Ok(ExitCode::SUCCESS)
}

fn show(run: &Run, waits_on: &CallsInDoubt, as_json: bool) -> anyhow::Result<ExitCode> {
    if as_json {
        json::print_line(run)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut fields = vec![
        ("run", run.run_id.clone()),
        ("state", state_of(run)),
        ("subject", run.subject.clone()),
        ("conversation", run.conversation_id.clone()),
        ("time", duration(run)),
        ("events", run.last_sequence.to_string()),
        ("result", result(run)),
    ];
    fields.extend(in_doubt::fields(run, waits_on));
    print_fields(&fields);
    Ok(ExitCode::SUCCESS)
}

/// Prints the run that a request started, or follows it to its end.
pub(super) async fn started(
    remote: &Remote,
    run: Option<Run>,
    follows: bool,
) -> anyhow::Result<ExitCode> {
    let run = run.context("the answer has no run")?;
    match (follows, remote.json) {
        (true, _) => return follow(remote, run.run_id).await,
        (false, true) => json::print_line(&run)?,
        (false, false) => print(&format!("{}\n", run.run_id)),
    }
    Ok(ExitCode::SUCCESS)
}

/// Follows a run from its beginning to its end.
pub(super) async fn follow(remote: &Remote, run_id: String) -> anyhow::Result<ExitCode> {
    let mut runs = RunServiceClient::new(remote.connect()?);
    watch(&mut runs, run_id, 0, remote.json).await
}

/// Follows a run to its end, over servers that drain and connections that break.
async fn watch(
    runs: &mut RunServiceClient<Outbound>,
    run_id: String,
    mut after_sequence: u64,
    as_json: bool,
) -> anyhow::Result<ExitCode> {
    let mut timeline = Timeline::new(Style::of_stdout());
    let request = WatchRunRequest {
        run_id: run_id.clone(),
        after_sequence,
    };
    let stream = runs.watch_run(request).await;
    let mut stream = stream.map_err(|status| refusal(&status))?.into_inner();
    while let Some(response) = stream.message().await.map_err(|status| refusal(&status))? {
        if as_json {
            json::print_line(&response)?;
        }
        match contracts::watch::decode(response.record)? {
            Some(Record::Event(event)) => {
                after_sequence = event.sequence;
                if !as_json {
                    print(&timeline.event(&event));
                }
            }
            Some(Record::Terminal(terminal)) => {
                let run = terminal.run.unwrap_or_default();
                return Ok(finish(timeline, &run, as_json));
            }
            _ => {}
        }
    }
    bail!(
        "the server ended the stream; continue with `{} runs watch {run_id} --after {after_sequence}`",
        program::name()
    )
}

/// Returns the result of a run on one line: its output, or its error.
fn result(run: &Run) -> String {
    let Some(outcome) = &run.outcome else {
        return String::new();
    };
    match &outcome.error {
        Some(error) => format!("{} ({})", error.message, error.code),
        None => outcome.result_json.clone(),
    }
}

/// Returns the duration of a run, up to now if it has not ended.
fn duration(run: &Run) -> String {
    let nanos = |time: &prost_types::Timestamp| {
        i128::from(time.seconds) * 1_000_000_000 + i128::from(time.nanos)
    };
    match (&run.create_time, &run.finish_time) {
        (Some(created), Some(finished)) => {
            let millis = (nanos(finished) - nanos(created)) / 1_000_000;
            format!("{millis} ms")
        }
        _ => String::new(),
    }
}
