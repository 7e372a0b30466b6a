//! A workflow as it was written, in either of the two forms of its text.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::slot::{Shape, Slot};

/// The two forms in which definitions are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A workflow file as the editor stores it: `type`, `source`, `target`, `inputValues`.
    Storage,
    /// A `WorkflowExecutionPayload`: `fullType`, `sourceNodeId`, `targetNodeId`, `inputs`.
    Payload,
}

impl Form {
    /// Returns the name of a node's key for its type.
    pub fn type_key(self) -> &'static str {
        match self {
            Form::Storage => "type",
            Form::Payload => "fullType",
        }
    }

    /// Returns the name of a node's key for its preset values.
    pub fn presets_key(self) -> &'static str {
        match self {
            Form::Storage => "inputValues",
            Form::Payload => "inputs",
        }
    }

    /// Returns the names of an edge's keys for its two nodes.
    pub fn end_keys(self) -> (&'static str, &'static str) {
        match self {
            Form::Storage => ("source", "target"),
            Form::Payload => ("sourceNodeId", "targetNodeId"),
        }
    }
}

/// A workflow as it was written. Unknown keys stay in the text, which is stored and returned.
#[derive(Clone, Debug)]
pub struct Workflow {
    /// The form of the text.
    pub form: Form,
    /// The name for people; empty if the text has none.
    pub name: String,
    /// The description; empty if the text has none.
    pub description: String,
    /// The nodes in the order of the text.
    pub nodes: Vec<NodeEntry>,
    /// The edges in the order of the text.
    pub edges: Vec<EdgeEntry>,
    /// The inputs of the workflow.
    pub interface_inputs: Vec<Slot>,
    /// The outputs of the workflow.
    pub interface_outputs: Vec<Slot>,
    /// The sources of a payload's outputs; outputs that are not here come from the edges into
    /// GroupOutput.
    pub output_mappings: Vec<OutputMapping>,
}

/// One node.
#[derive(Clone, Debug)]
pub struct NodeEntry {
    /// The id, unique in its workflow.
    pub id: String,
    /// The full type, such as `core:TextMerge`.
    pub full_type: String,
    /// Values for inputs without an edge.
    pub presets: Map<String, Value>,
    /// The settings.
    pub config: Arc<Map<String, Value>>,
    /// For inputs that accept several edges: the ids of the edges in the order of their values.
    pub connection_orders: HashMap<String, Vec<String>>,
    /// Whether the node does not run: values pass by it.
    pub bypassed: bool,
    /// Whether inputs without an edge take the workflow's input of the same key. Only a node that
    /// is run by itself has this.
    pub fed_by_interface: bool,
    /// The interface that the node's slots follow, if it is not the workflow's own: the interface
    /// of the group that the node belongs to, or of the workflow that it refers to.
    pub interface: Option<Shape>,
    /// The id of the node around it on the canvas; once groups are flattened, of the zone around
    /// it.
    pub parent: Option<String>,
    /// The place of the node in the text.
    pub pointer: String,
}

/// One edge.
#[derive(Clone, Debug)]
pub struct EdgeEntry {
    /// The id; empty if it has none.
    pub id: String,
    /// The id of the node that it comes from.
    pub source: String,
    /// The output that it comes from; none if the text names none.
    pub source_handle: Option<String>,
    /// The id of the node that it leads to.
    pub target: String,
    /// The input that it leads to; none if the text names none.
    pub target_handle: Option<String>,
    /// The place of the edge in the text.
    pub pointer: String,
}

/// The source of an interface output.
#[derive(Clone, Debug)]
pub struct OutputMapping {
    /// The key of the interface output.
    pub key: String,
    /// The node.
    pub node: String,
    /// Its output.
    pub slot: String,
    /// The place of the mapping in the text.
    pub pointer: String,
}

impl NodeEntry {
    /// Makes a node without presets, settings and place in the text.
    pub fn new(id: impl Into<String>, full_type: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            full_type: full_type.into(),
            presets: Map::new(),
            config: Arc::default(),
            connection_orders: HashMap::new(),
            bypassed: false,
            fed_by_interface: false,
            interface: None,
            parent: None,
            pointer: String::new(),
        }
    }
}

impl Workflow {
    /// Wraps a single node: its inputs become the workflow's inputs, its outputs the workflow's
    /// outputs, and there are no edges. `given` are the run's inputs, by which the slots of some
    /// node types are known.
    pub fn of_single_node(
        full_type: &str,
        config: Map<String, Value>,
        given: Map<String, Value>,
        shape: &Shape,
    ) -> Self {
        let outputs = &shape.outputs;
        let mappings = outputs.iter().map(|slot| OutputMapping {
            key: slot.key.to_string(),
            node: SINGLE_NODE_ID.to_owned(),
            slot: slot.key.to_string(),
            pointer: String::new(),
        });
        Self {
            form: Form::Payload,
            name: full_type.to_owned(),
            description: String::new(),
            nodes: vec![NodeEntry {
                presets: given,
                config: config.into(),
                fed_by_interface: true,
                pointer: "/node".to_owned(),
                ..NodeEntry::new(SINGLE_NODE_ID, full_type)
            }],
            edges: Vec::new(),
            interface_inputs: shape.inputs.to_vec(),
            interface_outputs: outputs.to_vec(),
            output_mappings: mappings.collect(),
        }
    }
}

/// The id of the node of [`Workflow::of_single_node`].
pub const SINGLE_NODE_ID: &str = "node";
