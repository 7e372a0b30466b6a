//! The events that an agent takes (rules G402 and G404).

use core_types::LoadDiagnostic;
use serde_json::{Map, Value, json};

use super::{document::DocumentReader, event::Event};

/// The key of a profile.
const KEY: &str = "subscribed_event_types";
/// The most subscriptions of an agent.
const MAX_SUBSCRIPTIONS: usize = 100;
/// The longest time in which events of a type count as one burst, in milliseconds.
const MAX_DEBOUNCE_MS: u64 = 60_000;
/// The names that conditions may use.
const NAMES: &[&str] = &["type", "payload", "source", "priority", "self"];

/// A subscription of an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscription {
    /// A type, bare or qualified; `*` as the last word matches all types below.
    pattern: String,
    /// A condition in CEL; none if every event of the type counts.
    condition: Option<Condition>,
    /// The time for which the type must be quiet until the newest event of a burst is taken, in
    /// milliseconds.
    pub debounce_ms: u64,
}

/// A condition of a subscription.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Condition {
    /// In CEL.
    Valid(String),
    /// A condition that cannot be compiled, and never holds.
    Broken,
}

impl Subscription {
    /// Whether an event is of the type, and the condition holds for an instance.
    pub fn takes(&self, event: &Event, instance_id: &str) -> bool {
        let is_type = matches(&self.pattern, &event.event_type)
            || matches(&self.pattern, &event.qualified_type);
        is_type
            && match &self.condition {
                None => true,
                Some(Condition::Broken) => false,
                Some(Condition::Valid(source)) => holds(source, event, instance_id),
            }
    }
}

pub(super) fn matches(pattern: &str, event_type: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some("") => true,
        Some(above) => event_type
            .strip_prefix(above)
            .is_some_and(|rest| !rest.is_empty()),
        None => pattern == event_type,
    }
}

fn holds(source: &str, event: &Event, instance_id: &str) -> bool {
    let (event_type, priority) = (json!(event.event_type), json!(event.priority.as_str()));
    let (publisher, own) = (event.source_json(), json!({"instance_id": instance_id}));
    let bindings = [
        ("type", &event_type),
        ("payload", &event.payload),
        ("source", &publisher),
        ("priority", &priority),
        ("self", &own),
    ];
    // An error is not a match: authors do not expect a condition to hold for a payload without its
    // key.
    cel_guard::holds(source, &bindings).unwrap_or(false)
}

/// Reads the subscriptions of a profile.
pub(crate) fn read(reader: &mut DocumentReader, profile: &Map<String, Value>) -> Vec<Subscription> {
    let entries = match profile.get(KEY) {
        None | Some(Value::Null) => return Vec::new(),
        Some(Value::Array(entries)) => entries,
        Some(_) => {
            reader.problem(
                &format!("/{KEY}"),
                "it is not a list; give a list of types of events",
            );
            return Vec::new();
        }
    };
    if entries.len() > MAX_SUBSCRIPTIONS {
        let problem = format!(
            "it has {} entries, but at most {MAX_SUBSCRIPTIONS} are allowed",
            entries.len()
        );
        reader.problem(&format!("/{KEY}"), problem);
        return Vec::new();
    }
    let mut subscriptions = Vec::new();
    for (index, entry) in entries.iter().enumerate() {
        let place = format!("/{KEY}/{index}");
        let pattern = entry.as_str().or_else(|| entry["type"].as_str());
        let Some(pattern) = pattern.filter(|pattern| is_pattern(pattern)) else {
            let problem = "give a type such as `player.action.speak` or `player.action.*`, or an object with `type`";
            reader.problem(&place, problem);
            continue;
        };
        let condition = condition(entry).and_then(|written| match written.as_str() {
            Some(text) => Some(match compile(text) {
                Ok(source) => Condition::Valid(source),
                Err(_) => Condition::Broken,
            }),
            None => {
                reader.problem(
                    &format!("{place}/filter_condition"),
                    "it is not a text; give a condition in CEL",
                );
                None
            }
        });
        let debounce_ms = entry.get("debounce_ms").filter(|value| !value.is_null());
        let debounce_ms = match debounce_ms.map(Value::as_u64) {
            None => 0,
            Some(Some(time)) if time <= MAX_DEBOUNCE_MS => time,
            Some(_) => {
                let problem = format!("give a whole number from 0 to {MAX_DEBOUNCE_MS}");
                reader.problem(&format!("{place}/debounce_ms"), problem);
                0
            }
        };
        subscriptions.push(Subscription {
            pattern: pattern.to_owned(),
            condition,
            debounce_ms,
        });
    }
    subscriptions
}

/// Finds conditions that cannot be compiled and therefore never hold.
pub(crate) fn remarks(profile: &Map<String, Value>) -> Vec<LoadDiagnostic> {
    let entries = profile.get(KEY).and_then(Value::as_array);
    let broken = |(index, entry): (usize, &Value)| {
        let problem = compile(condition(entry)?.as_str()?).err()?;
        let message = format!("the condition never holds: {problem}");
        let place = format!("/{KEY}/{index}/filter_condition");
        Some(LoadDiagnostic::not_supported(place, message))
    };
    let entries = entries.into_iter().flatten().enumerate();
    entries.filter_map(broken).collect()
}

fn condition(entry: &Value) -> Option<&Value> {
    let spellings = ["filter_condition", "condition", "filter"];
    let mut written = spellings.iter().filter_map(|key| entry.get(key));
    written.find(|written| !written.is_null())
}

/// Whether the text is a type of events, or the beginning of types with `*` for the rest.
pub fn is_pattern(pattern: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some("") => true,
        Some(above) => above.strip_suffix('.').is_some_and(super::event::is_type),
        None => super::event::is_type(pattern),
    }
}

/// Checks a condition, and returns it in CEL.
fn compile(written: &str) -> Result<String, String> {
    let source = to_cel(written);
    cel_guard::check(&source, NAMES)?;
    Ok(source)
}

/// Writes the ancestor's spellings as CEL: `===` and `!==` compare. Quoted text stays as it is.
fn to_cel(written: &str) -> String {
    let (mut source, mut rest) = (String::with_capacity(written.len()), written);
    while let Some(next) = rest.chars().next() {
        let spelling = [("===", "=="), ("!==", "!=")];
        let spelled = spelling
            .iter()
            .find_map(|(from, to)| Some((rest.strip_prefix(from)?, *to)));
        if let Some((after, cel)) = spelled {
            source.push_str(cel);
            rest = after;
            continue;
        }
        let length = match next {
            '\'' | '"' => quoted(rest, next),
            _ => next.len_utf8(),
        };
        source.push_str(&rest[..length]);
        rest = &rest[length..];
    }
    source
}

/// Returns the length of the quoted text at the beginning.
fn quoted(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, character) in text.char_indices().skip(1) {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if character == quote => return at + 1,
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use core_types::Timestamp;

    use super::*;
    use crate::document::places;
    use crate::event::{Priority, Source};

    fn event(event_type: &str, payload: Value) -> Event {
        Event {
            id: "evt".to_owned(),
            event_type: event_type.to_owned(),
            qualified_type: format!("wood.{event_type}"),
            payload,
            source: Source::scene("wood"),
            targets: Vec::new(),
            priority: Priority::High,
            published: Timestamp::default(),
            ready: Timestamp::default(),
            expires: Timestamp::default(),
            chain: Vec::new(),
            correlation_id: String::new(),
        }
    }

    fn subscriptions(entries: &Value) -> Vec<Subscription> {
        let profile = json!({ KEY: entries });
        let mut reader = DocumentReader::default();
        let read = read(&mut reader, profile.as_object().unwrap());
        assert!(reader.problems.is_empty(), "{:?}", reader.problems);
        read
    }

    fn takes(entry: &Value, event: &Event) -> bool {
        subscriptions(&json!([entry]))[0].takes(event, "elara")
    }

    #[test]
    fn g402_a_pattern_matches_the_bare_and_the_qualified_type() {
        let spoken = event("player.action.speak", json!({}));
        for (pattern, expected) in [
            ("player.action.speak", true),
            ("wood.player.action.speak", true),
            ("player.action.*", true),
            ("player.*", true),
            ("*", true),
            ("player.action.speak.*", false),
            ("player.act.*", false),
            ("npc.*", false),
        ] {
            assert_eq!(takes(&json!(pattern), &spoken), expected, "{pattern}");
        }
    }

    #[test]
    fn g404_conditions_are_cel_with_the_spellings_of_the_ancestor() {
        let offer = event(
            "trade.offer",
            json!({"to": "elara", "message": "a herb", "paths": ["/flags/a"]}),
        );
        for (condition, expected) in [
            ("payload.to === self.instance_id", true),
            ("payload.to !== 'gm' && type == 'trade.offer'", true),
            ("payload.message.includes('herb')", true),
            ("payload.message.includes('===')", false),
            ("payload.paths.includes('/flags/a')", true),
            ("payload.paths.exists(p, p.startsWith('/flags/'))", true),
            ("priority == 'high' && source.kind == 'scene'", true),
            // An error is not a match.
            ("payload.missing == 1", false),
            ("payload.to", false),
        ] {
            let entry = json!({"type": "trade.offer", "filter_condition": condition});
            assert_eq!(takes(&entry, &offer), expected, "{condition}");
        }
    }

    #[test]
    fn g404_a_condition_that_cannot_be_compiled_never_holds_and_is_listed() {
        let entries = json!(["tick", {"type": "tick", "filter": "hour > 8"}, {"type": "tick", "condition": "(("}]);
        let read = subscriptions(&entries);
        let tick = event("tick", json!({}));
        let takes: Vec<bool> = read.iter().map(|one| one.takes(&tick, "elara")).collect();
        assert_eq!(takes, [true, false, false]);
        let profile = json!({ KEY: entries });
        let found = remarks(profile.as_object().unwrap());
        let places: Vec<&str> = found.iter().map(|finding| finding.path.as_str()).collect();
        assert_eq!(
            places,
            [
                "/subscribed_event_types/1/filter_condition",
                "/subscribed_event_types/2/filter_condition"
            ]
        );
    }

    #[test]
    fn everything_wrong_is_named_with_its_place() {
        let profile = json!({ KEY: ["a..b", 7, {"type": "t", "debounce_ms": -1, "condition": 1}] });
        let mut reader = DocumentReader::default();
        read(&mut reader, profile.as_object().unwrap());
        assert_eq!(
            places(&reader.problems),
            [
                "/subscribed_event_types/0",
                "/subscribed_event_types/1",
                "/subscribed_event_types/2/filter_condition",
                "/subscribed_event_types/2/debounce_ms"
            ]
        );
    }
}
