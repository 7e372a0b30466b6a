//! Node types on the wire.

use std::borrow::Cow;

use contracts::tavern::workflow::v1 as workflow;

use workflow_domain::config_schema::config_schema;
use workflow_domain::data_flow::DataFlow;
use workflow_domain::node_definition::{
    Bypass, ConfigSlot, FurtherSlots, NodeDefinition, NodeEffects, NodeMode, Reuse,
};
use workflow_domain::slot::Slot;

/// Writes a node type.
pub(super) fn to_proto(definition: &NodeDefinition) -> workflow::NodeType {
    let modes = definition.modes.as_ref();
    workflow::NodeType {
        full_type: definition.full_type.to_string(),
        display_name: definition.display_name.to_string(),
        description: definition.description.to_string(),
        category: definition.category.to_string(),
        inputs: inputs_to_proto(&definition.shape.inputs),
        outputs: outputs_to_proto(&definition.shape.outputs),
        config: definition.config.iter().map(config_to_proto).collect(),
        mode_config_key: modes
            .map(|modes| modes.config_key.to_string())
            .unwrap_or_default(),
        modes: modes
            .map(|modes| modes.modes.iter().map(mode_to_proto).collect())
            .unwrap_or_default(),
        further_slots: further_to_proto(definition.further_slots).into(),
        pure: definition.effects == NodeEffects::Pure,
        read_only: definition.effects != NodeEffects::External,
        mutes_on_bypass: definition.bypass == Bypass::Mute,
        result_reuse: reuse_to_proto(definition.reuse).into(),
        config_schema_json: config_schema(definition).to_string(),
        plugin: (definition.plugin.as_ref())
            .map_or_else(String::new, |plugin| plugin.name.to_string()),
    }
}

fn reuse_to_proto(reuse: Reuse) -> workflow::ResultReuse {
    match reuse {
        Reuse::Never => workflow::ResultReuse::Never,
        Reuse::Deterministic => workflow::ResultReuse::Deterministic,
        Reuse::Reads => workflow::ResultReuse::Reads,
    }
}

fn mode_to_proto(mode: &NodeMode) -> workflow::NodeMode {
    workflow::NodeMode {
        mode_id: mode.id.to_string(),
        inputs: inputs_to_proto(&mode.shape.inputs),
        outputs: outputs_to_proto(&mode.shape.outputs),
    }
}

fn inputs_to_proto(slots: &[Slot]) -> Vec<workflow::Slot> {
    slots.iter().map(slot_to_proto).collect()
}

/// Writes outputs, of which none is required.
fn outputs_to_proto(slots: &[Slot]) -> Vec<workflow::Slot> {
    let optional = |slot: &Slot| workflow::Slot {
        required: false,
        ..slot_to_proto(slot)
    };
    slots.iter().map(optional).collect()
}

fn slot_to_proto(slot: &Slot) -> workflow::Slot {
    workflow::Slot {
        key: slot.key.to_string(),
        display_name: title_of(&slot.key),
        description: slot.description.clone(),
        data_flow_type: data_flow_to_proto(slot.data_flow).into(),
        required: slot.required,
        multi: slot.multi,
        default_json: slot
            .default
            .as_ref()
            .map(|value| value.to_string())
            .unwrap_or_default(),
        suggestions: texts(&slot.suggestions),
        match_categories: slot.categories.clone(),
        excluded_from_bypass: slot.excluded_from_bypass,
        is_stream: slot.is_stream,
    }
}

fn config_to_proto(slot: &ConfigSlot) -> workflow::ConfigSlot {
    workflow::ConfigSlot {
        key: slot.key.to_string(),
        display_name: title_of(&slot.key),
        description: slot.description.to_string(),
        data_flow_type: data_flow_to_proto(slot.data_flow).into(),
        default_json: slot
            .default
            .as_ref()
            .map(ToString::to_string)
            .unwrap_or_default(),
        options: texts(&slot.options),
        above: slot.bounds.map(|(above, _)| above),
        maximum: slot.bounds.map(|(_, maximum)| maximum),
    }
}

fn data_flow_to_proto(data_flow: DataFlow) -> workflow::DataFlowType {
    match data_flow {
        DataFlow::String => workflow::DataFlowType::String,
        DataFlow::Integer => workflow::DataFlowType::Integer,
        DataFlow::Float => workflow::DataFlowType::Float,
        DataFlow::Boolean => workflow::DataFlowType::Boolean,
        DataFlow::Object => workflow::DataFlowType::Object,
        DataFlow::Array => workflow::DataFlowType::Array,
        DataFlow::Binary => workflow::DataFlowType::Binary,
        DataFlow::Wildcard => workflow::DataFlowType::Wildcard,
        DataFlow::ConvertibleAny => workflow::DataFlowType::ConvertibleAny,
    }
}

fn further_to_proto(further: FurtherSlots) -> workflow::FurtherSlots {
    match further {
        FurtherSlots::None => workflow::FurtherSlots::None,
        FurtherSlots::NamedInputs => workflow::FurtherSlots::NamedInputs,
        FurtherSlots::TemplateGaps => workflow::FurtherSlots::TemplateGaps,
        FurtherSlots::InterfaceInputs => workflow::FurtherSlots::InterfaceInputs,
        FurtherSlots::InterfaceOutputs => workflow::FurtherSlots::InterfaceOutputs,
        FurtherSlots::ReferencedWorkflow => workflow::FurtherSlots::ReferencedWorkflow,
        FurtherSlots::Cases => workflow::FurtherSlots::Cases,
        FurtherSlots::Zone => workflow::FurtherSlots::Zone,
        FurtherSlots::SurroundingZone => workflow::FurtherSlots::SurroundingZone,
    }
}

fn texts(texts: &[Cow<'_, str>]) -> Vec<String> {
    texts.iter().map(ToString::to_string).collect()
}

/// Makes a display name of a key: `text_inputs` and `textInputs` become `Text inputs`.
fn title_of(key: &str) -> String {
    let mut words: Vec<String> = Vec::new();
    for part in key.split('_').filter(|part| !part.is_empty()) {
        for character in part.chars() {
            match words.last_mut() {
                Some(word) if !character.is_uppercase() => word.push(character),
                _ => words.push(character.to_lowercase().collect()),
            }
        }
        words.push(String::new());
    }
    let words = words.into_iter().filter(|word| !word.is_empty());
    let words: Vec<String> = words
        .map(|word| match word.as_str() {
            "id" | "json" => word.to_uppercase(),
            _ => word,
        })
        .collect();
    let title = words.join(" ");
    let mut characters = title.chars();
    characters.next().map_or(String::new(), |first| {
        first.to_uppercase().chain(characters).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_becomes_a_display_name() {
        for (key, title) in [
            ("text_inputs", "Text inputs"),
            ("timeoutSeconds", "Timeout seconds"),
            ("tool_id", "Tool ID"),
            ("json", "JSON"),
            ("a", "A"),
            ("名字", "名字"),
            ("", ""),
        ] {
            assert_eq!(title_of(key), title, "{key}");
        }
    }
}
