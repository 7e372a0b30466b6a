//! Streams between nodes: where their pieces come from, and where the whole is.
//!
//! What takes a stream apart from the outputs of a workflow is a pure node, which needs nothing before the
//! end of the stream but to let the pieces pass, or takes only the whole (rule W28). So pieces go from the
//! effect that writes them straight to the outputs of the workflow, and no node holds another.

use super::data_flow::DataFlow;
use super::node_definition::Role;
use super::plan::{Edges, NodeIndex, Plan, Source};
use super::slot::Slot;

/// An output of a workflow that streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamedOutput {
    /// Its place among the outputs of the workflow.
    pub place: usize,
    /// The node whose effect writes its pieces, and the place among its outputs; nothing if it comes as a
    /// whole.
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
            let (node, slot) = behind(plan, source, |role| role == Role::Exit)?;
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
    let reads = node.definition().role == Role::Inner && !node.has_effects() && !node.bypassed;
    let inputs = node.shape.inputs.iter().zip(&node.inputs);
    let streams = inputs.filter(move |(slot, _)| reads && slot.is_stream);
    streams.filter_map(|(_, input)| match &input.edges {
        Edges::One(source) if plan.output_of(source)?.is_stream => {
            Some(behind(plan, source, |role| role != Role::Inner)?.0)
        }
        _ => None,
    })
}

/// Returns the node and the place of its output that a value comes from, behind the nodes of interfaces that
/// `passed` names.
fn behind(plan: &Plan, source: &Source, passed: fn(Role) -> bool) -> Option<(NodeIndex, u32)> {
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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::domain::compile::compile_text;

    /// Compiles a script whose output goes through `between` to a streaming output.
    fn plan(script: &Value, between: &Value, edges: &[[&str; 4]]) -> Plan {
        let edges = edges.iter().map(|[source, output, target, input]| {
            json!({"source": source, "sourceHandle": output, "target": target, "targetHandle": input})
        });
        let text = json!({
            "nodes": [script, between, {"id": "out", "type": "core:GroupOutput"}],
            "edges": edges.collect::<Vec<_>>(),
            "interfaceOutputs": {"live": {"dataFlowType": "STRING", "isStream": true}},
        });
        compile_text(&text.to_string(), &crate::node::builtin()).unwrap()
    }

    #[track_caller]
    fn check(between: &Value, edges: &[[&str; 4]], expected: (Option<&str>, &str)) {
        let script = json!({"id": "say", "type": "core:Script", "inputValues": {"code": "1"}});
        let plan = plan(&script, between, edges);
        let streamed = streamed_outputs(&plan);
        let id = |node: NodeIndex| &*plan.nodes[node as usize].id;
        let found = streamed
            .iter()
            .map(|found| (found.writer.map(|(node, _)| id(node)), id(found.node)));
        assert_eq!(found.collect::<Vec<_>>(), [expected]);
    }

    #[test]
    fn values_are_pieces_of_values_and_not_of_text() {
        for (data_flow, writer) in [
            ("OBJECT", Some("say")),
            ("WILDCARD", Some("say")),
            ("STRING", None),
        ] {
            let text = json!({
                "nodes": [
                    {"id": "say", "type": "core:Script", "inputValues": {"code": "1"},
                     "configValues": {"yields": "WILDCARD"}},
                    {"id": "out", "type": "core:GroupOutput"},
                ],
                "edges": [{"source": "say", "sourceHandle": "values", "target": "out", "targetHandle": "live"}],
                "interfaceOutputs": {"live": {"dataFlowType": data_flow, "isStream": true}},
            });
            let plan = compile_text(&text.to_string(), &crate::node::builtin()).unwrap();
            let found = streamed_outputs(&plan)[0].writer;
            let found = found.map(|(node, _)| &*plan.nodes[node as usize].id);
            assert_eq!(found, writer, "{data_flow}");
        }
    }

    #[test]
    fn pieces_pass_relays_and_no_other_node() {
        let relay = json!({"id": "relay", "type": "core:StreamSuffixRelay"});
        let through_relay = [
            ["say", "stdout", "relay", "inputStream"],
            ["relay", "outputStream", "out", "live"],
        ];
        check(&relay, &through_relay, (Some("say"), "relay"));
        let mut bypassed = relay.clone();
        bypassed["bypassed"] = json!(true);
        check(&bypassed, &through_relay, (None, "relay"));
        check(
            &relay,
            &[["say", "stdout", "out", "live"]],
            (Some("say"), "say"),
        );
        check(&relay, &[["say", "stderr", "out", "live"]], (None, "say"));
        let collect = json!({"id": "all", "type": "core:StreamToString"});
        let through_text = [
            ["say", "stdout", "all", "stream"],
            ["all", "text", "out", "live"],
        ];
        check(&collect, &through_text, (None, "all"));
    }
}
