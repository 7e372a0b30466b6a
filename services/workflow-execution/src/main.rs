//! The workflow execution as a program of its own.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use contracts::tavern::registry::v1::call_service_client::CallServiceClient;
use contracts::tavern::sandbox::v1::script_sandbox_service_client::ScriptSandboxServiceClient;
use grpc_kit::Need;
use workflow_execution::{Peers, WorkflowSettings};

/// Holds workflow definitions and executes them.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// A TOML file with settings; environment variables win over it.
    #[arg(long, env = "TAVERN_WORKFLOW_CONFIG")]
    config: Option<PathBuf>,
    /// Prints the settings in force, with where each was set, and ends.
    #[arg(long)]
    print_settings: bool,
}

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let arguments = Arguments::parse();
    let loaded = match settings::load::<WorkflowSettings>(arguments.config.as_deref()) {
        Ok(loaded) => loaded,
        Err(error) => return Ok(settings::report_and_exit_code(&error)),
    };
    if arguments.print_settings {
        print_settings(&loaded.effective());
        return Ok(ExitCode::SUCCESS);
    }
    let settings = loaded.settings;
    let telemetry = telemetry::init(
        &settings.telemetry,
        "workflow-execution",
        env!("CARGO_PKG_VERSION"),
    )?;
    let shutdown = grpc_kit::Shutdown::on_signals()?;
    let peers = Peers {
        calls: CallServiceClient::new(grpc_kit::remote(&settings.registry)?),
        sandbox: ScriptSandboxServiceClient::new(grpc_kit::remote(&settings.sandbox)?),
    };
    let workflow = workflow_execution::build(settings.clone(), peers).await?;
    let listener = grpc_kit::bind(&settings.server).await?;
    // Open runs continue while the server answers: what they need may come up later than this.
    workflow.recover().await?;
    let needs = [
        Need::service("tool-registry", grpc_kit::remote(&settings.registry)?),
        Need::service("script-sandbox", grpc_kit::remote(&settings.sandbox)?),
    ];
    grpc_kit::Server::new(settings.server, workflow.services())
        .needs(needs)
        .serve(listener, shutdown)
        .await?;
    workflow.shutdown().await;
    telemetry.shutdown().await;
    Ok(ExitCode::SUCCESS)
}

#[expect(clippy::print_stdout, reason = "printing is what was asked for")]
fn print_settings(effective: &str) {
    println!("{effective}");
}
