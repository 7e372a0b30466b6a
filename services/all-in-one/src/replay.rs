//! `tavern runs replay`: repeats a turn from the file that `tavern runs export` printed.

use std::path::Path;
use std::process::ExitCode;

use agent_runtime::runner::{Fixture, replay};
use anyhow::Context;
use grpc_kit::program::print;

/// Replays a turn from a file, and reports the first event that differs.
pub(crate) fn replay_file(path: &Path) -> anyhow::Result<ExitCode> {
    let shown = path.display();
    let text = cli::documents::read(path)?;
    let fixture = Fixture::read(&text).with_context(|| format!("{shown} is not a fixture"))?;
    let compared = replay(&fixture).with_context(|| format!("the replay of {shown} diverges"))?;
    print(&format!(
        "{} replays: {compared} events compared\n",
        fixture.header.run_id
    ));
    Ok(ExitCode::SUCCESS)
}
