//! A double of the registry's list of tools: the declarations of the tools of [`super::registry`].

use contracts::tavern::registry::v1::tool_registry_service_server::ToolRegistryService;
use contracts::tavern::registry::v1::*;
use tonic::{Request, Response, Status};

/// The double. `echo` is read-only; the other tools have effects.
#[derive(Clone, Debug, Default)]
pub(crate) struct ToolsDouble;

fn not_here<T>() -> Result<Response<T>, Status> {
    Err(Status::unimplemented("the double only describes tools"))
}

#[tonic::async_trait]
impl ToolRegistryService for ToolsDouble {
    async fn batch_get_tools(
        &self,
        request: Request<BatchGetToolsRequest>,
    ) -> Result<Response<BatchGetToolsResponse>, Status> {
        let ids = request.into_inner().tool_ids.into_iter();
        let tool = |tool_id: String| Tool {
            read_only: tool_id == "echo",
            etag: "1".to_owned(),
            parameters_json: "{}".to_owned(),
            tool_id,
            ..Tool::default()
        };
        Ok(Response::new(BatchGetToolsResponse {
            tools: ids.map(tool).collect(),
            ..BatchGetToolsResponse::default()
        }))
    }

    async fn explain_availability(
        &self,
        _: Request<ExplainAvailabilityRequest>,
    ) -> Result<Response<ExplainAvailabilityResponse>, Status> {
        not_here()
    }

    async fn put_tool(
        &self,
        _: Request<PutToolRequest>,
    ) -> Result<Response<PutToolResponse>, Status> {
        not_here()
    }

    async fn delete_tool(
        &self,
        _: Request<DeleteToolRequest>,
    ) -> Result<Response<DeleteToolResponse>, Status> {
        not_here()
    }

    async fn get_tool(
        &self,
        _: Request<GetToolRequest>,
    ) -> Result<Response<GetToolResponse>, Status> {
        not_here()
    }

    async fn list_tools(
        &self,
        _: Request<ListToolsRequest>,
    ) -> Result<Response<ListToolsResponse>, Status> {
        not_here()
    }

    async fn put_backend(
        &self,
        _: Request<PutBackendRequest>,
    ) -> Result<Response<PutBackendResponse>, Status> {
        not_here()
    }

    async fn delete_backend(
        &self,
        _: Request<DeleteBackendRequest>,
    ) -> Result<Response<DeleteBackendResponse>, Status> {
        not_here()
    }

    async fn get_backend(
        &self,
        _: Request<GetBackendRequest>,
    ) -> Result<Response<GetBackendResponse>, Status> {
        not_here()
    }

    async fn list_backends(
        &self,
        _: Request<ListBackendsRequest>,
    ) -> Result<Response<ListBackendsResponse>, Status> {
        not_here()
    }

    async fn get_plugin(
        &self,
        _: Request<GetPluginRequest>,
    ) -> Result<Response<GetPluginResponse>, Status> {
        not_here()
    }

    async fn list_plugins(
        &self,
        _: Request<ListPluginsRequest>,
    ) -> Result<Response<ListPluginsResponse>, Status> {
        not_here()
    }

    async fn validate_call(
        &self,
        _: Request<ValidateCallRequest>,
    ) -> Result<Response<ValidateCallResponse>, Status> {
        not_here()
    }
}
