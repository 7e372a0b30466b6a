//! The methods of the catalogue.

use contracts::tavern::registry::v1::{
    BatchGetToolsRequest, BatchGetToolsResponse, DeleteBackendRequest, DeleteBackendResponse,
    DeleteToolRequest, DeleteToolResponse, ExplainAvailabilityRequest, ExplainAvailabilityResponse,
    GetBackendRequest, GetBackendResponse, GetPluginRequest, GetPluginResponse, GetToolRequest,
    GetToolResponse, ListBackendsRequest, ListBackendsResponse, ListPluginsRequest,
    ListPluginsResponse, ListToolsRequest, ListToolsResponse, Plugin, PutBackendRequest,
    PutBackendResponse, PutToolRequest, PutToolResponse, ValidateCallRequest, ValidateCallResponse,
    tool_registry_service_server::ToolRegistryService,
};
use core_types::Tenant;
use futures::future::join_all;
use grpc_kit::{CallContext, Failure};
use run_events::store_failure;
use tonic::{Request, Response, Status};

use super::{Answer, availability, backends, convert, refusal, tools};
use crate::{
    approvals::Approvals,
    identities::Identities,
    plugins::{PluginCatalogue, PluginInfo},
    runner::agents::Agents,
    tools::{ToolView, Tools},
};

/// The catalogue as a gRPC service.
#[derive(Clone, Debug)]
pub struct CatalogueRpc {
    tools: Tools,
    agents: Agents,
    identities: Identities,
    approvals: Approvals,
    plugins: PluginCatalogue,
}

impl CatalogueRpc {
    /// Creates the service over the tools, the agents, principals and approvals that bound their calls, and
    /// the plugins.
    pub fn new(
        tools: Tools,
        (agents, identities): (Agents, Identities),
        approvals: Approvals,
        plugins: PluginCatalogue,
    ) -> Self {
        Self {
            tools,
            agents,
            identities,
            approvals,
            plugins,
        }
    }

    /// Writes a plugin, with the findings about the targets that its tools have for the tenant of `view`.
    async fn write_plugin(view: &ToolView<'_>, plugin: &PluginInfo) -> Plugin {
        let mut written = convert::plugin_to_proto(plugin);
        let definitions = plugin.definition_files.iter();
        let findings = definitions.filter_map(|(id, file)| {
            let tool = view.catalogue.get(id)?;
            Some(async move { (file, view.findings(tool.definition()).await) })
        });
        for (file, findings) in join_all(findings).await {
            let findings = findings.into_iter();
            let findings = findings.map(|found| convert::diagnostic_to_proto(&found.in_file(file)));
            written.diagnostics.extend(findings);
        }
        written
    }

    /// Returns the plugins of a tenant by directory, then by name.
    pub(super) async fn all_plugins(&self, tenant: Tenant) -> Result<Vec<Plugin>, Status> {
        let view = self.view(tenant).await?;
        let plugins = self.plugins.describe(&view.revision, &view.choices);
        let plugins = plugins
            .iter()
            .map(|plugin| Self::write_plugin(&view, plugin));
        Ok(join_all(plugins).await)
    }

    /// Returns the plugin of a name; none if it is not in force.
    pub(super) async fn plugin_named(
        &self,
        tenant: Tenant,
        name: &str,
    ) -> Result<Option<Plugin>, Status> {
        let mut plugins = self.all_plugins(tenant).await?.into_iter();
        Ok(plugins.find(|plugin| plugin.loaded && plugin.name == name))
    }

    /// Returns the tools of a tenant.
    async fn view(&self, tenant: Tenant) -> Result<ToolView<'_>, Status> {
        let view = self.tools.view(tenant).await;
        view.map_err(|error| store_failure(&error).into_status())
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
        let context = CallContext::of(&request);
        tools::get(&self.tools, &context, request.into_inner())
            .await
            .map(Response::new)
    }

    async fn batch_get_tools(
        &self,
        request: Request<BatchGetToolsRequest>,
    ) -> Answer<BatchGetToolsResponse> {
        let context = CallContext::of(&request);
        let bounds = (&self.agents, &self.identities);
        tools::batch_get(&self.tools, bounds, &context, request.into_inner())
            .await
            .map(Response::new)
    }

    async fn list_tools(&self, request: Request<ListToolsRequest>) -> Answer<ListToolsResponse> {
        let context = CallContext::of(&request);
        tools::list(&self.tools, &context, request.into_inner())
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
        let context = CallContext::of(&request);
        let got = backends::get(&self.tools, &context, &request.get_ref().name);
        got.await.map(Response::new)
    }

    async fn list_backends(
        &self,
        request: Request<ListBackendsRequest>,
    ) -> Answer<ListBackendsResponse> {
        let context = CallContext::of(&request);
        let listed = backends::list(&self.tools, &context, request.get_ref());
        listed.await.map(Response::new)
    }

    async fn get_plugin(&self, request: Request<GetPluginRequest>) -> Answer<GetPluginResponse> {
        let tenant = CallContext::of(&request).tenant();
        let GetPluginRequest { directory, name } = request.into_inner();
        if directory.is_empty() == name.is_empty() {
            let problem = "is needed where `directory` is empty, and only there";
            return Err(Failure::invalid_fields()
                .violation("name", problem)
                .into_status());
        }
        let plugin = match name.is_empty() {
            false => {
                let found = self.plugin_named(tenant, &name).await?;
                found.ok_or_else(|| refusal::no_plugin_named(&name))?
            }
            true => {
                let mut plugins = self.all_plugins(tenant).await?.into_iter();
                let found = plugins.find(|plugin| plugin.directory == directory);
                found.ok_or_else(|| refusal::plugin_not_found(&directory))?
            }
        };
        Ok(Response::new(GetPluginResponse {
            plugin: Some(plugin),
        }))
    }

    async fn list_plugins(
        &self,
        request: Request<ListPluginsRequest>,
    ) -> Answer<ListPluginsResponse> {
        let tenant = CallContext::of(&request).tenant();
        let plugins = self.all_plugins(tenant).await?;
        Ok(Response::new(ListPluginsResponse { plugins }))
    }

    async fn validate_call(
        &self,
        request: Request<ValidateCallRequest>,
    ) -> Answer<ValidateCallResponse> {
        let context = CallContext::of(&request);
        tools::validate(&self.tools, &context, request.into_inner())
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
