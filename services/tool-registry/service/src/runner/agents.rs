//! The agents above a call: the tools that they may call, and their rules (rules R501 and G801).
//!
//! A call names them by the runs above it, which their owners sent with it, and agent-runtime resolves a
//! turn to the tools and rules with which it was started. Nothing that a model writes has a part in
//! it.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use approval_rules::{Rules, Stricter, read_rules};
use call_outcome::{Category, Failure};
use contracts::tavern::{
    agent::v1::{
        GetToolScopeRequest, GetToolScopeResponse, agent_service_client::AgentServiceClient,
        get_tool_scope_request::Agent as Asked,
    },
    common::v1::ErrorReason,
};
use core_types::{RunId, RunOwner};
use grpc_kit::{CallContext, Patience, Transport};
use tokio::time::Instant;
use tonic::Status;

use tool_domain::{availability::AgentTools, catalogue::Catalogue, tool::Tool};

/// The longest wait for an agent-runtime that is unavailable.
const PATIENCE: Duration = Duration::from_secs(5);
/// The most turns that are remembered; beyond it all are requested again.
const MAX_KNOWN: usize = 4_096;

/// The bounds of the calls of an agent.
#[derive(Debug)]
pub struct Agent {
    /// The tools that it may call.
    pub tools: AgentTools,
    rules: Rules,
}

/// The reason for which an agent is not known.
#[derive(Debug)]
pub enum Unknown {
    /// There is no such turn or profile.
    Missing(Status),
    /// agent-runtime does not answer.
    Unavailable(Status),
}

/// Finds agents. Clone, cheap.
#[derive(Clone, Debug)]
pub struct Agents {
    agent: Transport,
    /// The tools and rules of each turn from its start, which never change. Never held across an
    /// await.
    known: Arc<Mutex<HashMap<String, Arc<Agent>>>>,
}

/// The agents above a call.
#[derive(Debug, Default)]
pub struct AgentsAbove {
    /// The agents whose rules apply to the call, the outermost first.
    all: Vec<Arc<Agent>>,
    /// Whether the last of them makes the call itself.
    calls_itself: bool,
}

impl Agents {
    /// Takes agent-runtime behind a transport.
    pub fn new(agent: Transport) -> Self {
        Self {
            agent,
            known: Arc::default(),
        }
    }

    /// Returns the agents whose turns are above a call, and the one of a profile for which it is made, if
    /// there is one.
    ///
    /// # Errors
    /// One of them is not known.
    pub async fn above(
        &self,
        context: &CallContext,
        profile_id: &str,
    ) -> Result<AgentsAbove, Unknown> {
        let mut above = AgentsAbove::default();
        for run in context.path().steps() {
            above.calls_itself = is_turn(run);
            if above.calls_itself {
                above.all.push(self.of_turn(context, run).await?);
            }
        }
        if !profile_id.is_empty() {
            above.all.push(self.of_profile(context, profile_id).await?);
            above.calls_itself = true;
        }
        Ok(above)
    }

    /// Returns the agent of a turn.
    ///
    /// # Errors
    /// It is not known.
    pub async fn of_turn(
        &self,
        context: &CallContext,
        run_id: &str,
    ) -> Result<Arc<Agent>, Unknown> {
        let known = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(agent) = known().get(run_id) {
            return Ok(Arc::clone(agent));
        }
        let turn = Asked::RunId(run_id.to_owned());
        let agent = self.ask(context, turn, run_id).await?;
        let mut known = known();
        if known.len() >= MAX_KNOWN {
            known.clear();
        }
        known.insert(run_id.to_owned(), Arc::clone(&agent));
        Ok(agent)
    }

    /// Returns the agent of a profile as it is now.
    ///
    /// # Errors
    /// It is not known.
    pub async fn of_profile(
        &self,
        context: &CallContext,
        profile_id: &str,
    ) -> Result<Arc<Agent>, Unknown> {
        let profile = Asked::ProfileId(profile_id.to_owned());
        self.ask(context, profile, "").await
    }

    async fn ask(
        &self,
        context: &CallContext,
        agent: Asked,
        turn: &str,
    ) -> Result<Arc<Agent>, Unknown> {
        let mut turns = AgentServiceClient::new(self.agent.with(context));
        let request = GetToolScopeRequest { agent: Some(agent) };
        let mut patience = Patience::new(PATIENCE, Instant::now() + PATIENCE);
        loop {
            let status = match turns.get_tool_scope(request.clone()).await {
                Ok(answer) => return Ok(Arc::new(read(answer.into_inner(), turn)?)),
                Err(status) => status,
            };
            match grpc_kit::reason(&status) {
                Some(
                    ErrorReason::RunNotFound
                    | ErrorReason::ProfileNotFound
                    | ErrorReason::InvalidFields,
                ) => return Err(Unknown::Missing(status)),
                _ if patience.wait_after(&status).await => {}
                _ => return Err(Unknown::Unavailable(status)),
            }
        }
    }
}

fn is_turn(run: &str) -> bool {
    let owner = run.parse().map(|run: RunId| run.owner());
    owner == Ok(RunOwner::Agent)
}

fn read(scope: GetToolScopeResponse, turn: &str) -> Result<Agent, Unknown> {
    // Unreadable rules must not be skipped.
    let unreadable = |problem: String| {
        let message = format!(
            "the rules of {} cannot be read: {problem}",
            scope.profile_id
        );
        Unknown::Unavailable(Status::internal(message))
    };
    let rules = serde_json::from_str(&scope.approvals_json);
    let rules = rules.map_err(|error| unreadable(error.to_string()))?;
    let rules = read_rules(rules).map_err(|problems| unreadable(problems[0].to_string()))?;
    Ok(Agent {
        tools: AgentTools {
            profile_id: scope.profile_id,
            turn: turn.to_owned(),
            tool_ids: scope.tool_ids,
            names: scope.names,
            handle_tool_ids: scope.handle_tool_ids,
        },
        rules,
    })
}

impl Agent {
    /// Returns the rules of the agent.
    pub fn rules(&self) -> Stricter<'_> {
        Stricter {
            agent: &self.tools.profile_id,
            rules: &self.rules,
        }
    }
}

impl AgentsAbove {
    /// Returns the rules that the call is held against beside those of the operator.
    pub fn rules(&self) -> Vec<Stricter<'_>> {
        self.all.iter().map(|agent| agent.rules()).collect()
    }

    /// Returns the nearest agent, for which the call is made.
    pub fn nearest(&self) -> Option<&AgentTools> {
        self.all.last().map(|agent| &agent.tools)
    }

    /// Checks whether the agent that makes the call itself has the tool.
    ///
    /// # Errors
    /// The reason for rejecting the call.
    pub fn check(&self, tool: &Tool, catalogue: &Catalogue) -> Result<(), Failure> {
        let itself = self.nearest().filter(|_| self.calls_itself);
        let Some(agent) = itself.filter(|agent| !agent.has(tool.id(), catalogue)) else {
            return Ok(());
        };
        let message = format!(
            "{} is not available: the inventory of the agent {} does not name it",
            tool.id(),
            agent.profile_id
        );
        Err(Failure::new(
            Category::Validation,
            "tool_not_available",
            message,
        ))
    }
}

impl Unknown {
    /// Returns the failure of a call that cannot be judged.
    pub fn into_failure(self) -> Failure {
        match self {
            Self::Missing(status) => {
                let message = format!(
                    "the agent for which the call is made is not known: {}",
                    status.message()
                );
                Failure::new(Category::Policy, "agent_unknown", message)
            }
            Self::Unavailable(status) => {
                tracing::warn!(status = %status, "agent-runtime cannot be asked what an agent may call");
                let message = "agent-runtime, which knows what the agent may call, does not answer";
                Failure::new(Category::Dependency, "agent_unavailable", message).retryable()
            }
        }
    }

    /// Returns the status of a request that names the agent.
    pub fn into_status(self) -> Status {
        match self {
            Self::Missing(status) => status,
            Self::Unavailable(status) => {
                tracing::warn!(status = %status, "agent-runtime cannot be asked what an agent may call");
                grpc_kit::Failure::dependency_unavailable("agent-runtime").into_status()
            }
        }
    }
}
