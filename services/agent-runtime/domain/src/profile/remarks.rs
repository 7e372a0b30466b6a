//! Findings on keys of a profile that have no effect.

use core_types::LoadDiagnostic;
use serde_json::{Map, Value};

use super::{approvals::APPROVALS, tavern::WITHOUT_EFFECT};
use crate::{document::is_used, subscription};

/// The keys that ComfyTavern defines, all of which are carried out or need not be.
const KEYS: [&str; 14] = [
    "initial_private_state_schema",
    "initial_private_state_values",
    "id",
    "name",
    "description",
    "version",
    "schema_version",
    "core_deliberation_workflow_id",
    "skill_workflow_ids_inventory",
    "tool_ids_inventory",
    "subscribed_event_types",
    "knowledge_base_references",
    "initial_goals_reference",
    "custom_metadata",
];
/// Finds the keys of a profile that have no effect.
pub(super) fn diagnose(object: &Map<String, Value>) -> Vec<LoadDiagnostic> {
    let mut findings = Vec::new();
    for key in object.keys() {
        if !KEYS.contains(&key.as_str()) {
            let pointer = json_schema::pointer::join("", key);
            let near = json_schema::nearest_names(key, KEYS);
            let nearest = near.first().map(String::as_str);
            findings.push(LoadDiagnostic::unknown_key(pointer, key, nearest));
        }
        if findings.len() == LoadDiagnostic::MAX {
            break;
        }
    }
    findings.extend(subscription::remarks(object));
    let tavern = object
        .get("custom_metadata")
        .and_then(|metadata| metadata.get("tavern"));
    for (key, instead) in WITHOUT_EFFECT {
        if tavern
            .and_then(|section| section.get(key))
            .is_some_and(is_used)
        {
            let pointer = format!("/custom_metadata/tavern/{key}");
            findings.push(LoadDiagnostic::not_supported(pointer, instead));
        }
    }
    let rules = tavern.and_then(|section| section.get(APPROVALS)?.as_array());
    for (place, rule) in rules.into_iter().flatten().enumerate() {
        if rule["action"] == "allow" {
            let pointer = format!("/custom_metadata/tavern/{APPROVALS}/{place}");
            let instead = "an agent cannot allow what the operator's rules ask for or refuse";
            findings.push(LoadDiagnostic::not_supported(pointer, instead));
        }
    }
    let version = object.get("schema_version").and_then(Value::as_str);
    if version.is_some_and(|version| version.split('.').next() != Some("1")) {
        let message = "only version 1 is known; the file is read as such";
        findings.push(LoadDiagnostic::not_supported("/schema_version", message));
    }
    findings.truncate(LoadDiagnostic::MAX);
    findings
}
