//! The interface of a node type.
//!
//! A node never does I/O. A pure node returns its outputs at once; any other describes the
//! [`Effect`] that it needs, the runner carries it out, and the node makes outputs of the result.
//! That keeps every node a function, and every effect in one place.

use call_outcome::{Failure, Violation};
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::data_flow::{DataFlow, Input, Values};
use super::model::{ModelAnswer, ModelMessage, ModelRequest};
use super::node_definition::NodeDefinition;
use super::seed::seed;
use super::slot::{Shape, Slot};
use super::tool::{ToolOutcome, ToolRequest};
use super::wait::{WaitRequest, Wake};

/// The context that the slots of a node may depend on.
#[derive(Clone, Copy, Debug)]
pub struct ShapeContext<'a> {
    /// The definition of the node's type.
    pub definition: &'a NodeDefinition,
    /// The node's `configValues`.
    pub config: &'a Map<String, Value>,
    /// The node's `inputValues`.
    pub presets: &'a Map<String, Value>,
    /// The inputs that edges lead to, sub-handles already taken off.
    pub connected: &'a [&'a str],
    /// The inputs of the workflow.
    pub interface_inputs: &'a [Slot],
    /// The outputs of the workflow.
    pub interface_outputs: &'a [Slot],
    /// The interface of the group that the node belongs to, or of the workflow that it refers to.
    pub own_interface: Option<&'a Shape>,
}

impl ShapeContext<'_> {
    /// Returns the inputs of the node beyond `known` that this workflow names: connected ones
    /// first, then preset ones.
    pub fn further_inputs(&self, known: &[Slot]) -> Vec<Slot> {
        let mut further: Vec<Slot> = Vec::new();
        let names = self
            .connected
            .iter()
            .copied()
            .chain(self.presets.keys().map(String::as_str));
        let mut seen: std::collections::HashSet<&str> =
            known.iter().map(|slot| &*slot.key).collect();
        for name in names {
            if seen.insert(name) {
                further.push(Slot::new(
                    name,
                    DataFlow::Wildcard,
                    "Named by the workflow.",
                ));
            }
        }
        further
    }
}

/// The data of a node's execution.
#[derive(Clone, Copy, Debug)]
pub struct NodeCall<'a> {
    /// The node's slots.
    pub shape: &'a Shape,
    /// The node's `configValues`.
    pub config: &'a Map<String, Value>,
    /// A value for each input of the shape, of the slot's type; none where it is missing.
    pub inputs: &'a [Option<Input<'a>>],
    /// The node's id.
    pub id: &'a str,
    /// The seed of the run.
    pub run_seed: u64,
    /// The text that the requested tools wrote while they ran, in the order of its calls; empty for
    /// any other effect.
    pub written: &'a str,
}

impl NodeCall<'_> {
    /// Returns the value of the input at `place`.
    pub fn value(&self, place: usize) -> Option<&Arc<Value>> {
        self.inputs.get(place)?.as_deref()
    }

    /// Returns the value of the input named `key`.
    pub fn named(&self, key: &str) -> Option<&Arc<Value>> {
        self.value(self.shape.input(key)?)
    }

    /// Returns the inputs with a value, from the input at `place` on.
    pub fn given(&self, place: usize) -> impl Iterator<Item = (&Slot, &Value)> {
        let inputs = self.shape.inputs.iter().zip(self.inputs).skip(place);
        inputs.filter_map(|(slot, value)| Some((slot, value.as_deref()?.as_ref())))
    }

    /// Returns the inputs as owned values, which outlive the call.
    pub fn owned_inputs(&self) -> Values {
        let inputs = self.inputs.iter().cloned();
        inputs.map(|input| input.map(Cow::into_owned)).collect()
    }

    /// Returns all inputs by name, null for missing ones.
    pub fn inputs_by_name(&self) -> Value {
        let inputs = self.shape.inputs.iter().zip(self.inputs);
        let inputs = inputs.map(|(slot, value)| {
            let value = value
                .as_deref()
                .map_or(Value::Null, |value| value.as_ref().clone());
            (slot.key.to_string(), value)
        });
        Value::Object(inputs.collect())
    }

    /// Returns a number that differs between runs and between the nodes of one, and is the same each
    /// time the same node of the same run is executed.
    pub fn seed(&self) -> u64 {
        seed(self.run_seed, self.id)
    }

    /// Returns the text of the input at `place`.
    pub fn text(&self, place: usize) -> Option<&str> {
        self.value(place).and_then(|value| value.as_str())
    }
}

/// An action that only the runner can do for a node.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Call a tool through the registry.
    CallTool {
        /// The tool's id.
        tool_id: String,
        /// The arguments.
        arguments: Map<String, Value>,
    },
    /// Run a script in the sandbox.
    RunScript {
        /// The runtime, as the sandbox names it.
        language: String,
        /// The script.
        code: String,
        /// The input of the script.
        input: Value,
        /// The time limit, in milliseconds; the sandbox's default if none.
        wall_millis: Option<u64>,
        /// The type of the values that it yields as lines of standard output; none if it writes
        /// text.
        yields: Option<DataFlow>,
    },
    /// Call tools in order, neighbours that are parallel-safe together, up to the first that fails.
    CallTools(Vec<ToolRequest>),
    /// Request the descriptions of the tools with these ids from the registry.
    DescribeTools(Vec<String>),
    /// Read or extend a conversation.
    History(HistoryRequest),
    /// Call a language model.
    AskModel(ModelRequest),
    /// Run the iterations of the zone.
    RunZone {
        /// A value for each input of the zone.
        inputs: Values,
    },
}

/// A request to a conversation of the agent runtime. An empty id is the conversation of the run.
#[derive(Clone, Debug, PartialEq)]
pub enum HistoryRequest {
    /// Read its newest messages.
    Load {
        /// The id.
        conversation_id: String,
        /// The most messages.
        limit: usize,
    },
    /// Append the messages that it does not end with yet.
    Save {
        /// The id.
        conversation_id: String,
        /// The chat.
        messages: Vec<ModelMessage>,
        /// The revision that it must have; none for any.
        expected_revision: Option<u64>,
    },
}

impl HistoryRequest {
    /// Returns the request with the conversation of the run if it names none.
    pub fn in_run(mut self, of_run: &str) -> Self {
        let (Self::Load {
            conversation_id, ..
        }
        | Self::Save {
            conversation_id, ..
        }) = &mut self;
        if conversation_id.is_empty() {
            of_run.clone_into(conversation_id);
        }
        self
    }
}

/// The result of an [`Effect`].
#[derive(Clone, Debug, PartialEq)]
pub enum Settled {
    /// The tool succeeded with this output.
    Tool {
        /// The output of the tool.
        output: Value,
        /// The run that carried the call out; empty if it has none of its own.
        child_run_id: String,
    },
    /// The tool did not succeed.
    ToolFailed {
        /// The end of the call, in lower case: `failed`, `rejected`, `cancelled` or `skipped`.
        status: &'static str,
        /// The failure.
        failure: Failure,
    },
    /// The script ended by itself with code 0.
    Script {
        /// The value on the result channel; null if it wrote none.
        result: Value,
        /// Its standard output: the text, or the array of the values that it yielded.
        written: Value,
        /// Its standard error.
        stderr: String,
    },
    /// The calls of a list ended: one for each, up to one whose failure stopped the rest.
    Calls(Vec<ToolOutcome>),
    /// The tools as items of a list of tools.
    Tools(Vec<Value>),
    /// The conversation was read or extended.
    History {
        /// The messages that were read or appended.
        messages: Vec<ModelMessage>,
        /// Its revision.
        revision: u64,
    },
    /// The model answered.
    Model(ModelAnswer),
    /// The zone returned a value for each of its outputs.
    Zone(Vec<Arc<Value>>),
    /// The wait of the node has ended.
    Woken {
        /// The cause.
        wake: Wake,
        /// The due time, as a time of RFC 3339 in UTC; empty if it had none.
        due: String,
    },
}

/// The result of running a node.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// A value for each output of its shape.
    Done(Vec<Arc<Value>>),
    /// Values for some outputs; the others are absent, and nodes that need them do not run.
    Branch(Values),
    /// It needs an effect first.
    Effect(Effect),
    /// It waits.
    Wait(Box<WaitRequest>),
}

/// The behaviour of a node type.
pub trait Node: Send + Sync + std::fmt::Debug {
    /// Makes the definition that all nodes of the type share.
    fn definition(&self) -> NodeDefinition;

    /// Returns the slots of one node, which may depend on its settings and its workflow.
    ///
    /// # Errors
    /// All problems with the settings; pointers are relative to the node.
    fn shape(&self, context: &ShapeContext<'_>) -> Result<Shape, Vec<Violation>> {
        Ok(context.definition.shape.clone())
    }

    /// Runs the node, or its first half.
    ///
    /// # Errors
    /// The [`Failure`] of the node.
    fn run(&self, call: NodeCall<'_>) -> Result<Step, Failure>;

    /// Makes outputs of the result of the effect that [`Node::run`] requested.
    ///
    /// # Errors
    /// The [`Failure`] of the node.
    fn settle(&self, _call: NodeCall<'_>, _settled: Settled) -> Result<Vec<Arc<Value>>, Failure> {
        let name = self.definition().full_type;
        Err(Failure::new(
            call_outcome::Category::Internal,
            "no_effect",
            format!("{name} asks for no effect"),
        ))
    }
}

/// A node type: a behaviour, with its definition.
#[derive(Debug)]
pub struct NodeType {
    definition: NodeDefinition,
    node: Box<dyn Node>,
}

impl NodeType {
    /// Makes the type of a behaviour.
    pub fn new(node: impl Node + 'static) -> Arc<Self> {
        Arc::new(Self {
            definition: node.definition(),
            node: Box::new(node),
        })
    }

    /// Returns the definition of the type.
    pub fn definition(&self) -> &NodeDefinition {
        &self.definition
    }

    /// Returns the full type.
    pub fn full_type(&self) -> &str {
        &self.definition.full_type
    }
}

impl std::ops::Deref for NodeType {
    type Target = dyn Node;

    fn deref(&self) -> &Self::Target {
        &*self.node
    }
}

/// All node types by full type.
#[derive(Clone, Debug, Default)]
pub struct Catalogue {
    nodes: Vec<Arc<NodeType>>,
    by_type: HashMap<String, usize>,
}

impl Catalogue {
    /// Collects node types; of two with the same full type the later one counts.
    pub fn new(nodes: impl IntoIterator<Item = Arc<NodeType>>) -> Self {
        let mut nodes: Vec<Arc<NodeType>> = nodes.into_iter().collect();
        nodes.sort_by(|one, other| one.full_type().cmp(other.full_type()));
        let by_type = nodes
            .iter()
            .enumerate()
            .map(|(at, node)| (node.full_type().to_owned(), at))
            .collect();
        Self { nodes, by_type }
    }

    /// Finds a node type.
    pub fn get(&self, full_type: &str) -> Option<&Arc<NodeType>> {
        self.by_type
            .get(full_type)
            .and_then(|at| self.nodes.get(*at))
    }

    /// Returns all node types, by full type.
    pub fn all(&self) -> &[Arc<NodeType>] {
        &self.nodes
    }

    /// Returns the names of all node types.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.nodes.iter().map(|node| node.full_type())
    }
}
