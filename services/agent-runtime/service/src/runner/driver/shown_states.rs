//! The states that the model of a turn is shown.

use agent_store::store::StateOwner;
use contracts::tavern::common::v1 as common;
use run_events::outcome;

use turn_log::state::AskedStates;

use super::stop::TurnStop;
use crate::states::{Snapshot, States};

/// The owners of the states.
pub(super) struct Owners {
    pub(super) private: Option<StateOwner>,
    pub(super) world: Option<StateOwner>,
    pub(super) goals: Option<StateOwner>,
}

/// The states that the model is shown; each is missing if the agent has none.
#[derive(Default)]
pub(super) struct ShownStates {
    pub(super) private: Option<Snapshot>,
    /// None outside of scenes.
    pub(super) world: Option<Snapshot>,
    pub(super) goals: Option<Snapshot>,
}

impl ShownStates {
    /// Reads the states: as the model was asked before, where it has not answered. Returns the texts of those
    /// that changed; what tools and other programs wrote into them is not trusted.
    pub(super) async fn read(
        &mut self,
        states: &States,
        owners: Owners,
        asked: AskedStates,
    ) -> Result<Vec<String>, TurnStop> {
        let read = |owner: Option<StateOwner>, version| async move {
            match owner {
                Some(owner) => states.snapshot(owner, version).await,
                None => Ok(None),
            }
        };
        let read = futures::future::try_join3(
            read(owners.private, asked.private),
            read(owners.world, asked.world),
            read(owners.goals, asked.goals),
        );
        let (private, world, goals) = read.await.map_err(unreadable)?;
        let changed = [
            (&private, &self.private),
            (&world, &self.world),
            (&goals, &self.goals),
        ]
        .into_iter()
        .filter(|(state, before)| version(state) != version(before))
        .filter_map(|(state, _)| Some(state.as_ref()?.row.state.clone()))
        .collect();
        (self.private, self.world, self.goals) = (private, world, goals);
        Ok(changed)
    }
}

/// Returns the version of a state.
pub(super) fn version(state: &Option<Snapshot>) -> Option<u64> {
    state.as_ref().map(|state| state.row.version)
}

fn unreadable(failure: grpc_kit::Failure) -> TurnStop {
    let status = failure.into_status();
    TurnStop::Failed(Box::new(outcome::error(
        common::ErrorCategory::Internal,
        "state_unreadable",
        status.message(),
    )))
}
