//! The `tavern-cli` program: the commands of `tavern` that need no service of its own.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use cli::{Remote, audit, keys, plugins, runs};

/// Talks to a running Tavern.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(flatten)]
    remote: Remote,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List, show, follow, pause, resume, cancel and delete runs.
    #[command(subcommand)]
    Runs(runs::Command),
    /// Make the first key; create, list, show, rotate and revoke keys; set the rights of principals.
    #[command(subcommand)]
    Keys(Keys),
    /// List, export and verify the records of who changed what and who was denied what.
    #[command(subcommand)]
    Audit(Audit),
    /// List and show plugins and their tools.
    #[command(subcommand)]
    Plugins(plugins::Command),
    #[command(flatten)]
    Client(cli::Command),
}

/// The commands about keys; the first key is made at a running Tavern.
#[derive(Subcommand)]
enum Keys {
    #[command(flatten)]
    Client(keys::Command),
    /// Make the first key, for an administrator; from then on every call needs a key.
    Bootstrap(keys::Bootstrap),
}

/// The commands about the audit; a running registry verifies it.
#[derive(Subcommand)]
enum Audit {
    #[command(flatten)]
    Client(audit::Command),
    Verify(audit::Verify),
}

#[tokio::main]
async fn main() -> ExitCode {
    let Arguments { remote, command } = cli::read("tavern-cli", &[]);
    let executed = match command {
        Command::Runs(command) => command.execute(&remote).await,
        Command::Keys(Keys::Client(command)) => command.execute(&remote).await,
        Command::Keys(Keys::Bootstrap(bootstrap)) => bootstrap.execute(&remote).await,
        Command::Audit(Audit::Client(command)) => command.execute(&remote).await,
        Command::Audit(Audit::Verify(verify)) => verify.execute(&remote).await,
        Command::Plugins(command) => command.execute(&remote).await,
        Command::Client(command) => command.execute(&remote).await,
    };
    executed.unwrap_or_else(|error| grpc_kit::program::report_and_exit_code(&error))
}
