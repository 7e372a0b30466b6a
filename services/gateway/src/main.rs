//! The gateway as a program of its own.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use gateway::{GatewaySettings, Peers};
use grpc_kit::Need;

/// Turns what language models write into work that really happens.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// A TOML file with settings; environment variables win over it.
    #[arg(long, env = "TAVERN_GATEWAY_CONFIG")]
    config: Option<PathBuf>,
}

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let arguments = Arguments::parse();
    let settings = match settings::load::<GatewaySettings>(arguments.config.as_deref()) {
        Ok(loaded) => loaded.settings,
        Err(error) => return Ok(settings::report_and_exit_code(&error)),
    };
    let telemetry = telemetry::init(&settings.telemetry, "gateway", env!("CARGO_PKG_VERSION"))?;
    let shutdown = grpc_kit::Shutdown::on_signals()?;
    let gateway = gateway::build(settings.clone(), Peers::remote(&settings)?);
    let listener = grpc_kit::bind(&settings.server).await?;
    let needs = [
        Need::service("tool-registry", grpc_kit::remote(&settings.registry)?),
        Need::service("workflow-execution", grpc_kit::remote(&settings.workflow)?),
        Need::service("agent-runtime", grpc_kit::remote(&settings.agent)?),
    ];
    grpc_kit::Server::new(settings.server, gateway.services())
        .needs(needs)
        .serve(listener, shutdown)
        .await?;
    telemetry.shutdown().await;
    Ok(ExitCode::SUCCESS)
}
