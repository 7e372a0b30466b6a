//! The methods of the other services, passed on to them by path.
//!
//! So a client of the gateway reaches every service, whether they run in one process or in several.

use std::convert::Infallible;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};

use contracts::lf::a2a::v1::a2a_service_server::A2aServiceServer;
use contracts::tavern::agent::v1::agent_service_server::AgentServiceServer;
use contracts::tavern::agent::v1::conversation_service_server::ConversationServiceServer;
use contracts::tavern::agent::v1::knowledge_service_server::KnowledgeServiceServer;
use contracts::tavern::agent::v1::model_service_server::ModelServiceServer;
use contracts::tavern::agent::v1::profile_service_server::ProfileServiceServer;
use contracts::tavern::agent::v1::project_service_server::ProjectServiceServer;
use contracts::tavern::agent::v1::scene_service_server::SceneServiceServer;
use contracts::tavern::agent::v1::state_service_server::StateServiceServer;
use contracts::tavern::registry::v1::approval_service_server::ApprovalServiceServer;
use contracts::tavern::registry::v1::audit_service_server::AuditServiceServer;
use contracts::tavern::registry::v1::call_service_server::CallServiceServer;
use contracts::tavern::registry::v1::identity_service_server::IdentityServiceServer;
use contracts::tavern::registry::v1::plugin_service_server::PluginServiceServer;
use contracts::tavern::registry::v1::tenant_service_server::TenantServiceServer;
use contracts::tavern::registry::v1::tool_registry_service_server::ToolRegistryServiceServer;
use contracts::tavern::registry::v1::tool_search_service_server::ToolSearchServiceServer;
use contracts::tavern::registry::v1::workspace_service_server::WorkspaceServiceServer;
use contracts::tavern::sandbox::v1::blob_service_server::BlobServiceServer;
use contracts::tavern::sandbox::v1::script_sandbox_service_server::ScriptSandboxServiceServer;
use contracts::tavern::sandbox::v1::session_service_server::SessionServiceServer;
use contracts::tavern::workflow::v1::schedule_service_server::ScheduleServiceServer;
use contracts::tavern::workflow::v1::workflow_service_server::WorkflowServiceServer;
use grpc_kit::{CallContext, ClientSettings, ServiceName, Services, Transport};
use http::{Request, Response};
use tonic::body::Body;
use tonic::server::NamedService;
use tower::{Service, ServiceExt};

use crate::{Error, GatewaySettings};

/// The longest time of a forwarded call: its service has a limit of its own.
const LONGEST: std::time::Duration = std::time::Duration::from_secs(24 * 60 * 60);

/// The services whose methods are forwarded.
#[derive(Clone, Debug)]
pub(crate) struct ForwardedServices {
    pub(crate) registry: Transport,
    pub(crate) workflow: Transport,
    pub(crate) sandbox: Transport,
    pub(crate) agent: Transport,
}

impl ForwardedServices {
    /// Connects to the services at the addresses of the settings; calls none of them yet.
    pub(crate) fn remote(settings: &GatewaySettings) -> Result<Self, Error> {
        let connect = |service: ServiceName, client: &ClientSettings| {
            let way = grpc_kit::neighbour(client, &settings.server, service);
            way.map_err(|source| Error::Peer {
                service: service.program(),
                source,
            })
        };
        Ok(Self {
            registry: connect(ServiceName::Registry, &settings.registry)?,
            workflow: connect(ServiceName::Workflow, &settings.workflow)?,
            sandbox: connect(ServiceName::Sandbox, &settings.sandbox)?,
            agent: connect(ServiceName::Agent, &settings.agent)?,
        })
    }

    /// Returns the public methods of the other services.
    pub(crate) fn services(&self) -> Services {
        let services = Services::new()
            .add(Forward::<ToolRegistryServiceServer<()>>::to(&self.registry))
            .add(Forward::<PluginServiceServer<()>>::to(&self.registry))
            .add(Forward::<CallServiceServer<()>>::to(&self.registry))
            .add(Forward::<ApprovalServiceServer<()>>::to(&self.registry))
            .add(Forward::<IdentityServiceServer<()>>::to(&self.registry))
            .add(Forward::<TenantServiceServer<()>>::to(&self.registry))
            .add(Forward::<AuditServiceServer<()>>::to(&self.registry))
            .add(Forward::<ToolSearchServiceServer<()>>::to(&self.registry))
            .add(Forward::<WorkspaceServiceServer<()>>::to(&self.registry))
            .add(Forward::<WorkflowServiceServer<()>>::to(&self.workflow))
            .add(Forward::<ScheduleServiceServer<()>>::to(&self.workflow))
            .add(Forward::<ScriptSandboxServiceServer<()>>::to(&self.sandbox))
            .add(Forward::<SessionServiceServer<()>>::to(&self.sandbox))
            .add(Forward::<BlobServiceServer<()>>::to(&self.sandbox))
            .add(Forward::<AgentServiceServer<()>>::to(&self.agent))
            .add(Forward::<A2aServiceServer<()>>::to(&self.agent))
            .add(Forward::<KnowledgeServiceServer<()>>::to(&self.agent))
            .add(Forward::<ProjectServiceServer<()>>::to(&self.agent))
            .add(Forward::<ProfileServiceServer<()>>::to(&self.agent))
            .add(Forward::<ConversationServiceServer<()>>::to(&self.agent))
            .add(Forward::<ModelServiceServer<()>>::to(&self.agent))
            .add(Forward::<StateServiceServer<()>>::to(&self.agent))
            .add(Forward::<SceneServiceServer<()>>::to(&self.agent));
        let long = contracts::access::methods().filter(|(_, access)| access.long());
        long.fold(services, |services, (method, _)| {
            services.method_timeout(method, LONGEST)
        })
    }
}

/// Passes on the methods of the service that `N` names.
struct Forward<N> {
    to: Transport,
    named: PhantomData<fn() -> N>,
}

impl<N> Forward<N> {
    fn to(transport: &Transport) -> Self {
        Self {
            to: transport.clone(),
            named: PhantomData,
        }
    }
}

impl<N> Clone for Forward<N> {
    fn clone(&self) -> Self {
        Self::to(&self.to)
    }
}

impl<N: NamedService> NamedService for Forward<N> {
    const NAME: &'static str = N::NAME;
}

impl<N> Service<Request<Body>> for Forward<N> {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let to = self.to.clone();
        Box::pin(async move {
            let context = CallContext::among(request.extensions());
            let answered = to.with(&context).oneshot(request).await;
            Ok(answered.unwrap_or_else(|status| status.into_http()))
        })
    }
}
