//! The timers of a scene (rule G408).

use std::time::Duration;

use core_types::Timestamp;
use schedules::Timing;
use serde_json::{Map, Value};

use crate::{document::DocumentReader, event};

/// The key of a scene.
const KEY: &str = "scheduled_tasks";
/// The most timers of a scene.
const MAX_TASKS: usize = 100;
/// The longest delay, in seconds.
const MAX_AFTER_SECONDS: u64 = 366 * 86_400;

/// A timer that publishes an event.
#[derive(Clone, Debug)]
pub struct Task {
    /// Its id in the scene.
    pub id: String,
    /// The times at which it fires.
    pub timing: TaskTiming,
    /// The type of the event.
    pub event_type: String,
    /// The data of the event.
    pub payload: Value,
}

/// The times at which a timer fires.
#[derive(Clone, Debug)]
pub enum TaskTiming {
    /// Once, this long after the start of the scene.
    Once(Duration),
    /// Repeatedly.
    Repeated(Timing),
}

impl Task {
    /// Returns the time at which it fires next: after the start of the scene, or after it fired
    /// last. Of missed times the last one counts, so that they fire once.
    pub fn due(&self, started: Timestamp, fired: Option<Timestamp>) -> Option<Timestamp> {
        match (&self.timing, fired) {
            (TaskTiming::Once(after), None) => Some(started.plus(*after)),
            (TaskTiming::Once(_), Some(_)) => None,
            (TaskTiming::Repeated(timing), fired) => timing.next_after(fired.unwrap_or(started)),
        }
    }
}

/// Reads the timers of a scene.
pub(super) fn read(reader: &mut DocumentReader, scene: &Map<String, Value>) -> Vec<Task> {
    let entries = match scene.get(KEY) {
        None | Some(Value::Null) => return Vec::new(),
        Some(Value::Array(entries)) if entries.len() <= MAX_TASKS => entries,
        Some(_) => {
            let problem = format!("it is not a list of at most {MAX_TASKS} tasks");
            reader.problem(&format!("/{KEY}"), problem);
            return Vec::new();
        }
    };
    let mut tasks: Vec<Task> = Vec::new();
    for (index, entry) in entries.iter().enumerate() {
        let place = format!("/{KEY}/{index}");
        // Other shapes are kept and remarked.
        let Some(object) = entry.as_object().filter(|object| is_ours(object)) else {
            continue;
        };
        let before = reader.problems.len();
        let id = reader
            .optional_text(object, &place, "id")
            .unwrap_or_default();
        if id.is_empty() || tasks.iter().any(|task| task.id == id) {
            reader.problem(&format!("{place}/id"), "give an id that no other task has");
        }
        let event_type = reader.optional_text(object, &place, "event_type");
        let event_type = event_type.unwrap_or_default();
        if !event::is_type(&event_type) {
            let problem = "give a type such as `world.time.dusk`";
            reader.problem(&format!("{place}/event_type"), problem);
        }
        let payload = match object.get("payload") {
            None | Some(Value::Null) => Value::Object(Map::new()),
            Some(payload @ Value::Object(_)) => payload.clone(),
            Some(_) => {
                reader.problem(&format!("{place}/payload"), "it is not an object");
                Value::Null
            }
        };
        let timing = timing(reader, object, &place);
        if let Some(timing) = timing.filter(|_| reader.problems.len() == before) {
            tasks.push(Task {
                id,
                timing,
                event_type,
                payload,
            });
        }
    }
    tasks
}

/// Whether a task has the shape that is carried out: it publishes an event.
pub(super) fn is_ours(task: &Map<String, Value>) -> bool {
    task.contains_key("event_type")
        && ["after_seconds", "interval_seconds", "cron"]
            .iter()
            .any(|key| task.contains_key(*key))
}

fn timing(
    reader: &mut DocumentReader,
    task: &Map<String, Value>,
    place: &str,
) -> Option<TaskTiming> {
    let after = reader.optional_count(task, place, "after_seconds", MAX_AFTER_SECONDS);
    let interval = reader.optional_count(task, place, "interval_seconds", MAX_AFTER_SECONDS);
    let cron = reader.optional_text(task, place, "cron");
    let zone = reader.optional_text(task, place, "time_zone");
    let zone = zone.filter(|zone| !zone.is_empty());
    if zone.is_some() && cron.is_none() {
        let problem = "it counts only with cron; leave it out";
        reader.problem(&format!("{place}/time_zone"), problem);
    }
    let timing = match (after, interval, cron) {
        (Some(after), None, None) => return Some(TaskTiming::Once(Duration::from_secs(after))),
        (None, Some(every), None) => {
            Timing::interval(Duration::from_secs(every)).map_err(|error| error.to_string())
        }
        (None, None, Some(cron)) => {
            Timing::cron(&cron, zone.as_deref().unwrap_or("UTC")).map_err(|errors| {
                let words = errors.iter().map(ToString::to_string);
                words.collect::<Vec<_>>().join("; ")
            })
        }
        _ => Err("give one of after_seconds, interval_seconds and cron".to_owned()),
    };
    match timing {
        Ok(timing) => Some(TaskTiming::Repeated(timing)),
        Err(problem) => {
            reader.problem(place, problem);
            None
        }
    }
}
