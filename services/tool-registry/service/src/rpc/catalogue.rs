//! The methods of the catalogue.

use std::sync::Arc;

use contracts::tavern::registry::v1::{
    BatchGetToolsRequest, BatchGetToolsResponse, DeleteBackendRequest, DeleteBackendResponse,
    DeleteToolRequest, DeleteToolResponse, ExplainAvailabilityRequest, ExplainAvailabilityResponse,
    GetBackendRequest, GetBackendResponse, GetPluginRequest, GetPluginResponse, GetToolRequest,
    GetToolResponse, ListBackendsRequest, ListBackendsResponse, ListPluginsRequest,
    ListPluginsResponse, ListToolsRequest, ListToolsResponse, Plugin, PutBackendRequest,
    PutBackendResponse, PutToolRequest, PutToolResponse, ValidateCallRequest, ValidateCallResponse,
    tool_registry_service_server::ToolRegistryService,
};
use futures::future::join_all;
use grpc_kit::CallContext;
use tonic::{Request, Response};

use super::{Answer, availability, backends, convert, refusal, tools};
use crate::{
    approvals::Approvals, identities::Identities, plugins::PluginInfo, runner::agents::Agents,
    tools::Tools,
};

/// The catalogue as a gRPC service.
#[derive(Clone, Debug)]
pub struct CatalogueRpc {
    tools: Tools,
    agents: Agents,
    identities: Identities,
    approvals: Approvals,
    plugins: Arc<[PluginInfo]>,
}

impl CatalogueRpc {
    /// Creates the service over the tools, the agents, principals and approvals that bound their calls, and
    /// the plugins.
    pub fn new(
        tools: Tools,
        (agents, identities): (Agents, Identities),
        approvals: Approvals,
        plugins: Arc<[PluginInfo]>,
    ) -> Self {
        Self {
            tools,
            agents,
            identities,
            approvals,
            plugins,
        }
    }

    /// Writes a plugin, with the findings about the targets of its tools.
    async fn write_plugin(&self, plugin: &PluginInfo) -> Plugin {
        let mut written = convert::plugin_to_proto(plugin);
        let catalogue = self.tools.catalogue();
        let definitions = plugin.definition_files.iter();
        let findings = definitions.filter_map(|(id, file)| {
            let tool = catalogue.get(id)?;
            Some(async move { (file, self.tools.findings(tool.definition()).await) })
        });
        for (file, findings) in join_all(findings).await {
            let findings = findings.into_iter();
            let findings = findings.map(|found| convert::diagnostic_to_proto(&found.in_file(file)));
            written.diagnostics.extend(findings);
        }
        written
    }
}

#[tonic::async_trait]
impl ToolRegistryService for CatalogueRpc {
    async fn put_tool(&self, request: Request<PutToolRequest>) -> Answer<PutToolResponse> {
        let context = CallContext::of(&request);
        tools::put(&self.tools, &context, request.into_inner())
            .await
            .map(Response::new)
    }

    async fn delete_tool(&self, request: Request<DeleteToolRequest>) -> Answer<DeleteToolResponse> {
        let context = CallContext::of(&request);
        tools::delete(&self.tools, &context, request.into_inner())
            .await
            .map(Response::new)
    }

    async fn get_tool(&self, request: Request<GetToolRequest>) -> Answer<GetToolResponse> {
        tools::get(&self.tools, request.into_inner())
            .await
            .map(Response::new)
    }

    async fn batch_get_tools(
        &self,
        request: Request<BatchGetToolsRequest>,
    ) -> Answer<BatchGetToolsResponse> {
        let context = CallContext::of(&request);
        tools::batch_get(&self.tools, &self.agents, &context, request.into_inner())
            .await
            .map(Response::new)
    }

    async fn list_tools(&self, request: Request<ListToolsRequest>) -> Answer<ListToolsResponse> {
        tools::list(&self.tools, request.into_inner())
            .await
            .map(Response::new)
    }

    async fn put_backend(&self, request: Request<PutBackendRequest>) -> Answer<PutBackendResponse> {
        let context = CallContext::of(&request);
        backends::put(&self.tools, &context, request.into_inner())
            .await
            .map(Response::new)
    }

    async fn delete_backend(
        &self,
        request: Request<DeleteBackendRequest>,
    ) -> Answer<DeleteBackendResponse> {
        let context = CallContext::of(&request);
        backends::delete(&self.tools, &context, request.into_inner())
            .await
            .map(Response::new)
    }

    async fn get_backend(&self, request: Request<GetBackendRequest>) -> Answer<GetBackendResponse> {
        backends::get(&self.tools, &request.into_inner().name).map(Response::new)
    }

    async fn list_backends(
        &self,
        request: Request<ListBackendsRequest>,
    ) -> Answer<ListBackendsResponse> {
        backends::list(&self.tools, &request.into_inner()).map(Response::new)
    }

    async fn get_plugin(&self, request: Request<GetPluginRequest>) -> Answer<GetPluginResponse> {
        let directory = request.into_inner().directory;
        let plugin = self
            .plugins
            .iter()
            .find(|plugin| plugin.directory == directory)
            .ok_or_else(|| refusal::plugin_not_found(&directory))?;
        Ok(Response::new(GetPluginResponse {
            plugin: Some(self.write_plugin(plugin).await),
        }))
    }

    async fn list_plugins(&self, _: Request<ListPluginsRequest>) -> Answer<ListPluginsResponse> {
        let plugins = self.plugins.iter().map(|plugin| self.write_plugin(plugin));
        let plugins = join_all(plugins).await;
        Ok(Response::new(ListPluginsResponse { plugins }))
    }

    async fn validate_call(
        &self,
        request: Request<ValidateCallRequest>,
    ) -> Answer<ValidateCallResponse> {
        tools::validate(&self.tools, request.into_inner())
            .await
            .map(Response::new)
    }

    async fn explain_availability(
        &self,
        request: Request<ExplainAvailabilityRequest>,
    ) -> Answer<ExplainAvailabilityResponse> {
        let Self {
            tools,
            agents,
            identities,
            approvals,
            ..
        } = self;
        let asked = (CallContext::of(&request), request.into_inner());
        availability::explain(tools, (agents, identities), approvals, asked)
            .await
            .map(Response::new)
    }
}
