//! A registry for tests.

use std::{
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use contracts::tavern::agent::v1::{
    agent_service_server::AgentServiceServer,
    conversation_service_server::ConversationServiceServer,
    knowledge_service_server::KnowledgeServiceServer, profile_service_server::ProfileServiceServer,
    scene_service_server::SceneServiceServer, state_service_server::StateServiceServer,
};
use contracts::tavern::registry::v1::{
    CallToolRequest, StartCallRequest, approval_service_server::ApprovalServiceServer,
    call_service_server::CallServiceServer, identity_service_server::IdentityServiceServer,
    tool_registry_service_server::ToolRegistryServiceServer,
};
use contracts::tavern::run::v1::run_service_server::RunServiceServer;
use contracts::tavern::sandbox::v1::script_sandbox_service_server::ScriptSandboxServiceServer;
use contracts::tavern::workflow::v1::workflow_service_server::WorkflowServiceServer;
use core_types::{Principal, Reach, Timestamp};
use grpc_kit::{Services, Transport};
use prost::Message;
use serde_json::Value;
use tempfile::TempDir;
use tokio::sync::OnceCell;
use tool_domain::identity::{
    Account, ToolRights,
    accounts::{Authority, Regain},
};
use tool_registry::{RegistrySettings, ToolRegistry};
use workflow_execution::{WorkflowExecution, WorkflowSettings};

use crate::{
    Behaviour, Passing, PlayedTools, RegistryDouble, Way,
    tools::{Declared, texts},
};

/// A registry with played tools: tool-registry itself, or its double where there is no tool, as it
/// has nothing to decide then. Clones share it; it outlives the services that call it.
#[derive(Clone, Debug, Default)]
pub struct TestRegistry {
    tools: PlayedTools,
    is_double: bool,
    asked: Arc<Mutex<Vec<(Principal, Reach, CallToolRequest)>>>,
    started: Arc<OnceCell<Started>>,
}

#[derive(Debug)]
struct Started {
    /// The way of the registry to agent-runtime.
    agent: Way,
    /// The way to the registry.
    way: Way,
    /// The way to workflow-execution, where the registry is real.
    workflows: Option<Way>,
    /// Kept as long as the services run.
    real: Option<(ToolRegistry, WorkflowExecution, TempDir)>,
}

impl TestRegistry {
    /// Uses the double in any case: for tools of the platform, which no plugin may bring.
    #[must_use]
    pub fn double(mut self) -> Self {
        self.is_double = true;
        self
    }

    /// Adds a tool with parameters that are all required texts.
    #[must_use]
    pub fn tool(self, id: &str, parameters: &[&str], behaviour: Behaviour) -> Self {
        self.tool_with(id, &texts(parameters), behaviour)
    }

    /// Adds a tool with its own schema.
    #[must_use]
    pub fn tool_with(self, id: &str, schema: &Value, behaviour: Behaviour) -> Self {
        self.tools.add(id, schema, behaviour);
        self
    }

    /// Adds a tool that returns a fixed value.
    #[must_use]
    pub fn gives(self, id: &str, parameters: &[&str], output: Value) -> Self {
        let gives = Behaviour::Gives(Arc::new(move |_| output.clone()));
        self.tool(id, parameters, gives)
    }

    /// Declares a tool read-only.
    #[must_use]
    pub fn read_only(self, id: &str) -> Self {
        self.declare(id, |tool| tool.read_only = true)
    }

    /// Declares that calls of a tool may run in parallel with others.
    #[must_use]
    pub fn parallel_safe(self, id: &str) -> Self {
        self.declare(id, |tool| tool.parallel_safe = true)
    }

    fn declare(self, id: &str, change: impl FnOnce(&mut Declared)) -> Self {
        self.tools.declare(id, change);
        self
    }

    /// Returns the effects that were dispatched, each as often as it was.
    pub fn dispatches(&self) -> Vec<String> {
        self.tools.executed()
    }

    /// Returns every request to call a tool.
    pub fn asked(&self) -> Vec<CallToolRequest> {
        let asked = self.asked.lock().unwrap();
        asked.iter().map(|(.., request)| request.clone()).collect()
    }

    /// Returns the principals of the requests to call a tool, in their order.
    pub fn callers_of(&self, tool_id: &str) -> Vec<Principal> {
        let reaching = self.reaching_callers_of(tool_id).into_iter();
        reaching.map(|(principal, _)| principal).collect()
    }

    /// Returns the principals of the requests to call a tool, each with its reach, in their order.
    pub fn reaching_callers_of(&self, tool_id: &str) -> Vec<(Principal, Reach)> {
        let asked = self.asked.lock().unwrap();
        let of_tool = asked
            .iter()
            .filter(|(.., request)| request.tool_id == tool_id);
        of_tool
            .map(|(principal, reach, _)| (principal.clone(), *reach))
            .collect()
    }

    /// Lets a call that hangs end well.
    pub fn release(&self, tool_id: &str, output: Value) {
        self.tools.release(tool_id, output);
    }

    /// Makes keys exist in the registry, which is real and was connected: one of an administrator, and one of
    /// `principal`, who may call every tool but `denied`.
    pub async fn deny(&self, principal: &str, denied: &str) {
        let started = self.started.get().expect("it was connected");
        let (registry, ..) = started.real.as_ref().expect("it is not the double");
        let identities = registry.identities();
        let [root, principal] = ["root", principal].map(|name| Principal::new(name).unwrap());
        let first = identities.bootstrap(&root, 1, Regain::Never).await;
        first.unwrap();
        let roles = vec!["invoker".to_owned()];
        let made = identities
            .create_key((&principal, Authority::Installation), &roles, &[], 1)
            .await;
        made.unwrap();
        let tools = ToolRights {
            denied: vec![denied.to_owned()],
            ..ToolRights::default()
        };
        let account = Account {
            roles,
            tools,
            ..Account::new(principal, Timestamp::default())
        };
        identities
            .put(account, (None, Authority::Tenant), false)
            .await
            .unwrap();
    }

    /// Returns the way to the registry, and where it is real to workflow-execution and its runs too. From
    /// here on it sends `agent` its requests to agent-runtime.
    pub async fn connect(&self, agent: Transport) -> Transport {
        let started = self.started.get_or_init(|| self.start(&agent)).await;
        started.agent.lead_to(agent);
        let asked = Arc::clone(&self.asked);
        let calls = Passing::<CallServiceServer<()>>::over(&started.way).seen_by(
            move |context, path, message| {
                let call = call_in(path, message);
                let call = call.map(|call| (context.principal().clone(), context.reach(), call));
                asked.lock().unwrap().extend(call);
            },
        );
        let services = Services::new()
            .add(calls)
            .add(Passing::<ToolRegistryServiceServer<()>>::over(&started.way))
            .add(Passing::<ApprovalServiceServer<()>>::over(&started.way))
            .add(Passing::<IdentityServiceServer<()>>::over(&started.way));
        let services = match &started.workflows {
            Some(way) => services
                .add(Passing::<WorkflowServiceServer<()>>::over(way))
                .add(Passing::<RunServiceServer<()>>::over(way)),
            None => services,
        };
        grpc_kit::local(&services)
    }

    async fn start(&self, agent: &Transport) -> Started {
        let agent = Way::to(agent.clone());
        if self.is_double || self.tools.declared().is_empty() {
            let double = RegistryDouble::with(self.tools.clone());
            return Started {
                agent,
                way: Way::to(grpc_kit::local(&double.services())),
                workflows: None,
                real: None,
            };
        }
        let directory = tempfile::tempdir().unwrap();
        let (registry, workflows) = real(&self.tools, directory.path(), &agent).await;
        Started {
            agent,
            way: Way::to(grpc_kit::local(&registry.services())),
            workflows: Some(Way::to(grpc_kit::local(&workflows.services()))),
            real: Some((registry, workflows, directory)),
        }
    }
}

/// Starts tool-registry with played tools on a directory, and workflow-execution, from which it
/// lists tools.
async fn real(
    tools: &PlayedTools,
    directory: &Path,
    agent: &Way,
) -> (ToolRegistry, WorkflowExecution) {
    let plugins = directory.join("plugins");
    tools.write_plugin(&plugins);
    let settings = RegistrySettings {
        data_dir: directory.join("data"),
        plugins_dir: plugins,
        drain_calls: Duration::ZERO,
        ..RegistrySettings::default()
    };
    let sandbox = Services::new().add(ScriptSandboxServiceServer::new(tools.clone()));
    let agents = Services::new()
        .add(Passing::<AgentServiceServer<()>>::over(agent))
        .add(Passing::<ConversationServiceServer<()>>::over(agent))
        .add(Passing::<KnowledgeServiceServer<()>>::over(agent))
        .add(Passing::<ProfileServiceServer<()>>::over(agent))
        .add(Passing::<SceneServiceServer<()>>::over(agent))
        .add(Passing::<StateServiceServer<()>>::over(agent))
        .add(Passing::<RunServiceServer<()>>::over(agent));
    let (sandbox, agents) = (grpc_kit::local(&sandbox), grpc_kit::local(&agents));
    let (workflow, slot) = grpc_kit::late();
    let peers = tool_registry::Peers::over(workflow, sandbox.clone(), agents.clone());
    let peers = peers.proven(true);
    let registry = tool_registry::build(settings, peers).await.unwrap();
    let workflows = directory.join("workflows");
    std::fs::create_dir(&workflows).unwrap();
    let settings = WorkflowSettings {
        data_dir: directory.join("data"),
        workflows_dir: workflows,
        ..WorkflowSettings::default()
    };
    let way = grpc_kit::local(&registry.services());
    let peers = workflow_execution::Peers::over(way, sandbox, agents);
    let workflows = workflow_execution::build(settings, peers).await.unwrap();
    slot.fill(grpc_kit::local(&workflows.services()));
    (registry, workflows)
}

/// Reads a request to call a tool; none in requests of other methods.
fn call_in(path: &str, message: Bytes) -> Option<CallToolRequest> {
    if path.ends_with("/CallTool") {
        return Some(CallToolRequest::decode(message).unwrap());
    }
    if !path.ends_with("/StartCall") {
        return None;
    }
    let started = StartCallRequest::decode(message).unwrap();
    Some(CallToolRequest {
        tool_id: started.tool_id,
        arguments_json: started.arguments_json,
        effect_id: started.effect_id,
        conversation_id: started.conversation_id,
        ..CallToolRequest::default()
    })
}
