//! A registry on a fresh directory with its doubles, and short ways to call it.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use contracts::tavern::{
    agent::v1::{
        agent_service_server::AgentServiceServer,
        conversation_service_server::ConversationServiceServer,
    },
    common::v1::{CallResult, CallStatus, RunEvent},
    registry::v1::{
        CallToolRequest, PutToolRequest, approval_service_client::ApprovalServiceClient,
        call_service_client::CallServiceClient, call_tool_response::Record,
        identity_service_client::IdentityServiceClient,
        tool_registry_service_client::ToolRegistryServiceClient,
    },
    run::v1::{run_service_client::RunServiceClient, run_service_server::RunServiceServer},
    sandbox::v1::script_sandbox_service_server::ScriptSandboxServiceServer,
    workflow::v1::workflow_service_server::WorkflowServiceServer,
};
use core_types::{CallPath, Principal, SystemIds};
use doubles::UnconfinedSandbox;
use futures::StreamExt;
use grpc_kit::{CallContext, Outbound, Services};
use serde_json::{Value, json};
use tempfile::TempDir;
use tonic::Status;
use tool_registry::{Peers, RegistrySettings, ToolRegistry, settings::IssuerSettings};

use crate::doubles::{
    agents::KnownAgents, clock::FragileClock, conversations::NoConversations,
    workflow::PlayedWorkflows,
};

pub(crate) type Catalogue = ToolRegistryServiceClient<Outbound>;
pub(crate) type Calls = CallServiceClient<Outbound>;
pub(crate) type RunsClient = RunServiceClient<Outbound>;

pub(crate) struct Fixture {
    pub(crate) directory: TempDir,
    pub(crate) plugins: PathBuf,
    pub(crate) sandbox: UnconfinedSandbox,
    pub(crate) workflows: PlayedWorkflows,
    pub(crate) agents: KnownAgents,
    pub(crate) clock: FragileClock,
    pub(crate) issuers: Vec<IssuerSettings>,
    /// Whether the next start has no plugins.
    pub(crate) without_plugins: bool,
    pub(crate) registry: Option<ToolRegistry>,
    pub(crate) catalogue: Catalogue,
    pub(crate) calls: Calls,
    pub(crate) runs: RunsClient,
    _scripts: Option<TempDir>,
}

/// The file with rules and approvers, in the data directory of a registry that has one.
const APPROVALS: &str = "approvals.json";

/// Answers 1, and fails if its arguments speak of COBOL.
const RUN: &str = "import sys; print(1); sys.exit('cobol' in sys.stdin.read())";

/// Writes a plugin of script tools, or writes it anew.
pub(crate) fn put_scripts(plugins: &Path, tools: &[Value]) {
    let plugin = plugins.join("scripts");
    std::fs::create_dir_all(plugin.join("tools")).unwrap();
    let manifest = "name: scripts\ntools:\n  entry: tools\n";
    std::fs::write(plugin.join("plugin.yaml"), manifest).unwrap();
    std::fs::write(plugin.join("run.py"), RUN).unwrap();
    for (place, tool) in tools.iter().enumerate() {
        let path = plugin.join(format!("tools/{place}.tool.json"));
        std::fs::write(path, tool.to_string()).unwrap();
    }
}

/// Returns the plugins that Tavern ships.
pub(crate) fn shipped_plugins() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../deploy/plugins")
}

impl Fixture {
    pub(crate) async fn new() -> Self {
        Self::with_plugins(shipped_plugins()).await
    }

    pub(crate) async fn with_plugins(plugins: PathBuf) -> Self {
        Self::in_directory(tempfile::tempdir().unwrap(), plugins, Vec::new()).await
    }

    /// A registry with issuers.
    pub(crate) async fn with_issuers(issuers: Vec<IssuerSettings>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        Self::in_directory(directory, shipped_plugins(), issuers).await
    }

    async fn in_directory(
        directory: TempDir,
        plugins: PathBuf,
        issuers: Vec<IssuerSettings>,
    ) -> Self {
        telemetry::init_for_tests();
        let (sandbox, workflows) = (UnconfinedSandbox::default(), PlayedWorkflows::default());
        let (agents, clock) = (KnownAgents::default(), FragileClock::default());
        let peers = peers(&sandbox, &workflows, &agents);
        let places = (directory.path(), plugins.as_path());
        let registry = build(places, (&issuers, false), peers, &clock).await;
        let (catalogue, calls, runs) = clients_of(&registry);
        Self {
            directory,
            plugins,
            sandbox,
            workflows,
            agents,
            clock,
            issuers,
            without_plugins: false,
            registry: Some(registry),
            catalogue,
            calls,
            runs,
            _scripts: None,
        }
    }

    /// A registry with a plugin of script tools.
    pub(crate) async fn with_scripts(tools: &[Value]) -> Self {
        let scripts = tempfile::tempdir().unwrap();
        put_scripts(scripts.path(), tools);
        let mut fixture = Self::with_plugins(scripts.path().to_owned()).await;
        fixture._scripts = Some(scripts);
        fixture
    }

    /// A registry with a plugin of script tools, and a file with rules and approvers.
    pub(crate) async fn with_approvals(tools: &[Value], file: &Value) -> Self {
        let scripts = tempfile::tempdir().unwrap();
        put_scripts(scripts.path(), tools);
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join(APPROVALS), file.to_string()).unwrap();
        let mut fixture =
            Self::in_directory(directory, scripts.path().to_owned(), Vec::new()).await;
        fixture._scripts = Some(scripts);
        fixture
    }

    /// The approvals of the registry.
    pub(crate) fn approvals(&self) -> ApprovalServiceClient<Outbound> {
        let registry = self.registry.as_ref().unwrap();
        ApprovalServiceClient::new(grpc_kit::local(&registry.services()).outermost())
    }

    /// The principals and keys of the registry, for the calls of a principal.
    pub(crate) fn identities_for(&self, principal: &Principal) -> IdentityServiceClient<Outbound> {
        let registry = self.registry.as_ref().unwrap();
        let transport = grpc_kit::local(&registry.services());
        let context = CallContext::new(principal.clone(), CallPath::default());
        IdentityServiceClient::new(transport.with(&context))
    }

    /// Lets the service go without ending anything, and builds it again on the same directory.
    pub(crate) async fn crash_and_restart(&mut self) {
        self.stop().await;
        self.restart().await;
    }

    pub(crate) async fn stop(&mut self) {
        let registry = self.registry.take().unwrap();
        // Dropping the client ends nothing: calls with an effect id outlive their callers. The
        // shutdown gives them no time, so that they are cut off as by a crash.
        registry.shutdown().await;
        drop(registry);
    }

    pub(crate) async fn restart(&mut self) {
        let peers = peers(&self.sandbox, &self.workflows, &self.agents);
        let directories = (self.directory.path(), self.plugins.as_path());
        let settings = (&*self.issuers, self.without_plugins);
        let registry = build(directories, settings, peers, &self.clock).await;
        (self.catalogue, self.calls, self.runs) = clients_of(&registry);
        self.registry = Some(registry);
    }

    pub(crate) async fn recover(&self) {
        self.registry.as_ref().unwrap().recover().await.unwrap();
    }

    pub(crate) async fn put_tool(&self, definition: Value) {
        let request = PutToolRequest {
            definition_json: definition.to_string(),
            ..Default::default()
        };
        self.catalogue.clone().put_tool(request).await.unwrap();
    }

    /// Calls a tool and gives its result.
    pub(crate) async fn call(&self, tool: &str, arguments: Value) -> CallResult {
        self.finish(request(tool, arguments)).await.1
    }

    /// Calls a tool in a conversation and gives its output.
    pub(crate) async fn output(&self, conversation: &str, tool: &str, arguments: Value) -> Value {
        let request = CallToolRequest {
            conversation_id: conversation.into(),
            ..request(tool, arguments)
        };
        let result = self.finish(request).await.1;
        assert_eq!(result.status(), CallStatus::Succeeded, "{result:?}");
        serde_json::from_str(&result.output_json).unwrap()
    }

    /// Carries a request out and gives its events and its result.
    pub(crate) async fn finish(&self, request: CallToolRequest) -> (Vec<RunEvent>, CallResult) {
        finish(self.calls.clone(), request).await.unwrap()
    }

    /// Returns the way to the registry for calls below runs, the outermost first.
    pub(crate) fn below(&self, runs: &[&str]) -> Outbound {
        self.acting_for("local", runs)
    }

    /// Returns the way to the registry for calls of a principal below runs.
    pub(crate) fn acting_for(&self, principal: &str, runs: &[&str]) -> Outbound {
        let steps = runs.iter().map(|run| (*run).to_owned()).collect();
        let path = CallPath::from_steps(steps).unwrap();
        self.acting_in(&CallContext::new(Principal::new(principal).unwrap(), path))
    }

    /// Returns the way to the registry for calls of a context.
    pub(crate) fn acting_in(&self, context: &CallContext) -> Outbound {
        let registry = self.registry.as_ref().unwrap();
        grpc_kit::local(&registry.services()).with(context)
    }
}

/// Carries a request out and gives its events and its result.
pub(crate) async fn finish(
    mut calls: Calls,
    request: CallToolRequest,
) -> Result<(Vec<RunEvent>, CallResult), Status> {
    let mut stream = calls.call_tool(request).await?.into_inner();
    let mut events = Vec::new();
    while let Some(response) = stream.next().await {
        match response?.record {
            Some(Record::Event(event)) => events.push(event),
            Some(Record::Result(result)) => {
                assert!(
                    stream.next().await.is_none(),
                    "nothing comes after the result"
                );
                return Ok((events, result));
            }
            None => {}
        }
    }
    Err(Status::internal("the stream ended without a result"))
}

pub(crate) fn request(tool: &str, arguments: Value) -> CallToolRequest {
    CallToolRequest {
        tool_id: tool.into(),
        arguments_json: arguments.to_string(),
        ..Default::default()
    }
}

pub(crate) fn with_effect(effect: &str, tool: &str, arguments: Value) -> CallToolRequest {
    CallToolRequest {
        effect_id: effect.into(),
        conversation_id: "c1".into(),
        ..request(tool, arguments)
    }
}

pub(crate) fn code_of(result: &CallResult) -> &str {
    result
        .error
        .as_ref()
        .map_or("", |error| error.code.as_str())
}

/// Waits for a condition, for a minute at most.
pub(crate) async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    for _ in 0..6_000 {
        if condition() {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("{what} did not happen");
}

/// A script tool that does not say that it may be repeated.
pub(crate) fn script_tool(id: &str) -> Value {
    json!({"id": id, "description": "runs a script", "parameters": {"type": "object"},
           "implementation": {"type": "script", "command": "python run.py"}})
}

/// A script tool that may be repeated.
pub(crate) fn idempotent_script_tool(id: &str) -> Value {
    let mut tool = script_tool(id);
    tool["idempotent"] = json!(true);
    tool
}

/// A tool that operators can register: a node of a type that is there.
pub(crate) fn node_tool(id: &str) -> Value {
    json!({"id": id, "description": "echoes", "parameters": {"type": "object"},
           "implementation": {"type": "node", "nodeType": "core:Echo"}})
}

async fn build(
    (directory, plugins): (&Path, &Path),
    (issuers, without_plugins): (&[IssuerSettings], bool),
    peers: Peers,
    clock: &FragileClock,
) -> ToolRegistry {
    let approvals_file = match directory.join(APPROVALS) {
        file if file.exists() => file,
        _ => PathBuf::new(),
    };
    let settings = RegistrySettings {
        approvals_file,
        data_dir: directory.to_owned(),
        plugins_dir: plugins.to_owned(),
        drain_calls: std::time::Duration::ZERO,
        backend_hosts: vec!["127.0.0.1".to_owned()],
        issuers: issuers.to_vec(),
        without_plugins,
        ..RegistrySettings::default()
    };
    let (clock, ids) = (Arc::new(clock.clone()), Arc::new(SystemIds));
    tool_registry::build_with(&settings, peers, clock, ids)
        .await
        .unwrap()
}

pub(crate) fn peers(
    sandbox: &UnconfinedSandbox,
    workflows: &PlayedWorkflows,
    agents: &KnownAgents,
) -> Peers {
    let sandbox = Services::new().add(ScriptSandboxServiceServer::new(sandbox.clone()));
    let workflows = Services::new()
        .add(WorkflowServiceServer::new(workflows.clone()))
        .add(RunServiceServer::new(workflows.clone()));
    let agents = Services::new()
        .add(AgentServiceServer::new(agents.clone()))
        .add(ConversationServiceServer::new(NoConversations));
    Peers::over(
        grpc_kit::local(&workflows),
        grpc_kit::local(&sandbox),
        grpc_kit::local(&agents),
    )
    .proven(true)
}

fn clients_of(registry: &ToolRegistry) -> (Catalogue, Calls, RunsClient) {
    let transport = grpc_kit::local(&registry.services());
    (
        ToolRegistryServiceClient::new(transport.clone().outermost()),
        CallServiceClient::new(transport.clone().outermost()),
        RunServiceClient::new(transport.outermost()),
    )
}
