//! The workflow execution as a program of its own.

use std::process::ExitCode;

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    grpc_kit::program::run::<workflow_execution::WorkflowExecution>().await
}
