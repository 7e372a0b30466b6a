//! Reads a definition text in either form, tolerant of unknown keys.
//!
//! The parent project's files leave some points open, which are settled here: an interface slot's
//! description is `description`, else `customDescription`, else `displayName`; its key is the key
//! of the map; a definition with `fullType` or `sourceNodeId` is a payload.

use call_outcome::Violation;
use std::collections::HashMap;
use std::mem;
use std::sync::Arc;

use json_schema::JsonLimits;
use serde_json::{Map, Value};

use super::data_flow::{DataFlow, kind_of};
use super::limits::{
    MAX_DEFINITION_BYTES, MAX_EDGES, MAX_INTERFACE_SLOTS, MAX_JSON_DEPTH, MAX_NAME_BYTES, MAX_NODES,
};
use super::slot::Slot;
use super::stream_value::is_whole;
use super::tool_choice;
use super::violation::{Violations, of_json};
use super::workflow::{EdgeEntry, Form, NodeEntry, OutputMapping, Workflow};
use json_schema::pointer::join;

/// The workflow of a text, and its problems. Even a wrong text is read as far as possible, so that
/// its graph can be checked too.
#[derive(Debug)]
pub struct Loaded {
    /// The workflow; none if the text is not a JSON object.
    pub workflow: Option<Workflow>,
    /// The problems.
    pub violations: Vec<Violation>,
}

/// Reads a definition text.
pub fn load(text: &str) -> Loaded {
    parse(text).map_or_else(unreadable, load_value)
}

/// Reads a definition text, and returns the JSON value that it holds as well; null if it is not
/// valid JSON.
pub fn load_with_source(text: &str) -> (Loaded, Value) {
    match parse(text) {
        Ok(source) => (load_value(source.clone()), source),
        Err(violations) => (unreadable(violations), Value::Null),
    }
}

fn parse(text: &str) -> Result<Value, Vec<Violation>> {
    let limits = JsonLimits {
        max_bytes: MAX_DEFINITION_BYTES,
        max_depth: MAX_JSON_DEPTH,
        ..JsonLimits::default()
    };
    json_schema::parse_json_strict_with(text, &limits).map_err(|error| of_json(&error))
}

fn unreadable(violations: Vec<Violation>) -> Loaded {
    Loaded {
        workflow: None,
        violations,
    }
}

fn load_value(source: Value) -> Loaded {
    let mut loader = Loader::default();
    let workflow = loader
        .take_object(source, "")
        .map(|root| loader.workflow(root));
    Loaded {
        workflow,
        violations: loader.violations.into_vec(),
    }
}

/// Distinguishes the two forms by the keys that only payloads have.
fn form_of(root: &Map<String, Value>) -> Form {
    let any_has = |list: &str, key: &str| match root.get(list) {
        Some(Value::Array(entries)) => entries.iter().any(|entry| entry.get(key).is_some()),
        _ => false,
    };
    let payload = any_has("nodes", "fullType") || any_has("edges", "sourceNodeId");
    if payload {
        Form::Payload
    } else {
        Form::Storage
    }
}

/// The type of a node that calls a model, as seed 003 writes it.
const SEED_LLM: &str = "LLM";

/// The key of a node's settings: `config` in seed 003's form.
pub(super) fn settings_key(node: &Map<String, Value>) -> &'static str {
    let seed = node.get("config").is_some_and(Value::is_object);
    match seed && !node.contains_key("configValues") {
        true => "config",
        false => "configValues",
    }
}

#[derive(Default)]
struct Loader {
    violations: Violations,
}

// Texts and objects are moved out of the value that was read, not copied.
impl Loader {
    fn workflow(&mut self, mut root: Map<String, Value>) -> Workflow {
        let form = form_of(&root);
        let nodes = self.list(&mut root, "nodes", MAX_NODES, true);
        let edges = self.list(&mut root, "edges", MAX_EDGES, false);
        let nodes = nodes.into_iter().enumerate();
        let mut nodes: Vec<NodeEntry> = nodes
            .filter_map(|(at, node)| self.node(form, at, node))
            .collect();
        match tool_choice::initial(&root) {
            Ok(initial) => tool_choice::inherit(&mut nodes, &initial),
            Err(violations) => violations
                .into_iter()
                .for_each(|wrong| self.violations.add(wrong)),
        }
        let edges = edges.into_iter().enumerate();
        Workflow {
            form,
            name: self.text(&mut root, "name", ""),
            description: self.text(&mut root, "description", ""),
            nodes,
            edges: edges
                .filter_map(|(at, edge)| self.edge(form, at, edge))
                .collect(),
            interface_inputs: self.interface(&mut root, "interfaceInputs"),
            interface_outputs: self.interface(&mut root, "interfaceOutputs"),
            output_mappings: self.output_mappings(&mut root),
        }
    }

    fn node(&mut self, form: Form, at: usize, value: Value) -> Option<NodeEntry> {
        let pointer = format!("/nodes/{at}");
        let mut node = self.take_object(value, &pointer)?;
        let id = self.name(&mut node, "id", &pointer);
        let full_type = self.name(&mut node, form.type_key(), &pointer);
        let settings = settings_key(&node);
        let full_type = full_type.map(|name| match name == SEED_LLM {
            true => tool_choice::LLM.to_owned(),
            false => name,
        });
        Some(NodeEntry {
            presets: self.object(&mut node, form.presets_key(), &pointer),
            config: self.object(&mut node, settings, &pointer).into(),
            connection_orders: self.connection_orders(&mut node, &pointer),
            bypassed: node
                .get("bypassed")
                .and_then(Value::as_bool)
                .unwrap_or(false),
            parent: node
                .get("parentNode")
                .and_then(Value::as_str)
                .map(str::to_owned),
            pointer,
            ..NodeEntry::new(id?, full_type?)
        })
    }

    fn edge(&mut self, form: Form, at: usize, value: Value) -> Option<EdgeEntry> {
        let pointer = format!("/edges/{at}");
        let mut edge = self.take_object(value, &pointer)?;
        let (source_key, target_key) = form.end_keys();
        let source = self.name(&mut edge, source_key, &pointer);
        let target = self.name(&mut edge, target_key, &pointer);
        let id = self.text(&mut edge, "id", &pointer);
        let source_handle = self.optional_text(&mut edge, "sourceHandle", &pointer);
        let target_handle = self.optional_text(&mut edge, "targetHandle", &pointer);
        Some(EdgeEntry {
            id,
            source: source?,
            source_handle,
            target: target?,
            target_handle,
            pointer,
        })
    }

    fn interface(&mut self, root: &mut Map<String, Value>, key: &str) -> Vec<Slot> {
        let pointer = join("", key);
        let slots = self.object(root, key, "");
        if slots.len() > MAX_INTERFACE_SLOTS {
            self.too_many(&pointer, slots.len(), MAX_INTERFACE_SLOTS);
            return Vec::new();
        }
        let slots = slots.into_iter();
        slots
            .filter_map(|(name, slot)| self.interface_slot(&name, slot, &join(&pointer, &name)))
            .collect()
    }

    fn interface_slot(&mut self, key: &str, value: Value, pointer: &str) -> Option<Slot> {
        let mut slot = self.take_object(value, pointer)?;
        self.check_length(key, || pointer.to_owned());
        let described = ["description", "customDescription", "displayName"];
        let description = described
            .iter()
            .find_map(|word| slot.get(*word).and_then(Value::as_str))
            .unwrap_or("");
        let mut read = Slot::new(key, self.data_flow(&slot, pointer), description);
        read.required = self.flag(&slot, "required", pointer);
        read.multi = self.flag(&slot, "multi", pointer);
        read.is_stream = self.flag(&slot, "isStream", pointer) && !read.multi;
        if let Some(Value::Array(words)) = slot.get("matchCategories") {
            read.categories = words
                .iter()
                .filter_map(|word| word.as_str().map(str::to_owned))
                .collect();
        }
        let config = self.object(&mut slot, "config", pointer);
        read.default = config
            .get("default")
            .filter(|value| !value.is_null())
            .cloned()
            .map(Arc::new);
        if let Some(default) = &read.default
            && !fits_interface(&read, default)
        {
            let place = join(&join(pointer, "config"), "default");
            let expected = read.whole().name();
            let message = format!(
                "the default is not of type {expected}; change the default or the slot's type"
            );
            self.violations.add(
                Violation::new(place, "type_mismatch", message)
                    .found(expected, &default.to_string()),
            );
        }
        Some(read)
    }

    fn data_flow(&mut self, slot: &Map<String, Value>, pointer: &str) -> DataFlow {
        let place = join(pointer, "dataFlowType");
        match slot.get("dataFlowType") {
            None | Some(Value::Null) => DataFlow::Wildcard,
            Some(Value::String(name)) => DataFlow::from_name(name).unwrap_or_else(|| {
                let known = DataFlow::ALL.map(DataFlow::name);
                let message = format!(
                    "there is no data flow type `{name}`; use one of {}",
                    known.join(", ")
                );
                self.violations.add(
                    Violation::new(place, "unknown_data_flow_type", message).nearest(name, known),
                );
                DataFlow::Wildcard
            }),
            Some(other) => {
                self.wrong_type(place, "string", other);
                DataFlow::Wildcard
            }
        }
    }

    fn connection_orders(
        &mut self,
        node: &mut Map<String, Value>,
        pointer: &str,
    ) -> HashMap<String, Vec<String>> {
        let key = "inputConnectionOrders";
        let orders = self.object(node, key, pointer);
        let mut read = HashMap::new();
        for (slot, ids) in orders {
            match ids {
                Value::Array(ids) => {
                    let ids = ids
                        .iter()
                        .filter_map(|id| id.as_str().map(str::to_owned))
                        .collect();
                    read.insert(slot, ids);
                }
                other => {
                    let place = join(&join(pointer, key), &slot);
                    self.wrong_type(place, "array of edge ids", &other);
                }
            }
        }
        read
    }

    fn output_mappings(&mut self, root: &mut Map<String, Value>) -> Vec<OutputMapping> {
        let mappings = self.object(root, "outputInterfaceMappings", "");
        let mut read = Vec::new();
        for (key, mapping) in mappings {
            let pointer = join("/outputInterfaceMappings", &key);
            let Some(mut mapping) = self.take_object(mapping, &pointer) else {
                continue;
            };
            let node = self.name(&mut mapping, "sourceNodeId", &pointer);
            let slot = self.name(&mut mapping, "sourceSlotKey", &pointer);
            if let (Some(node), Some(slot)) = (node, slot) {
                read.push(OutputMapping {
                    key,
                    node,
                    slot,
                    pointer,
                });
            }
        }
        read
    }

    fn list(
        &mut self,
        root: &mut Map<String, Value>,
        key: &str,
        most: usize,
        needed: bool,
    ) -> Vec<Value> {
        let pointer = join("", key);
        match root.get_mut(key) {
            Some(Value::Array(entries)) if entries.len() <= most => return mem::take(entries),
            Some(Value::Array(entries)) => self.too_many(&pointer, entries.len(), most),
            None if !needed => {}
            None => {
                let message = format!(
                    "there is no `{key}`; a workflow has an array of them, which may be empty"
                );
                self.violations
                    .add(Violation::new(pointer, "missing", message));
            }
            Some(other) => self.wrong_type(pointer, "array", other),
        }
        Vec::new()
    }

    fn take_object(&mut self, value: Value, pointer: &str) -> Option<Map<String, Value>> {
        match value {
            Value::Object(map) => Some(map),
            other => {
                self.wrong_type(pointer.to_owned(), "object", &other);
                None
            }
        }
    }

    fn object(
        &mut self,
        parent: &mut Map<String, Value>,
        key: &str,
        pointer: &str,
    ) -> Map<String, Value> {
        match parent.get_mut(key) {
            None | Some(Value::Null) => {}
            Some(Value::Object(map)) => return mem::take(map),
            Some(other) => self.wrong_type(join(pointer, key), "object", other),
        }
        Map::new()
    }

    fn flag(&mut self, parent: &Map<String, Value>, key: &str, pointer: &str) -> bool {
        match parent.get(key) {
            None | Some(Value::Null) => false,
            Some(Value::Bool(flag)) => *flag,
            Some(other) => {
                self.wrong_type(join(pointer, key), "boolean", other);
                false
            }
        }
    }

    fn text(&mut self, parent: &mut Map<String, Value>, key: &str, pointer: &str) -> String {
        self.optional_text(parent, key, pointer).unwrap_or_default()
    }

    fn optional_text(
        &mut self,
        parent: &mut Map<String, Value>,
        key: &str,
        pointer: &str,
    ) -> Option<String> {
        match parent.get_mut(key) {
            None | Some(Value::Null) => None,
            Some(Value::String(text)) => Some(mem::take(text)),
            Some(other) => {
                self.wrong_type(join(pointer, key), "string", other);
                None
            }
        }
    }

    /// Reads a name: a text that exists, is not empty and not too long.
    fn name(
        &mut self,
        parent: &mut Map<String, Value>,
        key: &str,
        pointer: &str,
    ) -> Option<String> {
        match self.optional_text(parent, key, pointer) {
            Some(name) if !name.is_empty() => {
                self.check_length(&name, || join(pointer, key));
                Some(name)
            }
            None if parent.get(key).is_some_and(|other| !other.is_null()) => None,
            _ => {
                let message = format!("there is no `{key}`; give it as a string");
                self.violations
                    .add(Violation::new(join(pointer, key), "missing", message));
                None
            }
        }
    }

    fn check_length(&mut self, name: &str, place: impl FnOnce() -> String) {
        if name.len() > MAX_NAME_BYTES {
            let message = format!(
                "the name has {} bytes; at most {MAX_NAME_BYTES} are accepted",
                name.len()
            );
            self.violations
                .add(Violation::new(place(), "limit_exceeded", message));
        }
    }

    fn wrong_type(&mut self, place: String, expected: &str, found: &Value) {
        let message = format!("expected {expected}, found {}", kind_of(found));
        self.violations
            .add(Violation::new(place, "type_mismatch", message).found(expected, kind_of(found)));
    }

    fn too_many(&mut self, pointer: &str, count: usize, most: usize) {
        let message = format!("there are {count} entries; at most {most} are accepted");
        self.violations.add(
            Violation::new(pointer, "limit_exceeded", message)
                .found(most.to_string(), &count.to_string()),
        );
    }
}

/// Returns whether a value fits an interface slot: of its type, or an array of it where the slot
/// accepts many.
pub fn fits_interface(slot: &Slot, value: &Value) -> bool {
    match value {
        _ if slot.is_stream => is_whole(slot, value),
        Value::Array(items) if slot.multi => items.iter().all(|item| slot.data_flow.holds(item)),
        _ if slot.multi => slot.data_flow.is_any(),
        _ => slot.data_flow.holds(value),
    }
}

#[cfg(test)]
mod tests;
