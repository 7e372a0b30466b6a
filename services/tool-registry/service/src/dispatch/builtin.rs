//! Methods of the platform, one file per family.
//!
//! Their definitions are `*.tool.json` files like those of plugins, compiled in.

mod cell;
mod code;
mod diff;
mod files;
mod goal;
mod knowledge;
mod left_files;
mod peer;
mod scene;
mod state;
mod time;

use call_outcome::{CallOutcome, Category, Failure};
use std::sync::Arc;

use core_types::Clock;
use futures::FutureExt;
use grpc_kit::Transport;
use serde_json::Value;

use self::{peer::PeerCall, state::State};
use super::{
    ResolvedCall,
    sandbox::{Sandbox, Sessions},
};
use crate::{
    conversation_files::{ConversationFiles, blocking},
    peers::AgentClients,
};
use tool_domain::definition::{self, Definition};
use workspace_store::Workspace;

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

/// Whether a method runs code that a model wrote.
pub(crate) fn runs_code(method: &str) -> bool {
    matches!(
        Method::named(method),
        Some(Method::Execute | Method::RunCell)
    )
}

/// Every method, by the name that definitions use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Method {
    CurrentTime,
    Execute,
    RunCell,
    OnFiles(FileMethod),
    OnAgent(AgentMethod),
}

/// A method that works on files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileMethod {
    Write,
    Append,
    Read,
    Delete,
    List,
    ReadSeveral,
    ApplyDiff,
    ApplyProjectDiff,
}

/// A method that agent-runtime carries out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AgentMethod {
    ReadState(State),
    UpdateState(State),
    PublishEvent,
    UpdateGoal,
    Sleep,
    QueryKnowledge,
    WriteKnowledge,
}

impl Method {
    fn named(name: &str) -> Option<Self> {
        use AgentMethod as Agent;
        use FileMethod as File;
        Some(match name {
            "FileOperator.WriteFile" => Self::OnFiles(File::Write),
            "FileOperator.AppendFile" => Self::OnFiles(File::Append),
            "FileOperator.ReadFile" => Self::OnFiles(File::Read),
            "FileOperator.DeleteFile" => Self::OnFiles(File::Delete),
            "FileOperator.ListFiles" => Self::OnFiles(File::List),
            "read_file" => Self::OnFiles(File::ReadSeveral),
            "ApplyDiffTool" => Self::OnFiles(File::ApplyDiff),
            "ApplyProjectDiff" => Self::OnFiles(File::ApplyProjectDiff),
            "system:get_current_time" => Self::CurrentTime,
            "CodeInterpreter:execute" => Self::Execute,
            "CodeInterpreter:run_cell" => Self::RunCell,
            "ReadPrivateStateTool" => Self::OnAgent(Agent::ReadState(State::Private)),
            "UpdatePrivateStateTool" => Self::OnAgent(Agent::UpdateState(State::Private)),
            "ReadWorldStateTool" => Self::OnAgent(Agent::ReadState(State::World)),
            "RequestWorldStateUpdateTool" => Self::OnAgent(Agent::UpdateState(State::World)),
            "PublishEventTool" => Self::OnAgent(Agent::PublishEvent),
            "UpdateGoalTool" => Self::OnAgent(Agent::UpdateGoal),
            "SleepTool" => Self::OnAgent(Agent::Sleep),
            "QueryKnowledgeBaseTool" => Self::OnAgent(Agent::QueryKnowledge),
            "WriteToKnowledgeBaseTool" => Self::OnAgent(Agent::WriteKnowledge),
            _ => return None,
        })
    }
}

/// Executes methods of the platform.
#[derive(Clone, Debug)]
pub struct Builtins {
    files: ConversationFiles,
    sandbox: Sandbox,
    sessions: Sessions,
    agent: Transport,
    clock: Arc<dyn Clock>,
}

impl Builtins {
    /// Makes the methods from the services that they use.
    pub fn new(
        files: ConversationFiles,
        sandbox: Sandbox,
        (sessions, agent, clock): (Sessions, Transport, Arc<dyn Clock>),
    ) -> Self {
        Self {
            files,
            sandbox,
            sessions,
            agent,
            clock,
        }
    }

    /// Executes one method. Boxed where the future is large, so that the others are small.
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
            Method::Execute => {
                code::execute(&self.sandbox, &self.files, resolved)
                    .boxed()
                    .await
            }
            Method::RunCell => {
                cell::run(&self.sandbox, &self.sessions, &self.files, resolved)
                    .boxed()
                    .await
            }
            Method::OnFiles(method) => self.on_workspace(method, resolved).await,
            Method::OnAgent(method) => match PeerCall::of(resolved) {
                Ok(call) => {
                    let output = self.on_agent(method, &call).boxed().await;
                    output.map_or_else(CallOutcome::Failed, CallOutcome::Succeeded)
                }
                Err(failure) => CallOutcome::Rejected(failure),
            },
        }
    }

    /// Has agent-runtime carry out a method.
    async fn on_agent(&self, method: AgentMethod, call: &PeerCall<'_>) -> Result<Value, Failure> {
        let AgentClients {
            states,
            scenes,
            knowledge,
        } = &AgentClients::over(&self.agent, call.context());
        match method {
            AgentMethod::ReadState(state) => state::read(states, state, call).await,
            AgentMethod::UpdateState(state) => state::update(states, state, call).await,
            AgentMethod::PublishEvent => scene::publish(scenes, call).await,
            AgentMethod::Sleep => scene::sleep(scenes, call).await,
            AgentMethod::UpdateGoal => goal::update(states, call).await,
            AgentMethod::QueryKnowledge => knowledge::query(knowledge, call).await,
            AgentMethod::WriteKnowledge => knowledge::write(knowledge, call).await,
        }
    }

    /// Executes a method that works on files, on a thread that may block.
    async fn on_workspace(&self, method: FileMethod, resolved: &ResolvedCall) -> CallOutcome {
        let arguments = resolved.arguments.clone();
        let done = match self.workspace(resolved).await {
            Ok(workspace) => blocking(move || carry_out_on(method, &workspace, &arguments)).await,
            Err(failure) => Err(failure),
        };
        done.map_or_else(CallOutcome::Failed, CallOutcome::Succeeded)
    }

    /// Opens the workspace of the call's conversation, or one of this call alone.
    async fn workspace(&self, resolved: &ResolvedCall) -> Result<Workspace, Failure> {
        match &resolved.conversation {
            Some(conversation) => self.files.open(&resolved.context, conversation).await,
            None => {
                let workspaces = self.files.all().clone();
                blocking(move || workspaces.of_single_call()).await
            }
        }
    }
}

fn carry_out_on(
    method: FileMethod,
    workspace: &Workspace,
    arguments: &Value,
) -> Result<Value, Failure> {
    match method {
        FileMethod::Write => files::write(workspace, arguments),
        FileMethod::Append => files::append(workspace, arguments),
        FileMethod::Read => files::read(workspace, arguments),
        FileMethod::Delete => files::delete(workspace, arguments),
        FileMethod::List => files::list(workspace, arguments),
        FileMethod::ReadSeveral => files::read_several(workspace, arguments),
        FileMethod::ApplyDiff => diff::apply_blocks(workspace, arguments),
        FileMethod::ApplyProjectDiff => diff::apply_unified(workspace, arguments),
    }
}

/// Returns a text argument that may be missing.
fn optional_text<'a>(arguments: &'a Value, name: &str) -> Option<&'a str> {
    arguments.get(name).and_then(Value::as_str)
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
    use tool_domain::definition::Implementation;

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
