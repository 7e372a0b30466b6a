//! The outputs of a workflow that stream: where their pieces come from, and where the whole text is.
//!
//! What takes a stream apart from them is a pure node, which needs nothing before the end of the text but
//! to let the pieces pass, or takes only the whole text (rule W28). So pieces go from the effect that
//! writes them straight to the outputs of the workflow, and no node holds another.

use super::node_definition::{NodeEffects, Role};
use super::plan::{Edges, NodeIndex, Plan, Source};

/// An output of a workflow that streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamedOutput {
    /// Its place among the outputs of the workflow.
    pub place: usize,
    /// The node whose effect writes its pieces; nothing if it comes as a whole.
    pub writer: Option<NodeIndex>,
    /// The node that has the whole text.
    pub node: NodeIndex,
    /// The place among that node's outputs.
    pub slot: u32,
}

/// Finds the outputs of a workflow that stream.
pub fn streamed_outputs(plan: &Plan) -> Vec<StreamedOutput> {
    let outputs = plan.interface_outputs.iter().zip(&plan.outputs).enumerate();
    outputs
        .filter(|(_, (slot, _))| slot.is_stream)
        .filter_map(|(place, (_, source))| {
            let (node, slot) = before_exits(plan, source)?;
            Some(StreamedOutput {
                place,
                writer: writer(plan, source),
                node,
                slot,
            })
        })
        .collect()
}

/// Returns the node and the place of its output that the exits of groups and of the workflow take a value
/// from.
fn before_exits(plan: &Plan, source: &Source) -> Option<(NodeIndex, u32)> {
    let (node, slot) = output(source)?;
    let planned = plan.nodes.get(node as usize)?;
    let edges = planned.inputs.get(slot as usize).map(|input| &input.edges);
    match (planned.definition().role, edges) {
        (Role::Exit, Some(Edges::One(behind))) => before_exits(plan, behind),
        _ => Some((node, slot)),
    }
}

/// Returns the node with the effect that writes the pieces of an output.
fn writer(plan: &Plan, source: &Source) -> Option<NodeIndex> {
    let (node, slot) = output(source)?;
    let planned = plan.nodes.get(node as usize)?;
    let slot = planned.shape.outputs.get(slot as usize)?;
    if !slot.is_stream || planned.bypassed {
        return None;
    }
    let Some(relayed) = &slot.relays else {
        return (planned.definition().effects != NodeEffects::Pure).then_some(node);
    };
    let input = planned.shape.input(relayed)?;
    match &planned.inputs.get(input)?.edges {
        Edges::One(behind) => writer(plan, behind),
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
            .map(|found| (found.writer.map(id), id(found.node)));
        assert_eq!(found.collect::<Vec<_>>(), [expected]);
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
