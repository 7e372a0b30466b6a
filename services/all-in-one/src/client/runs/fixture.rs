//! `tavern runs export` and `tavern runs replay`: a turn as a file, and replayed from it.

use std::path::Path;
use std::process::ExitCode;

use agent_runtime::runner::{Fixture, replay};
use anyhow::Context;
use contracts::tavern::agent::v1::ExportTurnRequest;
use contracts::tavern::agent::v1::agent_service_client::AgentServiceClient;

use super::super::{Remote, documents, print, refusal};

/// Prints the lines of a fixture.
pub(super) async fn export(remote: &Remote, run_id: String) -> anyhow::Result<ExitCode> {
    let mut client = AgentServiceClient::new(remote.connect()?);
    let exported = client.export_turn(ExportTurnRequest { run_id }).await;
    let mut pieces = exported.map_err(|status| refusal(&status))?.into_inner();
    while let Some(piece) = pieces.message().await.map_err(|status| refusal(&status))? {
        print(&piece.text);
        if piece.ends_line {
            print("\n");
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Replays a turn from a file, and reports the first event that differs.
pub(super) fn replay_file(path: &Path) -> anyhow::Result<ExitCode> {
    let shown = path.display();
    let text = documents::read(path)?;
    let fixture = Fixture::read(&text).with_context(|| format!("{shown} is not a fixture"))?;
    let compared = replay(&fixture).with_context(|| format!("the replay of {shown} diverges"))?;
    print(&format!(
        "{} replays: {compared} events compared\n",
        fixture.header.run_id
    ));
    Ok(ExitCode::SUCCESS)
}
