//! Starts the supervisor; see the crate's documentation.

use std::process::ExitCode;

fn main() -> ExitCode {
    sandbox_launcher::supervisor::run()
}
