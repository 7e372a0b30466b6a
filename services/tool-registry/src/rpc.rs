//! The gRPC face: requests are read, domain functions called, answers written.
//!
//! - [`convert`]: domain types as messages.
//! - `tools`: registration, lookup and validation.
//! - `calls`: carrying calls out and ending them.

mod calls;
pub mod convert;
mod tools;

use std::{pin::Pin, sync::Arc};

use contracts::tavern::registry::v1::{
    CallToolRequest, CallToolResponse, CancelCallRequest, CancelCallResponse, GetToolRequest,
    GetToolResponse, ListPluginsRequest, ListPluginsResponse, ListToolsRequest, ListToolsResponse,
    RegisterBackendRequest, RegisterBackendResponse, RegisterToolRequest, RegisterToolResponse,
    StartInvocationRequest, StartInvocationResponse, ValidateCallRequest, ValidateCallResponse,
    tool_registry_service_server::ToolRegistryService,
};
use futures::Stream;
use tonic::{Request, Response, Status};

use crate::{calls::Calls, invocation::Invocations, plugins::PluginInfo, tools::Tools};

type Answer<T> = Result<Response<T>, Status>;
type StreamOf<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// The methods of the service.
#[derive(Clone, Debug)]
pub struct Rpc {
    tools: Tools,
    calls: Calls,
    invocations: Invocations,
    plugins: Arc<[PluginInfo]>,
}

impl Rpc {
    /// Takes what the methods work on.
    pub fn new(
        tools: Tools,
        calls: Calls,
        invocations: Invocations,
        plugins: Arc<[PluginInfo]>,
    ) -> Self {
        Self {
            tools,
            calls,
            invocations,
            plugins,
        }
    }
}

#[tonic::async_trait]
impl ToolRegistryService for Rpc {
    type CallToolStream = StreamOf<CallToolResponse>;

    async fn register_tool(
        &self,
        request: Request<RegisterToolRequest>,
    ) -> Answer<RegisterToolResponse> {
        tools::register(&self.tools, request.into_inner())
            .await
            .map(Response::new)
    }

    async fn register_backend(
        &self,
        request: Request<RegisterBackendRequest>,
    ) -> Answer<RegisterBackendResponse> {
        tools::register_backend(&self.tools, request.into_inner())
            .await
            .map(Response::new)
    }

    async fn get_tool(&self, request: Request<GetToolRequest>) -> Answer<GetToolResponse> {
        tools::get(&self.tools, request.into_inner())
            .await
            .map(Response::new)
    }

    async fn list_tools(&self, request: Request<ListToolsRequest>) -> Answer<ListToolsResponse> {
        tools::list(&self.tools, request.into_inner())
            .await
            .map(Response::new)
    }

    async fn list_plugins(&self, _: Request<ListPluginsRequest>) -> Answer<ListPluginsResponse> {
        let plugins = self.plugins.iter().map(convert::plugin_to_proto);
        Ok(Response::new(ListPluginsResponse {
            plugins: plugins.collect(),
        }))
    }

    async fn validate_call(
        &self,
        request: Request<ValidateCallRequest>,
    ) -> Answer<ValidateCallResponse> {
        tools::validate(&self.tools, request.into_inner())
            .await
            .map(Response::new)
    }

    async fn call_tool(&self, request: Request<CallToolRequest>) -> Answer<Self::CallToolStream> {
        let stream = calls::call(&self.calls, request.into_inner())?;
        Ok(Response::new(Box::pin(stream)))
    }

    async fn cancel_call(&self, request: Request<CancelCallRequest>) -> Answer<CancelCallResponse> {
        calls::cancel(&self.calls, request.into_inner())
            .await
            .map(Response::new)
    }

    async fn start_invocation(
        &self,
        request: Request<StartInvocationRequest>,
    ) -> Answer<StartInvocationResponse> {
        let (run, replayed) = self.invocations.start(request.into_inner()).await?;
        Ok(Response::new(StartInvocationResponse {
            run: Some(run),
            replayed,
        }))
    }
}
