//! The tools of node types that plugins bring (rule R116).

use std::sync::Arc;

use call_outcome::Violation;
use core_types::ToolId;
use node_file::{NodeFile, Slot};
use serde_json::{Map, Value};

use super::{
    definition::{Definition, Flags, Implementation, time_limit},
    interface::streams_values,
    naming::NODE_PREFIX,
    node_interface::NodeInterface,
    package::Package,
    parameters::Input,
    program::{self, Program, StreamedOutput},
};

/// Returns the full type of the nodes that a tool runs; none if it is no tool of a node type.
pub fn node_type_of(tool_id: &str) -> Option<&str> {
    tool_id.strip_prefix(NODE_PREFIX)
}

/// Makes the tool of a node type: its arguments are the inputs and settings of a node. `text` is the file of the type,
/// and `tools` are the tools of the same plugin.
///
/// # Errors
/// The problems of its handler.
pub fn tool_of(
    (plugin, package): (&str, &Arc<Package>),
    (file, text): (&NodeFile, &str),
    tools: &[&Definition],
) -> Result<Definition, Vec<Violation>> {
    let full_type = format!("{plugin}:{}", file.name);
    let id = ToolId::new(format!("{NODE_PREFIX}{full_type}"))
        .map_err(|error| vec![Violation::new("/type", "invalid_type", error.to_string())])?;
    let declared = Flags {
        read_only: file.effects.read_only,
        idempotent: file.effects.idempotent,
        destructive: file.effects.destructive,
        parallel_safe: file.effects.parallel_safe,
        strict: false,
    };
    let (implementation, timeout, flags) = match &file.handler.tool {
        Some(tool) => {
            let target = find(tool, tools)?;
            if declared.no_weaker_than(target.flags) != declared {
                let message = format!(
                    "the type declares less of effects than its handler '{tool}'; declare the same for both"
                );
                return Err(vec![Violation::new("/effects", "effects_weaker", message)]);
            }
            (target.implementation.clone(), target.timeout, declared)
        }
        None => {
            let command = file.handler.script.as_deref().unwrap_or_default();
            let program = program::parse_command("/handler/script", command)?;
            let program = Program {
                packages: file.handler.packages.clone(),
                streamed: file.streamed().map(|(key, slot)| StreamedOutput {
                    key: key.clone(),
                    is_text: !streams_values(&slot.data_flow_type),
                }),
                ..program
            };
            let timeout = file.handler.timeout.as_ref().map(time_limit).transpose();
            let timeout = timeout.map_err(|problem| {
                vec![Violation::new("/handler/timeout", "out_of_range", problem)]
            })?;
            (Implementation::Script(program), timeout, declared)
        }
    };
    let display_name = match file.display_name.as_str() {
        "" => full_type,
        stated => stated.to_owned(),
    };
    Ok(Definition {
        id,
        description: match file.description.as_str() {
            "" => display_name.clone(),
            stated => stated.to_owned(),
        },
        display_name,
        parameters: Some(parameters_of(file)),
        implementation,
        flags,
        timeout,
        source: text.into(),
        package: Some(Arc::clone(package)),
        diagnostics: Vec::new(),
    })
}

fn find<'a>(id: &str, tools: &[&'a Definition]) -> Result<&'a Definition, Vec<Violation>> {
    let found = tools.iter().find(|tool| tool.id.as_str() == id);
    found.copied().ok_or_else(|| {
        let message = format!("the plugin has no tool '{id}'; name one of it, or a script");
        let mut violation = Violation::new("/handler/tool", "unknown_tool", message);
        let known = tools.iter().map(|tool| tool.id.as_str());
        violation.suggestions = json_schema::nearest_names(id, known);
        vec![violation]
    })
}

/// Returns the schema of the arguments: the inputs without a mode and of each, and the settings. An input is required if
/// each of these needs it, and of any type if they differ; the engine holds a node to the slots of its mode.
fn parameters_of(file: &NodeFile) -> Value {
    let of_modes = file.modes.iter().map(|(_, mode)| &mode.inputs);
    let shapes: Vec<&Vec<(String, Slot)>> = of_modes.chain([&file.inputs]).collect();
    let mut inputs: Vec<Input> = Vec::new();
    let mut defaults = Map::new();
    for (key, slot) in shapes.iter().rev().copied().flatten() {
        let mut input = input_of(key, slot);
        let is_in_all = |shape: &&Vec<(String, Slot)>| {
            let mut slots = shape.iter();
            slots.any(|(other, slot)| other == key && input_of(other, slot).required)
        };
        input.required = shapes.iter().all(is_in_all);
        if let Some(default) = &slot.config.default {
            defaults.entry(key.clone()).or_insert(default.clone());
        }
        match inputs.iter_mut().find(|known| known.key == *key) {
            None => inputs.push(input),
            Some(known) if known.data_flow_type == input.data_flow_type => {}
            Some(known) => known.data_flow_type = "WILDCARD".to_owned(),
        }
    }
    let settings = file.settings.iter();
    let interface = NodeInterface {
        inputs,
        mode_key: file.mode_key.clone(),
        modes: file
            .modes
            .iter()
            .map(|(id, _)| (id.clone(), Vec::new()))
            .collect(),
        settings: settings
            .map(|(key, setting)| (key.clone(), setting.schema()))
            .collect(),
    };
    let mut parameters = interface.parameters(&Map::new());
    for (key, default) in defaults {
        parameters["properties"][key]["default"] = default;
    }
    parameters
}

fn input_of(key: &str, slot: &Slot) -> Input {
    Input {
        key: key.to_owned(),
        data_flow_type: slot.data_flow_type.clone(),
        description: slot.purpose().to_owned(),
        required: slot.required && slot.config.default.is_none(),
        multi: slot.multi || slot.is_stream && streams_values(&slot.data_flow_type),
        ..Input::default()
    }
}
