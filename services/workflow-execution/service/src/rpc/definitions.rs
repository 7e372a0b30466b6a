//! Definitions on the wire.

use contracts::tavern::common::v1::{ErrorReason, LoadDiagnostic};
use contracts::tavern::workflow::v1::{
    BatchGetWorkflowsResponse, DeleteWorkflowRequest, ListWorkflowsRequest, PutWorkflowRequest,
    ReloadWorkflowsResponse, Workflow,
};
use core_types::{
    Reference, RequestId, WorkflowId,
    page::{distinct, page_size},
};
use grpc_kit::Failure;
use run_events::request_hash;
use serde_json::Value;
use tonic::{Code, Status};

use crate::error::workflow_invalid;
use crate::library::{Definition, FileChanges};
use crate::rpc::references::{self, Missing};
use crate::runner::Inner;
use crate::store::{DeleteOutcome, Put, PutOutcome, etag_of};
use workflow_domain::diagnose::diagnose;
use workflow_domain::load::load_with_source;
use workflow_domain::workflow;

/// After this many bytes of definitions a page ends, even if it has fewer entries than asked for.
const PAGE_BYTES: usize = 2 * 1024 * 1024;

/// The most bytes of definitions that an answer to a batch has.
const MAX_BATCH_BYTES: usize = 3 * 1024 * 1024;

const READ_ONLY: &str =
    "belongs to a file of the workflows directory, which is read only; choose another id";

/// Stores a definition.
pub(super) async fn put(inner: &Inner, request: PutWorkflowRequest) -> Result<Workflow, Status> {
    check_put(inner, &request)?;
    let hash = request_hash(&request);
    let PutWorkflowRequest {
        workflow_id,
        definition_json,
        etag,
        validate_only,
        request_id,
    } = request;
    let definition = Definition {
        id: workflow_id,
        text: definition_json.into(),
        from_file: false,
    };
    let bundle = inner.library.bundle(&definition.text).await?;
    let compiled = inner.library.compile(&bundle).await;
    compiled.map_err(|violations| workflow_invalid("definition_json", &violations))?;
    let Missing {
        violations,
        findings,
    } = Missing::of(inner, &definition.text).await?;
    if !violations.is_empty() {
        return Err(workflow_invalid("definition_json", &violations).into());
    }
    if validate_only {
        return Ok(resource(inner, &definition, &findings));
    }
    let put = Put {
        id: &definition.id,
        text: &definition.text,
        expected: (!etag.is_empty()).then_some(etag),
        request: (!request_id.is_empty()).then_some((request_id.as_str(), hash)),
        now: inner.clock.now(),
    };
    match inner.library.put(put).await? {
        PutOutcome::Saved => Ok(resource(inner, &definition, &findings)),
        PutOutcome::Replayed(before) => Ok(resource(inner, &before.into(), &findings)),
        PutOutcome::RequestIdReused => {
            let message = "the request id was used with another body; use a new request id";
            let failure = Failure::new(Code::AlreadyExists, ErrorReason::RequestIdReused, message);
            Err(failure.metadata("request_id", request_id).into())
        }
        PutOutcome::EtagMismatch { current } => Err(Failure::etag_mismatch(current).into()),
    }
}

/// Deletes a stored definition.
pub(super) async fn delete(inner: &Inner, request: DeleteWorkflowRequest) -> Result<(), Failure> {
    let DeleteWorkflowRequest { workflow_id, etag } = request;
    if inner.library.is_file(&workflow_id) {
        return Err(Failure::invalid_fields().violation("workflow_id", READ_ONLY));
    }
    let expected = (!etag.is_empty()).then_some(etag.as_str());
    match inner.library.delete(&workflow_id, expected).await? {
        DeleteOutcome::Deleted => Ok(()),
        DeleteOutcome::NotFound => Err(inner.library.not_found(&workflow_id).await),
        DeleteOutcome::EtagMismatch { current } => Err(Failure::etag_mismatch(current)),
    }
}

/// Reads the workflows directory again.
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
        diagnostics: left_out(inner),
    })
}

/// Returns several definitions.
pub(super) async fn batch_get(
    inner: &Inner,
    ids: Vec<String>,
) -> Result<BatchGetWorkflowsResponse, Failure> {
    let mut response = BatchGetWorkflowsResponse::default();
    let mut bytes = 0;
    for id in distinct(ids) {
        let Some(definition) = inner.library.get_valid(&id).await? else {
            response.missing_workflow_ids.push(id);
            continue;
        };
        bytes += definition.text.len();
        if bytes > MAX_BATCH_BYTES && !response.workflows.is_empty() {
            let limit = "bytes of the definitions together";
            return Err(Failure::limit_exceeded(limit, MAX_BATCH_BYTES, bytes));
        }
        response.workflows.push(resource(inner, &definition, &[]));
    }
    Ok(response)
}

fn check_put(inner: &Inner, request: &PutWorkflowRequest) -> Result<(), Status> {
    let mut problems = Failure::invalid_fields();
    match WorkflowId::new(&request.workflow_id) {
        Err(error) => problems.add_violation("workflow_id", error.to_string()),
        Ok(id) if inner.library.is_file(id.as_str()) => {
            problems.add_violation("workflow_id", READ_ONLY);
        }
        Ok(_) => {}
    }
    if let Err(error) = RequestId::new(&request.request_id)
        && !request.request_id.is_empty()
    {
        problems.add_violation("request_id", error.to_string());
    }
    problems.refuse_if_any()
}

/// Returns one definition. The registry reads it to answer which tools there are, so it is not asked here.
pub(super) async fn get(inner: &Inner, id: &str) -> Result<Workflow, Status> {
    Ok(resource(inner, &inner.library.get(id).await?, &[]))
}

/// Returns a page of definitions, and the id after which the next page begins.
pub(super) async fn list(
    inner: &Inner,
    after: &str,
    request: &ListWorkflowsRequest,
) -> Result<(Vec<Workflow>, Option<String>), Status> {
    let size = page_size(request.page_size);
    let mut ids = inner.library.ids(after, size + 1).await?;
    let mut more = ids.len() > size;
    ids.truncate(size);
    let mut workflows = Vec::with_capacity(ids.len());
    let mut bytes = 0;
    let mut last = None;
    for id in ids {
        if bytes >= PAGE_BYTES {
            more = true;
            break;
        }
        // It may have been deleted since the ids were read.
        if let Some(definition) = inner.library.get_valid(&id).await? {
            let workflow = resource(inner, &definition, &[]);
            bytes += workflow.definition_json.len() + workflow.description.len();
            workflows.push(workflow);
        }
        last = Some(id);
    }
    if request.with_references {
        add_missing(inner, &mut workflows).await?;
    }
    Ok((workflows, last.filter(|_| more)))
}

/// Adds the findings about what the definitions of a page name: the services that know are asked once for all.
async fn add_missing(inner: &Inner, workflows: &mut [Workflow]) -> Result<(), Status> {
    let named = workflows.iter();
    let named: Vec<_> = named
        .map(|workflow| references::named(&workflow.definition_json))
        .collect();
    let unknown = references::ask(inner, &named.concat()).await?;
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

/// Returns the findings about files that were left out.
pub(super) fn left_out(inner: &Inner) -> Vec<LoadDiagnostic> {
    let findings = inner.library.left_out();
    findings
        .iter()
        .map(call_wire::load_diagnostic_to_proto)
        .collect()
}

/// Returns the findings about a definition, with those about what it names behind them.
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
    definition: &Definition,
    missing: &[core_types::LoadDiagnostic],
) -> Workflow {
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
        from_file: definition.from_file,
    }
}
