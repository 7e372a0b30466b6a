//! Finds the slots that edges name and checks that values can flow along them.

use call_outcome::Violation;
use std::collections::{HashMap, HashSet};

use super::super::plan::{Edges, ManyEdge, NodeIndex};
use super::super::slot::{Shape, Slot};
use super::super::workflow::EdgeEntry;
use super::{Compiler, index, output_source};
use json_schema::pointer::join;

/// An edge whose slots are known.
struct ResolvedEdge<'a> {
    id: &'a str,
    source: usize,
    output: usize,
    /// The number behind `__` of the handle.
    place: Option<usize>,
    /// Whether the output is an array of values.
    many: bool,
}

/// The edges by the node and the input that they lead to.
pub(super) struct ResolvedEdges<'a> {
    into: Vec<Vec<Vec<ResolvedEdge<'a>>>>,
    /// The nodes that each node leads to, each once.
    pub(super) successors: Vec<Vec<usize>>,
}

impl<'a> ResolvedEdges<'a> {
    fn edges_into(&self, node: usize, input: usize) -> &[ResolvedEdge<'a>] {
        self.into[node].get(input).map_or(&[], Vec::as_slice)
    }

    pub(super) fn has_edges(&self, node: usize, input: usize) -> bool {
        !self.edges_into(node, input).is_empty()
    }

    /// Returns the edges into an input, in the order of their values: by `inputConnectionOrders`,
    /// then by the number of the handle, then in the order of the text.
    pub(super) fn leading_to(
        &self,
        node: usize,
        input: usize,
        slot: &Slot,
        orders: &HashMap<String, Vec<String>>,
    ) -> Edges {
        let edges = self.edges_into(node, input);
        let Some(first) = edges.first() else {
            return Edges::None;
        };
        if !slot.multi {
            return Edges::One(output_source(first.source, first.output));
        }
        let order: HashMap<&str, usize> = orders
            .get(&*slot.key)
            .map(|ids| {
                ids.iter()
                    .enumerate()
                    .map(|(at, id)| (id.as_str(), at))
                    .collect()
            })
            .unwrap_or_default();
        let mut sorted: Vec<&ResolvedEdge<'_>> = edges.iter().collect();
        sorted.sort_by_key(|edge| {
            let ordered = order.get(edge.id).copied().unwrap_or(usize::MAX);
            (ordered, edge.place.unwrap_or(usize::MAX))
        });
        let many = sorted.iter().map(|edge| ManyEdge {
            source: output_source(edge.source, edge.output),
            spread: edge.many,
        });
        Edges::Many(many.collect())
    }

    /// Returns for each node the nodes that it leads to and the number of nodes that lead to it.
    pub(super) fn links(self) -> impl Iterator<Item = (Vec<NodeIndex>, u32)> {
        let mut counts = vec![0_u32; self.successors.len()];
        for successor in self.successors.iter().flatten() {
            counts[*successor] += 1;
        }
        let lists = self
            .successors
            .into_iter()
            .map(|list| list.into_iter().map(index).collect());
        lists.zip(counts)
    }
}

impl<'a> Compiler<'a> {
    pub(super) fn resolve_edges(&mut self) -> ResolvedEdges<'a> {
        let count = self.shaped.len();
        let mut resolved = ResolvedEdges {
            into: Vec::new(),
            successors: vec![Vec::new(); count],
        };
        resolved.into.resize_with(count, Vec::new);
        let mut linked: HashSet<(usize, usize)> = HashSet::with_capacity(self.workflow.edges.len());
        for edge in &self.workflow.edges {
            let ends = (self.edge_end(edge, true), self.edge_end(edge, false));
            let (Some(source), Some(target)) = ends else {
                continue;
            };
            if linked.insert((source, target)) {
                resolved.successors[source].push(target);
            }
            self.resolve_slots(edge, source, target, &mut resolved);
        }
        resolved
    }

    fn edge_end(&mut self, edge: &EdgeEntry, at_source: bool) -> Option<usize> {
        let (source_key, target_key) = self.workflow.form.end_keys();
        let (key, id) = if at_source {
            (source_key, &edge.source)
        } else {
            (target_key, &edge.target)
        };
        let found = self.by_id.get(id.as_str()).copied();
        if found.is_none() {
            let known = self.workflow.nodes.iter().map(|node| node.id.as_str());
            let message = format!("there is no node `{id}`");
            let violation = Violation::new(join(&edge.pointer, key), "dangling_edge", message);
            let suggest = self.violations.may_suggest();
            self.violations
                .add(violation.nearest_if(suggest, id, known));
        }
        found
    }

    fn resolve_slots(
        &mut self,
        edge: &'a EdgeEntry,
        source: usize,
        target: usize,
        resolved: &mut ResolvedEdges<'a>,
    ) {
        let (Some(from), Some(to)) = (&self.shaped[source], &self.shaped[target]) else {
            return;
        };
        let target_shape = &to.shape;
        let suggest = self.violations.may_suggest();
        let output = find_output(edge, &from.shape, suggest);
        let input = find_input(edge, target_shape, suggest);
        let (output, (input, place)) = match (output, input) {
            (Ok(output), Ok(input)) => (output, input),
            (output, input) => {
                let problems = [output.err(), input.err()];
                self.violations
                    .extend(problems.into_iter().flatten().map(|problem| *problem));
                return;
            }
        };
        let (from, to) = (&from.shape.outputs[output], &target_shape.inputs[input]);
        let mut problem = None;
        if !from.connects_to(to) {
            let message = format!(
                "output `{}` gives {}, input `{}` takes {}",
                from.key,
                kind(from),
                to.key,
                kind(to)
            );
            let violation = Violation::new(edge.pointer.clone(), "incompatible_types", message);
            problem = Some(violation.found(kind(to), &kind(from)));
        }
        let many = from.multi;
        let inputs = &mut resolved.into[target];
        if inputs.is_empty() {
            inputs.resize_with(target_shape.inputs.len(), Vec::new);
        }
        let edges = &mut inputs[input];
        if !edges.is_empty() && !to.multi {
            let message = format!(
                "input `{}` of node `{}` takes one edge and has another",
                to.key, edge.target
            );
            problem = Some(Violation::new(
                edge.pointer.clone(),
                "too_many_edges",
                message,
            ));
        }
        edges.push(ResolvedEdge {
            id: &edge.id,
            source,
            output,
            place,
            many,
        });
        self.violations.extend(problem);
    }
}

/// Names the type of a slot for a message.
fn kind(slot: &Slot) -> String {
    let many = match (slot.multi, slot.is_stream) {
        (true, _) => "many ",
        (false, true) => "a stream of ",
        (false, false) => "",
    };
    format!("{many}{}", slot.data_flow.name())
}

fn find_output(edge: &EdgeEntry, shape: &Shape, suggest: bool) -> Result<usize, Box<Violation>> {
    let place = || join(&edge.pointer, "sourceHandle");
    match &edge.source_handle {
        Some(handle) => shape.output(handle).ok_or_else(|| {
            let message = format!("node `{}` has no output `{handle}`", edge.source);
            let known = shape.outputs.iter().map(|slot| &*slot.key);
            Box::new(
                Violation::new(place(), "unknown_slot", message).nearest_if(suggest, handle, known),
            )
        }),
        None => only(&shape.outputs).ok_or_else(|| missing_handle(place(), &edge.source, "output")),
    }
}

fn find_input(
    edge: &EdgeEntry,
    shape: &Shape,
    suggest: bool,
) -> Result<(usize, Option<usize>), Box<Violation>> {
    let pointer = || join(&edge.pointer, "targetHandle");
    let Some(handle) = &edge.target_handle else {
        let found = only(&shape.inputs).map(|at| (at, None));
        return found.ok_or_else(|| missing_handle(pointer(), &edge.target, "input"));
    };
    if let Some(at) = shape.input(handle) {
        return Ok((at, None));
    }
    // Editors split an input for many into `slot__0`, `slot__1` and so on.
    let part = handle
        .rsplit_once("__")
        .and_then(|(base, number)| Some((shape.input(base)?, number.parse().ok()?)));
    match part {
        Some((at, number)) if shape.inputs[at].multi => Ok((at, Some(number))),
        _ => {
            let message = format!("node `{}` has no input `{handle}`", edge.target);
            let known = shape.inputs.iter().map(|slot| &*slot.key);
            let violation = Violation::new(pointer(), "unknown_slot", message);
            Err(Box::new(violation.nearest_if(suggest, handle, known)))
        }
    }
}

fn only(slots: &[Slot]) -> Option<usize> {
    (slots.len() == 1).then_some(0)
}

fn missing_handle(pointer: String, node: &str, side: &str) -> Box<Violation> {
    let message =
        format!("node `{node}` does not have exactly one {side}, so the edge must name it");
    Box::new(Violation::new(pointer, "missing_handle", message))
}
