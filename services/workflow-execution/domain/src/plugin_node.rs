//! Nodes of types that plugins bring (rule R116).
//!
//! A run of such a node is a call of the tool of its type. The type is kept as a text, so that a run that began with it
//! keeps it whatever happens to the plugin (rule R107).

use std::borrow::Cow;
use std::sync::Arc;

use call_outcome::{Category, Failure, Violation};
use json_schema::pointer::join;
use node_file::NodeFile;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::bundle::Children;
use super::data_flow::{DataFlow, kind_of};
use super::node_definition::{
    ConfigSlot, NodeDefinition, NodeEffects, NodeMode, NodeModes, PluginOrigin, Reuse,
};
use super::node_type::{Catalogue, Effect, Node, NodeCall, NodeType, Settled, ShapeContext, Step};
use super::slot::{Shape, Slot};
use super::stream_value::{is_whole, nothing};

/// The namespace of the types of the engine itself.
const OWN: &str = "core";

/// Returns the plugin in the full type of a node; none if it is no type of a plugin.
pub fn plugin_of(full_type: &str) -> Option<&str> {
    let (plugin, name) = full_type.split_once(':')?;
    (plugin != OWN && !plugin.is_empty() && !name.is_empty()).then_some(plugin)
}

/// Reports a node whose type no plugin in force brings, with the reason where it is known. The type is the received value
/// of the violation.
pub fn missing(place: String, full_type: &str, reason: Option<&str>) -> Violation {
    let plugin = plugin_of(full_type).unwrap_or_default();
    let reason = reason.unwrap_or(
        "the plugin is not installed, or brings no such type; install it, or name another type",
    );
    let message =
        format!("the node type `{full_type}` of the plugin `{plugin}` is not in force: {reason}");
    Violation {
        received: full_type.to_owned(),
        ..Violation::new(place, PLUGIN_MISSING, message)
    }
}

/// The code of [`missing`].
pub const PLUGIN_MISSING: &str = "plugin_missing";

/// Whether all that is wrong is that plugins are not in force, or were not looked up.
pub fn lack_plugins_only(violations: &[Violation]) -> bool {
    let mut codes = violations.iter().map(|found| &found.code);
    !violations.is_empty() && codes.all(|code| code == PLUGIN_MISSING)
}

/// A node type of a plugin as the registry describes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PluginNodeType {
    /// The full type, `<plugin>:<type>`.
    pub full_type: String,
    /// The file that declares it.
    pub definition: String,
    /// The tool that runs its nodes.
    pub tool_id: String,
    /// The package that brings it.
    pub package_digest: String,
}

impl PluginNodeType {
    /// Writes it as one text.
    pub fn to_text(&self) -> String {
        serde_json::to_string(self).expect("texts always serialise")
    }

    /// Reads a text of [`PluginNodeType::to_text`], and makes the node type; none if the text is damaged, or the file is
    /// not valid.
    pub fn read(text: &str) -> Option<Arc<NodeType>> {
        let read: Self = serde_json::from_str(text).ok()?;
        read.node_type()
    }

    /// Makes the node type; none if the file is not valid.
    pub fn node_type(&self) -> Option<Arc<NodeType>> {
        let plugin = plugin_of(&self.full_type)?;
        let file = node_file::read(&self.definition, plugin).ok()?;
        Some(NodeType::new(PluginNode {
            definition: definition_of(self, plugin, &file),
            tool_id: self.tool_id.clone(),
        }))
    }
}

/// Returns a catalogue with the types of plugins as well, each as [`PluginNodeType::to_text`] writes it. A damaged text
/// is left out.
pub fn with_plugins<'a>(catalogue: &'a Catalogue, texts: &Children) -> Cow<'a, Catalogue> {
    if texts.is_empty() {
        return Cow::Borrowed(catalogue);
    }
    let brought = texts.values();
    let brought = brought.filter_map(|text| PluginNodeType::read(text));
    Cow::Owned(Catalogue::new(
        brought.chain(catalogue.all().iter().cloned()),
    ))
}

/// The behaviour of a type: one call of a tool, with the settings and inputs as its arguments.
#[derive(Debug)]
struct PluginNode {
    definition: NodeDefinition,
    tool_id: String,
}

impl Node for PluginNode {
    fn definition(&self) -> NodeDefinition {
        self.definition.clone()
    }

    fn shape(&self, context: &ShapeContext<'_>) -> Result<Shape, Vec<Violation>> {
        let Some(modes) = &self.definition.modes else {
            return Ok(self.definition.shape.clone());
        };
        let mut settings = self.definition.config.iter();
        let default = settings.find(|setting| setting.key == modes.config_key);
        let default = default.and_then(|setting| setting.default.as_ref());
        let stated = context.config.get(&*modes.config_key);
        let stated = stated.filter(|chosen| !chosen.is_null());
        let Some(chosen) = stated.or(default) else {
            return Ok(self.definition.shape.clone());
        };
        let mode = modes.modes.iter().find(|mode| *chosen == *mode.id);
        mode.map(|mode| mode.shape.clone()).ok_or_else(|| {
            let message = format!("there is no mode {chosen}");
            let place = join("/configValues", &modes.config_key);
            let violation = Violation::new(place, "unknown_mode", message);
            let known = modes.modes.iter().map(|mode| &*mode.id);
            vec![violation.nearest(chosen.as_str().unwrap_or_default(), known)]
        })
    }

    fn run(&self, call: NodeCall<'_>) -> Result<Step, Failure> {
        let settings = self.definition.config.iter();
        let settings = settings.filter_map(|setting| {
            let value = call.config.get(&*setting.key)?;
            (!value.is_null()).then(|| (setting.key.to_string(), value.clone()))
        });
        let mut arguments: Map<String, Value> = settings.collect();
        // An input takes the place of the setting of its name.
        arguments.extend(
            call.given(0)
                .map(|(slot, value)| (slot.key.to_string(), value.clone())),
        );
        Ok(Step::Effect(Effect::CallTool {
            tool_id: self.tool_id.clone(),
            arguments,
        }))
    }

    fn settle(&self, call: NodeCall<'_>, settled: Settled) -> Result<Vec<Arc<Value>>, Failure> {
        let output = match settled {
            Settled::Tool { output, .. } => output,
            Settled::ToolFailed { failure, .. } => return Err(failure),
            _ => {
                let message = format!("{} only calls a tool", self.definition.full_type);
                return Err(Failure::new(Category::Internal, "wrong_effect", message));
            }
        };
        let Value::Object(mut given) = output else {
            let found = kind_of(&output);
            return Err(invalid(format!(
                "its handler must answer an object with a member for each output, and answered {found}"
            )));
        };
        let outputs = call.shape.outputs.iter();
        let outputs: Result<Vec<_>, Failure> = outputs
            .map(|slot| {
                let value = match given.shift_remove(&*slot.key) {
                    Some(value) => value,
                    // Its handler wrote nothing.
                    None if slot.is_stream => nothing(slot),
                    None => return Err(invalid(format!("the output `{}` is missing", slot.key))),
                };
                checked(slot, value).map(Arc::new)
            })
            .collect();
        let outputs = outputs?;
        match given.keys().next() {
            Some(key) => Err(invalid(format!("there is no output `{key}`"))),
            None => Ok(outputs),
        }
    }
}

fn invalid(message: String) -> Failure {
    Failure::new(Category::Runtime, "output_invalid", message)
}

/// Returns an output if it is of the type of its slot.
fn checked(slot: &Slot, value: Value) -> Result<Value, Failure> {
    let fits = match slot.is_stream {
        true => is_whole(slot, &value),
        false => slot.data_flow.holds(&value),
    };
    if fits {
        return Ok(value);
    }
    Err(invalid(format!(
        "the output `{}` must be {}, and is {}",
        slot.key,
        slot.whole().name(),
        kind_of(&value)
    )))
}

fn definition_of(described: &PluginNodeType, plugin: &str, file: &NodeFile) -> NodeDefinition {
    let display_name = match file.display_name.as_str() {
        "" => file.name.clone(),
        stated => stated.to_owned(),
    };
    let category = match file.category.as_str() {
        "" => plugin.to_owned(),
        stated => stated.to_owned(),
    };
    let modes = file.modes.iter().map(|(id, mode)| NodeMode {
        id: id.clone().into(),
        shape: shape_of(&mode.inputs, &mode.outputs),
    });
    let (effects, reuse) = match file.effects.read_only {
        true => (NodeEffects::ReadOnly, Reuse::Reads),
        false => (NodeEffects::External, Reuse::Never),
    };
    NodeDefinition {
        description: file.description.clone().into(),
        category: category.into(),
        config: file.settings.iter().map(config_slot).collect(),
        modes: (!file.modes.is_empty()).then(|| NodeModes {
            config_key: file.mode_key.clone().into(),
            modes: modes.collect(),
        }),
        effects,
        reuse,
        plugin: Some(PluginOrigin {
            name: plugin.into(),
            package_digest: described.package_digest.as_str().into(),
        }),
        ..NodeDefinition::new(
            described.full_type.clone(),
            display_name,
            shape_of(&file.inputs, &file.outputs),
        )
    }
}

fn shape_of(inputs: &[(String, node_file::Slot)], outputs: &[(String, node_file::Slot)]) -> Shape {
    let slots = |slots: &[(String, node_file::Slot)]| slots.iter().map(slot_of).collect();
    Shape::new(slots(inputs), slots(outputs))
}

fn slot_of((key, slot): &(String, node_file::Slot)) -> Slot {
    let data_flow = DataFlow::from_name(&slot.data_flow_type).unwrap_or(DataFlow::Wildcard);
    Slot {
        required: slot.required,
        multi: slot.multi,
        default: slot.config.default.clone().map(Arc::new),
        suggestions: (slot.config.suggestions.iter().cloned())
            .map(Cow::Owned)
            .collect(),
        categories: slot.match_categories.clone(),
        is_stream: slot.is_stream,
        ..Slot::new(key, data_flow, slot.purpose())
    }
}

fn config_slot((key, setting): &(String, node_file::Setting)) -> ConfigSlot {
    let data_flow = DataFlow::from_name(&setting.data_flow_type).unwrap_or(DataFlow::Wildcard);
    let config = &setting.config;
    ConfigSlot {
        default: config.default.clone(),
        options: config.options.iter().cloned().map(Cow::Owned).collect(),
        bounds: config.above.zip(config.maximum),
        ..ConfigSlot::new(key.clone(), data_flow, setting.purpose().to_owned())
    }
}

#[cfg(test)]
mod tests;
