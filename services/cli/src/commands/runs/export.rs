//! `tavern runs export`: a turn as a file.

use std::process::ExitCode;

use contracts::tavern::agent::v1::ExportTurnRequest;
use contracts::tavern::agent::v1::agent_service_client::AgentServiceClient;

use super::super::{Remote, print, refusal};

/// Prints the lines of a fixture.
pub(super) async fn run(remote: &Remote, run_id: String) -> anyhow::Result<ExitCode> {
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
