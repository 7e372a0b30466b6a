//! The workflow execution as a program of its own.

use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    grpc_kit::program::run::<workflow_execution::WorkflowExecution>().await
}
