//! Registration, lookup and validation of tools.

use contracts::tavern::{
    common::v1::ErrorReason,
    registry::v1::{
        GetToolRequest, GetToolResponse, ListToolsRequest, ListToolsResponse,
        RegisterBackendRequest, RegisterBackendResponse, RegisterToolRequest, RegisterToolResponse,
        ValidateCallRequest, ValidateCallResponse,
    },
};
use core_types::{
    PageToken,
    page::{MAX_PAGE_SIZE, page_size},
};
use grpc_kit::Failure;
use run_events::request_hash;
use serde_json::Value;
use tonic::{Code, Status};

use super::convert;
use crate::{
    dispatch::backend::BackendError,
    domain::{naming, violation::Violation},
    store::StoreError,
    tools::{Missing, RegisterError, Request, Tools},
};

/// The longest name of a gRPC server, in bytes.
const MAX_BACKEND_NAME: usize = 128;
/// The longest address, in bytes.
const MAX_ENDPOINT: usize = 2_048;
/// The name under which page tokens of `ListTools` are known.
const LIST: &str = "ListTools";

/// Adds or replaces a tool.
pub(super) async fn register(
    tools: &Tools,
    request: RegisterToolRequest,
) -> Result<RegisterToolResponse, Status> {
    let about = Request {
        body: Some(request_hash(&request)),
        request_id: request.request_id,
        etag: request.etag,
        validate_only: request.validate_only,
    };
    check_request_id(&about.request_id)?;
    let registered = tools.register(&request.definition_json, &about).await;
    let registered =
        registered.map_err(|error| refused(error, "definition_json", &about.request_id))?;
    Ok(RegisterToolResponse {
        tool: Some(convert::tool_to_proto(&registered.tool)),
        warnings: registered.warnings,
    })
}

/// Names a gRPC server.
pub(super) async fn register_backend(
    tools: &Tools,
    request: RegisterBackendRequest,
) -> Result<RegisterBackendResponse, Status> {
    let about = Request {
        body: Some(request_hash(&request)),
        request_id: request.request_id,
        ..Request::default()
    };
    check_request_id(&about.request_id)?;
    let mut failure = Failure::invalid_fields();
    let name = request.name.as_str();
    if name.is_empty() || name.len() > MAX_BACKEND_NAME || name.chars().any(char::is_control) {
        failure.add_violation(
            "name",
            format!("must have 1 to {MAX_BACKEND_NAME} visible characters"),
        );
    } else if name == "builtin" {
        failure.add_violation("name", "is the platform's own; take another name");
    }
    if request.endpoint.len() > MAX_ENDPOINT {
        failure.add_violation("endpoint", format!("has more than {MAX_ENDPOINT} bytes"));
    }
    failure.refuse_if_any()?;
    let methods = tools
        .register_backend(name, &request.endpoint, &about)
        .await;
    let methods = methods.map_err(|error| refused(error, "endpoint", &about.request_id))?;
    Ok(RegisterBackendResponse { methods })
}

/// Gives one tool.
pub(super) async fn get(tools: &Tools, request: GetToolRequest) -> Result<GetToolResponse, Status> {
    let tool = tools.find(&request.tool_id).await;
    let tool = tool.map_err(|missing| not_found(missing, &request.tool_id))?;
    Ok(GetToolResponse {
        tool: Some(convert::tool_to_proto(&tool)),
    })
}

/// Lists tools.
pub(super) async fn list(
    tools: &Tools,
    request: ListToolsRequest,
) -> Result<ListToolsResponse, Status> {
    if !request.tool_ids.is_empty() {
        return list_named(tools, &request.tool_ids).await;
    }
    let token = PageToken::decode(LIST, &request.page_token).map_err(|error| {
        Failure::invalid_fields()
            .violation("page_token", error.to_string())
            .into_status()
    })?;
    let all = tools.list().await?;
    let after = token.as_ref().map(PageToken::last_key);
    let rest = all
        .iter()
        .filter(|tool| after.is_none_or(|after| tool.id() > after));
    let size = page_size(request.page_size);
    let page: Vec<_> = rest.clone().take(size).collect();
    let next_page_token = match page.last() {
        Some(last) if rest.count() > size => PageToken::after(last.id()).encode(LIST),
        _ => String::new(),
    };
    Ok(ListToolsResponse {
        tools: page
            .into_iter()
            .map(|tool| convert::tool_to_proto(tool))
            .collect(),
        next_page_token,
        missing_tool_ids: Vec::new(),
    })
}

async fn list_named(tools: &Tools, ids: &[String]) -> Result<ListToolsResponse, Status> {
    if ids.len() > MAX_PAGE_SIZE {
        let problem = format!("has {} ids; at most {MAX_PAGE_SIZE}", ids.len());
        return Err(Failure::invalid_fields()
            .violation("tool_ids", problem)
            .into_status());
    }
    let mut answer = ListToolsResponse::default();
    for id in ids {
        let mut found = tools.find(id).await;
        if let (Err(Missing::Unknown { .. }), Some(derived)) = (&found, naming::derived_id(id)) {
            // A profile may name a node by its type and a skill by its name or path.
            found = match tools.find(&derived).await {
                Err(Missing::Unknown { .. }) => found,
                other => other,
            };
        }
        match found {
            Ok(tool) => answer.tools.push(convert::tool_to_proto(&tool)),
            Err(Missing::Unavailable(status)) => return Err(unavailable(&status)),
            Err(missing) => {
                let reason = missing.into_failure(id).message.clone();
                tracing::info!(tool = id, reason, "a tool that was asked for is not there");
                answer.missing_tool_ids.push(id.clone());
            }
        }
    }
    Ok(answer)
}

/// Checks a call.
pub(super) async fn validate(
    tools: &Tools,
    request: ValidateCallRequest,
) -> Result<ValidateCallResponse, Status> {
    let mut failure = Failure::invalid_fields();
    let arguments = arguments(&request.arguments_json, &mut failure);
    failure.refuse_if_any()?;
    let tool = tools.find(&request.tool_id).await;
    let tool = tool.map_err(|missing| not_found(missing, &request.tool_id))?;
    Ok(match tool.check(&arguments) {
        Ok(checked) => ValidateCallResponse {
            violations: Vec::new(),
            arguments_json: checked.arguments.to_string(),
            defaulted: checked.defaulted,
        },
        Err(violations) => ValidateCallResponse {
            violations: violations.iter().map(convert::violation_to_proto).collect(),
            ..ValidateCallResponse::default()
        },
    })
}

/// Reads arguments, which must be a JSON object. Empty text is an empty object.
pub(super) fn arguments(text: &str, failure: &mut Failure) -> Value {
    let empty = || Value::Object(serde_json::Map::new());
    if text.is_empty() {
        return empty();
    }
    match json_schema::parse_json_strict(text) {
        Ok(object @ Value::Object(_)) => return object,
        Ok(_) => failure.add_violation("arguments_json", "is no JSON object"),
        Err(error) => failure.add_violation("arguments_json", error.to_string()),
    }
    empty()
}

fn check_request_id(request_id: &str) -> Result<(), Status> {
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

fn not_found(missing: Missing, written: &str) -> Status {
    match missing {
        Missing::Unknown { ref suggestions } => {
            let suggested = suggestions.join(",");
            let shown: String = written.chars().take(120).collect();
            let message = missing.clone().into_failure(written).message.clone();
            Failure::new(Code::NotFound, ErrorReason::ToolNotFound, message)
                .metadata("tool_id", shown)
                .metadata("suggestions", suggested)
                .into_status()
        }
        Missing::Invalid(violations) => invalid(&violations, ""),
        Missing::Unavailable(status) => unavailable(&status),
    }
}

fn unavailable(status: &Status) -> Status {
    tracing::warn!(status = %status, "the workflow service cannot be asked");
    Failure::dependency_unavailable("workflow-execution").into_status()
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

fn refused(error: RegisterError, field: &str, request_id: &str) -> Status {
    match error {
        RegisterError::Invalid(violations) => invalid(&violations, field),
        RegisterError::Taken(origin) => {
            let message = format!(
                "the id belongs to a tool of {origin}, which cannot be replaced; take another id"
            );
            Failure::new(Code::AlreadyExists, ErrorReason::ToolInvalid, message)
                .violation(field, "the id is taken")
                .into_status()
        }
        RegisterError::EtagMismatch { present } => {
            let message = format!(
                "the etag is not the present one, which is '{present}'; read the tool again"
            );
            Failure::new(Code::AlreadyExists, ErrorReason::ToolInvalid, message)
                .violation("etag", "is not the present one")
                .into_status()
        }
        RegisterError::Backend(
            error @ (BackendError::Address { .. } | BackendError::NotAllowed { .. }),
        ) => Failure::invalid_fields()
            .violation(field, error.to_string())
            .into_status(),
        RegisterError::Unavailable(status) => unavailable(&status),
        RegisterError::Backend(error) => Failure::new(
            Code::Unavailable,
            ErrorReason::DependencyUnavailable,
            error.to_string(),
        )
        .metadata("service", "backend")
        .into_status(),
        RegisterError::Store(StoreError::RequestIdReused) => {
            let message = "the request id was used before with another body; use a new one";
            Failure::new(Code::AlreadyExists, ErrorReason::RequestIdReused, message)
                .metadata("request_id", request_id)
                .into_status()
        }
        RegisterError::Store(StoreError::Full(_)) => {
            let message = "the disk is full; nothing was stored";
            Failure::new(
                Code::ResourceExhausted,
                ErrorReason::StorageUnavailable,
                message,
            )
            .into_status()
        }
        RegisterError::Store(error @ StoreError::Failed(_)) => grpc_kit::internal(&error),
    }
}
