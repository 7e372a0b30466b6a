//! Moves the nodes inside zones out of a workflow, as workflows of their own (rule W9).
//!
//! Edges may enter a zone from outside: the value then arrives at the zone as a further input and
//! reaches the node inside through the zone's ZoneInput. Only the zone itself leads out.

use std::collections::{HashMap, HashSet};

use call_outcome::Violation;

use super::super::data_flow::DataFlow;
use super::super::slot::Slot;
use super::super::violation::Violations;
use super::super::workflow::{EdgeEntry, NodeEntry, Workflow};
use super::settings::{OUTER, ZONE_INPUT, ZONE_OUTPUT, ZoneSettings, is_zone};
use json_schema::pointer::join;

/// The deepest nesting of zones.
const MAX_ZONE_DEPTH: usize = 8;

/// The nodes of the workflow's interface, which are outside zones.
const INTERFACE: [&str; 2] = ["core:GroupInput", "core:GroupOutput"];

/// The nodes inside each zone, by the id of the zone.
pub type Bodies = HashMap<String, Workflow>;

/// Leaves the nodes outside zones in `workflow` and returns the others.
pub fn split(workflow: &mut Workflow, violations: &mut Violations) -> Bodies {
    let concerns = |node: &NodeEntry| {
        is_zone(&node.full_type) || [ZONE_INPUT, ZONE_OUTPUT].contains(&node.full_type.as_str())
    };
    if !workflow.nodes.iter().any(concerns) {
        return Bodies::new();
    }
    let (nodes, edges) = (
        std::mem::take(&mut workflow.nodes),
        std::mem::take(&mut workflow.edges),
    );
    let mut splitter = Splitter::new(workflow, &nodes, violations);
    splitter.check_bodies(&nodes);
    splitter.check_ends(&nodes, &edges);
    for edge in edges {
        splitter.place(edge);
    }
    for node in nodes {
        let zone = node.parent.clone();
        if let Some(workflow) = splitter.scope(zone.as_deref()) {
            workflow.nodes.push(node);
        }
    }
    splitter.bodies
}

struct Splitter<'a> {
    top: &'a mut Workflow,
    violations: &'a mut Violations,
    bodies: Bodies,
    /// The zone around each node.
    around: HashMap<String, Option<String>>,
    /// The ZoneInput of each zone.
    entries: HashMap<String, String>,
    /// The values that were brought into a zone already.
    brought: HashSet<(String, String)>,
}

impl<'a> Splitter<'a> {
    fn new(top: &'a mut Workflow, nodes: &[NodeEntry], violations: &'a mut Violations) -> Self {
        let mut splitter = Self {
            bodies: Bodies::new(),
            around: HashMap::new(),
            entries: HashMap::new(),
            brought: HashSet::new(),
            top,
            violations,
        };
        for node in nodes {
            if node.id.contains('#') {
                let message = format!(
                    "`#` stands for an iteration in the paths of nodes; rename node `{}`",
                    node.id
                );
                splitter.refuse(join(&node.pointer, "id"), "reserved_character", message);
            }
            let earlier = splitter.around.insert(node.id.clone(), node.parent.clone());
            if earlier.is_some_and(|parent| parent != node.parent) {
                let message = format!(
                    "another node has the id `{}`; give each node its own",
                    node.id
                );
                splitter.refuse(join(&node.pointer, "id"), "duplicate_id", message);
            }
            if let (ZONE_INPUT, Some(zone)) = (node.full_type.as_str(), &node.parent) {
                splitter.entries.insert(zone.clone(), node.id.clone());
            }
            // The problems of the settings are reported with the zone itself.
            let settings = ZoneSettings::read(&node.full_type, &node.config);
            if let (true, Ok(settings)) = (is_zone(&node.full_type), settings) {
                let body = Workflow {
                    form: splitter.top.form,
                    name: String::new(),
                    description: String::new(),
                    nodes: Vec::new(),
                    edges: Vec::new(),
                    interface_inputs: settings.body_inputs(),
                    interface_outputs: settings.body_outputs(),
                    output_mappings: Vec::new(),
                };
                splitter.bodies.insert(node.id.clone(), body);
            }
        }
        splitter
    }

    fn refuse(&mut self, pointer: String, code: &'static str, message: String) {
        self.violations.add(Violation::new(pointer, code, message));
    }

    /// Checks that each zone has one ZoneInput and one ZoneOutput, that these are nowhere else, and
    /// that interface nodes are outside zones.
    fn check_bodies(&mut self, nodes: &[NodeEntry]) {
        for node in nodes {
            let pointer = node.pointer.clone();
            let inside = node.parent.is_some();
            let of_zone = [ZONE_INPUT, ZONE_OUTPUT].contains(&node.full_type.as_str());
            if of_zone != inside && of_zone {
                let message = format!("node `{}` is not inside a zone; set `parentNode`", node.id);
                self.refuse(pointer.clone(), "outside_zone", message);
            }
            let of_interface = INTERFACE.contains(&node.full_type.as_str());
            if inside && of_interface && node.interface.is_none() {
                let message = format!(
                    "node `{}` is inside a zone; use a ZoneInput or ZoneOutput",
                    node.id
                );
                self.refuse(pointer.clone(), "inside_zone", message);
            }
            if !is_zone(&node.full_type) {
                continue;
            }
            for full_type in [ZONE_INPUT, ZONE_OUTPUT] {
                let inner = nodes.iter().filter(|inner| {
                    inner.full_type == full_type && inner.parent.as_ref() == Some(&node.id)
                });
                let count = inner.count();
                if count != 1 {
                    let message = format!(
                        "zone `{}` has {count} nodes of the type {full_type}; it needs one",
                        node.id
                    );
                    self.refuse(pointer.clone(), "zone_boundary", message);
                }
            }
            if self.scopes(Some(&node.id)).len() > MAX_ZONE_DEPTH {
                let message = format!("zones are nested deeper than {MAX_ZONE_DEPTH}");
                self.refuse(pointer, "limit_exceeded", message);
            }
        }
    }

    /// Checks that a condition ends each loop before its largest number of iterations (rule W11).
    fn check_ends(&mut self, nodes: &[NodeEntry], edges: &[EdgeEntry]) {
        let connected: HashSet<(&str, &str)> = edges
            .iter()
            .filter_map(|edge| Some((edge.target.as_str(), edge.target_handle.as_deref()?)))
            .collect();
        for zone in nodes.iter().filter(|node| is_zone(&node.full_type)) {
            let settings = ZoneSettings::read(&zone.full_type, &zone.config);
            let by_itself = settings.map_or(true, |settings| settings.ends_by_itself());
            let counted =
                zone.presets.contains_key("count") || connected.contains(&(&zone.id, "count"));
            let breaks = |node: &&NodeEntry| {
                node.full_type == ZONE_OUTPUT
                    && node.parent.as_ref() == Some(&zone.id)
                    && connected.contains(&(node.id.as_str(), "break"))
            };
            if !by_itself && !counted && !nodes.iter().any(|node| breaks(&node)) {
                let message = format!(
                    "nothing ends loop `{}`; set `count`, `while`, `until`, or connect `break`",
                    zone.id
                );
                self.refuse(zone.pointer.clone(), "endless_loop", message);
            }
        }
    }

    /// Returns the zones around a place, the innermost first; at most one more than may be nested.
    fn scopes(&self, zone: Option<&str>) -> Vec<String> {
        let mut scopes = Vec::new();
        let mut next = zone.map(str::to_owned);
        while let Some(zone) = next
            && scopes.len() <= MAX_ZONE_DEPTH
        {
            next = self.around.get(&zone).cloned().flatten();
            scopes.push(zone);
        }
        scopes
    }

    fn scope_of(&self, node: &str) -> Option<String> {
        self.around.get(node).cloned().flatten()
    }

    /// Returns the workflow of a place; none inside a zone whose settings cannot be read.
    fn scope(&mut self, zone: Option<&str>) -> Option<&mut Workflow> {
        match zone {
            Some(zone) => self.bodies.get_mut(zone),
            None => Some(&mut *self.top),
        }
    }

    fn add(&mut self, zone: Option<&str>, edge: EdgeEntry) {
        if let Some(workflow) = self.scope(zone) {
            workflow.edges.push(edge);
        }
    }

    /// Puts an edge where its nodes are; an edge that enters zones becomes one on each level.
    fn place(&mut self, mut edge: EdgeEntry) {
        let (from, to) = (self.scope_of(&edge.source), self.scope_of(&edge.target));
        let unknown =
            !self.around.contains_key(&edge.source) || !self.around.contains_key(&edge.target);
        if from == to || unknown {
            // A missing end is reported where the other one is.
            let scope = if self.around.contains_key(&edge.source) {
                from
            } else {
                to
            };
            return self.add(scope.as_deref(), edge);
        }
        let scopes = self.scopes(to.as_deref());
        let levels = match &from {
            None => Some(scopes.len()),
            Some(zone) => scopes.iter().position(|scope| scope == zone),
        };
        let Some(levels) = levels else {
            let message = format!(
                "the edge leads from `{}` out of its zone; take the value out through its ZoneOutput",
                edge.source
            );
            return self.refuse(edge.pointer, "edge_leaves_zone", message);
        };
        let key = format!(
            "{OUTER}{}.{}",
            edge.source,
            edge.source_handle.as_deref().unwrap_or("")
        );
        let mut scope = from;
        for zone in scopes[..levels].iter().rev() {
            let Some(entry) = self.entries.get(zone).cloned() else {
                // The zone has no way in, which was reported.
                return;
            };
            if self.brought.insert((zone.clone(), key.clone())) {
                let into = EdgeEntry {
                    id: String::new(),
                    target: zone.clone(),
                    target_handle: Some(key.clone()),
                    ..edge.clone()
                };
                self.add(scope.as_deref(), into);
                if let Some(body) = self.bodies.get_mut(zone) {
                    body.interface_inputs.push(outer_slot(&key));
                }
            }
            edge.source = entry;
            edge.source_handle = Some(key.clone());
            scope = Some(zone.clone());
        }
        self.add(scope.as_deref(), edge);
    }
}

/// Makes the input that carries a value from around a zone into it.
pub fn outer_slot(key: &str) -> Slot {
    Slot::new(key, DataFlow::Wildcard, "A value from around the zone.").excluded_from_bypass()
}
