//! A workflow that was checked and turned into integer indices.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::data_flow::Input;
use super::execution::Execution;
use super::node_definition::{InterfaceRole, NodeDefinition, NodeEffects};
use super::node_type::{NodeCall, NodeType};
use super::slot::{Shape, Slot};

/// The place of a node in [`Plan::nodes`].
pub type NodeIndex = u32;

/// A workflow ready to run.
#[derive(Debug)]
pub struct Plan {
    /// The name for people.
    pub name: String,
    /// The description.
    pub description: String,
    /// The nodes, in the order of the text.
    pub nodes: Vec<PlanNode>,
    /// The inputs of the workflow.
    pub interface_inputs: Vec<Slot>,
    /// The outputs of the workflow.
    pub interface_outputs: Vec<Slot>,
    /// The source of each interface output, in the order of the interface.
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
    /// Its type.
    pub node: Arc<NodeType>,
    /// Its slots.
    pub shape: Shape,
    /// Its settings.
    pub config: Arc<Map<String, Value>>,
    /// The sources of each input.
    pub inputs: Box<[PlanInput]>,
    /// Whether each output has a reader.
    pub used: Box<[bool]>,
    /// The nodes that need its outputs, each once.
    pub successors: Box<[NodeIndex]>,
    /// The number of nodes whose outputs it needs.
    pub predecessors: u32,
    /// Whether it does not run: values pass by it.
    pub bypassed: bool,
    /// Its time limits, its retries, and the handling of its failure; none for a node without such
    /// settings.
    pub execution: Option<Box<Execution>>,
    /// Its slots in the view of the node itself.
    pub own_shape: Shape,
    /// The plan that a zone repeats; none for any other node.
    pub body: Option<Arc<Plan>>,
}

impl Plan {
    /// Returns the output of a source; none if the source is no node.
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
    /// Returns the sources of the values.
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

    /// Whether the node, or a node that it repeats, has an effect.
    pub fn has_effects(&self) -> bool {
        self.definition().effects != NodeEffects::Pure || self.repeats_effects()
    }

    /// Collects the data of the node's execution.
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

/// The sources of an input. An edge precedes the preset, the preset precedes the default; an edge
/// without a value counts as none.
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
    /// A value that the slot accepts unchanged: an input of the run.
    Whole(Source),
    /// One edge into a slot for one value.
    One(Source),
    /// The edges into a slot for many values, in the order of the values.
    Many(Box<[ManyEdge]>),
}

/// One of the edges into a slot for many values.
#[derive(Debug)]
pub struct ManyEdge {
    /// The source.
    pub source: Source,
    /// Whether it brings an array whose items are the values.
    pub spread: bool,
}

/// The source of a value.
#[derive(Clone, Debug)]
pub enum Source {
    /// No source.
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
