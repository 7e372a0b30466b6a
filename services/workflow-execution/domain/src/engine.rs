//! The workflow engine: a pure state machine.
//!
//! Events go in, commands come out. A node is executed once all nodes that it needs have succeeded;
//! when one fails, its dependents are skipped and everything else continues (rule W6). So is a node
//! that an absent output leads to, and its own outputs are absent in turn (W7). The engine does no
//! I/O and reads no clock, so that a recorded history, fed through the same [`Engine::apply`],
//! results in the same state; [`Engine::outstanding`] then returns the remaining commands.
//!
//! | status of a node | event | becomes |
//! |---|---|---|
//! | waiting | last needed node succeeded or was not taken | ready, command *execute* |
//! | waiting | the same, and an input is absent | untaken, command *skip* |
//! | waiting | a needed node failed, or was skipped for that | condemned, command *skip* |
//! | waiting | a node that it reads a stream from failed | ready, command *execute*, which fails |
//! | ready | started | running |
//! | ready, running | succeeded | succeeded |
//! | ready, running | failed, and its settings handle that | succeeded |
//! | ready, running | failed | failed |
//! | condemned, untaken | skipped | skipped |

use call_outcome::{Category, Failure};
use std::sync::Arc;

use serde_json::{Map, Value};

use super::data_flow::{Inputs, NULL, Values};
use super::gather::{OutputTable, fetch, gather, is_absent};
use super::interface::RunInputs;
use super::limits::{MAX_RUN_BYTES, MAX_VALUE_BYTES};
use super::plan::{Edges, NodeIndex, Plan, PlanNode, Source};
use super::seed::seed;
use super::size::weight;
use super::stream::{producers, readers};

/// The status of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It waits for outputs of other nodes.
    Waiting,
    /// It has been commanded to execute.
    Ready,
    /// It has begun an action that takes time.
    Running,
    /// It returned its outputs.
    Succeeded,
    /// It returned none.
    Failed,
    /// It has been commanded to be skipped, because a node that it needs failed.
    Condemned,
    /// It has been commanded to be skipped, because an output that it needs is absent.
    Untaken,
    /// It never ran.
    Skipped,
}

impl Status {
    /// Returns the name for messages.
    pub fn name(self) -> &'static str {
        match self {
            Status::Waiting => "waiting",
            Status::Ready => "ready",
            Status::Running => "running",
            Status::Succeeded => "done",
            Status::Failed => "failed",
            Status::Condemned | Status::Untaken => "not to run",
            Status::Skipped => "skipped",
        }
    }
}

/// An event of a node.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// It began an action that takes time.
    Started(NodeIndex),
    /// It returned its outputs.
    Succeeded(NodeIndex, Values),
    /// It failed, and its settings replaced the failure by outputs.
    Handled(NodeIndex, Values, Arc<Failure>),
    /// It returned none.
    Failed(NodeIndex, Arc<Failure>),
    /// It was skipped.
    Skipped(NodeIndex),
}

impl Event {
    /// Returns the node of the event.
    pub fn node(&self) -> NodeIndex {
        match self {
            Event::Started(node)
            | Event::Succeeded(node, _)
            | Event::Handled(node, ..)
            | Event::Failed(node, _)
            | Event::Skipped(node) => *node,
        }
    }
}

/// An action for the runner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Run the node.
    Execute(NodeIndex),
    /// Record that the node does not run.
    Skip {
        /// The node.
        node: NodeIndex,
        /// The failed or skipped node that it needed, or the node whose output is absent.
        because: NodeIndex,
        /// The reason.
        reason: SkipReason,
    },
}

/// The reason for which a node does not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SkipReason {
    /// A node that it needs, directly or not, has failed (rule W6).
    UpstreamFailed,
    /// An output that it needs is absent (rule W7).
    BranchNotTaken,
}

impl SkipReason {
    /// Returns the code in the error of a skipped node.
    pub fn code(self) -> &'static str {
        match self {
            SkipReason::UpstreamFailed => "upstream_failed",
            SkipReason::BranchNotTaken => "branch_not_taken",
        }
    }
}

/// An event that cannot have happened in this state: the history belongs to another plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the history does not fit the workflow: node {node} is {} and {event}", .status.map_or("unknown", Status::name))]
pub struct Divergence {
    /// The node's id, or its number if there is no such node.
    pub node: String,
    /// The status of the node.
    pub status: Option<Status>,
    /// The reported event.
    pub event: &'static str,
}

/// The end of a run.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// Every node succeeded; the interface outputs by key.
    Succeeded(Map<String, Value>),
    /// At least one node failed; the first of them, and all of them.
    Failed {
        /// The node that failed first.
        first: NodeIndex,
        /// The failure.
        failure: Arc<Failure>,
        /// All failed nodes, in the order of their failures.
        all: Vec<NodeIndex>,
    },
    /// Every node succeeded, but the interface outputs are too large to keep.
    TooLarge {
        /// The approximate number of bytes.
        bytes: usize,
    },
}

/// The state of one run.
#[derive(Clone, Debug)]
pub struct Engine {
    plan: Arc<Plan>,
    inputs: RunInputs,
    statuses: Vec<Status>,
    /// The number of needed nodes that have not succeeded yet, by node.
    missing: Vec<u32>,
    outputs: OutputTable,
    /// The node because of which a condemned or untaken node does not run, by node.
    skipped_by: Vec<NodeIndex>,
    /// Whether any output is absent; if none is, no node is checked for absent inputs.
    any_absent: bool,
    failures: Vec<(NodeIndex, Arc<Failure>)>,
    handled: Vec<(NodeIndex, Arc<Failure>)>,
    open: usize,
    bytes: usize,
    seed: u64,
}

impl Engine {
    /// Begins a run and commands the nodes that need no others.
    pub fn start(plan: Arc<Plan>, inputs: RunInputs, commands: &mut Vec<Command>) -> Self {
        let count = plan.nodes.len();
        let mut engine = Self {
            inputs,
            statuses: vec![Status::Waiting; count],
            missing: plan.nodes.iter().map(|node| node.predecessors).collect(),
            outputs: vec![None; count],
            skipped_by: (0..count).map(|node| node as NodeIndex).collect(),
            any_absent: false,
            failures: Vec::new(),
            handled: Vec::new(),
            open: count,
            bytes: 0,
            seed: 0,
            plan,
        };
        for node in 0..count {
            if engine.missing[node] == 0 {
                engine.statuses[node] = Status::Ready;
                commands.push(Command::Execute(node as NodeIndex));
            }
        }
        engine
    }

    /// Sets the seed of the run, which makes its random numbers differ from those of other runs.
    pub fn with_seed(mut self, run_id: &str) -> Self {
        self.seed = seed(0, run_id);
        self
    }

    /// Returns the seed of the run.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Returns the seed of a node.
    pub fn seed_of(&self, node: NodeIndex) -> u64 {
        seed(self.seed, &self.node(node).id)
    }

    /// Returns the plan of the run.
    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// Returns a node of the plan.
    pub fn node(&self, node: NodeIndex) -> &PlanNode {
        &self.plan.nodes[node as usize]
    }

    /// Returns the status of a node.
    pub fn status(&self, node: NodeIndex) -> Status {
        self.statuses[node as usize]
    }

    /// Applies an event and appends the commands that follow from it.
    ///
    /// # Errors
    /// [`Divergence`] if it cannot have happened; the state is as it was.
    pub fn apply(&mut self, event: Event, commands: &mut Vec<Command>) -> Result<(), Divergence> {
        let node = event.node();
        let Some(status) = self.statuses.get(node as usize).copied() else {
            return Err(Divergence {
                node: node.to_string(),
                status: None,
                event: "does not exist",
            });
        };
        match (status, event) {
            (Status::Ready, Event::Started(_)) => self.statuses[node as usize] = Status::Running,
            (Status::Ready | Status::Running, Event::Succeeded(_, outputs)) => {
                self.succeed(node, outputs, commands)
            }
            (Status::Ready | Status::Running, Event::Handled(_, outputs, failure)) => {
                self.handled.push((node, failure));
                self.succeed(node, outputs, commands);
            }
            (Status::Ready | Status::Running, Event::Failed(_, failure)) => {
                self.fail(node, failure, commands)
            }
            (Status::Condemned, Event::Skipped(_)) => self.settle(node, Status::Skipped),
            (Status::Untaken, Event::Skipped(_)) => {
                self.settle(node, Status::Skipped);
                self.release(node, commands);
            }
            (_, event) => return Err(self.divergence(node, &event)),
        }
        Ok(())
    }

    /// Returns the commands that have not been answered, in the order of the plan. Running nodes
    /// are included: the caller has lost track of them.
    pub fn outstanding(&self) -> Vec<Command> {
        let mut commands = Vec::new();
        for (node, status) in self.statuses.iter().enumerate() {
            let node = node as NodeIndex;
            match status {
                Status::Ready | Status::Running => commands.push(Command::Execute(node)),
                Status::Condemned => {
                    commands.push(self.skip(node, SkipReason::UpstreamFailed));
                }
                Status::Untaken => commands.push(self.skip(node, SkipReason::BranchNotTaken)),
                _ => {}
            }
        }
        commands
    }

    /// Returns the outcome of the run, once all nodes have ended.
    pub fn outcome(&self) -> Option<Outcome> {
        if self.open > 0 {
            return None;
        }
        let Some((first, failure)) = self.failures.first() else {
            return Some(self.result());
        };
        let all = self.failures.iter().map(|(node, _)| *node).collect();
        Some(Outcome::Failed {
            first: *first,
            failure: Arc::clone(failure),
            all,
        })
    }

    /// Returns a value for each input of a node that is ready or running.
    ///
    /// # Errors
    /// A missing or mistyped value fails the node.
    pub fn inputs_of(&self, node: NodeIndex) -> Result<Inputs<'_>, Failure> {
        let mut inputs = Inputs::new();
        self.gather_inputs(node, &mut inputs)?;
        Ok(inputs)
    }

    /// Puts a value for each input of a node that is ready or running into `inputs`.
    ///
    /// # Errors
    /// A missing or mistyped value fails the node.
    pub(crate) fn gather_inputs<'a>(
        &'a self,
        node: NodeIndex,
        inputs: &mut Inputs<'a>,
    ) -> Result<(), Failure> {
        if let Some((producer, failure)) = self.broken_stream(node) {
            let id = &self.node(producer).id;
            let message = format!("node `{id}` failed while it wrote: {}", failure.message);
            return Err(Failure::new(Category::Runtime, "stream_broken", message));
        }
        let planned = self.node(node);
        gather(&self.plan, planned, &self.inputs, &self.outputs, inputs)
    }

    /// Returns the outputs of a node that has succeeded.
    pub fn outputs_of(&self, node: NodeIndex) -> Option<&Values> {
        self.outputs.get(node as usize)?.as_ref()
    }

    /// Returns the failures that the settings of their nodes handled, in order.
    pub fn handled(&self) -> &[(NodeIndex, Arc<Failure>)] {
        &self.handled
    }

    /// Returns a value for each interface output; none where it is absent.
    pub fn interface_values(&self) -> Values {
        let sources = self.plan.outputs.iter();
        sources
            .map(|source| fetch(source, &self.inputs, &self.outputs).cloned())
            .collect()
    }

    /// Returns the interface outputs whose source has finished, and the keys of the others (rule W8).
    pub fn partial_result(&self) -> (Map<String, Value>, Vec<String>) {
        let (mut values, mut missing, mut bytes) = (Map::new(), Vec::new(), 0);
        for (slot, source) in self.plan.interface_outputs.iter().zip(&self.plan.outputs) {
            let value = fetch(self.behind_exit(source), &self.inputs, &self.outputs);
            bytes += value.map_or(0, |value| weight(value));
            match value.filter(|_| bytes <= MAX_VALUE_BYTES) {
                Some(value) => drop(values.insert(slot.key.to_string(), value.as_ref().clone())),
                None => missing.push(slot.key.to_string()),
            }
        }
        (values, missing)
    }

    /// Returns the source behind an exit node that did not run.
    fn behind_exit<'a>(&'a self, source: &'a Source) -> &'a Source {
        let mut source = source;
        while let Source::Output { node, slot } = source {
            let planned = self.node(*node);
            let input = planned.inputs.get(*slot as usize);
            let Some(Edges::One(behind)) = input.map(|input| &input.edges) else {
                break;
            };
            if !planned.accepts_absent() || self.outputs_of(*node).is_some() {
                break;
            }
            source = behind;
        }
        source
    }

    /// Returns whether outputs of `bytes` still fit into the memory that a run may hold.
    pub fn has_room_for(&self, bytes: usize) -> bool {
        self.bytes.saturating_add(bytes) <= MAX_RUN_BYTES
    }

    fn succeed(&mut self, node: NodeIndex, outputs: Values, commands: &mut Vec<Command>) {
        self.settle(node, Status::Succeeded);
        self.any_absent |= outputs.iter().any(Option::is_none);
        let bytes: usize = outputs.iter().flatten().map(|value| weight(value)).sum();
        self.bytes = self.bytes.saturating_add(bytes);
        self.outputs[node as usize] = Some(outputs);
        self.release(node, commands);
    }

    /// Records at the nodes that need `node` that it will not change any more.
    fn release(&mut self, node: NodeIndex, commands: &mut Vec<Command>) {
        // By place, which saves a handle of the plan.
        for place in 0..self.node(node).successors.len() {
            let successor = self.node(node).successors[place];
            let at = successor as usize;
            self.missing[at] -= 1;
            if self.missing[at] > 0 || self.statuses[at] != Status::Waiting {
                continue;
            }
            if let Some(because) = self.lacks(self.node(successor)) {
                self.statuses[at] = Status::Untaken;
                self.skipped_by[at] = because;
                self.any_absent = true;
                commands.push(self.skip(successor, SkipReason::BranchNotTaken));
            } else {
                self.statuses[at] = Status::Ready;
                commands.push(Command::Execute(successor));
            }
        }
    }

    /// Returns the node whose absent output keeps `node` from running.
    fn lacks(&self, node: &PlanNode) -> Option<NodeIndex> {
        if !self.any_absent || node.accepts_absent() {
            return None;
        }
        let absent = node
            .inputs
            .iter()
            .find(|input| is_absent(input, &self.inputs, &self.outputs))?;
        match &absent.edges {
            Edges::One(Source::Output { node, .. }) => Some(*node),
            Edges::Many(edges) => edges.iter().find_map(|edge| match edge.source {
                Source::Output { node, .. } => Some(node),
                _ => None,
            }),
            _ => None,
        }
    }

    fn skip(&self, node: NodeIndex, reason: SkipReason) -> Command {
        Command::Skip {
            node,
            because: self.skipped_by[node as usize],
            reason,
        }
    }

    fn fail(&mut self, node: NodeIndex, failure: Arc<Failure>, commands: &mut Vec<Command>) {
        self.settle(node, Status::Failed);
        self.failures.push((node, failure));
        let plan = Arc::clone(&self.plan);
        // Its readers run, and fail or end as their own settings state (rule W27).
        for reader in readers(&plan, node) {
            if self.statuses[reader as usize] == Status::Waiting {
                self.statuses[reader as usize] = Status::Ready;
                commands.push(Command::Execute(reader));
            }
        }
        // All nodes below are condemned at once, each because of the first node that it lost.
        let mut lost = vec![node];
        while let Some(because) = lost.pop() {
            for successor in &plan.nodes[because as usize].successors {
                if self.statuses[*successor as usize] == Status::Waiting {
                    self.statuses[*successor as usize] = Status::Condemned;
                    self.skipped_by[*successor as usize] = because;
                    commands.push(self.skip(*successor, SkipReason::UpstreamFailed));
                    lost.push(*successor);
                }
            }
        }
    }

    /// Returns a node that failed while `reader` read from it, and the failure.
    fn broken_stream(&self, reader: NodeIndex) -> Option<(NodeIndex, &Arc<Failure>)> {
        if self.failures.is_empty() {
            return None;
        }
        producers(&self.plan, reader).find_map(|producer| {
            let failed = self.failures.iter().find(|(failed, _)| *failed == producer);
            failed.map(|(failed, failure)| (*failed, failure))
        })
    }

    fn settle(&mut self, node: NodeIndex, status: Status) {
        self.statuses[node as usize] = status;
        self.open -= 1;
    }

    fn result(&self) -> Outcome {
        // Outputs that stream come first, so that their text begins the text of the result.
        let slots = self.plan.interface_outputs.iter().zip(&self.plan.outputs);
        let (streams, others): (Vec<_>, Vec<_>) = slots.partition(|(slot, _)| slot.is_stream);
        let slots = streams.into_iter().chain(others);
        let values = slots.map(|(slot, source)| {
            let value = fetch(source, &self.inputs, &self.outputs).filter(|value| !value.is_null());
            (slot, value.or(slot.default.as_ref()).unwrap_or(&NULL))
        });
        let bytes: usize = values
            .clone()
            .map(|(slot, value)| slot.key.len() + weight(value))
            .sum();
        if bytes > MAX_VALUE_BYTES {
            return Outcome::TooLarge { bytes };
        }
        Outcome::Succeeded(
            values
                .map(|(slot, value)| (slot.key.to_string(), value.as_ref().clone()))
                .collect(),
        )
    }

    fn divergence(&self, node: NodeIndex, event: &Event) -> Divergence {
        let event = match event {
            Event::Started(_) => "was started",
            Event::Succeeded(..) => "succeeded",
            Event::Handled(..) => "failed and was handled",
            Event::Failed(..) => "failed",
            Event::Skipped(_) => "was skipped",
        };
        Divergence {
            node: self.node(node).id.to_string(),
            status: Some(self.status(node)),
            event,
        }
    }
}
