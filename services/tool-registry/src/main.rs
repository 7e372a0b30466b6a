//! The tool registry as a program of its own.

use std::{path::PathBuf, process::ExitCode};

use clap::Parser;
use grpc_kit::Need;
use tool_registry::{Peers, RegistrySettings};

/// Knows every tool and dispatches calls.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// A TOML file with settings; environment variables win over it.
    #[arg(long, env = "TAVERN_REGISTRY_CONFIG")]
    config: Option<PathBuf>,
}

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let arguments = Arguments::parse();
    let settings = match settings::load::<RegistrySettings>(arguments.config.as_deref()) {
        Ok(loaded) => loaded.settings,
        Err(error) => return Ok(settings::report_and_exit_code(&error)),
    };
    let telemetry = telemetry::init(
        &settings.telemetry,
        "tool-registry",
        env!("CARGO_PKG_VERSION"),
    )?;
    let shutdown = grpc_kit::Shutdown::on_signals()?;
    let listener = grpc_kit::bind(&settings.server).await?;
    let peers = Peers::remote(&settings)?;
    let registry = tool_registry::build(settings.clone(), peers).await?;
    let needs = [
        Need::service("workflow-execution", grpc_kit::remote(&settings.workflow)?),
        Need::service("script-sandbox", grpc_kit::remote(&settings.sandbox)?),
    ];
    let server = grpc_kit::Server::new(settings.server, registry.services()).needs(needs);
    let health = server.health();
    for skipped in registry.skipped_plugins() {
        health
            .set(&format!("plugin:{}", skipped.directory), false)
            .await;
    }
    let recovering = registry.clone();
    let recovery = tokio::spawn(async move { recovering.recover().await });
    server.serve(listener, shutdown).await?;
    recovery.abort();
    registry.shutdown().await;
    telemetry.shutdown().await;
    Ok(ExitCode::SUCCESS)
}
