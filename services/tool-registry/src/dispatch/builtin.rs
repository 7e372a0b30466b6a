//! Methods of the platform, one file per family.
//!
//! Their definitions are `*.tool.json` files like those of plugins, compiled in.

mod cell;
mod code;
mod diff;
mod files;
mod goal;
mod knowledge;
mod scene;
mod state;
mod time;

use call_outcome::{CallOutcome, Category, Failure};
use std::sync::Arc;

use contracts::tavern::agent::v1::{
    agent_service_client::AgentServiceClient, knowledge_service_client::KnowledgeServiceClient,
    profile_service_client::ProfileServiceClient, scene_service_client::SceneServiceClient,
    state_service_client::StateServiceClient,
};
use contracts::tavern::run::v1::run_service_client::RunServiceClient;
use core_types::Clock;
use grpc_kit::Transport;
use serde_json::Value;

use self::state::State;
use super::{
    ResolvedCall,
    sandbox::{Sandbox, Sessions},
};
use crate::{
    domain::definition::{self, Definition},
    workspace::{Workspace, Workspaces, check_conversation},
};

/// The definitions of all methods of the platform.
const DEFINITIONS: [&str; 21] = [
    include_str!("builtin/tools/write_file.tool.json"),
    include_str!("builtin/tools/append_file.tool.json"),
    include_str!("builtin/tools/read_file.tool.json"),
    include_str!("builtin/tools/delete_file.tool.json"),
    include_str!("builtin/tools/list_files.tool.json"),
    include_str!("builtin/tools/read_files.tool.json"),
    include_str!("builtin/tools/apply_diff.tool.json"),
    include_str!("builtin/tools/apply_project_diff.tool.json"),
    include_str!("builtin/tools/current_time.tool.json"),
    include_str!("builtin/tools/code_interpreter.tool.json"),
    include_str!("builtin/tools/run_cell.tool.json"),
    include_str!("builtin/tools/read_private_state.tool.json"),
    include_str!("builtin/tools/update_private_state.tool.json"),
    include_str!("builtin/tools/read_world_state.tool.json"),
    include_str!("builtin/tools/request_world_state_update.tool.json"),
    include_str!("builtin/tools/publish_event.tool.json"),
    include_str!("builtin/tools/request_user_interaction.tool.json"),
    include_str!("builtin/tools/update_goal.tool.json"),
    include_str!("builtin/tools/sleep.tool.json"),
    include_str!("builtin/tools/query_knowledge_base.tool.json"),
    include_str!("builtin/tools/write_to_knowledge_base.tool.json"),
];

/// Returns the definitions of all methods of the platform.
pub fn definitions() -> Vec<Definition> {
    DEFINITIONS
        .iter()
        .map(|text| definition::read(text).expect("the platform's own definitions are tested"))
        .collect()
}

/// Every method, by the name that definitions use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Method {
    WriteFile,
    AppendFile,
    ReadFile,
    DeleteFile,
    ListFiles,
    ReadFiles,
    ApplyDiff,
    ApplyProjectDiff,
    CurrentTime,
    Execute,
    RunCell,
    ReadPrivateState,
    UpdatePrivateState,
    ReadWorldState,
    UpdateWorldState,
    PublishEvent,
    UpdateGoal,
    Sleep,
    QueryKnowledge,
    WriteKnowledge,
}

impl Method {
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "FileOperator.WriteFile" => Self::WriteFile,
            "FileOperator.AppendFile" => Self::AppendFile,
            "FileOperator.ReadFile" => Self::ReadFile,
            "FileOperator.DeleteFile" => Self::DeleteFile,
            "FileOperator.ListFiles" => Self::ListFiles,
            "read_file" => Self::ReadFiles,
            "ApplyDiffTool" => Self::ApplyDiff,
            "ApplyProjectDiff" => Self::ApplyProjectDiff,
            "system:get_current_time" => Self::CurrentTime,
            "CodeInterpreter:execute" => Self::Execute,
            "CodeInterpreter:run_cell" => Self::RunCell,
            "ReadPrivateStateTool" => Self::ReadPrivateState,
            "UpdatePrivateStateTool" => Self::UpdatePrivateState,
            "ReadWorldStateTool" => Self::ReadWorldState,
            "RequestWorldStateUpdateTool" => Self::UpdateWorldState,
            "PublishEventTool" => Self::PublishEvent,
            "UpdateGoalTool" => Self::UpdateGoal,
            "SleepTool" => Self::Sleep,
            "QueryKnowledgeBaseTool" => Self::QueryKnowledge,
            "WriteToKnowledgeBaseTool" => Self::WriteKnowledge,
            _ => return None,
        })
    }
}

/// What calls ask agent-runtime for.
#[derive(Clone, Debug)]
pub struct AgentPeer {
    /// Private states and world states.
    pub states: StateServiceClient<Transport>,
    /// The events of scenes.
    pub scenes: SceneServiceClient<Transport>,
    /// Knowledge bases.
    pub knowledge: KnowledgeServiceClient<Transport>,
    /// Profiles, as tools.
    pub profiles: ProfileServiceClient<Transport>,
    /// Turns of agents that are tools.
    pub turns: AgentServiceClient<Transport>,
    /// The runs of these turns.
    pub runs: RunServiceClient<Transport>,
}

impl AgentPeer {
    /// Takes agent-runtime behind a transport.
    pub fn over(agent: Transport) -> Self {
        Self {
            states: StateServiceClient::new(agent.clone()),
            scenes: SceneServiceClient::new(agent.clone()),
            knowledge: KnowledgeServiceClient::new(agent.clone()),
            profiles: ProfileServiceClient::new(agent.clone()),
            turns: AgentServiceClient::new(agent.clone()),
            runs: RunServiceClient::new(agent),
        }
    }
}

/// Executes methods of the platform.
#[derive(Clone, Debug)]
pub struct Builtins {
    workspaces: Workspaces,
    sandbox: Sandbox,
    sessions: Sessions,
    agents: AgentPeer,
    clock: Arc<dyn Clock>,
}

impl Builtins {
    /// Takes what the methods need.
    pub fn new(
        workspaces: Workspaces,
        sandbox: Sandbox,
        sessions: Sessions,
        agents: AgentPeer,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            workspaces,
            sandbox,
            sessions,
            agents,
            clock,
        }
    }

    /// Executes one method.
    pub(super) async fn execute(&self, method: &str, resolved: &ResolvedCall) -> CallOutcome {
        let Some(method) = Method::named(method) else {
            let message = format!("the platform has no method '{method}'");
            return CallOutcome::Rejected(Failure::new(
                Category::Validation,
                "unknown_method",
                message,
            ));
        };
        match method {
            Method::CurrentTime => time::current(self.clock.now(), &resolved.arguments),
            Method::Execute => code::execute(&self.sandbox, resolved).await,
            Method::RunCell => cell::run(&self.sessions, resolved).await,
            Method::ReadPrivateState => {
                state::read(&self.agents.states, State::Private, resolved).await
            }
            Method::UpdatePrivateState => {
                state::update(&self.agents.states, State::Private, resolved).await
            }
            Method::ReadWorldState => {
                state::read(&self.agents.states, State::World, resolved).await
            }
            Method::UpdateWorldState => {
                state::update(&self.agents.states, State::World, resolved).await
            }
            Method::PublishEvent => scene::publish(&self.agents.scenes, resolved).await,
            Method::Sleep => scene::sleep(&self.agents.scenes, resolved).await,
            Method::UpdateGoal => goal::update(&self.agents.states, resolved).await,
            Method::QueryKnowledge => knowledge::query(&self.agents.knowledge, resolved).await,
            Method::WriteKnowledge => knowledge::write(&self.agents.knowledge, resolved).await,
            file_method => self.on_workspace(file_method, resolved).await,
        }
    }

    /// Executes a method that works on files, on a thread that may block.
    async fn on_workspace(&self, method: Method, resolved: &ResolvedCall) -> CallOutcome {
        let workspaces = self.workspaces.clone();
        let conversation = resolved.conversation.clone();
        let arguments = resolved.arguments.clone();
        let work = tokio::task::spawn_blocking(move || {
            let workspace = match &conversation {
                Some(conversation) => {
                    check_conversation(conversation)?;
                    workspaces.of_conversation(conversation)?
                }
                None => workspaces.of_single_call()?,
            };
            carry_out_on(method, &workspace, &arguments)
        });
        match work.await {
            Ok(Ok(output)) => CallOutcome::Succeeded(output),
            Ok(Err(failure)) => CallOutcome::Failed(failure),
            Err(error) => {
                tracing::error!(error = %error, "a file tool panicked");
                let message = "the tool failed inside the platform; the log has the reason";
                CallOutcome::Failed(Failure::new(Category::Internal, "internal", message))
            }
        }
    }
}

fn carry_out_on(
    method: Method,
    workspace: &Workspace,
    arguments: &Value,
) -> Result<Value, Failure> {
    match method {
        Method::WriteFile => files::write(workspace, arguments),
        Method::AppendFile => files::append(workspace, arguments),
        Method::ReadFile => files::read(workspace, arguments),
        Method::DeleteFile => files::delete(workspace, arguments),
        Method::ListFiles => files::list(workspace, arguments),
        Method::ReadFiles => files::read_several(workspace, arguments),
        Method::ApplyDiff => diff::apply_blocks(workspace, arguments),
        Method::ApplyProjectDiff => diff::apply_unified(workspace, arguments),
        Method::CurrentTime
        | Method::Execute
        | Method::RunCell
        | Method::ReadPrivateState
        | Method::UpdatePrivateState
        | Method::ReadWorldState
        | Method::UpdateWorldState
        | Method::PublishEvent
        | Method::UpdateGoal
        | Method::Sleep
        | Method::QueryKnowledge
        | Method::WriteKnowledge => Err(Failure::new(
            Category::Internal,
            "internal",
            "this method does not work on files",
        )),
    }
}

/// Returns a text argument, of which the schema has made sure.
fn text<'a>(arguments: &'a Value, name: &str) -> Result<&'a str, Failure> {
    arguments.get(name).and_then(Value::as_str).ok_or_else(|| {
        let message = format!("the parameter '{name}' must be given as text");
        Failure::new(Category::Validation, "missing_parameter", message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::definition::Implementation;

    #[test]
    fn each_definition_names_a_method_that_exists_and_there_is_one_for_each() {
        let mut names: Vec<String> = definitions()
            .into_iter()
            .filter_map(|definition| match definition.implementation {
                Implementation::Builtin(method) => Some(method),
                Implementation::Question => None,
                other => unreachable!("{other:?}"),
            })
            .collect();
        assert!(
            names.iter().all(|name| Method::named(name).is_some()),
            "{names:?}"
        );
        names.sort();
        names.dedup();
        assert_eq!(names.len(), DEFINITIONS.len() - 1, "the question is a run");
        assert!(Method::named("FileOperator.Format").is_none());
    }
}
