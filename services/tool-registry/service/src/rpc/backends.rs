//! Adding, deleting and finding backends.

use contracts::tavern::registry::v1::{
    DeleteBackendRequest, DeleteBackendResponse, GetBackendResponse, ListBackendsRequest,
    ListBackendsResponse, PutBackendRequest, PutBackendResponse,
};
use core_types::Principal;
use grpc_kit::{CallContext, Failure};
use run_events::{request_hash, store_failure};
use tonic::Status;

use super::{
    convert::backend_to_proto,
    page::page_after,
    refusal::{self, Resource, check_request_id},
};
use crate::{
    dispatch::backend::Found,
    tools::{Change, Tools},
};

/// Adds or replaces a backend.
pub(super) async fn put(
    tools: &Tools,
    context: &CallContext,
    request: PutBackendRequest,
) -> Result<PutBackendResponse, Status> {
    let change = Change {
        body: Some(request_hash(context, &request)),
        request_id: request.request_id,
        etag: request.etag,
        validate_only: request.validate_only,
    };
    check_request_id(&change.request_id)?;
    let mut failure = Failure::invalid_fields();
    let name = request.name.as_str();
    if name.chars().any(char::is_control) {
        failure.add_violation("name", "must have visible characters only");
    } else if name == "builtin" {
        failure.add_violation("name", "is the platform's own; take another name");
    }
    let principal = request.principal.as_str();
    if !principal.is_empty()
        && let Err(problem) = Principal::new(principal)
    {
        failure.add_violation("principal", problem.to_string());
    }
    failure.refuse_if_any()?;
    let server = (name, &*request.endpoint, principal);
    let put = tools.put_backend(context.tenant(), server, &change);
    let put = put.await;
    let put = put.map_err(|error| refusal::of_change(error, &Resource::Backend(name), &change))?;
    let own = |backend| Found {
        backend,
        is_shared: false,
    };
    Ok(PutBackendResponse {
        backend: put.backend.map(own).as_ref().map(backend_to_proto),
        replayed: put.replayed,
    })
}

/// Deletes a backend.
pub(super) async fn delete(
    tools: &Tools,
    context: &CallContext,
    request: DeleteBackendRequest,
) -> Result<DeleteBackendResponse, Status> {
    let change = Change {
        body: Some(request_hash(context, &request)),
        request_id: request.request_id,
        etag: request.etag,
        validate_only: false,
    };
    check_request_id(&change.request_id)?;
    let deleted = tools
        .delete_backend(context.tenant(), &request.name, &change)
        .await;
    let replayed = deleted.map_err(|error| {
        let resource = Resource::Backend(&request.name);
        refusal::of_change(error, &resource, &change)
    })?;
    Ok(DeleteBackendResponse { replayed })
}

/// Returns one backend.
pub(super) async fn get(
    tools: &Tools,
    context: &CallContext,
    name: &str,
) -> Result<GetBackendResponse, Status> {
    let backend = tools.backend(context.tenant(), name).await;
    let backend = backend.map_err(|error| store_failure(&error))?;
    let backend = backend.ok_or_else(|| refusal::backend_not_found(name).into_status())?;
    Ok(GetBackendResponse {
        backend: Some(backend_to_proto(&backend)),
    })
}

/// Lists backends.
pub(super) async fn list(
    tools: &Tools,
    context: &CallContext,
    request: &ListBackendsRequest,
) -> Result<ListBackendsResponse, Status> {
    let all = tools.backends(context.tenant()).await;
    let all = all.map_err(|error| store_failure(&error))?;
    let (page, next_page_token) = page_after(
        &grpc_kit::list_of(context, "ListBackends"),
        &request.page_token,
        request.page_size,
        &all,
        |found| &found.backend.name,
    )?;
    Ok(ListBackendsResponse {
        backends: page.iter().map(backend_to_proto).collect(),
        next_page_token,
    })
}
