//! Tools that other services know: `workflow:<id>`, `node:<type>` and `agent:<profile>`,
//! or for an agent of a scene `agent:<conversation>`.

use call_outcome::Violation;
use std::sync::Arc;

use contracts::tavern::{
    agent::v1::{GetProfileRequest, Profile},
    common::v1::ErrorReason,
    workflow::v1::{
        DataFlowType, GetWorkflowRequest, ListNodeTypesRequest, ListWorkflowsRequest, NodeType,
        Slot, Workflow,
    },
};
use grpc_kit::Patience;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use std::time::Duration;
use tokio::time::Instant;
use tonic::Status;

use super::{
    Missing,
    view::{DerivedTool, ToolView},
};
use tool_domain::{
    interface::{self, streams_values},
    node_interface::NodeInterface,
    parameters::Input,
    tool::{Origin, Tool},
};

/// The longest wait for a workflow service that is unavailable.
const PATIENCE: Duration = Duration::from_secs(5);
/// Workflows per page. Each comes with its file, so pages are small.
const WORKFLOW_PAGE: i32 = 20;
/// The most workflows and node types that are listed.
const MAX_LISTED: usize = 10_000;

impl ToolView<'_> {
    pub(super) async fn find_derived(&self, written: &str) -> Result<DerivedTool, Missing> {
        if let Some(id) = written.strip_prefix("workflow:") {
            return match self.workflow(id).await? {
                Some(workflow) => self.workflow_tool(&workflow).map(DerivedTool::Tool),
                None => Ok(DerivedTool::Nothing {
                    names: ids_of(&self.workflows(|_| true).await?),
                }),
            };
        }
        let agent = written.strip_prefix("agent:");
        if let Some(id) = agent.or_else(|| written.strip_prefix("agent__")) {
            let found = self.agent(id).await?;
            let found = found.filter(|tool| tool.id() == written || tool.alias() == written);
            return Ok(match found {
                Some(tool) => DerivedTool::Tool(tool),
                None => DerivedTool::Nothing { names: Vec::new() },
            });
        }
        if written.starts_with("node:") {
            // A tool may be bound to a node type of a plugin, whose own tool is not derived.
            let of_engine = written.starts_with("node:core:");
            return self
                .node_tool(of_engine, |node| {
                    format!("node:{}", node.full_type) == written
                })
                .await;
        }
        if written.starts_with("workflow__") {
            let workflows = self.workflows(|_| true).await?;
            let named = |workflow: &&Workflow| self.alias_of(&id_of(workflow)) == written;
            return match workflows.iter().find(named) {
                Some(workflow) => self.workflow_tool(workflow).map(DerivedTool::Tool),
                None => Ok(DerivedTool::Nothing {
                    names: ids_of(&workflows),
                }),
            };
        }
        if written.starts_with("node__") {
            return self
                .node_tool(true, |node| {
                    self.alias_of(&format!("node:{}", node.full_type)) == written
                })
                .await;
        }
        Ok(DerivedTool::Nothing { names: Vec::new() })
    }

    /// Returns every workflow as a tool. A service whose storage is away has answered: the caller decides whether to
    /// wait.
    pub(super) async fn workflow_tools(&self) -> Result<Vec<Arc<Tool>>, Status> {
        let mut tools = Vec::new();
        let has_not_answered =
            |status: &Status| grpc_kit::reason(status) != Some(ErrorReason::StorageUnavailable);
        let workflows = self.workflows(has_not_answered).await;
        for workflow in workflows.map_err(|missing| match missing {
            Missing::Unavailable(status) => status,
            _ => Status::unavailable("the workflows cannot be listed"),
        })? {
            match self.workflow_tool(&workflow) {
                Ok(tool) => tools.push(tool),
                Err(missing) => {
                    let reason = missing.into_failure(&workflow.workflow_id).message.clone();
                    tracing::warn!(
                        workflow = workflow.workflow_id,
                        reason,
                        "a workflow is not a tool"
                    );
                }
            }
        }
        Ok(tools)
    }

    fn workflow_tool(&self, workflow: &Workflow) -> Result<Arc<Tool>, Missing> {
        let id = id_of(workflow);
        self.kept(&id, &workflow.etag, || {
            let file = serde_json::from_str(&workflow.definition_json).map_err(|error| {
                vec![Violation::new(
                    "",
                    "malformed_json",
                    format!("its file is not JSON: {error}"),
                )]
            })?;
            let definition =
                interface::workflow_tool(&workflow.workflow_id, &workflow.name, &file)?;
            Ok((definition, Origin::Workflow, self.alias_of(&id)))
        })
    }

    async fn node_tool(
        &self,
        without_plugins: bool,
        is_it: impl Fn(&NodeType) -> bool,
    ) -> Result<DerivedTool, Missing> {
        let nodes = self.node_types(without_plugins).await?;
        let Some(node) = nodes.iter().find(|node| is_it(node)) else {
            let names = nodes
                .iter()
                .map(|node| format!("node:{}", node.full_type))
                .collect();
            return Ok(DerivedTool::Nothing { names });
        };
        let id = format!("node:{}", node.full_type);
        let digest = hex::encode(Sha256::digest(prost::Message::encode_to_vec(node)));
        let tool = self.kept(&id, &digest, || {
            let definition = interface::node_tool(
                &node.full_type,
                &node.display_name,
                &node.description,
                interface_of(node),
                node.pure,
            )?;
            Ok((definition, Origin::Node, self.alias_of(&id)))
        })?;
        Ok(DerivedTool::Tool(tool))
    }

    async fn agent(&self, id: &str) -> Result<Option<Arc<Tool>>, Missing> {
        let mut patience = Patience::new(PATIENCE, Instant::now() + PATIENCE);
        loop {
            let request = GetProfileRequest {
                profile_id: id.to_owned(),
                ..GetProfileRequest::default()
            };
            let status = match self
                .shared
                .runs
                .profiles(&self.context())
                .get_profile(request)
                .await
            {
                Ok(answer) => {
                    let profile = answer.into_inner().profile.unwrap_or_default();
                    let tool_id = format!("agent:{id}");
                    let tool = self.kept(&tool_id, &profile.etag, || {
                        let Profile {
                            profile_id,
                            name,
                            description,
                            ..
                        } = &profile;
                        let definition = interface::agent_tool(id, profile_id, name, description)?;
                        Ok((definition, Origin::Agent, self.alias_of(&tool_id)))
                    })?;
                    return Ok(Some(tool));
                }
                Err(status) => status,
            };
            match grpc_kit::reason(&status) {
                Some(ErrorReason::ProfileNotFound | ErrorReason::InvalidFields) => return Ok(None),
                _ if patience.wait_after(&status).await => {}
                _ => return Err(Missing::Unavailable(status)),
            }
        }
    }

    async fn workflow(&self, id: &str) -> Result<Option<Workflow>, Missing> {
        let mut patience = Patience::new(PATIENCE, Instant::now() + PATIENCE);
        loop {
            let request = GetWorkflowRequest {
                workflow_id: id.to_owned(),
            };
            match self
                .shared
                .runs
                .client(&self.context())
                .get_workflow(request)
                .await
            {
                Ok(answer) => return Ok(answer.into_inner().workflow),
                Err(status) => match grpc_kit::reason(&status) {
                    Some(ErrorReason::WorkflowNotFound | ErrorReason::InvalidFields) => {
                        return Ok(None);
                    }
                    _ if patience.wait_after(&status).await => {}
                    _ => return Err(Missing::Unavailable(status)),
                },
            }
        }
    }

    /// Returns every workflow. Waits after a failure of which `may_wait` is true, if it may pass.
    async fn workflows(
        &self,
        may_wait: impl Fn(&Status) -> bool,
    ) -> Result<Vec<Workflow>, Missing> {
        let mut patience = Patience::new(PATIENCE, Instant::now() + PATIENCE);
        let mut workflows = Vec::new();
        let mut page_token = String::new();
        loop {
            let request = ListWorkflowsRequest {
                page_size: WORKFLOW_PAGE,
                page_token: page_token.clone(),
                // Whether a tool of a workflow is there would be asked of this service.
                with_references: false,
            };
            match self
                .shared
                .runs
                .client(&self.context())
                .list_workflows(request)
                .await
            {
                Ok(answer) => {
                    let answer = answer.into_inner();
                    workflows.extend(answer.workflows);
                    page_token = answer.next_page_token;
                    if page_token.is_empty() || workflows.len() >= MAX_LISTED {
                        return Ok(workflows);
                    }
                }
                Err(status) if may_wait(&status) && patience.wait_after(&status).await => {}
                Err(status) => return Err(Missing::Unavailable(status)),
            }
        }
    }

    async fn node_types(&self, without_plugins: bool) -> Result<Vec<NodeType>, Missing> {
        let mut patience = Patience::new(PATIENCE, Instant::now() + PATIENCE);
        let mut nodes = Vec::new();
        let mut page_token = String::new();
        loop {
            let request = ListNodeTypesRequest {
                page_size: 500,
                page_token: page_token.clone(),
                without_plugins,
            };
            match self
                .shared
                .runs
                .client(&self.context())
                .list_node_types(request)
                .await
            {
                Ok(answer) => {
                    let answer = answer.into_inner();
                    nodes.extend(answer.node_types);
                    page_token = answer.next_page_token;
                    if page_token.is_empty() || nodes.len() >= MAX_LISTED {
                        return Ok(nodes);
                    }
                }
                Err(status) if patience.wait_after(&status).await => {}
                Err(status) => return Err(Missing::Unavailable(status)),
            }
        }
    }
}

fn id_of(workflow: &Workflow) -> String {
    format!("workflow:{}", workflow.workflow_id)
}

fn ids_of(workflows: &[Workflow]) -> Vec<String> {
    workflows.iter().map(id_of).collect()
}

fn interface_of(node: &NodeType) -> NodeInterface {
    let inputs = |slots: &[Slot]| slots.iter().map(input_of).collect();
    let modes = node.modes.iter();
    let settings: Value = serde_json::from_str(&node.config_schema_json).unwrap_or_default();
    NodeInterface {
        inputs: inputs(&node.inputs),
        mode_key: node.mode_config_key.clone(),
        modes: modes
            .map(|mode| (mode.mode_id.clone(), inputs(&mode.inputs)))
            .collect(),
        settings: match settings.get("properties") {
            Some(Value::Object(settings)) => settings.clone(),
            _ => Map::new(),
        },
    }
}

fn input_of(slot: &Slot) -> Input {
    Input {
        key: slot.key.clone(),
        data_flow_type: data_flow_name(slot.data_flow_type()).to_owned(),
        description: slot.description.clone(),
        required: slot.required && slot.default_json.is_empty(),
        multi: slot.multi
            || slot.is_stream && streams_values(data_flow_name(slot.data_flow_type())),
        ..Input::default()
    }
}

/// Returns the name of a type as workflow files spell it.
fn data_flow_name(data_flow: DataFlowType) -> &'static str {
    let name = data_flow.as_str_name();
    name.strip_prefix("DATA_FLOW_TYPE_").unwrap_or(name)
}
