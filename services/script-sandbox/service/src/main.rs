//! The script sandbox as a program of its own.

use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    grpc_kit::program::run::<script_sandbox::SandboxProgram>().await
}
