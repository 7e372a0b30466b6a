//! Replaces groups by the workflows that they refer to.
//!
//! A node of type `core:NodeGroup` becomes the nodes of its workflow, whose ids get the group's id
//! in front: `group/node` (rule W1). The nodes for the interface stay, as the boundary at which the
//! group's edges and preset values arrive and leave; a group with several of a kind keeps the first
//! of them, and their edges lead there. So an interface value may go to any number of nodes, and the
//! same workflow may be used any number of times.

use call_outcome::Violation;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;

use super::bundle::Children;
use super::composite::{self, is_composite};
use super::limits::{MAX_EDGES, MAX_GROUP_DEPTH, MAX_NODES};
use super::load::load;
use super::node_definition::InterfaceRole;
use super::node_type::Catalogue;
use super::plugin_node::plugin_of;
use super::slot::Shape;
use super::violation::Violations;
use super::workflow::{EdgeEntry, NodeEntry, Workflow};
use super::zone::settings::{ZONE_INPUT, ZONE_OUTPUT, is_zone};
use json_schema::pointer::join;

/// The type of a node that is replaced by a workflow.
pub const NODE_GROUP: &str = "core:NodeGroup";

/// The type of a node that runs a workflow.
pub const RUN_WORKFLOW: &str = "core:RunWorkflow";

/// The setting by which a group or a zone refers to a workflow.
pub const REFERENCE: &str = "referencedWorkflowId";

/// The type of a node that only groups others on the canvas.
const FRAME: &str = "core:frame";

const GROUP_INPUT: &str = "core:GroupInput";
const GROUP_OUTPUT: &str = "core:GroupOutput";

/// Returns the key of the setting by which a node of this type refers to a workflow, and whether the
/// workflow becomes part of the outer workflow.
fn reference_key(full_type: &str) -> Option<(&'static str, bool)> {
    match full_type {
        NODE_GROUP => Some((REFERENCE, true)),
        zone if is_zone(zone) => Some((REFERENCE, true)),
        RUN_WORKFLOW => Some(("workflowId", false)),
        _ => None,
    }
}

/// Returns the ids of the workflows that a workflow refers to, and for each whether it becomes part
/// of it.
pub fn references(workflow: &Workflow) -> impl Iterator<Item = (&str, bool)> {
    workflow.nodes.iter().filter_map(|node| {
        let (key, part) = reference_key(&node.full_type)?;
        Some((node.config.get(key)?.as_str()?, part))
    })
}

/// Replaces every group by the nodes of its workflow, and adds to every other node that refers to a
/// workflow the interface of that workflow. Frames are dropped.
///
/// # Errors
/// The workflow so far with its problems: unknown workflows, invalid workflows, and workflows that
/// contain each other.
pub fn flatten(
    mut workflow: Workflow,
    children: &Children,
    catalogue: &Catalogue,
) -> (Workflow, Vec<Violation>) {
    let needed = |node: &NodeEntry| {
        reference_key(&node.full_type).is_some()
            || is_frame(node)
            || is_composite(&node.full_type)
            || node.parent.is_some()
    };
    if !workflow.nodes.iter().any(needed) {
        return (workflow, Vec::new());
    }
    let mut flattener = Flattener {
        children,
        catalogue,
        read: HashMap::new(),
        path: Vec::new(),
        nodes: Vec::new(),
        edges: Vec::new(),
        violations: Violations::default(),
    };
    let (nodes, edges) = (
        std::mem::take(&mut workflow.nodes),
        std::mem::take(&mut workflow.edges),
    );
    flattener.expand(nodes, edges, &GroupPlace::default());
    workflow.nodes = flattener.nodes;
    workflow.edges = flattener.edges;
    (workflow, flattener.violations.into_vec())
}

fn is_frame(node: &NodeEntry) -> bool {
    node.full_type == FRAME
}

/// Returns the zone around each node in a zone: the nearest of the nodes around it that is a zone,
/// since frames and other nodes only group it on the canvas.
fn zones_around(nodes: &[NodeEntry]) -> HashMap<String, String> {
    let by_id: HashMap<&str, &NodeEntry> =
        nodes.iter().map(|node| (node.id.as_str(), node)).collect();
    let zone_of = |node: &NodeEntry| {
        let mut around = node.parent.as_deref();
        // Nodes that contain each other are in no zone.
        for _ in 0..MAX_NODES {
            let parent = by_id.get(around?)?;
            if is_zone(&parent.full_type) {
                return Some((node.id.clone(), parent.id.clone()));
            }
            around = parent.parent.as_deref();
        }
        None
    };
    nodes.iter().filter_map(zone_of).collect()
}

/// The place of the nodes of a group.
#[derive(Default)]
struct GroupPlace {
    /// The prefix of their ids.
    prefix: String,
    /// The group's place in the text; none at the top.
    pointer: Option<String>,
    /// The interface of the group's workflow; none at the top.
    interface: Option<Shape>,
    /// The zone around the group.
    zone: Option<String>,
}

/// The ids of the nodes at which edges enter and leave a group.
struct Boundary {
    entry: String,
    exit: String,
}

struct Flattener<'a> {
    children: &'a Children,
    catalogue: &'a Catalogue,
    /// Workflows that were read and found valid, or a sentence that describes the problem.
    read: HashMap<String, Result<Rc<Workflow>, String>>,
    /// The workflows around the present one.
    path: Vec<String>,
    nodes: Vec<NodeEntry>,
    edges: Vec<EdgeEntry>,
    violations: Violations,
}

impl Flattener<'_> {
    fn expand(&mut self, nodes: Vec<NodeEntry>, edges: Vec<EdgeEntry>, place: &GroupPlace) {
        let mut boundaries: HashMap<String, Boundary> = HashMap::new();
        let connected: Vec<(String, String)> = edges
            .iter()
            .filter_map(|edge| Some((edge.target.clone(), edge.target_handle.clone()?)))
            .collect();
        let mut zones = zones_around(&nodes);
        let filled: HashSet<String> = zones.values().cloned().collect();
        for mut node in nodes {
            if is_frame(&node) {
                continue;
            }
            let own_id = node.id.clone();
            if filled.contains(&own_id)
                && node.config.get(REFERENCE).is_some_and(|id| !id.is_null())
            {
                let message = format!(
                    "zone `{own_id}` has nodes inside and refers to a workflow; keep one of both"
                );
                let pointer = place.pointer.as_ref().unwrap_or(&node.pointer);
                self.violations
                    .add(Violation::new(pointer.clone(), "zone_boundary", message));
                Arc::make_mut(&mut node.config).remove(REFERENCE);
            }
            node.id = format!("{}{own_id}", place.prefix);
            for ids in node.connection_orders.values_mut() {
                ids.iter_mut()
                    .for_each(|id| *id = format!("{}{id}", place.prefix));
            }
            if let Some(pointer) = &place.pointer {
                node.pointer.clone_from(pointer);
            }
            let zone = zones.remove(&own_id);
            node.parent = zone
                .map(|zone| format!("{}{zone}", place.prefix))
                .or_else(|| place.zone.clone());
            let boundary = match is_composite(&node.full_type) && !node.bypassed {
                true => {
                    let of_node = connected.iter().filter(|(target, _)| *target == own_id);
                    let given = of_node.map(|(_, handle)| handle);
                    let given = given.chain(node.presets.keys()).cloned().collect();
                    self.expand_composite(node, &given)
                }
                false => self.add(node, place),
            };
            if let Some(boundary) = boundary {
                boundaries.insert(own_id, boundary);
            }
        }
        for mut edge in edges {
            edge.source = match boundaries.get(&edge.source) {
                Some(boundary) => boundary.exit.clone(),
                None => format!("{}{}", place.prefix, edge.source),
            };
            edge.target = match boundaries.get(&edge.target) {
                Some(boundary) => boundary.entry.clone(),
                None => format!("{}{}", place.prefix, edge.target),
            };
            if !edge.id.is_empty() {
                edge.id = format!("{}{}", place.prefix, edge.id);
            }
            if let Some(pointer) = &place.pointer {
                edge.pointer.clone_from(pointer);
            }
            self.edges.push(edge);
        }
    }

    /// Adds a node, or its replacement.
    fn add(&mut self, mut node: NodeEntry, place: &GroupPlace) -> Option<Boundary> {
        if is_zone(&node.full_type) {
            self.add_zone(node);
            return None;
        }
        if [GROUP_INPUT, GROUP_OUTPUT].contains(&node.full_type.as_str()) {
            node.interface.clone_from(&place.interface);
        }
        let child = reference_key(&node.full_type)
            .and_then(|(key, part)| Some((self.child(&node, key, part)?, part)));
        let Some((child, part)) = child else {
            self.nodes.push(node);
            return None;
        };
        let interface = Shape::new(
            child.interface_inputs.clone(),
            child.interface_outputs.clone(),
        );
        if !part || node.bypassed {
            node.interface = Some(interface);
            self.nodes.push(node);
            return None;
        }
        let id = node.config.get(REFERENCE)?.as_str()?;
        self.path.push(id.to_owned());
        let boundary = self.expand_group(node, &child, interface);
        self.path.pop();
        boundary
    }

    /// Whether the nodes of a workflow can be added.
    fn has_room(&mut self, pointer: &str, child: &Workflow) -> bool {
        let fits = self.nodes.len() + child.nodes.len() <= MAX_NODES
            && self.edges.len() + child.edges.len() <= MAX_EDGES;
        if !fits {
            let message = format!(
                "with this workflow the one around it has more than {MAX_NODES} nodes or {MAX_EDGES} edges"
            );
            self.violations
                .add(Violation::new(pointer, "limit_exceeded", message));
        }
        fits
    }

    /// Adds a zone, with the nodes of the workflow that it repeats if it refers to one (rule W9).
    fn add_zone(&mut self, zone: NodeEntry) {
        let id = zone.config.get(REFERENCE).filter(|id| !id.is_null());
        let Some(id) = id.and_then(|id| id.as_str()).map(str::to_owned) else {
            self.nodes.push(zone);
            return;
        };
        let child = self.child(&zone, REFERENCE, true);
        let place = GroupPlace {
            prefix: format!("{}/", zone.id),
            pointer: Some(zone.pointer.clone()),
            interface: None,
            zone: Some(zone.id.clone()),
        };
        self.nodes.push(zone);
        let room = |child: &Rc<Workflow>| {
            self.has_room(place.pointer.as_deref().unwrap_or_default(), child)
        };
        let Some(child) = child.filter(room) else {
            return;
        };
        let (mut nodes, mut edges) = (child.nodes.clone(), child.edges.clone());
        for (of_group, of_zone) in [(GROUP_INPUT, ZONE_INPUT), (GROUP_OUTPUT, ZONE_OUTPUT)] {
            let boundary = merge(&mut nodes, &mut edges, of_group);
            if of_group == GROUP_OUTPUT {
                edges.extend(mapped(&child, &boundary));
            }
            let of_boundary = nodes.iter_mut().filter(|node| node.id == boundary);
            of_boundary.for_each(|node| node.full_type = of_zone.to_owned());
        }
        self.path.push(id);
        self.expand(nodes, edges, &place);
        self.path.pop();
    }

    fn expand_composite(&mut self, node: NodeEntry, given: &BTreeSet<String>) -> Option<Boundary> {
        let loaded = composite::parts(&node, given).map(|text| load(&text));
        let workflow = match loaded {
            Ok(loaded) => loaded.workflow?,
            Err(violations) => {
                for mut violation in violations {
                    violation.pointer = format!("{}{}", node.pointer, violation.pointer);
                    self.violations.add(violation);
                }
                return None;
            }
        };
        let (inputs, outputs) = (&workflow.interface_inputs, &workflow.interface_outputs);
        let interface = Shape::new(inputs.clone(), outputs.clone());
        self.expand_group(node, &workflow, interface)
    }

    fn expand_group(
        &mut self,
        group: NodeEntry,
        child: &Workflow,
        interface: Shape,
    ) -> Option<Boundary> {
        if !self.has_room(&group.pointer, child) {
            return None;
        }
        let (mut nodes, mut edges) = (child.nodes.clone(), child.edges.clone());
        let entry = merge(&mut nodes, &mut edges, GROUP_INPUT);
        let exit = merge(&mut nodes, &mut edges, GROUP_OUTPUT);
        edges.extend(mapped(child, &exit));
        let place = GroupPlace {
            prefix: format!("{}/", group.id),
            pointer: Some(group.pointer),
            interface: Some(interface),
            zone: group.parent,
        };
        let at = self.nodes.len();
        self.expand(nodes, edges, &place);
        let boundary = Boundary {
            entry: format!("{}{entry}", place.prefix),
            exit: format!("{}{exit}", place.prefix),
        };
        let mut added = self.nodes.iter_mut().skip(at);
        if let Some(node) = added.find(|node| node.id == boundary.entry) {
            node.presets = group.presets;
            node.connection_orders = group.connection_orders;
        }
        Some(boundary)
    }

    /// Finds the workflow that a node refers to and checks that it may be used there.
    fn child(&mut self, node: &NodeEntry, key: &str, part: bool) -> Option<Rc<Workflow>> {
        let pointer = join(&join(&node.pointer, "configValues"), key);
        let Some(id) = node.config.get(key).and_then(|id| id.as_str()) else {
            let message = format!("node `{}` names no workflow in `{key}`", node.id);
            self.violations
                .add(Violation::new(pointer, "missing", message));
            return None;
        };
        if part && self.path.iter().any(|around| around == id) {
            let path = self.path.join(" -> ");
            let message = format!("the workflows contain each other: {path} -> {id}");
            let violation = Violation::new(pointer, "cyclic_reference", message);
            self.violations
                .add(violation.found("no cycle", &format!("{path} -> {id}")));
            return None;
        }
        if part && self.path.len() >= MAX_GROUP_DEPTH {
            let message = format!("groups are nested deeper than {MAX_GROUP_DEPTH}");
            self.violations
                .add(Violation::new(pointer, "limit_exceeded", message));
            return None;
        }
        let Some(text) = self.children.get(id) else {
            let message = format!("there is no workflow `{id}`");
            let known = self.children.keys().map(String::as_str);
            let violation = Violation::new(pointer, "unknown_workflow", message);
            self.violations.add(violation.nearest(id, known));
            return None;
        };
        let read = match self.read.get(id) {
            Some(read) => read.clone(),
            None => {
                let read = read_child(text, self.catalogue);
                self.read.insert(id.to_owned(), read.clone());
                read
            }
        };
        read.map_err(|problem| {
            let message = format!("workflow `{id}` is not valid: {problem}");
            self.violations
                .add(Violation::new(pointer, "invalid_workflow", message));
        })
        .ok()
    }
}

fn read_child(text: &str, catalogue: &Catalogue) -> Result<Rc<Workflow>, String> {
    let loaded = load(text);
    let mut violations = loaded.violations;
    if let Some(workflow) = &loaded.workflow {
        // A type of a plugin that is not in force is found where the node is compiled.
        let known = |node: &&NodeEntry| {
            let full_type = &node.full_type;
            is_frame(node) || catalogue.get(full_type).is_some() || plugin_of(full_type).is_some()
        };
        if let Some(node) = workflow.nodes.iter().find(|node| !known(node)) {
            let message = format!("there is no node type `{}`", node.full_type);
            violations.push(Violation::new(
                node.pointer.clone(),
                "unknown_node_type",
                message,
            ));
        }
    }
    match (loaded.workflow, violations.first()) {
        (Some(workflow), None) => Ok(Rc::new(workflow)),
        (_, first) => Err(first.map(ToString::to_string).unwrap_or_default()),
    }
}

/// Returns an edge to the exit of a workflow for each mapped output.
fn mapped<'a>(workflow: &'a Workflow, exit: &'a str) -> impl Iterator<Item = EdgeEntry> + 'a {
    let mappings = workflow.output_mappings.iter();
    mappings.map(|mapping| EdgeEntry {
        id: String::new(),
        source: mapping.node.clone(),
        source_handle: Some(mapping.slot.clone()),
        target: exit.to_owned(),
        target_handle: Some(mapping.key.clone()),
        pointer: String::new(),
    })
}

/// Merges all nodes of an interface type into the first, to which all edges then lead, and returns
/// its id. If there are none, one is added.
fn merge(nodes: &mut Vec<NodeEntry>, edges: &mut [EdgeEntry], full_type: &str) -> String {
    let of_type = |node: &NodeEntry| node.full_type == full_type;
    let Some(first) = nodes.iter().position(of_type) else {
        let id = full_type.trim_start_matches("core:").to_owned();
        nodes.push(NodeEntry::new(id.as_str(), full_type));
        return id;
    };
    let id = nodes[first].id.clone();
    let mut others = Vec::new();
    let mut at = 0;
    nodes.retain(|node| {
        let keep = !of_type(node) || at == first;
        at += 1;
        if !keep {
            others.push(node.clone());
        }
        keep
    });
    for other in others {
        for (key, value) in other.presets {
            nodes[first].presets.entry(key).or_insert(value);
        }
        for edge in edges.iter_mut() {
            if edge.source == other.id {
                edge.source.clone_from(&id);
            }
            if edge.target == other.id {
                edge.target.clone_from(&id);
            }
        }
    }
    id
}

/// Whether a node of this role is at the boundary of the run, not of a group.
pub fn is_at_the_top(node: &NodeEntry, role: InterfaceRole) -> bool {
    role != InterfaceRole::Inner && node.interface.is_none()
}
