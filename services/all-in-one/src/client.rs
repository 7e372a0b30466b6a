//! The commands that talk to a Tavern: invoke a text, look at runs, questions, conversations, goals, tools,
//! approvals, workflows, profiles, knowledge bases, projects, scenes and schedules.

pub(crate) mod approvals;
mod conversations;
mod documents;
mod goals;
mod invoke;
mod json;
mod knowledge;
mod list;
mod profiles;
mod projects;
mod questions;
mod runs;
mod scenes;
mod schedules;
mod tools;
mod workflows;

use std::io::{ErrorKind, Write as _};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use contracts::tavern::common::v1::{Run, RunState};
use grpc_kit::{ClientSettings, Transport};

use crate::timeline::{Timeline, name};

/// Where the Tavern is, and how results are printed.
#[derive(Args)]
pub(crate) struct Remote {
    /// The address of the gateway, or of all services in one process.
    #[arg(
        long,
        global = true,
        env = "TAVERN_ADDRESS",
        default_value = "http://127.0.0.1:7401"
    )]
    address: String,
    /// Print one JSON object per line.
    #[arg(long, global = true)]
    json: bool,
}

/// A command to a Tavern that is running.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Invoke a text and follow the run to its end.
    Invoke {
        #[command(flatten)]
        remote: Remote,
        #[command(flatten)]
        input: invoke::Input,
    },
    /// List, show, follow, pause, resume, cancel and delete runs.
    Runs {
        #[command(flatten)]
        remote: Remote,
        #[command(subcommand)]
        command: runs::Command,
    },
    /// List, show and call tools.
    Tools {
        #[command(flatten)]
        remote: Remote,
        #[command(subcommand)]
        command: tools::Command,
    },
    /// List conversations, and replace their earlier turns by a summary.
    Conversations {
        #[command(flatten)]
        remote: Remote,
        #[command(subcommand)]
        command: conversations::Command,
    },
    /// List, add and change the goals of agents.
    Goals {
        #[command(flatten)]
        remote: Remote,
        #[command(subcommand)]
        command: goals::Command,
    },
    /// List and answer what people are asked.
    Questions {
        #[command(flatten)]
        remote: Remote,
        #[command(subcommand)]
        command: questions::Command,
    },
    /// List, show, follow and decide approvals of calls.
    Approvals {
        #[command(flatten)]
        remote: Remote,
        #[command(subcommand)]
        command: approvals::Command,
    },
    /// List, show, check, store, run and delete workflows.
    Workflows {
        #[command(flatten)]
        remote: Remote,
        #[command(subcommand)]
        command: workflows::Command,
    },
    /// List and show profiles and their revisions.
    Profiles {
        #[command(flatten)]
        remote: Remote,
        #[command(subcommand)]
        command: profiles::Command,
    },
    /// List, store and delete knowledge bases; list, find, write and delete their entries.
    Knowledge {
        #[command(flatten)]
        remote: Remote,
        #[command(subcommand)]
        command: knowledge::Command,
    },
    /// List, show, store, start and delete projects.
    Projects {
        #[command(flatten)]
        remote: Remote,
        #[command(subcommand)]
        command: projects::Command,
    },
    /// List, start and end scenes, publish events in them, and show what their agents do.
    Scenes {
        #[command(flatten)]
        remote: Remote,
        #[command(subcommand)]
        command: scenes::Command,
    },
    /// List, store, pause, resume, trigger and delete schedules, and list their times.
    Schedules {
        #[command(flatten)]
        remote: Remote,
        #[command(subcommand)]
        command: schedules::Command,
    },
}

impl Command {
    /// Executes the command and reports what kept it from working. The exit code is 0 if the run or
    /// call succeeded.
    #[expect(
        clippy::print_stderr,
        reason = "errors of a command go to standard error"
    )]
    pub(crate) async fn execute_or_report(self) -> ExitCode {
        self.execute().await.unwrap_or_else(|error| {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        })
    }

    async fn execute(self) -> anyhow::Result<ExitCode> {
        match self {
            Self::Invoke { remote, input } => input.execute(&remote).await,
            Self::Runs { remote, command } => command.execute(&remote).await,
            Self::Tools { remote, command } => command.execute(&remote).await,
            Self::Conversations { remote, command } => command.execute(&remote).await,
            Self::Goals { remote, command } => command.execute(&remote).await,
            Self::Questions { remote, command } => command.execute(&remote).await,
            Self::Approvals { remote, command } => command.execute(&remote).await,
            Self::Workflows { remote, command } => command.execute(&remote).await,
            Self::Profiles { remote, command } => command.execute(&remote).await,
            Self::Knowledge { remote, command } => command.execute(&remote).await,
            Self::Projects { remote, command } => command.execute(&remote).await,
            Self::Scenes { remote, command } => command.execute(&remote).await,
            Self::Schedules { remote, command } => command.execute(&remote).await,
        }
    }
}

impl Remote {
    fn connect(&self) -> anyhow::Result<Transport> {
        Ok(grpc_kit::remote(&ClientSettings::to(&self.address))?)
    }
}

/// Returns the words for a refused request: what is wrong with each field, one per line. The message
/// of the status has the only one already.
fn refusal(status: &tonic::Status) -> anyhow::Error {
    let mut violations = grpc_kit::violations(status);
    if violations.len() == 1 {
        violations.clear();
    }
    let fields = violations
        .iter()
        .map(|(field, problem)| format!("\n  {field}: {problem}"));
    anyhow::anyhow!("{}{}", status.message(), fields.collect::<String>())
}

/// Prints the end of a run and returns the exit code for it.
fn finish(mut timeline: Timeline, run: &Run, as_json: bool) -> ExitCode {
    if !as_json {
        print(&timeline.end(run));
    }
    match run.state() {
        RunState::Succeeded => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

fn state_of(run: &Run) -> String {
    name(run.state().as_str_name(), "RUN_STATE_")
}

/// Prints text as it is. The command ends when its reader has read enough, as `head` does.
fn print(text: &str) {
    let mut stdout = std::io::stdout().lock();
    let written = stdout.write_all(text.as_bytes());
    if let Err(error) = written.and_then(|()| stdout.flush()) {
        let is_enough = error.kind() == ErrorKind::BrokenPipe;
        std::process::exit(i32::from(!is_enough));
    }
}

/// Prints rows as a table with aligned columns.
pub(crate) fn print_table(rows: &[Vec<String>], width: usize) {
    let columns = rows.first().map_or(0, Vec::len);
    let widths: Vec<usize> = (0..columns)
        .map(|column| {
            let cells = rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        })
        .collect();
    for row in rows {
        let cells = row.iter().zip(&widths);
        let line: Vec<String> = cells
            .map(|(cell, width)| format!("{cell:<width$}"))
            .collect();
        print(&crate::timeline::cut(line.join("  ").trim_end(), width));
        print("\n");
    }
}
