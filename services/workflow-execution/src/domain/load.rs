//! Reads a definition text in either form, tolerant of what it does not know.
//!
//! What the parent project's own files leave open is settled here: an interface slot's
//! description is `description`, else `customDescription`, else `displayName`; its key is the key
//! of the map; a definition with `fullType` or `sourceNodeId` is a payload.

use call_outcome::Violation;
use std::collections::HashMap;
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
use super::violation::{Violations, join, of_json};
use super::workflow::{EdgeEntry, Form, NodeEntry, OutputMapping, Workflow};

/// What a text says, and what is wrong with it. Even a wrong text is read as far as possible, so
/// that its graph can be checked too.
#[derive(Debug)]
pub struct Loaded {
    /// The JSON value that the text holds; null if it is not valid JSON.
    pub source: Value,
    /// The workflow; nothing if the text is not a JSON object.
    pub workflow: Option<Workflow>,
    /// What is wrong.
    pub violations: Vec<Violation>,
}

/// Reads a definition text.
pub fn load(text: &str) -> Loaded {
    let limits = JsonLimits {
        max_bytes: MAX_DEFINITION_BYTES,
        max_depth: MAX_JSON_DEPTH,
        ..JsonLimits::default()
    };
    match json_schema::parse_json_strict_with(text, &limits) {
        Ok(value) => load_value(value),
        Err(error) => Loaded {
            source: Value::Null,
            workflow: None,
            violations: of_json(&error),
        },
    }
}

fn load_value(source: Value) -> Loaded {
    let mut loader = Loader::default();
    let workflow = loader
        .expect_object(&source, "")
        .map(|root| loader.workflow(root));
    Loaded {
        source,
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

#[derive(Default)]
struct Loader {
    violations: Violations,
}

impl Loader {
    fn workflow(&mut self, root: &Map<String, Value>) -> Workflow {
        let form = form_of(root);
        let nodes = self.list(root, "nodes", MAX_NODES, true);
        let edges = self.list(root, "edges", MAX_EDGES, false);
        let mut nodes: Vec<NodeEntry> = nodes
            .iter()
            .enumerate()
            .filter_map(|(at, node)| self.node(form, at, node))
            .collect();
        match tool_choice::initial(root) {
            Ok(initial) => tool_choice::inherit(&mut nodes, &initial),
            Err(violations) => violations
                .into_iter()
                .for_each(|wrong| self.violations.add(wrong)),
        }
        Workflow {
            form,
            name: self.text(root, "name", ""),
            description: self.text(root, "description", ""),
            nodes,
            edges: edges
                .iter()
                .enumerate()
                .filter_map(|(at, edge)| self.edge(form, at, edge))
                .collect(),
            interface_inputs: self.interface(root, "interfaceInputs"),
            interface_outputs: self.interface(root, "interfaceOutputs"),
            output_mappings: self.output_mappings(root),
        }
    }

    fn node(&mut self, form: Form, at: usize, value: &Value) -> Option<NodeEntry> {
        let pointer = format!("/nodes/{at}");
        let node = self.expect_object(value, &pointer)?;
        let id = self.name(node, "id", &pointer);
        let full_type = self.name(node, form.type_key(), &pointer);
        let entry = NodeEntry::new(&id?, &full_type?);
        Some(NodeEntry {
            presets: self.object(node, form.presets_key(), &pointer),
            config: self.object(node, "configValues", &pointer).into(),
            connection_orders: self.connection_orders(node, &pointer),
            bypassed: node
                .get("bypassed")
                .and_then(Value::as_bool)
                .unwrap_or(false),
            parent: node
                .get("parentNode")
                .and_then(Value::as_str)
                .map(str::to_owned),
            pointer,
            ..entry
        })
    }

    fn edge(&mut self, form: Form, at: usize, value: &Value) -> Option<EdgeEntry> {
        let pointer = format!("/edges/{at}");
        let edge = self.expect_object(value, &pointer)?;
        let (source_key, target_key) = form.end_keys();
        let source = self.name(edge, source_key, &pointer);
        let target = self.name(edge, target_key, &pointer);
        let id = self.text(edge, "id", &pointer);
        let source_handle = self.optional_text(edge, "sourceHandle", &pointer);
        let target_handle = self.optional_text(edge, "targetHandle", &pointer);
        Some(EdgeEntry {
            id,
            source: source?,
            source_handle,
            target: target?,
            target_handle,
            pointer,
        })
    }

    fn interface(&mut self, root: &Map<String, Value>, key: &str) -> Vec<Slot> {
        let pointer = join("", key);
        let slots = self.object(root, key, "");
        if slots.len() > MAX_INTERFACE_SLOTS {
            self.too_many(&pointer, slots.len(), MAX_INTERFACE_SLOTS);
            return Vec::new();
        }
        slots
            .iter()
            .filter_map(|(name, slot)| self.interface_slot(name, slot, &join(&pointer, name)))
            .collect()
    }

    fn interface_slot(&mut self, key: &str, value: &Value, pointer: &str) -> Option<Slot> {
        let slot = self.expect_object(value, pointer)?;
        self.check_length(key, || pointer.to_owned());
        let described = ["description", "customDescription", "displayName"];
        let description = described
            .iter()
            .find_map(|word| slot.get(*word).and_then(Value::as_str))
            .unwrap_or("");
        let mut read = Slot::new(key, self.data_flow(slot, pointer), description);
        read.required = self.flag(slot, "required", pointer);
        read.multi = self.flag(slot, "multi", pointer);
        read.is_stream = self.flag(slot, "isStream", pointer) && !read.multi;
        if let Some(Value::Array(words)) = slot.get("matchCategories") {
            read.categories = words
                .iter()
                .filter_map(|word| word.as_str().map(str::to_owned))
                .collect();
        }
        let config = self.object(slot, "config", pointer);
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
            let message =
                format!("the default is no {expected}; change the default or the slot's type");
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
        node: &Map<String, Value>,
        pointer: &str,
    ) -> HashMap<String, Vec<String>> {
        let key = "inputConnectionOrders";
        let orders = self.object(node, key, pointer);
        let mut read = HashMap::new();
        for (slot, ids) in &orders {
            match ids {
                Value::Array(ids) => {
                    let ids = ids
                        .iter()
                        .filter_map(|id| id.as_str().map(str::to_owned))
                        .collect();
                    read.insert(slot.clone(), ids);
                }
                other => {
                    self.wrong_type(join(&join(pointer, key), slot), "array of edge ids", other)
                }
            }
        }
        read
    }

    fn output_mappings(&mut self, root: &Map<String, Value>) -> Vec<OutputMapping> {
        let mappings = self.object(root, "outputInterfaceMappings", "");
        let mut read = Vec::new();
        for (key, mapping) in &mappings {
            let pointer = join("/outputInterfaceMappings", key);
            let Some(mapping) = self.expect_object(mapping, &pointer) else {
                continue;
            };
            let node = self.name(mapping, "sourceNodeId", &pointer);
            let slot = self.name(mapping, "sourceSlotKey", &pointer);
            if let (Some(node), Some(slot)) = (node, slot) {
                read.push(OutputMapping {
                    key: key.clone(),
                    node,
                    slot,
                    pointer,
                });
            }
        }
        read
    }

    fn list<'v>(
        &mut self,
        root: &'v Map<String, Value>,
        key: &str,
        most: usize,
        needed: bool,
    ) -> &'v [Value] {
        let pointer = join("", key);
        match root.get(key) {
            Some(Value::Array(entries)) if entries.len() <= most => entries,
            Some(Value::Array(entries)) => {
                self.too_many(&pointer, entries.len(), most);
                &[]
            }
            None if !needed => &[],
            None => {
                let message = format!(
                    "there is no `{key}`; a workflow has an array of them, which may be empty"
                );
                self.violations
                    .add(Violation::new(pointer, "missing", message));
                &[]
            }
            Some(other) => {
                self.wrong_type(pointer, "array", other);
                &[]
            }
        }
    }

    fn expect_object<'v>(
        &mut self,
        value: &'v Value,
        pointer: &str,
    ) -> Option<&'v Map<String, Value>> {
        if let Value::Object(map) = value {
            return Some(map);
        }
        self.wrong_type(pointer.to_owned(), "object", value);
        None
    }

    fn object(
        &mut self,
        parent: &Map<String, Value>,
        key: &str,
        pointer: &str,
    ) -> Map<String, Value> {
        match parent.get(key) {
            None | Some(Value::Null) => Map::new(),
            Some(Value::Object(map)) => map.clone(),
            Some(other) => {
                self.wrong_type(join(pointer, key), "object", other);
                Map::new()
            }
        }
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

    fn text(&mut self, parent: &Map<String, Value>, key: &str, pointer: &str) -> String {
        self.optional_text(parent, key, pointer).unwrap_or_default()
    }

    fn optional_text(
        &mut self,
        parent: &Map<String, Value>,
        key: &str,
        pointer: &str,
    ) -> Option<String> {
        match parent.get(key) {
            None | Some(Value::Null) => None,
            Some(Value::String(text)) => Some(text.clone()),
            Some(other) => {
                self.wrong_type(join(pointer, key), "string", other);
                None
            }
        }
    }

    /// Reads a text that names something: there, not empty, not too long.
    fn name(&mut self, parent: &Map<String, Value>, key: &str, pointer: &str) -> Option<String> {
        match parent.get(key) {
            Some(Value::String(name)) if !name.is_empty() => {
                self.check_length(name, || join(pointer, key));
                Some(name.clone())
            }
            Some(Value::String(_)) | Some(Value::Null) | None => {
                let message = format!("there is no `{key}`; give it as a string");
                self.violations
                    .add(Violation::new(join(pointer, key), "missing", message));
                None
            }
            Some(other) => {
                self.wrong_type(join(pointer, key), "string", other);
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

/// Returns whether a value may stand in an interface slot: of its type, or an array of it where the
/// slot takes many.
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
