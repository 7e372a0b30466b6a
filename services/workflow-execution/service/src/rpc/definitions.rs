//! Definitions on the wire.

use std::sync::Arc;

use contracts::tavern::common::v1::LoadDiagnostic;
use contracts::tavern::workflow::v1::{
    BatchGetWorkflowsResponse, DeleteWorkflowRequest, ListWorkflowsRequest, ListWorkflowsResponse,
    PutWorkflowRequest, ReloadWorkflowsResponse, Workflow,
};
use core_types::{Reference, RequestId, Tenant, WorkflowId, page::distinct};
use documents::{ChangeError, FileChanges, Put, Request};
use grpc_kit::{CallContext, Failure};
use run_events::request_hash;
use serde_json::Value;
use tonic::Status;

use crate::error::{workflow_invalid, workflow_not_found};
use crate::library::{InvalidFile, KnownDefinition};
use crate::rpc::references::{self, Missing};
use crate::runner::Inner;
use crate::store::etag_of;
use workflow_domain::diagnose::diagnose;
use workflow_domain::load::load_with_source;
use workflow_domain::plugin_node::lack_plugins_only;
use workflow_domain::workflow;

/// The most bytes of definitions in an answer to a batch.
const MAX_BATCH_BYTES: usize = 3 * 1024 * 1024;

/// Stores a definition.
pub(super) async fn put(
    inner: &Inner,
    context: &CallContext,
    request: PutWorkflowRequest,
) -> Result<Workflow, Status> {
    check_put(&request)?;
    let body = request_hash(context, &request);
    let tenant = context.tenant();
    let text: Arc<str> = request.definition_json.into();
    let bundle = inner.library.bundle(tenant, &text).await?;
    let compiled = inner.library.compile(tenant, &bundle).await;
    // A workflow whose plugins are not in force is stored, and its runs are refused until they are.
    match compiled {
        Err(violations) if !lack_plugins_only(&violations) => {
            return Err(workflow_invalid("definition_json", &violations).into());
        }
        _ => {}
    }
    let Missing {
        violations,
        findings,
    } = Missing::of(inner, context, &text).await?;
    if !violations.is_empty() {
        return Err(workflow_invalid("definition_json", &violations).into());
    }
    let (id, request_id) = (request.workflow_id.as_str(), request.request_id.as_str());
    let (etag, request_id) = match request.validate_only {
        // A check is about the definition alone.
        true => ("", ""),
        false => (request.etag.as_str(), request_id),
    };
    let put = Put {
        id,
        text: &text,
        etag,
        validate_only: request.validate_only,
        request: Request::of("PutWorkflow", request_id, body),
    };
    let put = inner.library.put(tenant, put).await;
    let (known, _) = put.map_err(|error| change_failure(id, request_id, error))?;
    Ok(resource(inner, &known, &findings))
}

/// Deletes a stored definition.
pub(super) async fn delete(
    inner: &Inner,
    tenant: Tenant,
    request: DeleteWorkflowRequest,
) -> Result<(), Failure> {
    let id = request.workflow_id.as_str();
    match inner.library.delete(tenant, id, &request.etag).await {
        Ok(()) => Ok(()),
        Err(ChangeError::NotFound) => Err(inner.library.not_found(tenant, id).await),
        Err(error) => Err(change_failure(id, "", error)),
    }
}

fn change_failure(id: &str, request_id: &str, error: ChangeError<InvalidFile>) -> Failure {
    let invalid = |InvalidFile(violations)| workflow_invalid("definition_json", &violations);
    error.into_failure("workflow_id", request_id, invalid, || {
        workflow_not_found(id, &[])
    })
}

/// Reads the workflows directory again, whose files belong to the default tenant.
pub(super) async fn reload(inner: &Inner) -> Result<ReloadWorkflowsResponse, Failure> {
    let FileChanges {
        added,
        changed,
        removed,
    } = inner.library.reload().await?;
    Ok(ReloadWorkflowsResponse {
        added_workflow_ids: added,
        changed_workflow_ids: changed,
        removed_workflow_ids: removed,
        diagnostics: left_out(inner, Tenant::DEFAULT),
    })
}

/// Returns several definitions.
pub(super) async fn batch_get(
    inner: &Inner,
    tenant: Tenant,
    ids: Vec<String>,
) -> Result<BatchGetWorkflowsResponse, Failure> {
    let mut response = BatchGetWorkflowsResponse::default();
    let mut bytes = 0;
    for id in distinct(ids) {
        let Some(definition) = inner.library.get_valid(tenant, &id).await? else {
            response.missing_workflow_ids.push(id);
            continue;
        };
        bytes += definition.document.text.len();
        if bytes > MAX_BATCH_BYTES && !response.workflows.is_empty() {
            let limit = "bytes of the definitions together";
            return Err(Failure::limit_exceeded(limit, MAX_BATCH_BYTES, bytes));
        }
        response.workflows.push(resource(inner, &definition, &[]));
    }
    Ok(response)
}

fn check_put(request: &PutWorkflowRequest) -> Result<(), Status> {
    let mut problems = Failure::invalid_fields();
    if let Err(error) = WorkflowId::new(&request.workflow_id) {
        problems.add_violation("workflow_id", error.to_string());
    }
    if let Err(error) = RequestId::new(&request.request_id)
        && !request.request_id.is_empty()
    {
        problems.add_violation("request_id", error.to_string());
    }
    problems.refuse_if_any()
}

/// Returns one definition. The registry reads it to list the tools, so no request is sent to the
/// registry here.
pub(super) async fn get(inner: &Inner, tenant: Tenant, id: &str) -> Result<Workflow, Status> {
    Ok(resource(inner, &inner.library.get(tenant, id).await?, &[]))
}

/// Returns a page of definitions.
pub(super) async fn list(
    inner: &Inner,
    context: &CallContext,
    request: &ListWorkflowsRequest,
) -> Result<ListWorkflowsResponse, Status> {
    let tenant = context.tenant();
    let listed = inner
        .library
        .list(tenant, &request.page_token, request.page_size);
    let listed = listed.await?;
    let entries = listed.entries.iter();
    let mut workflows: Vec<_> = entries.map(|known| resource(inner, known, &[])).collect();
    if request.with_references {
        add_missing(inner, context, &mut workflows).await?;
    }
    Ok(ListWorkflowsResponse {
        workflows,
        next_page_token: listed.next_page_token,
        diagnostics: match listed.is_first {
            true => left_out(inner, tenant),
            false => Vec::new(),
        },
    })
}

/// Adds the findings about the references of a page of definitions: the services that know are asked once for all.
async fn add_missing(
    inner: &Inner,
    context: &CallContext,
    workflows: &mut [Workflow],
) -> Result<(), Status> {
    let named = workflows.iter();
    let named: Vec<_> = named
        .map(|workflow| references::named(&workflow.definition_json))
        .collect();
    let unknown = references::ask(inner, context, &named.concat()).await?;
    for (workflow, named) in workflows.iter_mut().zip(&named) {
        let missing = unknown.among(named).map(Reference::missing);
        let missing = missing.map(|found| call_wire::load_diagnostic_to_proto(&found));
        workflow.diagnostics.extend(missing);
        workflow
            .diagnostics
            .truncate(core_types::LoadDiagnostic::MAX);
    }
    Ok(())
}

/// Returns the findings about files of a tenant that were left out.
fn left_out(inner: &Inner, tenant: Tenant) -> Vec<LoadDiagnostic> {
    let findings = inner.library.left_out(tenant);
    findings
        .iter()
        .map(call_wire::load_diagnostic_to_proto)
        .collect()
}

/// Returns the findings about a definition, followed by the findings about its references.
pub(super) fn diagnostics(
    inner: &Inner,
    workflow: Option<&workflow::Workflow>,
    source: &Value,
    missing: &[core_types::LoadDiagnostic],
) -> Vec<LoadDiagnostic> {
    let own = workflow.map(|workflow| diagnose(source, workflow, inner.library.catalogue()));
    let own = own.unwrap_or_default();
    own.iter()
        .chain(missing)
        .take(core_types::LoadDiagnostic::MAX)
        .map(call_wire::load_diagnostic_to_proto)
        .collect()
}

fn resource(
    inner: &Inner,
    known: &KnownDefinition,
    missing: &[core_types::LoadDiagnostic],
) -> Workflow {
    let definition = &known.document;
    let (loaded, source) = load_with_source(&definition.text);
    let diagnostics = diagnostics(inner, loaded.workflow.as_ref(), &source, missing);
    let (name, description) = loaded
        .workflow
        .map(|workflow| (workflow.name, workflow.description))
        .unwrap_or_default();
    Workflow {
        name: if name.is_empty() {
            definition.id.clone()
        } else {
            name
        },
        workflow_id: definition.id.clone(),
        description,
        definition_json: definition.text.to_string(),
        etag: etag_of(&definition.text),
        diagnostics,
        from_file: known.from_file,
        shared: known.is_shared,
    }
}
