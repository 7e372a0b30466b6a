//! The reasons for which the service cannot start, and its failures on the wire.

use call_outcome::Violation;
use std::path::{Path, PathBuf};

use contracts::tavern::common::v1::ErrorReason;
use grpc_kit::Failure;
use tonic::{Code, Status};
use workflow_domain::plugin_node::lack_plugins_only;

use crate::store::StoreError;

pub(crate) use run_events::store_failure;

/// The most violations in the details of a failure, which are headers and so bounded.
const MAX_LISTED: usize = 24;

/// The reason for which the service cannot start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The data directory or the database cannot be used.
    #[error(transparent)]
    Home(#[from] data_home::HomeError),
    /// The directory of workflows cannot be listed.
    #[error("the workflows directory {path} cannot be listed; make it or change 'workflows_dir'")]
    Workflows {
        /// The directory.
        path: PathBuf,
        /// The error of the system.
        #[source]
        source: std::io::Error,
    },
    /// The runs of the previous process cannot be taken over.
    #[error("open runs cannot be taken over: {}", .0.message())]
    Recover(Box<Status>),
    /// The definitions cannot be read.
    #[error("the definitions cannot be read")]
    Store(#[from] StoreError),
}

/// Reports that no workflow has this id; suggestions are taken from `known`.
pub(crate) fn workflow_not_found(id: &str, known: &[String]) -> Failure {
    let shown: String = id.chars().take(80).collect();
    let near = json_schema::nearest_names(id, known.iter().map(String::as_str));
    let meant = near.first().map(|near| format!("; did you mean `{near}`?"));
    let message = format!(
        "no workflow has the id `{shown}`{}",
        meant.unwrap_or_default()
    );
    Failure::new(Code::NotFound, ErrorReason::WorkflowNotFound, message)
        .metadata("workflow_id", shown)
}

/// Reports that no schedule has this id.
pub(crate) fn schedule_not_found(id: &str) -> Failure {
    let shown: String = id.chars().take(80).collect();
    Failure::new(
        Code::NotFound,
        ErrorReason::ScheduleNotFound,
        format!("no schedule has the id `{shown}`"),
    )
    .metadata("schedule_id", shown)
}

/// Reports the problems of a definition, with places below `field`.
pub(crate) fn workflow_invalid(field: &str, violations: &[Violation]) -> Failure {
    let failure = match lack_plugins_only(violations) {
        true => Failure::new(
            Code::FailedPrecondition,
            ErrorReason::PluginMissing,
            "the workflow cannot run without its plugins",
        ),
        false => Failure::new(
            Code::InvalidArgument,
            ErrorReason::WorkflowInvalid,
            "the workflow is not valid",
        ),
    };
    list(failure, field, violations)
}

/// Reports the problems of other fields, with places below `field`.
pub(crate) fn invalid_fields(field: &str, violations: &[Violation]) -> Failure {
    list(Failure::invalid_fields(), field, violations)
}

fn list(mut failure: Failure, field: &str, violations: &[Violation]) -> Failure {
    for violation in violations.iter().take(MAX_LISTED) {
        failure.add_violation(
            format!("{field}{}", violation.pointer),
            violation.message.clone(),
        );
    }
    match violations.len().checked_sub(MAX_LISTED) {
        Some(more) if more > 0 => {
            failure.violation(field, format!("{more} more violations are not listed here"))
        }
        _ => failure,
    }
}

/// Reports that the workflows directory cannot be listed.
pub(crate) fn directory_failure(path: &Path, error: &std::io::Error) -> Failure {
    tracing::error!(path = %path.display(), %error, "the workflows directory cannot be listed");
    Failure::new(
        Code::Unavailable,
        ErrorReason::StorageUnavailable,
        "the workflows directory cannot be listed; the definitions are as before",
    )
}
