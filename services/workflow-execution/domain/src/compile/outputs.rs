//! Finds the sources of a workflow's outputs.

use call_outcome::Violation;
use std::collections::HashMap;

use super::super::flatten::is_at_the_top;
use super::super::node_definition::InterfaceRole;
use super::super::plan::Source;
use super::edges::ResolvedEdges;
use super::{Compiler, output_source};
use json_schema::pointer::join;

impl Compiler<'_> {
    pub(super) fn plan_outputs(&mut self, edges: &ResolvedEdges) -> Vec<Source> {
        let workflow = self.workflow;
        let mut mapped: HashMap<&str, Source> = HashMap::new();
        for mapping in &workflow.output_mappings {
            match self.output_place(&mapping.node, &mapping.slot) {
                Ok(source) => drop(mapped.insert(&mapping.key, source)),
                Err(mut violation) => {
                    violation.pointer = join(&mapping.pointer, &violation.pointer);
                    self.violations.add(*violation);
                }
            }
            if !workflow
                .interface_outputs
                .iter()
                .any(|slot| *slot.key == *mapping.key)
            {
                let known = workflow.interface_outputs.iter().map(|slot| &*slot.key);
                let message = format!("the workflow has no output `{}`", mapping.key);
                let violation = Violation::new(mapping.pointer.clone(), "unknown_output", message);
                let suggest = self.violations.may_suggest();
                self.violations
                    .add(violation.nearest_if(suggest, &mapping.key, known));
            }
        }
        let keys = workflow.interface_outputs.iter().map(|slot| &*slot.key);
        keys.map(|key| {
            mapped
                .get(key)
                .cloned()
                .unwrap_or_else(|| self.exit_output(edges, key))
        })
        .collect()
    }

    /// Finds an output that a payload's mapping names; on failure the pointer is the wrong key.
    fn output_place(&self, node: &str, slot: &str) -> Result<Source, Box<Violation>> {
        let Some(&at) = self.by_id.get(node) else {
            let message = format!("there is no node `{node}`");
            let known = self.workflow.nodes.iter().map(|node| node.id.as_str());
            let violation = Violation::new("sourceNodeId", "unknown_node", message);
            let suggest = self.violations.may_suggest();
            return Err(Box::new(violation.nearest_if(suggest, node, known)));
        };
        let Some(shaped) = &self.shaped[at] else {
            return Ok(Source::Absent);
        };
        match shaped.shape.output(slot) {
            Some(place) => Ok(output_source(at, place)),
            None => {
                let message = format!("node `{node}` has no output `{slot}`");
                let known = shaped.shape.outputs.iter().map(|slot| &*slot.key);
                let violation = Violation::new("sourceSlotKey", "unknown_slot", message);
                let suggest = self.violations.may_suggest();
                Err(Box::new(violation.nearest_if(suggest, slot, known)))
            }
        }
    }

    /// Finds the exit node of an interface output: the one with an edge to it, else the first one,
    /// which then holds a preset or no value.
    fn exit_output(&mut self, edges: &ResolvedEdges, key: &str) -> Source {
        let mut first = None;
        let mut connected = None;
        for (at, shaped) in self.shaped.iter().enumerate() {
            let at_the_top = is_at_the_top(self.entry(at), InterfaceRole::Exit);
            let Some(shaped) = shaped.as_ref().filter(|shaped| {
                at_the_top && shaped.node.definition().role == InterfaceRole::Exit
            }) else {
                continue;
            };
            let (Some(input), Some(output)) = (shaped.shape.input(key), shaped.shape.output(key))
            else {
                continue;
            };
            let source = output_source(at, output);
            if edges.has_edges(at, input) {
                if connected.is_some() {
                    let message = format!("output `{key}` is given by two nodes; connect it once");
                    let pointer = self.workflow.nodes[at].pointer.clone();
                    self.violations
                        .add(Violation::new(pointer, "duplicate_output", message));
                    return Source::Absent;
                }
                connected = Some(source.clone());
            }
            first.get_or_insert(source);
        }
        connected.or(first).unwrap_or(Source::Absent)
    }
}
