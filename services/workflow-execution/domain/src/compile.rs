//! Checks a workflow and compiles it, reporting all problems at once.

mod bodies;
mod edges;
mod outputs;

use call_outcome::Violation;
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde_json::{Value, json};

use super::bundle::Bundle;
use super::cache::CACHE;
use super::cycle::cycles;
use super::data_flow::kind_of;
use super::execution::{EXECUTION, Execution};
use super::flatten::{flatten, is_at_the_top};
use super::limits::MAX_CYCLES;
use super::load::load;
use super::node_definition::InterfaceRole;
use super::node_type::{Catalogue, NodeType, ShapeContext};
use super::plan::{Edges, NodeIndex, Plan, PlanInput, PlanNode, Source};
use super::plugin_node::{self, plugin_of, with_plugins};
use super::slot::{Shape, Slot};
use super::stream_value::whole_of;
use super::violation::Violations;
use super::workflow::{NodeEntry, Workflow};
use super::zone::split::{Bodies, split};
use json_schema::pointer::join;

use edges::ResolvedEdges;

/// Loads and compiles a definition text that refers to no other workflow.
///
/// # Errors
/// All problems of the text and of its graph.
pub fn compile_text(text: &str, catalogue: &Catalogue) -> Result<Plan, Vec<Violation>> {
    compile_bundle(&Bundle::of(text), catalogue)
}

/// Loads and compiles a definition with the workflows that it refers to.
///
/// # Errors
/// All problems of the text and of its graph.
pub fn compile_bundle(bundle: &Bundle, catalogue: &Catalogue) -> Result<Plan, Vec<Violation>> {
    let catalogue = &*with_plugins(catalogue, &bundle.node_types);
    let loaded = load(&bundle.root);
    let Some(workflow) = loaded.workflow else {
        return Err(loaded.violations);
    };
    let mut violations = Violations::default();
    violations.extend(loaded.violations);
    let (mut workflow, wrong) = flatten(workflow, &bundle.children, catalogue);
    violations.extend(wrong);
    let bodies = split(&mut workflow, &mut violations);
    compile_with(&workflow, &bodies, catalogue, violations)
}

/// Compiles a workflow.
///
/// # Errors
/// All problems of its graph.
pub fn compile(workflow: &Workflow, catalogue: &Catalogue) -> Result<Plan, Vec<Violation>> {
    compile_with(workflow, &Bodies::new(), catalogue, Violations::default())
}

fn compile_with(
    workflow: &Workflow,
    bodies: &Bodies,
    catalogue: &Catalogue,
    violations: Violations,
) -> Result<Plan, Vec<Violation>> {
    let mut compiler = Compiler {
        workflow,
        violations,
        by_id: HashMap::with_capacity(workflow.nodes.len()),
        shaped: Vec::with_capacity(workflow.nodes.len()),
        bodies: HashMap::new(),
    };
    compiler.compile_bodies(bodies, catalogue);
    compiler.index_nodes();
    compiler.shape_nodes(catalogue);
    let edges = compiler.resolve_edges();
    compiler.find_cycles(&edges);
    let inputs = compiler.plan_inputs(&edges);
    let outputs = compiler.plan_outputs(&edges);
    compiler.finish(edges, inputs, outputs)
}

/// A node of a known type; none for an unknown type, so that indices are the same as in the text.
struct Shaped {
    node: Arc<NodeType>,
    /// The slots in the view of the node.
    own_shape: Shape,
    /// The slots, including additions of its execution settings.
    shape: Shape,
    execution: Option<Box<Execution>>,
}

impl Shaped {
    fn new(node: &Arc<NodeType>, context: &ShapeContext<'_>) -> Result<Self, Vec<Violation>> {
        let shape = node.shape(context)?;
        let execution = Execution::read(context.config, &shape)?;
        if let Some(cache) = execution.as_ref().and_then(|execution| execution.cache) {
            let pointer = format!("/configValues/{EXECUTION}/{CACHE}");
            cache.check(node.definition(), &pointer)?;
        }
        Ok(Self {
            node: Arc::clone(node),
            shape: match &execution {
                Some(execution) => execution.extend(shape.clone()),
                None => shape.clone(),
            },
            own_shape: shape,
            execution: execution.map(Box::new),
        })
    }
}

struct Compiler<'a> {
    workflow: &'a Workflow,
    violations: Violations,
    by_id: HashMap<&'a str, usize>,
    shaped: Vec<Option<Shaped>>,
    /// The body of each zone.
    bodies: HashMap<&'a str, Arc<Plan>>,
}

impl<'a> Compiler<'a> {
    fn entry(&self, at: usize) -> &'a NodeEntry {
        &self.workflow.nodes[at]
    }

    fn index_nodes(&mut self) {
        for (at, node) in self.workflow.nodes.iter().enumerate() {
            if let Some(first) = self.by_id.insert(&node.id, at) {
                // The first one keeps the name, so that edges are checked against it.
                self.by_id.insert(&node.id, first);
                let place = join(&node.pointer, "id");
                let message = format!(
                    "another node has the id `{}`; give each node its own",
                    node.id
                );
                self.violations
                    .add(Violation::new(place, "duplicate_id", message));
            }
        }
        let mut edge_ids: HashSet<&str> = HashSet::with_capacity(self.workflow.edges.len());
        for edge in self
            .workflow
            .edges
            .iter()
            .filter(|edge| !edge.id.is_empty())
        {
            if !edge_ids.insert(&edge.id) {
                let message = format!(
                    "another edge has the id `{}`; give each edge its own",
                    edge.id
                );
                self.violations.add(Violation::new(
                    join(&edge.pointer, "id"),
                    "duplicate_id",
                    message,
                ));
            }
        }
    }

    fn shape_nodes(&mut self, catalogue: &Catalogue) {
        let mut connected: Vec<Vec<&str>> = vec![Vec::new(); self.workflow.nodes.len()];
        for edge in &self.workflow.edges {
            if let (Some(at), Some(handle)) =
                (self.by_id.get(edge.target.as_str()), &edge.target_handle)
            {
                connected[*at].push(handle);
            }
        }
        let workflow = self.workflow;
        for (entry, connected) in workflow.nodes.iter().zip(&connected) {
            let Some(node) = catalogue.get(&entry.full_type) else {
                self.unknown_type(entry, catalogue);
                self.shaped.push(None);
                continue;
            };
            let context = ShapeContext {
                definition: node.definition(),
                config: &entry.config,
                presets: &entry.presets,
                connected,
                interface_inputs: &workflow.interface_inputs,
                interface_outputs: &workflow.interface_outputs,
                own_interface: entry.interface.as_ref(),
            };
            match Shaped::new(node, &context) {
                Ok(shaped) => self.shaped.push(Some(shaped)),
                Err(problems) => {
                    let problems: Vec<Violation> = problems
                        .into_iter()
                        .map(|mut problem| {
                            // A node names its presets as files do; a payload has another word.
                            let place = problem.pointer.strip_prefix("/inputValues");
                            let presets = workflow.form.presets_key();
                            problem.pointer = match place {
                                Some(rest) => format!("{}/{presets}{rest}", entry.pointer),
                                None => format!("{}{}", entry.pointer, problem.pointer),
                            };
                            problem
                        })
                        .collect();
                    for problem in problems {
                        // The problems of a reference are reported with the reference.
                        if !self.violations.has(&problem.pointer) {
                            self.violations.add(problem);
                        }
                    }
                    self.shaped.push(None);
                }
            }
        }
    }

    fn unknown_type(&mut self, entry: &NodeEntry, catalogue: &Catalogue) {
        let place = join(&entry.pointer, self.workflow.form.type_key());
        if plugin_of(&entry.full_type).is_some() {
            let violation = plugin_node::missing(place, &entry.full_type, None);
            self.violations.add(violation);
            return;
        }
        let message = format!("there is no node type `{}`", entry.full_type);
        let violation = Violation::new(place, "unknown_node_type", message);
        self.violations
            .add(violation.nearest(&entry.full_type, catalogue.names()));
    }

    fn find_cycles(&mut self, edges: &ResolvedEdges) {
        for cycle in cycles(&edges.successors, MAX_CYCLES) {
            let mut path: Vec<&str> = cycle.iter().map(|at| self.entry(*at).id.as_str()).collect();
            path.extend(path.first().copied());
            let path = path.join(" -> ");
            let place = cycle
                .first()
                .map(|at| self.entry(*at).pointer.clone())
                .unwrap_or_default();
            let message =
                format!("the nodes wait for each other: {path}; remove one of these edges");
            self.violations
                .add(Violation::new(place, "cyclic_graph", message).found("no cycle", &path));
        }
    }

    fn plan_inputs(&mut self, edges: &ResolvedEdges) -> Vec<Vec<PlanInput>> {
        let mut planned = Vec::with_capacity(self.shaped.len());
        for at in 0..self.shaped.len() {
            let Some(shaped) = &self.shaped[at] else {
                planned.push(Vec::new());
                continue;
            };
            let (shape, role) = (shaped.shape.clone(), shaped.node.definition().role);
            let inputs = shape.inputs.iter().enumerate().map(|(slot_at, slot)| {
                let edges = edges.leading_to(
                    at,
                    slot_at,
                    slot,
                    &self.workflow.nodes[at].connection_orders,
                );
                self.plan_input(at, slot, role, edges)
            });
            planned.push(inputs.collect());
        }
        planned
    }

    fn plan_input(
        &mut self,
        at: usize,
        slot: &Slot,
        role: InterfaceRole,
        mut edges: Edges,
    ) -> PlanInput {
        let entry = self.entry(at);
        let is_entry = role == InterfaceRole::Entry && is_at_the_top(entry, role);
        if (is_entry || entry.fed_by_interface) && matches!(edges, Edges::None) {
            let place = self
                .workflow
                .interface_inputs
                .iter()
                .position(|input| input.key == slot.key);
            edges = place
                .and_then(|place| u32::try_from(place).ok())
                .map_or(Edges::None, |place| Edges::Whole(Source::RunInput(place)));
        }
        let preset = entry
            .presets
            .get(&*slot.key)
            .filter(|value| !value.is_null());
        let preset = preset.and_then(|value| self.check_preset(entry, slot, value));
        let fallback = preset.or_else(|| slot.default.clone());
        if slot.required && fallback.is_none() && matches!(edges, Edges::None) && !entry.bypassed {
            let place = join(
                &join(&entry.pointer, self.workflow.form.presets_key()),
                &slot.key,
            );
            let message = format!(
                "input `{}` of node `{}` needs an edge or a value",
                slot.key, entry.id
            );
            let violation = Violation::new(place, "missing_input", message);
            self.violations
                .add(violation.found(slot.data_flow.name(), ""));
        }
        PlanInput { edges, fallback }
    }

    fn check_preset(
        &mut self,
        entry: &NodeEntry,
        slot: &Slot,
        value: &Value,
    ) -> Option<Arc<Value>> {
        let fitted = match value {
            Value::Array(items) if slot.multi => {
                let items: Result<Vec<Value>, _> = items
                    .iter()
                    .map(|item| {
                        slot.data_flow
                            .fit(&Arc::new(item.clone()))
                            .map(|item| Arc::unwrap_or_clone(item.into_owned()))
                    })
                    .collect();
                items.map(|items| Arc::new(Value::Array(items)))
            }
            value if slot.multi => slot
                .data_flow
                .fit(&Arc::new(value.clone()))
                .map(|item| Arc::unwrap_or_clone(item.into_owned()))
                .map(|item| Arc::new(Value::Array(vec![item]))),
            // An array is a stream of its items, as at the inputs of a run.
            value if slot.is_stream => whole_of(
                slot,
                &Arc::new(value.clone()),
                value.is_array() && slot.streams_values(),
            )
            .map(Cow::into_owned),
            value => slot
                .data_flow
                .fit(&Arc::new(value.clone()))
                .map(Cow::into_owned),
        };
        let fitted = fitted.map(
            |value| match value.as_array().and_then(|items| items.first()) {
                Some(item) if slot.first => Arc::new(json!([0, item])),
                _ => value,
            },
        );
        fitted
            .map_err(|mismatch| {
                let place = join(
                    &join(&entry.pointer, self.workflow.form.presets_key()),
                    &slot.key,
                );
                let message = format!(
                    "input `{}` of node `{}` takes {}, found {}",
                    slot.key,
                    entry.id,
                    mismatch.expected,
                    kind_of(value)
                );
                let violation = Violation::new(place, "type_mismatch", message);
                self.violations
                    .add(violation.found(mismatch.expected, &value.to_string()));
            })
            .ok()
    }

    fn finish(
        mut self,
        edges: ResolvedEdges,
        inputs: Vec<Vec<PlanInput>>,
        outputs: Vec<Source>,
    ) -> Result<Plan, Vec<Violation>> {
        if !self.violations.is_empty() {
            return Err(self.violations.into_vec());
        }
        let mut nodes = Vec::with_capacity(inputs.len());
        let mut by_id = HashMap::with_capacity(inputs.len());
        let parts = self
            .workflow
            .nodes
            .iter()
            .zip(self.shaped)
            .zip(inputs)
            .zip(edges.links());
        for ((((entry, shaped), inputs), (successors, predecessors)), at) in parts.zip(0..) {
            // Without violations every node has its type.
            let Some(Shaped {
                node,
                own_shape,
                shape,
                execution,
            }) = shaped
            else {
                continue;
            };
            let id: Arc<str> = entry.id.as_str().into();
            by_id.insert(Arc::clone(&id), at);
            nodes.push(PlanNode {
                body: self.bodies.remove(entry.id.as_str()),
                id,
                node,
                shape,
                config: Arc::clone(&entry.config),
                inputs: inputs.into(),
                used: vec![false; own_shape.outputs.len()].into(),
                successors: successors.into(),
                predecessors,
                bypassed: entry.bypassed,
                own_shape,
                execution,
            });
        }
        note_used(&mut nodes, &outputs);
        Ok(Plan {
            has_effects: nodes.iter().any(PlanNode::has_effects),
            name: self.workflow.name.clone(),
            description: self.workflow.description.clone(),
            nodes,
            interface_inputs: self.workflow.interface_inputs.clone(),
            interface_outputs: self.workflow.interface_outputs.clone(),
            outputs,
            by_id,
        })
    }
}

/// Marks the outputs of nodes that have a reader.
fn note_used(nodes: &mut [PlanNode], outputs: &[Source]) {
    let inputs = nodes.iter().flat_map(|node| node.inputs.iter());
    let sources = inputs.flat_map(|input| input.edges.sources());
    let used: Vec<Source> = sources.chain(outputs).cloned().collect();
    for source in used {
        if let Source::Output { node, slot } = source
            && let Some(node) = nodes.get_mut(node as usize)
            && let Some(used) = node.used.get_mut(slot as usize)
        {
            *used = true;
        }
    }
}

/// Indices are bounded by the limits on nodes and slots, far below 2^32.
fn index(at: usize) -> NodeIndex {
    NodeIndex::try_from(at).unwrap_or(NodeIndex::MAX)
}

fn output_source(node: usize, slot: usize) -> Source {
    Source::Output {
        node: index(node),
        slot: index(slot),
    }
}
