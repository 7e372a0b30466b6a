//! Texts of two tenants: each is read with the tools of its own, also where those of another are cached.

use contracts::tavern::gateway::v1::gateway_service_client::GatewayServiceClient;
use contracts::tavern::gateway::v1::{ParseTextRequest, RenderToolsRequest};
use contracts::tavern::registry::v1::tool_registry_service_server::{
    ToolRegistryService, ToolRegistryServiceServer,
};
use contracts::tavern::registry::v1::{self as registry, Tool};
use core_types::{CallPath, Principal};
use gateway::{GatewaySettings, Peers};
use grpc_kit::{CallContext, Outbound, Services};
use tonic::{Request, Response, Status};

/// A registry in which each tenant has one tool, that is named after it.
struct NamedTools;

/// Implements the methods that no test here calls.
macro_rules! unused {
    ($($method:ident: $request:ident => $response:ident,)*) => {
        #[tonic::async_trait]
        impl ToolRegistryService for NamedTools {
            async fn list_tools(
                &self,
                request: Request<registry::ListToolsRequest>,
            ) -> Result<Response<registry::ListToolsResponse>, Status> {
                let tenant = CallContext::of(&request).tenant().to_string();
                let tool = Tool {
                    tool_id: format!("of_{tenant}"),
                    parameters_json: "{}".to_owned(),
                    ..Tool::default()
                };
                Ok(Response::new(registry::ListToolsResponse {
                    tools: vec![tool],
                    ..Default::default()
                }))
            }

            $(async fn $method(
                &self,
                _: Request<registry::$request>,
            ) -> Result<Response<registry::$response>, Status> {
                Err(Status::unimplemented("no test calls it"))
            })*
        }
    };
}

unused! {
    put_tool: PutToolRequest => PutToolResponse,
    delete_tool: DeleteToolRequest => DeleteToolResponse,
    get_tool: GetToolRequest => GetToolResponse,
    batch_get_tools: BatchGetToolsRequest => BatchGetToolsResponse,
    put_backend: PutBackendRequest => PutBackendResponse,
    delete_backend: DeleteBackendRequest => DeleteBackendResponse,
    get_backend: GetBackendRequest => GetBackendResponse,
    list_backends: ListBackendsRequest => ListBackendsResponse,
    get_plugin: GetPluginRequest => GetPluginResponse,
    list_plugins: ListPluginsRequest => ListPluginsResponse,
    validate_call: ValidateCallRequest => ValidateCallResponse,
    explain_availability: ExplainAvailabilityRequest => ExplainAvailabilityResponse,
}

fn gateway() -> Services {
    let registry = Services::new().add(ToolRegistryServiceServer::new(NamedTools));
    let nothing = || grpc_kit::local(&Services::new());
    let peers = Peers::over(grpc_kit::local(&registry), nothing(), nothing());
    gateway::build(GatewaySettings::default(), peers).services()
}

fn by(services: &Services, principal: &str) -> GatewayServiceClient<Outbound> {
    let principal = Principal::new(principal).unwrap();
    let context = CallContext::new(principal, CallPath::default());
    GatewayServiceClient::new(grpc_kit::local(services).with(&context))
}

/// Whether a call of a tool is read as one that may be made.
async fn knows(services: &Services, principal: &str, tool: &str) -> bool {
    let request = ParseTextRequest {
        text: format!("<ACTION><{tool}></{tool}></ACTION>"),
        ..ParseTextRequest::default()
    };
    let parsed = by(services, principal).parse_text(request).await.unwrap();
    let calls = parsed.into_inner().parsed.unwrap().calls;
    calls
        .iter()
        .any(|call| call.tool_id == tool && call.problems.is_empty())
}

#[tokio::test]
async fn a_text_is_read_with_the_tools_of_its_tenant_only() {
    let services = gateway();
    for round in 0..3 {
        for (principal, own, foreign) in [
            ("ada", "of_default", "of_acme"),
            ("acme/bob", "of_acme", "of_default"),
            ("acme/eve", "of_acme", "of_default"),
        ] {
            assert!(
                knows(&services, principal, own).await,
                "{round} {principal}"
            );
            assert!(
                !knows(&services, principal, foreign).await,
                "{round} {principal}"
            );
            let mut gateway = by(&services, principal);
            let rendered = gateway.render_tools(RenderToolsRequest::default());
            assert_eq!(rendered.await.unwrap().into_inner().tool_ids, [own]);
        }
    }
}
