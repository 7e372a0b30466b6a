//! The descriptions of node types for a canvas.

use std::collections::HashMap;

use contracts::tavern::workflow::v1::{
    DataFlowType, FurtherSlots, ListNodeTypesRequest, NodeType, ResultReuse, Slot,
};
use json_schema::Schema;
use serde_json::{Value, json};

use crate::support::*;

#[tokio::test]
async fn node_types_are_listed_by_full_type_over_pages() {
    let world = World::new().await;
    let mut client = world.client.clone();
    let (mut paged, mut page_token) = (Vec::new(), String::new());
    loop {
        let request = ListNodeTypesRequest {
            page_size: 16,
            page_token,
            without_plugins: true,
        };
        let page = client.list_node_types(request).await.unwrap().into_inner();
        assert!((1..=16).contains(&page.node_types.len()));
        paged.extend(page.node_types.into_iter().map(|node| node.full_type));
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    let mut all: Vec<String> = node_types().await.into_keys().collect();
    all.sort();
    assert_eq!(paged, all);
    assert!(all.contains(&"core:ExecuteTool".to_owned()), "{all:?}");
}

async fn node_types() -> HashMap<String, NodeType> {
    let world = World::new().await;
    let request = ListNodeTypesRequest {
        page_size: 500,
        without_plugins: true,
        ..ListNodeTypesRequest::default()
    };
    let listed = world.client.clone().list_node_types(request).await;
    let listed = listed.unwrap().into_inner().node_types.into_iter();
    listed.map(|node| (node.full_type.clone(), node)).collect()
}

fn slot<'a>(slots: &'a [Slot], key: &str) -> &'a Slot {
    slots.iter().find(|slot| slot.key == key).unwrap()
}

#[tokio::test]
async fn every_node_type_can_be_drawn() {
    for (full_type, node) in node_types().await {
        assert!(!node.display_name.is_empty(), "{full_type}");
        assert!(!node.category.is_empty(), "{full_type}");
        assert!(!node.description.is_empty(), "{full_type}");
        assert!(node.read_only || !node.pure, "{full_type}");
        let reuse = node.result_reuse();
        assert_ne!(reuse, ResultReuse::Unspecified, "{full_type}");
        assert!(
            node.pure || reuse != ResultReuse::Deterministic,
            "{full_type}"
        );
        for slot in node.inputs.iter().chain(&node.outputs) {
            assert!(!slot.display_name.is_empty(), "{full_type} {}", slot.key);
            assert!(!slot.description.is_empty(), "{full_type} {}", slot.key);
            assert_ne!(slot.data_flow_type(), DataFlowType::Unspecified);
        }
        assert!(node.outputs.iter().all(|slot| !slot.required));
    }
}

#[tokio::test]
async fn slots_have_types_defaults_and_suggestions() {
    let nodes = node_types().await;
    let merge = &nodes["core:TextMerge"];
    let separator = slot(&merge.inputs, "separator");
    assert_eq!(separator.default_json, "\"\\\\n\"");
    assert!(separator.excluded_from_bypass);
    let texts = slot(&merge.inputs, "text_inputs");
    assert_eq!(texts.display_name, "Text inputs");
    assert_eq!(texts.data_flow_type(), DataFlowType::String);
    assert!(texts.required && texts.multi);
    assert!(merge.pure);
    let script = &nodes["core:Script"];
    let language = slot(&script.inputs, "language");
    assert_eq!(language.suggestions, ["python3", "node", "bash"]);
    assert_eq!(slot(&script.inputs, "code").match_categories, ["Code"]);
    assert!(script.read_only && !script.pure);
    assert!(!nodes["core:ExecuteTool"].read_only);
}

#[tokio::test]
async fn settings_have_types_and_bounds() {
    let nodes = node_types().await;
    let timeout = &nodes["core:Script"].config[0];
    assert_eq!(timeout.key, "timeoutSeconds");
    assert_eq!(timeout.data_flow_type(), DataFlowType::Float);
    assert_eq!((timeout.above, timeout.maximum), (Some(0.0), Some(600.0)));
    let continues = &nodes["core:ExecuteTool"].config[0];
    assert_eq!(continues.key, "continueOnError");
    assert_eq!(continues.default_json, "false");
}

#[tokio::test]
async fn settings_have_a_schema_that_accepts_their_defaults_and_refuses_what_is_out_of_bounds() {
    for (full_type, node) in node_types().await {
        let schema: Value = serde_json::from_str(&node.config_schema_json).unwrap();
        let schema = Schema::compile(&schema).unwrap();
        let with_default = node
            .config
            .iter()
            .filter(|slot| !slot.default_json.is_empty());
        let defaults = with_default.map(|slot| {
            let default: Value = serde_json::from_str(&slot.default_json).unwrap();
            (slot.key.clone(), default)
        });
        let defaults = Value::Object(defaults.collect());
        let violations = schema.validate(&defaults);
        assert!(violations.is_empty(), "{full_type}: {violations:?}");
        for slot in node.config.iter().filter(|slot| slot.maximum.is_some()) {
            for wrong in [slot.above.unwrap(), slot.maximum.unwrap() + 1.0] {
                let found = schema.validate(&json!({ slot.key.clone(): wrong }));
                assert_eq!(found.len(), 1, "{full_type}: {} {wrong}", slot.key);
            }
        }
    }
}

#[tokio::test]
async fn each_mode_has_slots_of_its_own() {
    let nodes = node_types().await;
    let math = &nodes["core:MathOperation"];
    assert_eq!(math.mode_config_key, "operationMode");
    let modes: Vec<&str> = math
        .modes
        .iter()
        .map(|mode| mode.mode_id.as_str())
        .collect();
    assert_eq!(math.config[0].options, modes);
    let power = math.modes.iter().find(|mode| mode.mode_id == "power");
    let keys: Vec<&str> = power
        .unwrap()
        .inputs
        .iter()
        .map(|slot| slot.key.as_str())
        .collect();
    assert_eq!(keys, ["base", "exponent", "clamp"]);
}

#[tokio::test]
async fn further_slots_are_announced() {
    let nodes = node_types().await;
    for (full_type, further) in [
        ("core:ExecuteTool", FurtherSlots::NamedInputs),
        ("core:FormatPrompt", FurtherSlots::TemplateGaps),
        ("core:GroupInput", FurtherSlots::InterfaceInputs),
        ("core:GroupOutput", FurtherSlots::InterfaceOutputs),
        ("core:JsonSelector", FurtherSlots::None),
        ("core:LLM", FurtherSlots::NamedInputs),
        ("core:LoopZone", FurtherSlots::Zone),
        ("core:MathOperation", FurtherSlots::None),
        ("core:NodeGroup", FurtherSlots::ReferencedWorkflow),
        ("core:RunWorkflow", FurtherSlots::ReferencedWorkflow),
        ("core:Script", FurtherSlots::NamedInputs),
        ("core:StateCheck", FurtherSlots::NamedInputs),
        ("core:Switch", FurtherSlots::Cases),
        ("core:TextMerge", FurtherSlots::None),
        ("core:ZoneInput", FurtherSlots::SurroundingZone),
    ] {
        assert_eq!(nodes[full_type].further_slots(), further, "{full_type}");
    }
}
