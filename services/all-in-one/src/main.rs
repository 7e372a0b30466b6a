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
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use settings::{Loaded, SettingsError};

/// Turns what language models write into work that really happens.
#[derive(Parser)]
#[command(name = "tavern", version)]
struct Arguments {
    #[command(flatten)]
    remote: client::Remote,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve all five services in one process until Ctrl-C.
    Serve(Overrides),
    /// Play transcripts in a fresh directory, and fail if any result differs from the expected one.
    Demo {
        #[command(flatten)]
        overrides: Overrides,
        /// The directory of the transcripts. Default: `examples` in the deploy directory.
        #[arg(long)]
        examples: Option<PathBuf>,
    },
    /// Print the settings in force of the process and of every service: meaning, value, source, default.
    Settings(Overrides),
    #[command(flatten)]
    Client(client::Command),
    /// Play transcripts against a running gateway, and fail if any result differs from the expected one.
    Play {
        /// The directory of the transcripts.
        #[arg(long, default_value = "deploy/examples")]
        examples: PathBuf,
        /// The key of an approver, for transcripts in which a person decides.
        #[arg(long, env = "TAVERN_APPROVER_KEY", hide_env_values = true)]
        approver_key: Option<String>,
    },
    /// Check whether a server is ready, for a container's health check.
    Healthcheck {
        /// Check only that the process is alive.
        #[arg(long)]
        live: bool,
    },
}

/// The options of [`client::Remote`] that commands have no use for.
const UNUSED: [(&str, &[&str]); 5] = [
    ("serve", &["address", "json"]),
    ("demo", &["address", "json"]),
    ("settings", &["address", "json"]),
    ("play", &["json"]),
    ("healthcheck", &["json"]),
];

impl Arguments {
    /// Returns the parser of the command line. An option that a command has no use for is not in its help.
    fn parser() -> clap::Command {
        let mut command = Self::command();
        // Only then do the commands have the options that stand before them.
        command.build();
        UNUSED.into_iter().fold(command, |command, (name, unused)| {
            command.mut_subcommand(name, |command| {
                command.mut_args(|arg| match unused.contains(&arg.get_id().as_str()) {
                    true => arg.hide(true),
                    false => arg,
                })
            })
        })
    }

    /// Reads the command line, and refuses an option that the command has no use for.
    fn read() -> Result<Self, clap::Error> {
        let mut command = Self::parser();
        let matches = command.try_get_matches_from_mut(std::env::args_os())?;
        let name = matches.subcommand_name().unwrap_or_default();
        let unused = UNUSED.iter().find(|(known, _)| *known == name);
        for option in unused.map_or(&[][..], |(_, options)| options) {
            if matches.value_source(option) == Some(ValueSource::CommandLine) {
                let message = format!("`tavern {name}` has no option `--{option}`");
                return Err(command.error(ErrorKind::UnknownArgument, message));
            }
        }
        Self::from_arg_matches(&matches)
    }
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
    /// The data directory.
    #[arg(long)]
    data_dir: Option<String>,
    /// The directory with plugins, workflows, agents and models.
    #[arg(long)]
    deploy_dir: Option<String>,
    /// Print the settings in force (meaning, value, source, default) and exit.
    #[arg(long)]
    print_settings: bool,
}

impl Overrides {
    /// Returns the settings, or the code to exit with where they were wrong or only to be printed.
    fn settings(&self) -> Result<TavernSettings, ExitCode> {
        let loaded = self.load();
        let loaded = loaded.map_err(|wrong| settings::report_and_exit_code(&wrong))?;
        if !self.print_settings {
            return Ok(loaded.settings);
        }
        match all_in_one::settings::describe(&loaded) {
            Ok(text) => grpc_kit::program::print(&text),
            Err(wrong) => return Err(settings::report_and_exit_code(&wrong)),
        }
        Err(ExitCode::SUCCESS)
    }

    /// Reads the settings of the process, and checks those of every service.
    fn load(&self) -> Result<Loaded<TavernSettings>, SettingsError> {
        let loaded = settings::load::<TavernSettings>(self.config.as_deref(), &self.flags());
        let checked = match &loaded {
            Ok(loaded) => loaded.settings.check_services(),
            Err(_) => {
                let mut settings = TavernSettings::default();
                settings.deploy_dir = self
                    .deploy_dir
                    .as_ref()
                    .map_or(settings.deploy_dir, PathBuf::from);
                settings.check_services()
            }
        };
        match (loaded, checked) {
            (Ok(loaded), Ok(())) => Ok(loaded),
            (Ok(_), Err(wrong)) | (Err(wrong), Ok(())) => Err(wrong),
            (Err(mut wrong), Err(more)) => {
                wrong.merge(more);
                Err(wrong)
            }
        }
    }

    fn flags(&self) -> Vec<(&'static str, String)> {
        let flags = [
            (
                "server.listen",
                self.listen.map(|listen| listen.to_string()),
            ),
            ("data_dir", self.data_dir.clone()),
            ("deploy_dir", self.deploy_dir.clone()),
        ];
        let given = flags
            .into_iter()
            .filter_map(|(key, value)| Some((key, value?)));
        given.collect()
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    install_tls();
    let arguments = Arguments::read().unwrap_or_else(|error| error.exit());
    let executed = arguments.command.execute(&arguments.remote).await;
    executed.unwrap_or_else(|error| grpc_kit::program::report_and_exit_code(&error))
}

impl Command {
    async fn execute(self, remote: &client::Remote) -> anyhow::Result<ExitCode> {
        match self {
            Self::Serve(overrides) => match overrides.settings() {
                Ok(settings) => serve::serve(settings).await,
                Err(code) => Ok(code),
            },
            Self::Demo {
                overrides,
                examples,
            } => match overrides.settings() {
                Ok(settings) => demo::demo(settings, examples).await,
                Err(code) => Ok(code),
            },
            Self::Settings(mut overrides) => {
                overrides.print_settings = true;
                Ok(overrides.settings().err().unwrap_or(ExitCode::SUCCESS))
            }
            Self::Client(command) => remote.located(command.execute(remote).await),
            Self::Play {
                examples,
                approver_key,
            } => {
                let key = approver_key.unwrap_or_default();
                remote.located(play::play_all(remote.connect()?, &examples, &key).await)
            }
            Self::Healthcheck { live } => {
                let checked = match live {
                    true => grpc_kit::check_liveness(&remote.settings()).await,
                    false => grpc_kit::check_health(&remote.settings()).await,
                };
                checked.with_context(|| format!("{} is not ready", remote.address))?;
                Ok(ExitCode::SUCCESS)
            }
        }
    }
}

/// Chooses the one TLS provider of the process, which clients of model endpoints need.
fn install_tls() {
    // It fails only where a provider was chosen before, and nothing ran before.
    let _ = rustls::crypto::ring::default_provider().install_default();
}
