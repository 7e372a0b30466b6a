//! The definition that all nodes of a type share, for the canvas and the engine.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::Value;

use super::data_flow::DataFlow;
use super::slot::Shape;

/// The role of a node in its workflow's interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InterfaceRole {
    /// It is inside.
    #[default]
    Inner,
    /// It brings the inputs of the run into the graph.
    Entry,
    /// It takes the outputs of the run out of the graph.
    Exit,
}

/// The effects of a node beyond computing its outputs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NodeEffects {
    /// None: it is a function of its inputs and runs inline.
    #[default]
    Pure,
    /// It needs other services, but changes no state outside its run.
    ReadOnly,
    /// It may change state outside its run.
    External,
}

/// The reuse of a node's result by another node with the same inputs and settings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reuse {
    /// Not at all.
    Never,
    /// Always: the node is a function of its inputs and settings.
    #[default]
    Deterministic,
    /// For a while: it reads data that may change.
    Reads,
}

/// The outputs of a bypassed node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Bypass {
    /// Input values that fit its outputs.
    #[default]
    Pass,
    /// None: its outputs are absent.
    Mute,
}

/// The slots of a node beyond the slots of its type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FurtherSlots {
    /// None.
    #[default]
    None,
    /// An input for every further key that an edge or a preset value names.
    NamedInputs,
    /// An input for every gap of its template.
    TemplateGaps,
    /// The inputs of the workflow.
    InterfaceInputs,
    /// The outputs of the workflow.
    InterfaceOutputs,
    /// The inputs and outputs of the workflow that its settings name.
    ReferencedWorkflow,
    /// An output for each case of its settings.
    Cases,
    /// The inputs and outputs that its settings list, and an input for every value that an edge brings
    /// into it from outside.
    Zone,
    /// The slots that the zone around it has for the nodes inside.
    SurroundingZone,
}

/// A key of a node's `configValues`.
#[derive(Clone, Debug)]
pub struct ConfigSlot {
    /// The key.
    pub key: Cow<'static, str>,
    /// The description.
    pub description: Cow<'static, str>,
    /// The type of the value.
    pub data_flow: DataFlow,
    /// The value that is used when the key is missing.
    pub default: Option<Value>,
    /// The accepted values; empty for every value of the type.
    pub options: Vec<Cow<'static, str>>,
    /// The bounds of a number: above the first, at most the second.
    pub bounds: Option<(f64, f64)>,
}

/// The slots of a node in one mode.
#[derive(Clone, Debug)]
pub struct NodeMode {
    /// The value of the setting that selects it.
    pub id: Cow<'static, str>,
    /// The slots.
    pub shape: Shape,
}

/// The modes of a node type.
#[derive(Clone, Debug)]
pub struct NodeModes {
    /// The key of the setting that selects one.
    pub config_key: Cow<'static, str>,
    /// All modes, in display order.
    pub modes: Vec<NodeMode>,
}

/// The plugin that brings a node type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginOrigin {
    /// The name of the plugin.
    pub name: Arc<str>,
    /// The digest of its package.
    pub package_digest: Arc<str>,
}

/// The definition that all nodes of a type share.
#[derive(Clone, Debug)]
pub struct NodeDefinition {
    /// The full type, such as `core:TextMerge`.
    pub full_type: Cow<'static, str>,
    /// The display name.
    pub display_name: Cow<'static, str>,
    /// The description.
    pub description: Cow<'static, str>,
    /// The group in which an editor lists the type.
    pub category: Cow<'static, str>,
    /// The slots, where they do not depend on the workflow.
    pub shape: Shape,
    /// The settings that the type reads.
    pub config: Vec<ConfigSlot>,
    /// The modes; none for a type without modes.
    pub modes: Option<NodeModes>,
    /// The slots of a node beyond these.
    pub further_slots: FurtherSlots,
    /// Its effects beyond computing its outputs.
    pub effects: NodeEffects,
    /// Whether its results may be reused.
    pub reuse: Reuse,
    /// Whether it can wait for a time, a signal or a person.
    pub waits: bool,
    /// Its role in the interface.
    pub role: InterfaceRole,
    /// Its outputs when it is bypassed.
    pub bypass: Bypass,
    /// The plugin that brings it; none for a type of the engine.
    pub plugin: Option<PluginOrigin>,
}

impl ConfigSlot {
    /// Describes a setting without default and bounds.
    pub fn new(
        key: impl Into<Cow<'static, str>>,
        data_flow: DataFlow,
        description: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self {
            key: key.into(),
            description: description.into(),
            data_flow,
            default: None,
            options: Vec::new(),
            bounds: None,
        }
    }
}

impl NodeDefinition {
    /// Describes a pure node inside a workflow, with fixed slots and without settings.
    pub fn new(
        full_type: impl Into<Cow<'static, str>>,
        display_name: impl Into<Cow<'static, str>>,
        shape: Shape,
    ) -> Self {
        Self {
            full_type: full_type.into(),
            display_name: display_name.into(),
            description: Cow::Borrowed(""),
            category: Cow::Borrowed(""),
            shape,
            config: Vec::new(),
            modes: None,
            further_slots: FurtherSlots::None,
            effects: NodeEffects::Pure,
            reuse: Reuse::Deterministic,
            waits: false,
            role: InterfaceRole::Inner,
            bypass: Bypass::Pass,
            plugin: None,
        }
    }
}
