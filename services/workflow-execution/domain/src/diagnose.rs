//! The parts of a definition that have no effect: features that are not carried out, and keys and
//! settings that nothing reads.

use core_types::LoadDiagnostic;
use serde_json::{Map, Value};

use super::execution::{EXECUTION, OF_EFFECTS};
use super::limits::MAX_SUGGESTED;
use super::load;
use super::node_definition::NodeEffects;
use super::node_type::{Catalogue, ShapeContext};
use super::tool_choice::{DYNAMIC, DYNAMIC_KEYS};
use super::workflow::{Form, NodeEntry, Workflow};
use json_schema::pointer::join;

const ROOT_KEYS: [&str; 19] = [
    "id",
    "name",
    "description",
    "nodes",
    "edges",
    "viewport",
    "createdAt",
    "updatedAt",
    "version",
    "interfaceInputs",
    "interfaceOutputs",
    "creationMethod",
    "referencedWorkflows",
    "previewTarget",
    "workflowId",
    "outputInterfaceMappings",
    "clientId",
    "metadata",
    "availableTools",
];
const NODE_KEYS: [&str; 13] = [
    "id",
    "name",
    "position",
    "parentNode",
    "width",
    "height",
    "displayName",
    "customDescription",
    "customSlotDescriptions",
    "configValues",
    "inputConnectionOrders",
    "bypassed",
    "data",
];
const SLOT_KEYS: [&str; 14] = [
    "key",
    "displayName",
    "description",
    "customDescription",
    "dataFlowType",
    "matchCategories",
    "required",
    IS_STREAM,
    "multi",
    "min",
    "max",
    "allowDynamicType",
    "hideHandle",
    "config",
];
const IS_STREAM: &str = "isStream";

/// Returns the findings about a definition, `source` being the JSON that `workflow` was read from.
pub fn diagnose(source: &Value, workflow: &Workflow, catalogue: &Catalogue) -> Vec<LoadDiagnostic> {
    let mut findings = Findings::default();
    let Some(root) = source.as_object() else {
        return Vec::new();
    };
    findings.unknown_keys(root, "", &ROOT_KEYS);
    for side in ["interfaceInputs", "interfaceOutputs"] {
        let slots = root.get(side).and_then(Value::as_object);
        for (key, slot) in slots.into_iter().flatten() {
            if let Some(slot) = slot.as_object() {
                findings.slot(slot, &join(&join("", side), key));
            }
        }
    }
    let nodes = root.get("nodes").and_then(Value::as_array);
    for (at, node) in nodes.into_iter().flatten().enumerate() {
        if let Some(node) = node.as_object() {
            findings.node(node, &format!("/nodes/{at}"), workflow.form);
        }
    }
    for entry in &workflow.nodes {
        findings.entry(entry, workflow, catalogue);
    }
    findings.list
}

/// Whether a value is more than a placeholder.
fn is_used(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
        _ => true,
    }
}

#[derive(Default)]
struct Findings {
    list: Vec<LoadDiagnostic>,
}

impl Findings {
    fn add(&mut self, finding: LoadDiagnostic) {
        if self.list.len() < LoadDiagnostic::MAX {
            self.list.push(finding);
        }
    }

    fn not_supported(&mut self, path: String, message: &str) {
        self.add(LoadDiagnostic::not_supported(path, message));
    }

    fn unknown_key(&mut self, pointer: &str, key: &str, known: &[&str]) {
        let near = match self.list.len() < MAX_SUGGESTED {
            true => json_schema::nearest_names(key, known.iter().copied()),
            false => Vec::new(),
        };
        let nearest = near.first().map(String::as_str);
        self.add(LoadDiagnostic::unknown_key(
            join(pointer, key),
            key,
            nearest,
        ));
    }

    fn unknown_keys(&mut self, object: &Map<String, Value>, pointer: &str, known: &[&str]) {
        for key in object.keys().filter(|key| !known.contains(&key.as_str())) {
            self.unknown_key(pointer, key, known);
        }
    }

    fn slot(&mut self, slot: &Map<String, Value>, pointer: &str) {
        self.unknown_keys(slot, pointer, &SLOT_KEYS);
        let is_set = |key: &str| slot.get(key).is_some_and(is_used);
        if is_set(IS_STREAM) && is_set("multi") {
            let message = "a slot for many values does not stream; it is handed over whole";
            self.not_supported(join(pointer, IS_STREAM), message);
        }
    }

    fn node(&mut self, node: &Map<String, Value>, pointer: &str, form: Form) {
        let mut known = NODE_KEYS.to_vec();
        known.extend([
            form.type_key(),
            form.presets_key(),
            load::settings_key(node),
        ]);
        self.unknown_keys(node, pointer, &known);
    }

    /// Finds keys of the tools that a node adds that are not read.
    fn dynamic_tools(&mut self, given: &Value, pointer: &str) {
        for (key, value) in given.as_object().into_iter().flatten() {
            match key.as_str() {
                "scope" if is_used(value) => {
                    let message = "the tools are those of this node only; name the ones of all nodes under availableTools";
                    self.not_supported(join(pointer, key), message);
                }
                key if !DYNAMIC_KEYS.contains(&key) => {
                    self.unknown_key(pointer, key, &DYNAMIC_KEYS);
                }
                _ => {}
            }
        }
    }

    /// Finds settings and preset values that the node's type does not read.
    fn entry(&mut self, entry: &NodeEntry, workflow: &Workflow, catalogue: &Catalogue) {
        let Some(node) = catalogue.get(&entry.full_type) else {
            return;
        };
        let settings = join(&entry.pointer, "configValues");
        let config = &node.definition().config;
        let read: Vec<&str> = config.iter().map(|slot| &*slot.key).collect();
        for (key, value) in &*entry.config {
            if key == EXECUTION {
                let is_pure = node.definition().effects == NodeEffects::Pure;
                for setting in OF_EFFECTS.iter().filter(|key| value.get(key).is_some()) {
                    if is_pure {
                        let message = "a node that calls nothing outside its run starts at once";
                        self.not_supported(join(&join(&settings, key), setting), message);
                    }
                }
            } else if !read.contains(&key.as_str()) {
                self.unknown_key(&settings, key, &read);
            } else if key == DYNAMIC {
                self.dynamic_tools(value, &join(&settings, key));
            }
        }
        let context = ShapeContext {
            definition: node.definition(),
            config: &entry.config,
            presets: &entry.presets,
            connected: &[],
            interface_inputs: &workflow.interface_inputs,
            interface_outputs: &workflow.interface_outputs,
            own_interface: entry.interface.as_ref(),
        };
        let Ok(shape) = node.shape(&context) else {
            return;
        };
        let known: Vec<&str> = shape.inputs.iter().map(|slot| &*slot.key).collect();
        let presets = join(&entry.pointer, workflow.form.presets_key());
        for key in entry.presets.keys() {
            if !known.contains(&key.as_str()) {
                self.unknown_key(&presets, key, &known);
            }
        }
    }
}
