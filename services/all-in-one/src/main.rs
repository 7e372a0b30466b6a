//! The `tavern` program.

mod at_rest;
mod audit;
mod bootstrap;
mod demo;
mod migrate;
mod packages;
mod plugins;
mod replay;
mod serve;
mod transfer;

use std::path::PathBuf;
use std::process::ExitCode;

use all_in_one::TavernSettings;
use clap::{Args, Parser, Subcommand};
use settings::{Loaded, SettingsError};

/// Turns what language models write into work that really happens.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(flatten)]
    remote: cli::Remote,
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
    Migrate(migrate::Migrate),
    Import(transfer::Import),
    Export(transfer::Export),
    Verify(transfer::Verify),
    /// Print the settings in force of the process and of every service: meaning, value, source, default.
    Settings(Overrides),
    /// List, show, follow, pause, resume, cancel, replay and delete runs.
    #[command(subcommand)]
    Runs(Runs),
    /// Make the first key; create, list, show, rotate and revoke keys; set the rights of principals.
    #[command(subcommand)]
    Keys(Keys),
    /// List, export and verify the records of who changed what and who was denied what.
    #[command(subcommand)]
    Audit(Audit),
    /// Lock, build, list and remove package sets, the libraries of scripts; no server is needed.
    #[command(subcommand)]
    Packages(packages::Command),
    /// List and show plugins and their tools; check one and make a new one, for which no server is needed.
    #[command(subcommand)]
    Plugins(Plugins),
    #[command(flatten)]
    Client(cli::Command),
}

/// The commands about runs: the client's, and a replay, which needs the code of the agents.
#[derive(Subcommand)]
enum Runs {
    #[command(flatten)]
    Client(cli::runs::Command),
    /// Replay a turn from a fixture, without model, tools or network, and compare every event.
    Replay {
        /// The file.
        file: PathBuf,
    },
}

/// The commands about keys: the client's, and the first key, which is made in a data directory too.
#[derive(Subcommand)]
enum Keys {
    #[command(flatten)]
    Client(cli::keys::Command),
    /// Make the first key, for an administrator; from then on every call needs a key.
    ///
    /// The key is made at the Tavern that runs at the address, over loopback. If none listens there, it is made in
    /// the data directory, also for an installation whose administrators have no valid key any more.
    Bootstrap(bootstrap::FirstKey),
}

/// The commands about the audit: the client's, and its verification, which works in a data directory too.
#[derive(Subcommand)]
enum Audit {
    #[command(flatten)]
    Client(cli::audit::Command),
    Verify(audit::VerifyAnywhere),
}

/// The commands about plugins: the client's, and those about files, which need the code of the registry.
#[derive(Subcommand)]
enum Plugins {
    #[command(flatten)]
    Client(cli::plugins::Command),
    #[command(flatten)]
    Files(plugins::Command),
}

/// The options of [`cli::Remote`] that commands do not use.
const UNUSED: [(&str, &[&str]); 8] = [
    ("serve", REMOTE),
    ("demo", REMOTE),
    ("migrate", REMOTE),
    ("import", REMOTE),
    ("export", REMOTE),
    ("verify", REMOTE),
    ("settings", REMOTE),
    ("packages", REMOTE),
];

/// All options of [`cli::Remote`].
const REMOTE: &[&str] = &[
    "address",
    "ca",
    "server_name",
    "json",
    "key_file",
    "token_file",
];

/// Settings from the command line, which override file and environment.
#[derive(Args)]
struct Overrides {
    /// A TOML file with settings; environment variables win over it.
    #[arg(long, env = "TAVERN_CONFIG")]
    config: Option<PathBuf>,
    /// The address to listen on.
    #[arg(long)]
    listen: Option<std::net::SocketAddr>,
    /// The PEM file with the certificate of the server.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<String>,
    /// The PEM file with the private key of the certificate.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<String>,
    /// The data directory.
    #[arg(long)]
    data_dir: Option<String>,
    /// The PostgreSQL database in place of files in the data directory, `postgres://user@host:5432/database`, with the
    /// password in PGPASSWORD.
    #[arg(long, value_name = "URL")]
    database: Option<String>,
    /// The directory with plugins, workflows, agents and models.
    #[arg(long)]
    deploy_dir: Option<String>,
    /// Start without any plugin, whatever is installed.
    #[arg(long)]
    without_plugins: bool,
    /// Print the settings in force (meaning, value, source, default) and exit.
    #[arg(long)]
    print_settings: bool,
}

impl Overrides {
    /// Returns the settings, or the exit code where they were wrong or only to be printed.
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

    /// Reads the settings of the process, and checks the settings of every service.
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
            (Ok(mut loaded), Ok(())) => {
                loaded.settings.without_plugins |= self.without_plugins;
                Ok(loaded)
            }
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
            ("server.tls.cert", self.tls_cert.clone()),
            ("server.tls.key", self.tls_key.clone()),
            ("data_dir", self.data_dir.clone()),
            ("database.address", self.database.clone()),
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
    let Arguments { remote, command } = cli::read("tavern", &UNUSED);
    let executed = command.execute(&remote).await;
    executed.unwrap_or_else(|error| grpc_kit::program::report_and_exit_code(&error))
}

impl Command {
    async fn execute(self, remote: &cli::Remote) -> anyhow::Result<ExitCode> {
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
            Self::Migrate(migrate) => migrate.execute().await,
            Self::Import(import) => import.execute().await,
            Self::Export(export) => export.execute().await,
            Self::Verify(verify) => verify.execute().await,
            Self::Settings(mut overrides) => {
                overrides.print_settings = true;
                Ok(overrides.settings().err().unwrap_or(ExitCode::SUCCESS))
            }
            Self::Runs(Runs::Client(command)) => command.execute(remote).await,
            Self::Runs(Runs::Replay { file }) => replay::replay_file(&file),
            Self::Keys(Keys::Client(command)) => command.execute(remote).await,
            Self::Keys(Keys::Bootstrap(first)) => first.execute(remote).await,
            Self::Audit(Audit::Client(command)) => command.execute(remote).await,
            Self::Audit(Audit::Verify(verify)) => verify.execute(remote).await,
            Self::Packages(command) => command.execute().await,
            Self::Plugins(Plugins::Client(command)) => command.execute(remote).await,
            Self::Plugins(Plugins::Files(command)) => command.execute(),
            Self::Client(command) => command.execute(remote).await,
        }
    }
}

/// Chooses the one TLS provider of the process, which clients of model endpoints need.
fn install_tls() {
    // It fails only if a provider was installed before, and no code ran before.
    let _ = rustls::crypto::ring::default_provider().install_default();
}
