//! The availability of a tool in a scope (rules R501 to R503), for prompts, calls and explanations.

use super::{catalogue::Catalogue, tool::Tool};

/// The layers that decide, in the order of their decisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layer {
    /// The tool is registered.
    Exists,
    /// The implementation of the tool works.
    Active,
    /// The inventory of the agent.
    Inventory,
    /// `availableTools.initial` of the workflow.
    Workflow,
    /// The node of the workflow.
    Node,
    /// The rights of the principal that calls.
    Caller,
}

/// The verdict of one layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayerVerdict {
    /// The layer.
    pub layer: Layer,
    /// Whether the tool passes.
    pub passes: bool,
    /// The document that decides; empty if none bounds the layer.
    pub document: String,
    /// The remedy where the layer blocks.
    pub remedy: String,
}

/// The tools of an agent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentTools {
    /// The profile.
    pub profile_id: String,
    /// The turn with which the inventory was pinned; empty for the current profile.
    pub turn: String,
    /// The inventory, by ids of tools or by other names that the catalogue reads.
    pub tool_ids: Vec<String>,
    /// The names by which the profile lists them, in the same order; empty where they equal the
    /// ids.
    pub names: Vec<String>,
    /// The tools for handles, which every agent has.
    pub handle_tool_ids: Vec<String>,
}

/// The tools that models of a workflow may choose from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkflowTools {
    /// The workflow.
    pub workflow_id: String,
    /// The node that lists them; empty for all nodes.
    pub node_path: String,
    /// `availableTools.initial`.
    pub initial: Vec<String>,
    /// The tools that the node lists.
    pub listed: Vec<String>,
    /// Whether any node lists tools.
    pub has_listing_nodes: bool,
}

/// The scope of a call: its agent and its workflow.
#[derive(Clone, Copy, Debug, Default)]
pub struct Scope<'a> {
    /// The agent; all tools pass without one.
    pub agent: Option<&'a AgentTools>,
    /// The workflow; all tools pass without one.
    pub workflow: Option<&'a WorkflowTools>,
}

impl Scope<'_> {
    /// Judges a tool that exists and works by each layer of the scope.
    pub fn layers(&self, tool: &Tool, catalogue: &Catalogue) -> Vec<LayerVerdict> {
        let inventory = match self.agent {
            Some(agent) => agent.judge(tool, catalogue),
            None => LayerVerdict::passed(Layer::Inventory, ""),
        };
        let [workflow, node] = match self.workflow {
            Some(workflow) => workflow.judge(tool, catalogue),
            None => [Layer::Workflow, Layer::Node].map(|layer| LayerVerdict::passed(layer, "")),
        };
        vec![inventory, workflow, node]
    }
}

impl AgentTools {
    /// Whether the agent has the tool of this id.
    pub fn has(&self, id: &str, catalogue: &Catalogue) -> bool {
        names(&self.tool_ids, id, catalogue) || names(&self.handle_tool_ids, id, catalogue)
    }

    /// Returns the id of the tool that a name means to the agent: a tool of its inventory by the
    /// name that the agent's model is shown (rules G307 and N7), or else the name itself.
    pub fn tool_named<'a>(&'a self, written: &'a str) -> &'a str {
        let is_it = |name: &str| name == written || call_catalogue::alias_of(name) == written;
        let mut listed = self.names.iter().zip(&self.tool_ids);
        let own = listed.find(|(name, id)| name != id && is_it(name));
        own.map_or(written, |(_, id)| id)
    }

    fn judge(&self, tool: &Tool, catalogue: &Catalogue) -> LayerVerdict {
        let Self {
            profile_id, turn, ..
        } = self;
        let id = tool.id();
        let (list, skill) = match id.starts_with("workflow:") {
            true => ("skill_workflow_ids_inventory", " or tool_ids_inventory"),
            false => ("tool_ids_inventory", ""),
        };
        let as_of = match turn.as_str() {
            "" => String::new(),
            turn => format!(" as of {turn}"),
        };
        let is_handle =
            names(&self.handle_tool_ids, id, catalogue) && !names(&self.tool_ids, id, catalogue);
        LayerVerdict {
            layer: Layer::Inventory,
            passes: self.has(id, catalogue),
            document: match is_handle {
                true => "every agent has it once a call gave a handle".to_owned(),
                false => format!("profile {profile_id}{as_of}, /{list}"),
            },
            remedy: format!("Add {id} to {list}{skill} of the profile {profile_id}."),
        }
    }
}

impl WorkflowTools {
    fn judge(&self, tool: &Tool, catalogue: &Catalogue) -> [LayerVerdict; 2] {
        let Self {
            workflow_id,
            node_path,
            ..
        } = self;
        if !self.has_listing_nodes {
            let none = format!("workflow {workflow_id}: no node lists tools for a model");
            return [
                LayerVerdict::passed(Layer::Workflow, none),
                LayerVerdict::passed(Layer::Node, ""),
            ];
        }
        let id = tool.id();
        let is_initial = names(&self.initial, id, catalogue);
        let is_listed = names(&self.listed, id, catalogue);
        let node = match node_path.as_str() {
            "" => "its nodes".to_owned(),
            path => format!("node {path}"),
        };
        let initial = format!("workflow {workflow_id}, /availableTools/initial");
        let workflow = LayerVerdict {
            layer: Layer::Workflow,
            passes: is_initial || is_listed,
            document: match is_listed && !is_initial {
                true => format!("{initial}, to which {node} adds"),
                false => initial,
            },
            remedy: format!(
                "Add {id} to availableTools.initial of the workflow {workflow_id}, or to \
                 dynamicTools.toolIds of a node of it."
            ),
        };
        let listing = LayerVerdict {
            layer: Layer::Node,
            passes: is_listed || !is_initial,
            document: format!("workflow {workflow_id}, {node}"),
            remedy: format!(
                "Add {id} to toolIds of {node} of the workflow {workflow_id}, which take the place of \
                 availableTools.initial."
            ),
        };
        [workflow, listing]
    }
}

impl LayerVerdict {
    /// Makes the verdict that a tool passes.
    pub fn passed(layer: Layer, document: impl Into<String>) -> Self {
        Self {
            layer,
            passes: true,
            document: document.into(),
            remedy: String::new(),
        }
    }
}

/// Whether a list of names contains the tool of this id. Inventories, grants and workflows are such
/// lists.
pub fn names(written: &[String], id: &str, catalogue: &Catalogue) -> bool {
    written.iter().any(|name| catalogue.means(name, id))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{definition::read_value, tool::Origin};

    fn catalogue(ids: &[&str]) -> Catalogue {
        ids.iter().fold(Catalogue::default(), |catalogue, id| {
            let source = json!({"id": id, "parameters": {"type": "object"},
                "implementation": {"type": "script", "command": "node a.js"}});
            let definition = read_value(source).unwrap();
            catalogue.with(definition, Origin::Registered).unwrap().0
        })
    }

    fn texts(ids: &[&str]) -> Vec<String> {
        ids.iter().map(|id| (*id).to_owned()).collect()
    }

    fn blocking(scope: Scope<'_>, tool: &str) -> Option<Layer> {
        let catalogue = catalogue(&["kb:Query", "read_file", "give", "cancel_all"]);
        let tool = catalogue.get(tool).unwrap();
        let layers = scope.layers(tool, &catalogue);
        let layer = layers.iter().find(|verdict| !verdict.passes)?;
        assert!(layer.remedy.contains(tool.id()), "{}", layer.remedy);
        Some(layer.layer)
    }

    #[test]
    fn r501_without_a_scope_every_tool_passes() {
        assert_eq!(blocking(Scope::default(), "give"), None);
    }

    #[test]
    fn r501_an_agent_has_what_its_inventory_names_by_id_or_alias() {
        let agent = AgentTools {
            profile_id: "p".to_owned(),
            tool_ids: texts(&["kb__Query", "read_file"]),
            handle_tool_ids: texts(&["cancel_all"]),
            ..AgentTools::default()
        };
        let scope = Scope {
            agent: Some(&agent),
            ..Scope::default()
        };
        for (tool, layer) in [
            ("kb:Query", None),
            ("read_file", None),
            ("cancel_all", None),
            ("give", Some(Layer::Inventory)),
        ] {
            assert_eq!(blocking(scope, tool), layer, "{tool}");
        }
    }

    #[test]
    fn g307_a_name_that_only_the_agent_has_for_a_tool_means_it_and_all_others_themselves() {
        let agent = AgentTools {
            tool_ids: texts(&["SleepTool", "agent:scene_1.scout", "kb__Query"]),
            names: texts(&["core:Sleep", "agent:scout", "kb__Query"]),
            ..AgentTools::default()
        };
        for (written, means) in [
            ("core:Sleep", "SleepTool"),
            ("core__Sleep", "SleepTool"),
            ("agent__scout", "agent:scene_1.scout"),
            ("kb__Query", "kb__Query"),
            ("give", "give"),
        ] {
            assert_eq!(agent.tool_named(written), means);
        }
    }

    #[test]
    fn w29_a_node_adds_to_its_workflow_and_its_own_tools_take_the_place_of_those() {
        let workflow = |listed: &[&str], has_listing_nodes| WorkflowTools {
            workflow_id: "w".to_owned(),
            node_path: "ask".to_owned(),
            initial: texts(&["read_file"]),
            listed: texts(listed),
            has_listing_nodes,
        };
        for (listed, has_listing_nodes, tool, layer) in [
            (&["read_file", "give"][..], true, "give", None),
            (&["read_file", "give"], true, "read_file", None),
            (&["read_file"], true, "give", Some(Layer::Workflow)),
            (&["give"], true, "read_file", Some(Layer::Node)),
            (&[], false, "give", None),
        ] {
            let workflow = workflow(listed, has_listing_nodes);
            let scope = Scope {
                workflow: Some(&workflow),
                ..Scope::default()
            };
            assert_eq!(blocking(scope, tool), layer, "{tool} of {listed:?}");
        }
    }
}
