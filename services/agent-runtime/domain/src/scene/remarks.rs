//! Findings on keys of a scene that have no effect (rule G108).

use core_types::LoadDiagnostic;
use serde_json::{Map, Value};

use super::{moments, tasks};
use crate::document::is_used;

/// The keys that ComfyTavern defines and that are carried out or need not be.
const KEYS: [&str; 12] = [
    "id",
    "name",
    "description",
    "version",
    "schema_version",
    "agent_instances",
    "initial_world_state",
    "event_bus_config",
    "scene_lifecycle_workflows",
    "scheduled_tasks",
    "associated_panels",
    "custom_metadata",
];
/// The keys that ComfyTavern defines and that have no effect, with the actual behaviour.
const NOT_SUPPORTED: [(&str, &str); 3] = [
    ("start_state", "scenes have no states"),
    ("states", "scenes have no states"),
    ("variables", "use initial_world_state"),
];

/// Finds the keys of a scene that have no effect.
pub(super) fn diagnose(object: &Map<String, Value>) -> Vec<LoadDiagnostic> {
    let mut findings = Vec::new();
    let mut find = |place: String, instead: &str| {
        findings.push(LoadDiagnostic::not_supported(place, instead));
    };
    for (key, instead) in NOT_SUPPORTED {
        if object.get(key).is_some_and(is_used) {
            find(format!("/{key}"), instead);
        }
    }
    let list = |key: &str| {
        object
            .get(key)
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
    };
    for (index, instance) in list("agent_instances").enumerate() {
        of_instance(instance, &format!("/agent_instances/{index}"), &mut find);
    }
    for (index, task) in list("scheduled_tasks").enumerate() {
        if !task.as_object().is_some_and(tasks::is_ours) {
            let instead = "it does not fire; give event_type and one of after_seconds, interval_seconds and cron";
            find(format!("/scheduled_tasks/{index}"), instead);
        }
    }
    let workflows = object.get(moments::KEY).and_then(Value::as_object);
    for key in workflows.into_iter().flat_map(Map::keys) {
        if moments::moment(key).is_none() {
            let instead =
                "it does not run; scenes have workflows for their start, their end and events";
            find(format!("/{}/{key}", moments::KEY), instead);
        }
    }
    let tavern = object
        .get("custom_metadata")
        .and_then(|metadata| metadata.get("tavern"));
    for key in tavern
        .and_then(Value::as_object)
        .into_iter()
        .flat_map(Map::keys)
    {
        match key.as_str() {
            "world_schema" => {}
            "budgets" => find(
                "/custom_metadata/tavern/budgets".to_owned(),
                "only the budgets of turns are in force",
            ),
            _ => find(format!("/custom_metadata/tavern/{key}"), "nothing reads it"),
        }
    }
    for key in object.keys() {
        if !KEYS.contains(&key.as_str()) && !NOT_SUPPORTED.iter().any(|(known, _)| known == key) {
            let all = KEYS.into_iter().chain(NOT_SUPPORTED.map(|(key, _)| key));
            let near = json_schema::nearest_names(key, all);
            let pointer = json_schema::pointer::join("", key);
            let nearest = near.first().map(String::as_str);
            findings.push(LoadDiagnostic::unknown_key(pointer, key, nearest));
        }
    }
    findings.truncate(LoadDiagnostic::MAX);
    findings
}

fn of_instance(instance: &Value, place: &str, find: &mut impl FnMut(String, &str)) {
    let config = instance.get("custom_runtime_config");
    let config = config.and_then(Value::as_object);
    for key in config.into_iter().flat_map(Map::keys) {
        let place = format!("{place}/custom_runtime_config/{key}");
        match key.as_str() {
            "tavern" | "deliberation_frequency_hz" => {}
            _ => find(place, "nothing reads it"),
        }
    }
}
