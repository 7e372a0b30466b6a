//! The service on the wire.

mod definitions;
mod forecast;
mod node_types;
mod references;
mod schedules;
mod tool_ids;

use std::sync::Arc;

pub(crate) use schedules::ScheduleRpc;

use contracts::tavern::workflow::v1::workflow_service_server::WorkflowService;
use contracts::tavern::workflow::v1::{
    BatchGetWorkflowsRequest, BatchGetWorkflowsResponse, DeleteWorkflowRequest,
    DeleteWorkflowResponse, ForkRunRequest, ForkRunResponse, GetToolChoiceRequest,
    GetToolChoiceResponse, GetWorkflowRequest, GetWorkflowResponse, ListNodeTypesRequest,
    ListNodeTypesResponse, ListWorkflowsRequest, ListWorkflowsResponse, PutWorkflowRequest,
    PutWorkflowResponse, ReloadWorkflowsRequest, ReloadWorkflowsResponse, StartRunRequest,
    StartRunResponse, ValidateWorkflowRequest, ValidateWorkflowResponse,
};
use core_types::PageToken;
use core_types::page::page_size;
use grpc_kit::CallContext;
use tonic::{Request, Response, Status};

use self::references::Missing;
use crate::runner::Inner;
use workflow_domain::load::load_with_source;
use workflow_domain::plugin_node::PluginNodeType;

/// Answers calls.
#[derive(Clone, Debug)]
pub(crate) struct Rpc {
    inner: Arc<Inner>,
}

impl Rpc {
    pub(crate) fn new(inner: Arc<Inner>) -> Self {
        Self { inner }
    }
}

#[tonic::async_trait]
impl WorkflowService for Rpc {
    async fn put_workflow(
        &self,
        request: Request<PutWorkflowRequest>,
    ) -> Result<Response<PutWorkflowResponse>, Status> {
        let context = CallContext::of(&request);
        let put = definitions::put(&self.inner, &context, request.into_inner());
        let workflow = put.await?;
        Ok(Response::new(PutWorkflowResponse {
            workflow: Some(workflow),
        }))
    }

    async fn get_workflow(
        &self,
        request: Request<GetWorkflowRequest>,
    ) -> Result<Response<GetWorkflowResponse>, Status> {
        let tenant = CallContext::of(&request).tenant();
        let id = request.into_inner().workflow_id;
        let workflow = definitions::get(&self.inner, tenant, &id).await?;
        Ok(Response::new(GetWorkflowResponse {
            workflow: Some(workflow),
        }))
    }

    async fn batch_get_workflows(
        &self,
        request: Request<BatchGetWorkflowsRequest>,
    ) -> Result<Response<BatchGetWorkflowsResponse>, Status> {
        let tenant = CallContext::of(&request).tenant();
        let ids = request.into_inner().workflow_ids;
        let found = definitions::batch_get(&self.inner, tenant, ids).await?;
        Ok(Response::new(found))
    }

    async fn delete_workflow(
        &self,
        request: Request<DeleteWorkflowRequest>,
    ) -> Result<Response<DeleteWorkflowResponse>, Status> {
        let tenant = CallContext::of(&request).tenant();
        definitions::delete(&self.inner, tenant, request.into_inner()).await?;
        Ok(Response::new(DeleteWorkflowResponse {}))
    }

    async fn reload_workflows(
        &self,
        _: Request<ReloadWorkflowsRequest>,
    ) -> Result<Response<ReloadWorkflowsResponse>, Status> {
        Ok(Response::new(definitions::reload(&self.inner).await?))
    }

    async fn list_workflows(
        &self,
        request: Request<ListWorkflowsRequest>,
    ) -> Result<Response<ListWorkflowsResponse>, Status> {
        let context = CallContext::of(&request);
        let listed = definitions::list(&self.inner, &context, request.get_ref()).await?;
        Ok(Response::new(listed))
    }

    async fn get_tool_choice(
        &self,
        request: Request<GetToolChoiceRequest>,
    ) -> Result<Response<GetToolChoiceResponse>, Status> {
        let tenant = CallContext::of(&request).tenant();
        let choice = tool_ids::choice(&self.inner, tenant, request.into_inner()).await?;
        Ok(Response::new(choice))
    }

    async fn validate_workflow(
        &self,
        request: Request<ValidateWorkflowRequest>,
    ) -> Result<Response<ValidateWorkflowResponse>, Status> {
        let context = CallContext::of(&request);
        let request = request.into_inner();
        let text: Arc<str> = request.definition_json.as_str().into();
        let (tenant, library) = (context.tenant(), &self.inner.library);
        let bundle = library.bundle(tenant, &text).await?;
        let compiled = library.compile(tenant, &bundle).await;
        let (missing, plan) = match compiled {
            Ok(plan) => (Missing::of(&self.inner, &context, &text).await?, Some(plan)),
            Err(violations) => {
                let findings = Vec::new();
                (
                    Missing {
                        violations,
                        findings,
                    },
                    None,
                )
            }
        };
        let Missing {
            violations,
            findings,
        } = missing;
        let plan = plan.filter(|_| violations.is_empty());
        let violations = violations
            .iter()
            .map(call_wire::violation_to_proto)
            .collect();
        let (loaded, source) = load_with_source(&text);
        let workflow = loaded.workflow.as_ref();
        let diagnostics = definitions::diagnostics(&self.inner, workflow, &source, &findings);
        let forecast = match plan {
            Some(plan) => Some(forecast::of(&self.inner, &context, &plan, &request).await?),
            None => None,
        };
        Ok(Response::new(ValidateWorkflowResponse {
            violations,
            diagnostics,
            forecast,
        }))
    }

    async fn list_node_types(
        &self,
        request: Request<ListNodeTypesRequest>,
    ) -> Result<Response<ListNodeTypesResponse>, Status> {
        let context = CallContext::of(&request);
        let list = grpc_kit::list_of(&context, "node_types");
        let request = request.into_inner();
        let after = read_token(&list, &request.page_token)?;
        let library = &self.inner.library;
        let mut all = library.catalogue().all().to_vec();
        if !request.without_plugins {
            let brought = library.node_types().all(context.tenant()).await?;
            all.extend(brought.iter().filter_map(PluginNodeType::node_type));
            all.sort_by(|one, other| one.full_type().cmp(other.full_type()));
        }
        let all = all.iter().map(|node| node.definition());
        let mut following = all.filter(|definition| *definition.full_type > *after.as_str());
        let size = page_size(request.page_size);
        let page: Vec<_> = following.by_ref().take(size).collect();
        let next_page_token = match (following.next(), page.last()) {
            (Some(_), Some(last)) => PageToken::after(&*last.full_type).encode(&list),
            _ => String::new(),
        };
        let node_types = page.into_iter().map(node_types::to_proto).collect();
        Ok(Response::new(ListNodeTypesResponse {
            node_types,
            next_page_token,
        }))
    }

    async fn start_run(
        &self,
        request: Request<StartRunRequest>,
    ) -> Result<Response<StartRunResponse>, Status> {
        self.inner
            .start(CallContext::of(&request), request.into_inner())
            .await
            .map(Response::new)
    }

    async fn fork_run(
        &self,
        request: Request<ForkRunRequest>,
    ) -> Result<Response<ForkRunResponse>, Status> {
        self.inner
            .fork(CallContext::of(&request), request.into_inner())
            .await
            .map(Response::new)
    }
}

/// Reads a page token; returns the key to continue after, empty at the beginning.
fn read_token(list: &str, token: &str) -> Result<String, Status> {
    let token = grpc_kit::page_token(list, token)?;
    Ok(token.map_or_else(String::new, |token| token.last_key().to_owned()))
}
