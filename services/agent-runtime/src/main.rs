//! agent-runtime as a process of its own.

use std::{path::PathBuf, process::ExitCode};

use agent_runtime::{AgentSettings, Environment, Peers, build};
use anyhow::Context;
use clap::Parser;
use grpc_kit::Need;

/// Agents: profiles, conversations, models, and the loop of deliberation and action.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// The settings file.
    #[arg(long)]
    config: Option<PathBuf>,
    /// Prints the settings in force and ends.
    #[arg(long)]
    print_settings: bool,
}

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    rustls::crypto::ring::default_provider()
        .install_default()
        .map_err(|_| anyhow::anyhow!("a TLS provider was installed before main"))?;
    let arguments = Arguments::parse();
    let loaded = match settings::load::<AgentSettings>(arguments.config.as_deref()) {
        Ok(loaded) => loaded,
        Err(error) => return Ok(settings::report_and_exit_code(&error)),
    };
    if arguments.print_settings {
        use std::io::Write as _;
        writeln!(std::io::stdout(), "{}", loaded.effective())?;
        return Ok(ExitCode::SUCCESS);
    }
    let settings = loaded.settings;
    let guard = telemetry::init(
        &settings.telemetry,
        "agent-runtime",
        env!("CARGO_PKG_VERSION"),
    )?;
    let peers = Peers::over(grpc_kit::remote(&settings.registry)?);
    let need = Need::service("tool-registry", grpc_kit::remote(&settings.registry)?);
    let server = settings.server.clone();
    let runtime = build(settings, peers, Environment::system())
        .await
        .context("agent-runtime cannot start")?;

    let shutdown = grpc_kit::Shutdown::on_signals()?;
    let listener = grpc_kit::bind(&server).await?;
    tracing::info!(address = %listener.local_addr()?, "agent-runtime listens");
    let recovering = runtime.clone();
    let recovery = tokio::spawn(async move {
        if let Err(failure) = recovering.recover().await {
            let status = tonic::Status::from(failure);
            tracing::error!(error = status.message(), "earlier turns are not resumed");
        }
    });
    grpc_kit::Server::new(server, runtime.services())
        .needs([need])
        .serve(listener, shutdown)
        .await?;
    recovery.await?;
    runtime.shutdown().await;
    guard.shutdown().await;
    Ok(ExitCode::SUCCESS)
}
