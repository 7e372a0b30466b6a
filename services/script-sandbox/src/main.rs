//! The script sandbox as a program of its own.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use script_sandbox::{SandboxSettings, rpc};

/// Runs untrusted code at a stated isolation level.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// A TOML file with settings; environment variables win over it.
    #[arg(long, env = "TAVERN_SANDBOX_CONFIG")]
    config: Option<PathBuf>,
}

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let arguments = Arguments::parse();
    let settings = match settings::load::<SandboxSettings>(arguments.config.as_deref()) {
        Ok(loaded) => loaded.settings,
        Err(error) => return Ok(settings::report_and_exit_code(&error)),
    };
    let telemetry = telemetry::init(
        &settings.telemetry,
        "script-sandbox",
        env!("CARGO_PKG_VERSION"),
    )?;
    let shutdown = grpc_kit::Shutdown::on_signals()?;
    let listener = grpc_kit::bind(&settings.server).await?;
    let sandbox = script_sandbox::build(settings.clone()).await?;
    let grace = settings.server.drain_grace;
    tokio::spawn(sandbox.clone().end_scripts_in_time(shutdown.clone(), grace));
    grpc_kit::Server::new(settings.server, rpc::services(sandbox.clone()))
        .needs([rpc::scripts(&sandbox)])
        .serve(listener, shutdown)
        .await?;
    sandbox.shutdown().await;
    telemetry.shutdown().await;
    Ok(ExitCode::SUCCESS)
}
