//! The agents of a scene.

use std::time::Duration;

use serde_json::{Map, Value};

use super::is_id;
use crate::{
    document::DocumentReader,
    knowledge::{GoalReference, read_goals},
    profile::{self, TavernSection},
};

/// The most agents of a scene.
const MAX_INSTANCES: usize = 100;
/// The lowest frequency of an agent's ticks, in Hz: once in a year.
const LEAST_FREQUENCY: f64 = 3e-8;
const MOST_FREQUENCY: f64 = 2.0;
/// The key of a scene.
pub(super) const KEY: &str = "agent_instances";
/// The key of an agent of a scene with its goals.
const GOALS: &str = "initial_goals_override_reference";

/// An agent of a scene.
#[derive(Clone, Debug, PartialEq)]
pub struct Instance {
    /// Its id in the scene.
    pub id: String,
    /// Its profile.
    pub profile_id: String,
    /// The values that replace the profile's in its first private state.
    pub state_override: Option<Value>,
    /// Goals that replace the profile's goals of the same ids, or are added to them.
    pub goals: Vec<GoalReference>,
    /// The frequency of its ticks, in Hz.
    pub frequency: Option<f64>,
    /// Settings that replace the profile's.
    pub tavern: TavernSection,
}

impl Instance {
    /// Returns the time between two ticks; none if it has none.
    pub fn tick_interval(&self) -> Option<Duration> {
        self.frequency.map(|hz| Duration::from_secs_f64(1.0 / hz))
    }
}

/// Reads the agents of a scene.
pub(super) fn read(reader: &mut DocumentReader, scene: &Map<String, Value>) -> Vec<Instance> {
    let place = format!("/{KEY}");
    let entries = match scene.get(KEY) {
        Some(Value::Array(entries)) if !entries.is_empty() => entries,
        _ => {
            let problem =
                "it is missing or no list; give at least one agent with instance_id and profile_id";
            reader.problem(&place, problem);
            return Vec::new();
        }
    };
    if entries.len() > MAX_INSTANCES {
        let problem = format!(
            "it has {} agents, but at most {MAX_INSTANCES} are allowed",
            entries.len()
        );
        reader.problem(&place, problem);
        return Vec::new();
    }
    let mut instances: Vec<Instance> = Vec::new();
    for (index, entry) in entries.iter().enumerate() {
        let place = format!("{place}/{index}");
        let Some(instance) = read_one(reader, entry, &place) else {
            continue;
        };
        match instances.iter().any(|other| other.id == instance.id) {
            true => {
                let problem = format!("`{}` is taken by another agent of the scene", instance.id);
                reader.problem(&format!("{place}/instance_id"), problem);
            }
            false => instances.push(instance),
        }
    }
    instances
}

/// Reads the frequency of an agent's ticks (rule G409).
fn frequency(reader: &mut DocumentReader, config: Option<&Value>, place: &str) -> Option<f64> {
    let value = config?.get("deliberation_frequency_hz")?;
    let given = value.as_f64();
    let given = given.filter(|hz| *hz >= LEAST_FREQUENCY && *hz <= MOST_FREQUENCY);
    if given.is_none() && !value.is_null() {
        let place = format!("{place}/custom_runtime_config/deliberation_frequency_hz");
        reader.problem(&place, "give a number over 0, at most 2");
    }
    given
}

fn read_one(reader: &mut DocumentReader, entry: &Value, place: &str) -> Option<Instance> {
    let Value::Object(object) = entry else {
        reader.problem(
            place,
            "it is not an object; give instance_id and profile_id",
        );
        return None;
    };
    let id = reader.optional_text(object, place, "instance_id");
    let profile_id = reader.optional_text(object, place, "profile_id");
    if !id.as_deref().is_some_and(is_id) {
        let problem = "give 1 to 128 letters, digits, `_` or `-`";
        reader.problem(&format!("{place}/instance_id"), problem);
    }
    if profile_id.as_deref().unwrap_or_default().is_empty() {
        reader.problem(
            &format!("{place}/profile_id"),
            "it is missing; name a profile",
        );
    }
    let state_override = object.get("initial_private_state_override");
    let state_override = state_override.filter(|value| !value.is_null());
    if !state_override.is_none_or(Value::is_object) {
        let place = format!("{place}/initial_private_state_override");
        reader.problem(&place, "it is not an object; give values by key");
    }
    let goals = read_goals(reader, object, place, GOALS);
    let config = object.get("custom_runtime_config");
    let frequency = frequency(reader, config, place);
    let section = config.and_then(|config| config.get("tavern"));
    let section_place = format!("{place}/custom_runtime_config/tavern");
    let tavern = profile::read_section(reader, section, &section_place);
    Some(Instance {
        id: id?,
        profile_id: profile_id?,
        state_override: state_override.cloned(),
        goals,
        frequency,
        tavern,
    })
}
