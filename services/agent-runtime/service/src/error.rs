//! The reasons for which the service cannot be built, and failures of its store.

use agent_store::{profiles::Profiles, store::StoreError};
use contracts::tavern::common::v1::ErrorReason;
use core_types::{RunId, RunOwner, Tenant};
use grpc_kit::Failure;
use model_client::BuildModelError;
use tonic::Code;

pub(crate) use run_events::store_failure;

/// The reason for which the service cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A model cannot be set up.
    #[error("the models cannot be set up")]
    Model(#[from] BuildModelError),
    /// The data directory or the database cannot be used.
    #[error(transparent)]
    Home(#[from] data_home::HomeError),
    /// The stored profiles cannot be read.
    #[error("the stored profiles cannot be read")]
    Store(#[from] StoreError),
    /// The owners of the conversations of an earlier version cannot be found.
    #[error("the owners of the conversations of an earlier version cannot be found")]
    Owners(#[source] Box<tonic::Status>),
}

/// The most profiles that the id of an unknown one is compared with.
const MOST_COMPARED: usize = 1_000;

/// Reports that no profile of a tenant has this id, with similar ids.
pub(crate) async fn no_such_profile(tenant: Tenant, id: &str, profiles: &Profiles) -> Failure {
    let known = profiles.page(tenant, "", MOST_COMPARED).await;
    let (known, _) = known.unwrap_or_default();
    let ids = known.iter().map(|known| known.document.id.as_str());
    let near = json_schema::nearest_names(id, ids);
    let meant = near.first().map(|near| format!("; did you mean `{near}`?"));
    let shown: String = id.chars().take(80).collect();
    let message = format!(
        "no profile has the id `{shown}`{}",
        meant.unwrap_or_default()
    );
    Failure::new(Code::NotFound, ErrorReason::ProfileNotFound, message)
        .metadata("profile_id", shown)
}

/// Reports that no document of a kind has this id, or that the named revision is not kept.
pub(crate) fn no_such_document(kind: &str, id: &str, revision: u64) -> Failure {
    let reason = match kind {
        "scene" => ErrorReason::SceneNotFound,
        "project" => ErrorReason::ProjectNotFound,
        _ => ErrorReason::ProfileNotFound,
    };
    let shown: String = id.chars().take(80).collect();
    let message = match revision {
        0 => format!("no {kind} has the id `{shown}`"),
        revision => format!("no revision {revision} of the {kind} `{shown}` is kept"),
    };
    Failure::new(Code::NotFound, reason, message).metadata(format!("{kind}_id"), shown)
}

/// Returns the refusal of an id whose run is not a turn of an agent; none for a turn, and for a
/// text that is no id of a run.
pub(crate) fn other_than_turn(run_id: &str) -> Option<String> {
    let kind = match run_id.parse::<RunId>().ok()?.owner() {
        RunOwner::Agent => return None,
        RunOwner::Scene => "of a scene",
        RunOwner::Workflow => "of a workflow",
        RunOwner::Registry => "of calls",
    };
    Some(format!(
        "is the run {kind}; give the run of a turn, whose id begins with `turn_`"
    ))
}

/// Refuses a run that is not a turn of an agent.
///
/// # Errors
/// RUN_NOT_FOUND.
pub(crate) fn expect_turn(run_id: &str) -> Result<(), Failure> {
    let Some(problem) = other_than_turn(run_id) else {
        return Ok(());
    };
    let message = format!("`{run_id}` {problem}");
    let failure = Failure::new(Code::NotFound, ErrorReason::RunNotFound, message);
    Err(failure.metadata("run_id", run_id))
}

/// Reports that no model has this name, or that none is named.
pub(crate) fn no_such_model(name: Option<&str>) -> Failure {
    let failure =
        |message: String| Failure::new(Code::NotFound, ErrorReason::ModelNotFound, message);
    match name {
        Some(name) => {
            let shown: String = name.chars().take(80).collect();
            let message = format!("no model is called `{shown}` in the settings");
            failure(message).metadata("model", shown)
        }
        None => failure(
            "the agent names no model and there is no default; set custom_metadata.tavern.model or default_model"
                .to_owned(),
        ),
    }
}

/// Reports that a run was created and cannot be read back.
pub(crate) fn run_lost(run_id: &str) -> Failure {
    let message = format!("the run {run_id} was created and cannot be read back; ask for it again");
    Failure::new(Code::Unavailable, ErrorReason::StorageUnavailable, message)
        .metadata("run_id", run_id)
}
