//! The refusals of requests to the catalogue, as statuses.

use call_outcome::Violation;
use contracts::tavern::{access::v1::Permission, common::v1::ErrorReason};
use core_types::Principal;
use documents::change::{request_id_reused, shared_document};
use grpc_kit::Failure;
use run_events::store_failure;
use tonic::{Code, Status};

use crate::{
    dispatch::backend::BackendError,
    tools::{Change, ChangeError, Missing},
};

/// The resource that a request was to change.
pub(super) enum Resource<'a> {
    /// The tool of a definition.
    Definition,
    /// The tool with this id.
    Tool(&'a str),
    /// The backend of this name.
    Backend(&'a str),
}

impl Resource<'_> {
    /// Returns the field of the request that names or holds the resource.
    fn field(&self) -> &'static str {
        match self {
            Self::Definition => "definition_json",
            Self::Tool(_) => "tool_id",
            Self::Backend(_) => "endpoint",
        }
    }

    fn not_found(&self) -> Failure {
        match self {
            Self::Backend(name) => backend_not_found(name),
            Self::Tool(id) => no_such_tool(format!("no tool has the id `{}`", shown(id)), id),
            Self::Definition => no_such_tool("no tool has this id".to_owned(), ""),
        }
    }
}

pub(super) fn check_request_id(request_id: &str) -> Result<(), Status> {
    if request_id.is_empty() {
        return Ok(());
    }
    core_types::RequestId::new(request_id)
        .map(drop)
        .map_err(|error| {
            Failure::invalid_fields()
                .violation("request_id", error.to_string())
                .into_status()
        })
}

pub(super) fn tool_not_found(missing: Missing, written: &str) -> Status {
    match missing {
        Missing::Unknown { ref suggestions } => {
            let suggested = suggestions.join(",");
            let message = missing.clone().into_failure(written).message.clone();
            no_such_tool(message, written)
                .metadata("suggestions", suggested)
                .into_status()
        }
        Missing::Invalid(violations) => invalid(&violations, ""),
        Missing::NotActive(_) => {
            let message = missing.into_failure(written).message.clone();
            no_such_tool(message, written).into_status()
        }
        Missing::Unavailable(status) => unavailable(&status),
    }
}

pub(super) fn backend_not_found(name: &str) -> Failure {
    let message = format!("no backend has the name `{}`", shown(name));
    Failure::new(Code::NotFound, ErrorReason::BackendNotFound, message)
        .metadata("name", shown(name))
}

pub(super) fn plugin_not_found(directory: &str) -> Status {
    let message = format!("no plugin has the directory `{}`", shown(directory));
    Failure::new(Code::NotFound, ErrorReason::PluginNotFound, message)
        .metadata("directory", shown(directory))
        .into_status()
}

pub(super) fn no_plugin_named(name: &str) -> Status {
    let message = format!("no plugin has the name `{}`", shown(name));
    Failure::new(Code::NotFound, ErrorReason::PluginNotFound, message)
        .metadata("plugin", shown(name))
        .into_status()
}

pub(super) fn unavailable(status: &Status) -> Status {
    tracing::warn!(status = %status, "the service that knows a tool cannot be asked");
    Failure::dependency_unavailable("workflow-execution").into_status()
}

/// Returns the failure of a request that its principal may not make.
pub(super) fn not_permitted(
    principal: &Principal,
    permission: Permission,
    message: String,
) -> Failure {
    let (code, reason) = (Code::PermissionDenied, ErrorReason::PermissionDenied);
    Failure::new(code, reason, message)
        .metadata("principal", principal.as_str())
        .metadata("permission", permission.name())
}

/// Returns the status of a change that was refused.
pub(super) fn of_change(error: ChangeError, resource: &Resource<'_>, change: &Change) -> Status {
    match error {
        ChangeError::Invalid(violations) => invalid(&violations, resource.field()),
        ChangeError::NotFound => resource.not_found().into_status(),
        ChangeError::IsShared => shared_document(resource.field()).into_status(),
        ChangeError::NotOwned(origin) => {
            let message = format!(
                "the tool is of origin {origin}; only tools added by PutTool can be replaced or deleted"
            );
            let code = match resource {
                Resource::Definition => Code::AlreadyExists,
                _ => Code::FailedPrecondition,
            };
            let failure = Failure::new(code, ErrorReason::ToolNotOwned, message)
                .metadata("origin", origin.to_string());
            match resource {
                Resource::Tool(id) => failure.metadata("tool_id", shown(id)),
                _ => failure.violation("definition_json/id", "the id is taken"),
            }
            .into_status()
        }
        ChangeError::EtagMismatch { stored } => Failure::etag_mismatch(stored).into_status(),
        ChangeError::Unavailable(status) => unavailable(&status),
        ChangeError::Backend(error) => of_backend(&error, resource),
        ChangeError::RequestIdReused => request_id_reused(&change.request_id).into_status(),
        ChangeError::Store(error) => store_failure(&error).into_status(),
    }
}

fn of_backend(error: &BackendError, resource: &Resource<'_>) -> Status {
    match error {
        BackendError::Address { .. }
        | BackendError::NotAllowed { .. }
        | BackendError::NotListed { .. } => Failure::invalid_fields()
            .violation(resource.field(), error.to_string())
            .into_status(),
        BackendError::Tls { .. }
        | BackendError::Unreadable { .. }
        | BackendError::Descriptors { .. } => Failure::new(
            Code::Unavailable,
            ErrorReason::DependencyUnavailable,
            error.to_string(),
        )
        .metadata("service", "backend")
        .into_status(),
    }
}

fn no_such_tool(message: String, id: &str) -> Failure {
    Failure::new(Code::NotFound, ErrorReason::ToolNotFound, message).metadata("tool_id", shown(id))
}

fn invalid(violations: &[Violation], field: &str) -> Status {
    let message = "the definition of the tool is wrong";
    let mut failure = Failure::new(Code::InvalidArgument, ErrorReason::ToolInvalid, message);
    for violation in violations {
        failure.add_violation(
            format!("{field}{}", violation.pointer),
            violation.message.clone(),
        );
    }
    failure.into_status()
}

/// Cuts a caller's text for a message.
fn shown(written: &str) -> String {
    written.chars().take(120).collect()
}
