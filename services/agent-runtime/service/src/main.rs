//! The agent runtime as a program of its own.

use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    grpc_kit::program::run::<agent_runtime::AgentRuntime>().await
}
