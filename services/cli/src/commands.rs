//! The commands: invoke a text, inspect runs, calls, questions, conversations, files, goals, tools,
//! plugins, backends, approvals, workflows, profiles, knowledge bases, projects, scenes,
//! schedules, keys, tenants, certificates and the audit, play transcripts, check health.

pub mod approvals;
pub mod audit;
mod backends;
mod calls;
mod certs;
mod conversations;
pub mod documents;
mod files;
mod goals;
mod invoke;
mod json;
pub mod keys;
mod knowledge;
mod list;
mod play;
pub mod plugins;
mod profiles;
mod projects;
mod questions;
pub mod runs;
mod scenes;
mod schedules;
mod table;
mod tenants;
mod tools;
mod words;
mod workflows;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, Subcommand};
use contracts::tavern::common::v1::{Run, RunState, WaitReason};
use core_types::{RunId, RunOwner};
pub(crate) use grpc_kit::program::print;
use grpc_kit::{ClientSettings, Outbound, Transport};
pub use play::play_all;
use serde_json::Value;
use table::print_fields;
pub(crate) use table::print_table;
use tonic::{Code, Status};

use crate::credential::Key;
use crate::timeline::{Timeline, name};

/// The address of a running Tavern, its certificate, the caller's key, and the form of the output.
#[derive(Args)]
pub struct Remote {
    /// The address of the gateway, or of all services in one process.
    #[arg(
        long,
        global = true,
        display_order = 100,
        env = "TAVERN_ADDRESS",
        default_value = "http://127.0.0.1:7401"
    )]
    address: String,
    /// The file with the CA of a server at an `https` address. Default: the CAs of this machine.
    #[arg(
        long,
        global = true,
        display_order = 100,
        env = "TAVERN_CA",
        value_name = "FILE"
    )]
    ca: Option<PathBuf>,
    /// The name in the certificate of the server, if it is not the host of the address: of a host, or the URI of a
    /// service such as `spiffe://tavern.internal/tavern/gateway`.
    #[arg(
        long,
        global = true,
        display_order = 100,
        env = "TAVERN_SERVER_NAME",
        value_name = "NAME"
    )]
    server_name: Option<String>,
    /// The file that holds the caller's key, closed to others (mode 0600).
    #[arg(
        long,
        global = true,
        display_order = 100,
        env = "TAVERN_KEY_FILE",
        value_name = "FILE"
    )]
    key_file: Option<PathBuf>,
    /// The file that holds a token of the caller's issuer (a JWT) in place of a key, closed to others. It is read anew
    /// for each command.
    #[arg(
        long,
        global = true,
        display_order = 100,
        env = "TAVERN_TOKEN_FILE",
        value_name = "FILE",
        conflicts_with = "key_file"
    )]
    token_file: Option<PathBuf>,
    /// Print one JSON object per line.
    #[arg(long, global = true, display_order = 100)]
    json: bool,
}

/// A command to a running Tavern; the commands about runs are [`runs::Command`], those about plugins
/// [`plugins::Command`].
#[derive(Subcommand)]
pub enum Command {
    /// Invoke a text and follow the run to its end.
    Invoke(invoke::Input),
    /// List, show and follow calls, and decide about calls in doubt.
    #[command(subcommand)]
    Calls(calls::Command),
    /// List, show and call tools.
    #[command(subcommand)]
    Tools(tools::Command),
    /// List, show, store and delete the gRPC servers whose methods tools call.
    #[command(subcommand)]
    Backends(backends::Command),
    /// Create, list, show, limit and close tenants, for those who operate the installation.
    #[command(subcommand)]
    Tenants(tenants::Command),
    /// List conversations, and replace their earlier turns by a summary.
    #[command(subcommand)]
    Conversations(conversations::Command),
    /// List, save, store, delete and move the files of a conversation.
    #[command(subcommand)]
    Files(files::Command),
    /// List, add and change the goals of agents.
    #[command(subcommand)]
    Goals(goals::Command),
    /// List and answer questions to people.
    #[command(subcommand)]
    Questions(questions::Command),
    /// List, show, follow and decide approvals of calls.
    #[command(subcommand)]
    Approvals(approvals::Command),
    /// List, show, check, store, run and delete workflows.
    #[command(subcommand)]
    Workflows(workflows::Command),
    /// List and show profiles and their revisions.
    #[command(subcommand)]
    Profiles(profiles::Command),
    /// List, store and delete knowledge bases; list, find, write and delete their entries.
    #[command(subcommand)]
    Knowledge(knowledge::Command),
    /// List, show, store, start and delete projects.
    #[command(subcommand)]
    Projects(projects::Command),
    /// List, start and end scenes, publish events in them, and show their agents.
    #[command(subcommand)]
    Scenes(scenes::Command),
    /// List, store, pause, resume, trigger and delete schedules, and list their firings.
    #[command(subcommand)]
    Schedules(schedules::Command),
    /// Make a private CA, and issue, renew and show certificates of services; no server is needed.
    #[command(subcommand)]
    Certs(certs::Command),
    /// Play transcripts against a running gateway, and fail if any result differs from the expected one.
    Play {
        /// The directory of the transcripts.
        #[arg(long, default_value = "deploy/examples")]
        examples: PathBuf,
        /// The key of an approver, for transcripts in which a person decides.
        #[arg(long, env = "TAVERN_APPROVER_KEY", hide_env_values = true)]
        approver_key: Option<String>,
        /// The file that holds this key, closed to others.
        #[arg(
            long,
            env = "TAVERN_APPROVER_KEY_FILE",
            value_name = "FILE",
            conflicts_with = "approver_key"
        )]
        approver_key_file: Option<PathBuf>,
    },
    /// Check whether a server is ready, for a container's health check.
    Healthcheck {
        /// Check only that the process is alive.
        #[arg(long)]
        live: bool,
    },
}

impl Command {
    /// Executes the command. The exit code is 0 if the run or call succeeded.
    ///
    /// # Errors
    /// The reason why the command failed.
    pub async fn execute(self, remote: &Remote) -> anyhow::Result<ExitCode> {
        let executed = match self {
            Self::Invoke(input) => input.execute(remote).await,
            Self::Calls(command) => command.execute(remote).await,
            Self::Tools(command) => command.execute(remote).await,
            Self::Backends(command) => command.execute(remote).await,
            Self::Tenants(command) => command.execute(remote).await,
            Self::Conversations(command) => command.execute(remote).await,
            Self::Files(command) => command.execute(remote).await,
            Self::Goals(command) => command.execute(remote).await,
            Self::Questions(command) => command.execute(remote).await,
            Self::Approvals(command) => command.execute(remote).await,
            Self::Workflows(command) => command.execute(remote).await,
            Self::Profiles(command) => command.execute(remote).await,
            Self::Knowledge(command) => command.execute(remote).await,
            Self::Projects(command) => command.execute(remote).await,
            Self::Scenes(command) => command.execute(remote).await,
            Self::Schedules(command) => command.execute(remote).await,
            Self::Play {
                examples,
                approver_key,
                approver_key_file,
            } => {
                let key = match (approver_key, approver_key_file) {
                    (Some(key), _) => Some(Key::new(&key).context("--approver-key")?),
                    (None, Some(file)) => Some(Key::read(&file)?),
                    (None, None) => remote.key()?,
                };
                let deciders = remote.connect_with(key.as_ref())?;
                play_all(remote.connect()?, deciders, &examples).await
            }
            Self::Certs(command) => return command.execute(remote.json),
            Self::Healthcheck { live } => return remote.check_health(live).await,
        };
        remote.located(executed)
    }
}

impl Remote {
    /// Returns the address.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Whether the output is JSON.
    pub fn is_json(&self) -> bool {
        self.json
    }

    fn settings(&self) -> ClientSettings {
        let mut settings = ClientSettings::to(&self.address);
        settings.tls.ca = self.ca.clone().unwrap_or_default();
        settings.tls.name = self.server_name.clone().unwrap_or_default();
        settings
    }

    /// Returns the key or the token of the caller; `None` without a file.
    fn key(&self) -> anyhow::Result<Option<Key>> {
        match (&self.key_file, &self.token_file) {
            (Some(file), _) => Key::read(file).map(Some),
            (None, Some(file)) => Key::read_token(file).map(Some),
            (None, None) => Ok(None),
        }
    }

    /// Returns the way to the server for calls of the caller.
    fn connect(&self) -> anyhow::Result<Outbound> {
        self.connect_with(self.key()?.as_ref())
    }

    /// Returns the way to the server for calls with a key.
    fn connect_with(&self, key: Option<&Key>) -> anyhow::Result<Outbound> {
        let mut transport: Transport = grpc_kit::remote(&self.settings())?;
        if let Some(key) = key {
            transport = transport.authorized(key.bearer());
        }
        Ok(transport.outermost())
    }

    /// Checks that the server is ready, or only `live`.
    async fn check_health(&self, live: bool) -> anyhow::Result<ExitCode> {
        let checked = match live {
            true => grpc_kit::check_liveness(&self.settings()).await,
            false => grpc_kit::check_health(&self.settings()).await,
        };
        checked.with_context(|| format!("{} is not ready", self.address))?;
        Ok(ExitCode::SUCCESS)
    }

    /// Adds the address to the error of a command that had no answer, and the way to give a key to the
    /// error of a command that had none, or none that the server accepts.
    fn located<T>(&self, result: anyhow::Result<T>) -> anyhow::Result<T> {
        let address = &self.address;
        result.map_err(
            |error| match error.downcast_ref::<Status>().map(Status::code) {
                Some(Code::Unavailable | Code::DeadlineExceeded) => error.context(format!(
                    "at {address}, which `--address` or TAVERN_ADDRESS names"
                )),
                Some(Code::Unauthenticated) => {
                    error.context(match (&self.key_file, &self.token_file) {
                        (Some(file), _) => format!(
                            "{address} does not accept the key in {}, which `--key-file` or TAVERN_KEY_FILE names",
                            file.display()
                        ),
                        (None, Some(file)) => format!(
                            "{address} does not accept the token in {}, which `--token-file` or TAVERN_TOKEN_FILE \
                             names; the registry logs the reason",
                            file.display()
                        ),
                        // The message of the server states the way to give one.
                        (None, None) => format!("{address} asks for a key"),
                    })
                }
                _ => error,
            },
        )
    }
}

/// Returns the text for a refused request: the fault of each field, one per line. The message of
/// the status has a single fault already.
fn refusal(status: &Status) -> anyhow::Error {
    let mut violations = grpc_kit::violations(status);
    if violations.len() == 1 {
        violations.clear();
    }
    let fields = violations
        .iter()
        .map(|(field, problem)| format!("\n  {field}: {problem}"));
    let words = format!("{}{}", status.message(), fields.collect::<String>());
    Status::new(status.code(), words).into()
}

/// Prints the end of a run and returns the exit code for it.
fn finish(mut timeline: Timeline, run: &Run, as_json: bool) -> ExitCode {
    if !as_json {
        print(&timeline.end(run));
        print(&result_of_workflow(run));
    }
    match run.state() {
        RunState::Succeeded => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

/// Returns the result of a workflow, which no line of its timeline has whole; empty for other runs.
fn result_of_workflow(run: &Run) -> String {
    let owner = run.run_id.parse::<RunId>().map(|run_id| run_id.owner());
    let result = run.outcome.as_ref().map(|outcome| &outcome.result_json);
    let Some(result) = result.filter(|json| !json.is_empty() && owner == Ok(RunOwner::Workflow))
    else {
        return String::new();
    };
    // The text keeps the digits of each number where it is no JSON that this program reads.
    let pretty = serde_json::from_str::<Value>(result)
        .ok()
        .and_then(|value| serde_json::to_string_pretty(&value).ok());
    format!("{}\n", pretty.as_ref().unwrap_or(result))
}

/// Returns the state of a run, and the reason for which it waits unless that is a node.
fn state_of(run: &Run) -> String {
    let state = name(run.state().as_str_name(), "RUN_STATE_");
    match run.wait_reason() {
        WaitReason::Approval | WaitReason::InDoubt => {
            let reason = name(run.wait_reason().as_str_name(), "WAIT_REASON_");
            format!("{state} ({})", reason.replace('_', " "))
        }
        WaitReason::Nodes | WaitReason::Unspecified => state,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_waits_for_a_decision_is_shown_with_the_reason() {
        for (state, reason, expected) in [
            (RunState::Running, WaitReason::Unspecified, "running"),
            (RunState::Waiting, WaitReason::Nodes, "waiting"),
            (
                RunState::Waiting,
                WaitReason::Approval,
                "waiting (approval)",
            ),
            (RunState::Waiting, WaitReason::InDoubt, "waiting (in doubt)"),
            (RunState::InDoubt, WaitReason::Unspecified, "in_doubt"),
        ] {
            let run = Run {
                state: state.into(),
                wait_reason: reason.into(),
                ..Run::default()
            };
            assert_eq!(state_of(&run), expected);
        }
    }
}
