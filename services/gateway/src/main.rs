//! The gateway as a program of its own.

use std::process::ExitCode;

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    grpc_kit::program::run::<gateway::Standalone>().await
}
