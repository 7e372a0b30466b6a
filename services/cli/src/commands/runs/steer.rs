//! `tavern runs steer`.

use std::process::ExitCode;

use contracts::tavern::agent::v1::{SteerTurnRequest, agent_service_client::AgentServiceClient};

use super::super::{Remote, json, print, refusal};

/// Sends a message to a turn, and prints the point at which it took effect.
pub(super) async fn run(
    remote: &Remote,
    run_id: String,
    message: String,
    interrupt: bool,
) -> anyhow::Result<ExitCode> {
    let mut agents = AgentServiceClient::new(remote.connect()?);
    let request = SteerTurnRequest {
        run_id,
        message,
        interrupt,
        ..SteerTurnRequest::default()
    };
    let steered = agents.steer_turn(request).await;
    let steered = steered.map_err(|status| refusal(&status))?.into_inner();
    if remote.json {
        json::print_line(&steered)?;
    } else {
        print(&match steered.effect_sequence {
            0 => format!(
                "accepted at event {}; the model reads it before it is asked again\n",
                steered.accepted_sequence
            ),
            sequence => format!("in force from event {sequence} on\n"),
        });
    }
    Ok(ExitCode::SUCCESS)
}
