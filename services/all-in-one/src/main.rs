//! The `tavern` program.

mod client;
mod demo;
mod play;
mod serve;
mod timeline;

use std::path::PathBuf;
use std::process::ExitCode;

use all_in_one::TavernSettings;
use anyhow::Context;
use clap::{Args, Parser, Subcommand};

/// Turns what language models write into work that really happens.
#[derive(Parser)]
#[command(name = "tavern", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serves all five services in one process until Ctrl-C.
    Serve(Overrides),
    /// Plays transcripts in a fresh directory, and fails if any gives another result than stated.
    Demo {
        #[command(flatten)]
        overrides: Overrides,
        /// The directory of the transcripts. Default: `examples` in the deploy directory.
        #[arg(long)]
        examples: Option<PathBuf>,
    },
    /// Prints the settings in force of the process and of every service: meaning, value, source, default.
    Settings(Overrides),
    #[command(flatten)]
    Client(client::Command),
    /// Plays transcripts against a gateway that is already there.
    Play {
        /// Where the gateway is.
        #[arg(long, default_value = "http://127.0.0.1:7401")]
        gateway: String,
        /// The directory of the transcripts.
        #[arg(long, default_value = "deploy/examples")]
        examples: PathBuf,
        /// The key of an approver, for transcripts in which a person decides.
        #[arg(
            long,
            env = "TAVERN_APPROVER_KEY",
            default_value = "",
            hide_env_values = true
        )]
        approver_key: String,
    },
    /// Asks a server whether it serves, for a container's health check.
    Healthcheck {
        /// Where the server is.
        #[arg(long, default_value = "http://127.0.0.1:7401")]
        address: String,
        /// Asks only whether the process lives, not whether it can do its work.
        #[arg(long)]
        live: bool,
    },
}

/// What the command line says beyond file and environment.
#[derive(Args)]
struct Overrides {
    /// A TOML file with settings; environment variables win over it.
    #[arg(long, env = "TAVERN_CONFIG")]
    config: Option<PathBuf>,
    /// The address to listen on.
    #[arg(long)]
    listen: Option<std::net::SocketAddr>,
    /// Where data are kept.
    #[arg(long)]
    data_dir: Option<PathBuf>,
    /// The directory with plugins, workflows, agents and models.
    #[arg(long)]
    deploy_dir: Option<PathBuf>,
}

impl Overrides {
    /// Reads the settings of the process and of every service, or prints everything that is wrong
    /// with any of them.
    fn load(self) -> Result<TavernSettings, ExitCode> {
        let loaded = settings::load::<TavernSettings>(self.config.as_deref());
        let (mut settings, mut wrong) = match loaded {
            Ok(loaded) => (loaded.settings, None),
            Err(error) => (TavernSettings::default(), Some(error)),
        };
        settings.server.listen = self.listen.unwrap_or(settings.server.listen);
        settings.data_dir = self.data_dir.unwrap_or(settings.data_dir);
        settings.deploy_dir = self.deploy_dir.unwrap_or(settings.deploy_dir);
        if let Err(error) = settings.check_services() {
            match &mut wrong {
                Some(wrong) => wrong.merge(error),
                None => wrong = Some(error),
            }
        }
        match wrong {
            Some(wrong) => Err(settings::report_and_exit_code(&wrong)),
            None => Ok(settings),
        }
    }
}

impl Overrides {
    /// Prints the settings of the process and of every service, or everything that is wrong with any of
    /// them.
    #[expect(clippy::print_stdout, reason = "printing is what was asked for")]
    fn print(self) -> ExitCode {
        let config = self.config.clone();
        let settings = match self.load() {
            Ok(settings) => settings,
            Err(code) => return code,
        };
        match settings.describe(config.as_deref()) {
            Ok(text) => {
                println!("{text}");
                ExitCode::SUCCESS
            }
            Err(error) => settings::report_and_exit_code(&error),
        }
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    install_tls();
    match Arguments::parse().command {
        Command::Serve(overrides) => match overrides.load() {
            Ok(settings) => serve::serve(settings).await,
            Err(code) => Ok(code),
        },
        Command::Demo {
            overrides,
            examples,
        } => match overrides.load() {
            Ok(settings) => demo::demo(settings, examples).await,
            Err(code) => Ok(code),
        },
        Command::Settings(overrides) => Ok(overrides.print()),
        Command::Client(command) => Ok(command.execute_or_report().await),
        Command::Play {
            gateway,
            examples,
            approver_key,
        } => {
            let transport = grpc_kit::remote(&grpc_kit::ClientSettings::to(gateway))?;
            let wrong = play::play_all(transport, &examples, &approver_key).await?;
            Ok(if wrong == 0 {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            })
        }
        Command::Healthcheck { address, live } => {
            let settings = grpc_kit::ClientSettings::to(address);
            let checked = match live {
                true => grpc_kit::check_liveness(&settings).await,
                false => grpc_kit::check_health(&settings).await,
            };
            checked.context("the server does not serve")?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Chooses the one TLS provider of the process, which clients of model endpoints need.
fn install_tls() {
    // It fails only where a provider was chosen before, and nothing ran before.
    let _ = rustls::crypto::ring::default_provider().install_default();
}
