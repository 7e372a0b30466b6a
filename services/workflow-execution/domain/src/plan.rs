//! A workflow that was checked and turned into integer indices.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::data_flow::Input;
use super::execution::Execution;
use super::node_definition::{InterfaceRole, NodeDefinition, NodeEffects};
use super::node_type::{Node, NodeCall};
use super::slot::{Shape, Slot};

/// The place of a node in [`Plan::nodes`].
pub type NodeIndex = u32;

/// A workflow ready to run.
#[derive(Debug)]
pub struct Plan {
    /// The name for people.
    pub name: String,
    /// What it does.
    pub description: String,
    /// The nodes, in the order of the text.
    pub nodes: Vec<PlanNode>,
    /// The inputs of the workflow.
    pub interface_inputs: Vec<Slot>,
    /// The outputs of the workflow.
    pub interface_outputs: Vec<Slot>,
    /// Where each interface output comes from, in the order of the interface.
    pub outputs: Vec<Source>,
    /// The place of each node by its id.
    pub by_id: HashMap<Arc<str>, NodeIndex>,
    /// Whether a node of it, or of a zone in it, has an effect.
    pub has_effects: bool,
}

/// A node ready to run.
#[derive(Debug)]
pub struct PlanNode {
    /// The id.
    pub id: Arc<str>,
    /// What it does.
    pub node: Arc<dyn Node>,
    /// Its slots.
    pub shape: Shape,
    /// Its settings.
    pub config: Arc<Map<String, Value>>,
    /// Where the value of each input comes from.
    pub inputs: Box<[PlanInput]>,
    /// Whether anything takes the value of each output.
    pub used: Box<[bool]>,
    /// The nodes that need its outputs, each once.
    pub successors: Box<[NodeIndex]>,
    /// How many nodes it needs the outputs of.
    pub predecessors: u32,
    /// Whether it does not run: values pass by it.
    pub bypassed: bool,
    /// How long it may take, how often it is tried, and what becomes of its failure; nothing for a
    /// node without such settings.
    pub execution: Option<Box<Execution>>,
    /// Its slots as the node itself knows them.
    pub own_shape: Shape,
    /// What a zone repeats; nothing for any other node.
    pub body: Option<Arc<Plan>>,
}

impl Plan {
    /// Returns the output that a value comes from; nothing if no node gives it.
    pub fn output_of(&self, source: &Source) -> Option<&Slot> {
        match source {
            Source::Output { node, slot } => {
                let node = self.nodes.get(*node as usize)?;
                node.shape.outputs.get(*slot as usize)
            }
            _ => None,
        }
    }
}

impl Edges {
    /// Returns where the values come from.
    pub fn sources(&self) -> impl Iterator<Item = &Source> {
        let (single, many) = match self {
            Edges::None => (None, &[][..]),
            Edges::Whole(source) | Edges::One(source) => (Some(source), &[][..]),
            Edges::Many(edges) => (None, &edges[..]),
        };
        single
            .into_iter()
            .chain(many.iter().map(|edge| &edge.source))
    }
}

impl PlanNode {
    /// Returns the definition of the node's type.
    pub fn definition(&self) -> &NodeDefinition {
        self.node.definition()
    }

    /// Whether the node runs although inputs of it are absent, and leaves its outputs of the same
    /// keys absent (rule W7).
    pub fn accepts_absent(&self) -> bool {
        matches!(
            self.definition().role,
            InterfaceRole::Entry | InterfaceRole::Exit
        )
    }

    /// Whether the node is a zone whose nodes have effects.
    pub fn repeats_effects(&self) -> bool {
        self.body.as_ref().is_some_and(|body| body.has_effects)
    }

    /// Whether the node has an effect, or a node that it repeats does.
    pub fn has_effects(&self) -> bool {
        self.definition().effects != NodeEffects::Pure || self.repeats_effects()
    }

    /// Puts together what the node sees when it runs.
    pub fn call<'a>(&'a self, inputs: &'a [Option<Input<'a>>]) -> NodeCall<'a> {
        NodeCall {
            shape: &self.own_shape,
            config: &self.config,
            inputs,
            id: &self.id,
            run_seed: 0,
            written: "",
        }
    }
}

/// Where the value of an input comes from. An edge counts before the preset, the preset before the
/// default; an edge that brings nothing counts as none.
#[derive(Debug)]
pub struct PlanInput {
    /// The edges.
    pub edges: Edges,
    /// The preset, else the default, already of the slot's type.
    pub fallback: Option<Arc<Value>>,
}

/// The edges into an input.
#[derive(Debug)]
pub enum Edges {
    /// No edge.
    None,
    /// A value that is already as the slot wants it: an input of the run.
    Whole(Source),
    /// One edge into a slot for one value.
    One(Source),
    /// The edges into a slot for many values, in the order of the values.
    Many(Box<[ManyEdge]>),
}

/// One of the edges into a slot for many values.
#[derive(Debug)]
pub struct ManyEdge {
    /// Where it comes from.
    pub source: Source,
    /// Whether it brings an array whose items are the values.
    pub spread: bool,
}

/// Where a value comes from.
#[derive(Clone, Debug)]
pub enum Source {
    /// From nowhere.
    Absent,
    /// From the text of the workflow.
    Constant(Arc<Value>),
    /// From the run's input at this place of the interface.
    RunInput(u32),
    /// From an output of a node.
    Output {
        /// The node.
        node: NodeIndex,
        /// The place of the output among the node's outputs.
        slot: u32,
    },
}
