//! Streams between nodes: the writers of their pieces, and the sources of the whole.
//!
//! Apart from the outputs of a workflow, the reader of a stream is a pure node, which needs no
//! value before the end of the stream except to let the pieces pass, or takes only the whole (rule
//! W28). So pieces pass from the effect that writes them straight to the outputs of the workflow,
//! and no node holds another.

use super::data_flow::DataFlow;
use super::node_definition::InterfaceRole;
use super::plan::{Edges, NodeIndex, Plan, Source};
use super::slot::Slot;

/// An output of a workflow that streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamedOutput {
    /// Its place among the outputs of the workflow.
    pub place: usize,
    /// The node whose effect writes its pieces, and the place among its outputs; none if it is only
    /// available as a whole.
    pub writer: Option<(NodeIndex, u32)>,
    /// The node that has the whole.
    pub node: NodeIndex,
    /// The place among that node's outputs.
    pub slot: u32,
}

/// Finds the outputs of a workflow that stream.
pub fn streamed_outputs(plan: &Plan) -> Vec<StreamedOutput> {
    let outputs = plan.interface_outputs.iter().zip(&plan.outputs).enumerate();
    outputs
        .filter(|(_, (slot, _))| slot.is_stream)
        .filter_map(|(place, (wanted, source))| {
            let (node, slot) = behind(plan, source, |role| role == InterfaceRole::Exit)?;
            Some(StreamedOutput {
                place,
                writer: writer(plan, source, wanted),
                node,
                slot,
            })
        })
        .collect()
}

/// Returns the nodes that read a stream of `producer`: pure ones, as any other takes only the whole.
pub fn readers(plan: &Plan, producer: NodeIndex) -> Vec<NodeIndex> {
    let outputs = &plan.nodes[producer as usize].shape.outputs;
    if !outputs.iter().any(|slot| slot.is_stream) {
        return Vec::new();
    }
    let reads = |reader: &NodeIndex| producers(plan, *reader).any(|node| node == producer);
    (0..plan.nodes.len() as NodeIndex).filter(reads).collect()
}

/// Returns the nodes that `reader` reads a stream of.
pub fn producers(plan: &Plan, reader: NodeIndex) -> impl Iterator<Item = NodeIndex> {
    let node = &plan.nodes[reader as usize];
    let reads =
        node.definition().role == InterfaceRole::Inner && !node.has_effects() && !node.bypassed;
    let inputs = node.shape.inputs.iter().zip(&node.inputs);
    let streams = inputs.filter(move |(slot, _)| reads && slot.is_stream);
    streams.filter_map(|(_, input)| match &input.edges {
        Edges::One(source) if plan.output_of(source)?.is_stream => {
            Some(behind(plan, source, |role| role != InterfaceRole::Inner)?.0)
        }
        _ => None,
    })
}

/// Returns the node and the place of its output that a value comes from, behind the nodes of interfaces that
/// `passed` names.
fn behind(
    plan: &Plan,
    source: &Source,
    passed: fn(InterfaceRole) -> bool,
) -> Option<(NodeIndex, u32)> {
    let (node, slot) = output(source)?;
    let planned = plan.nodes.get(node as usize)?;
    let edges = planned.inputs.get(slot as usize).map(|input| &input.edges);
    match edges {
        Some(Edges::One(source)) if passed(planned.definition().role) => {
            behind(plan, source, passed)
        }
        _ => Some((node, slot)),
    }
}

/// Returns the node with the effect that writes the pieces of an output, and the place among its outputs,
/// if they are pieces of the stream `wanted` as well.
fn writer(plan: &Plan, source: &Source, wanted: &Slot) -> Option<(NodeIndex, u32)> {
    let (node, place) = output(source)?;
    let planned = plan.nodes.get(node as usize)?;
    let slot = planned.shape.outputs.get(place as usize)?;
    let is_alike = wanted.data_flow != DataFlow::String || !slot.streams_values();
    if !slot.is_stream || planned.bypassed || !is_alike {
        return None;
    }
    let Some(relayed) = &slot.relays else {
        return planned.has_effects().then_some((node, place));
    };
    let input = planned.shape.input(relayed)?;
    match &planned.inputs.get(input)?.edges {
        Edges::One(behind) => writer(plan, behind, planned.shape.inputs.get(input)?),
        _ => None,
    }
}

fn output(source: &Source) -> Option<(NodeIndex, u32)> {
    match source {
        Source::Output { node, slot } => Some((*node, *slot)),
        _ => None,
    }
}
