//! The settings of a zone: its slots, and the conditions of its end.

use std::sync::Arc;

use call_outcome::Violation;
use serde_json::{Map, Value};

use super::super::data_flow::DataFlow;
use super::super::limits::MAX_NAME_BYTES;
use super::super::slot::{Shape, Slot};
use json_schema::pointer::join;

/// The type of a node that repeats the nodes inside it.
pub const LOOP_ZONE: &str = "core:LoopZone";
/// The type of a node that runs the nodes inside it for each item of a list.
pub const MAP_LIST: &str = "core:MapList";
/// The type of the node that brings values into an iteration.
pub const ZONE_INPUT: &str = "core:ZoneInput";
/// The type of the node that takes values out of an iteration.
pub const ZONE_OUTPUT: &str = "core:ZoneOutput";

/// The output of a map with its results one by one.
pub const RESULT_STREAM: &str = "result_stream";

/// The prefix of the key of an input that carries a value from around a zone into it.
pub const OUTER: char = '@';

/// The setting with the variables of a loop.
const VARIABLES_KEY: &str = "variables";
/// The variables that the conditions of a loop see.
const VARIABLES: &[&str] = &["inputs", "vars", "index"];
/// The keys that a loop uses itself.
const OF_LOOPS: [&str; 5] = ["count", "index", "break", "iterations", "stop_reason"];
/// The keys that a map uses itself.
const OF_MAPS: [&str; 4] = ["items", "item", "index", "count"];
/// The most variables, constants and collected keys, each.
const MAX_KEYS: usize = 100;
/// The most items of a list.
pub const MAX_ITEMS: usize = 100_000;
const MAX_ITERATIONS: u64 = 1_000_000;
const DEFAULT_ITERATIONS: u64 = 100;
const MAX_CONCURRENCY: u64 = 256;
const DEFAULT_CONCURRENCY: usize = 4;

/// The settings of a zone.
#[derive(Clone, Debug)]
pub struct ZoneSettings {
    /// Inputs that every iteration sees unchanged.
    pub constants: Vec<Slot>,
    /// The settings of the kind of zone.
    pub kind: ZoneKind,
}

/// The kinds of zones.
#[derive(Clone, Debug)]
pub enum ZoneKind {
    /// A loop with variables.
    Loop(LoopSettings),
    /// A body for each item of a list.
    Map(MapSettings),
}

/// The settings of a loop.
#[derive(Clone, Debug)]
pub struct LoopSettings {
    /// The values that one iteration hands to the next.
    pub variables: Vec<Slot>,
    /// The values that are kept of each iteration.
    pub collect: Vec<Slot>,
    /// The condition that must hold before an iteration.
    pub while_holds: Option<Arc<str>>,
    /// The condition that ends the loop after an iteration.
    pub until: Option<Arc<str>>,
    /// The most iterations.
    pub max_iterations: u64,
    /// Whether the loop fails when it reaches that number.
    pub fail_at_max: bool,
}

/// The settings of a map.
#[derive(Clone, Copy, Debug)]
pub struct MapSettings {
    /// The most items in progress at once.
    pub concurrency: usize,
    /// The items that may fail; none if the first failure ends the map.
    pub tolerated: Option<Tolerated>,
}

/// The number of items of a list that may fail.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Tolerated {
    /// Any number.
    All,
    /// At most this number.
    Number(u64),
    /// At most this part of the list, in percent.
    Percent(f64),
}

/// Whether nodes of this type have nodes inside.
pub fn is_zone(full_type: &str) -> bool {
    [LOOP_ZONE, MAP_LIST].contains(&full_type)
}

impl ZoneSettings {
    /// Reads the settings of a zone.
    ///
    /// # Errors
    /// All problems with them; pointers are relative to the node.
    pub fn read(full_type: &str, config: &Map<String, Value>) -> Result<Self, Vec<Violation>> {
        let mut reader = SettingsReader {
            config,
            violations: Vec::new(),
        };
        let read = if full_type == MAP_LIST {
            let constants = reader.slots("constants");
            Self {
                constants,
                kind: ZoneKind::Map(reader.map()),
            }
        } else {
            let kind = ZoneKind::Loop(reader.repeat());
            Self {
                constants: reader.slots("constants"),
                kind,
            }
        };
        reader.distinct(&read);
        match reader.violations.is_empty() {
            true => Ok(read),
            false => Err(reader.violations),
        }
    }

    /// Returns the slots of the zone itself.
    pub fn shape(&self) -> Shape {
        let mut inputs: Vec<Slot> = self.carried().iter().map(whole).collect();
        inputs.extend(self.constants.iter().cloned());
        let outputs = match &self.kind {
            ZoneKind::Loop(settings) => {
                inputs.push(Slot::new(
                    "count",
                    DataFlow::Integer,
                    "How many iterations to run.",
                ));
                let collected = settings.collect.iter().map(|slot| {
                    Slot::new(
                        &slot.key,
                        DataFlow::Array,
                        "The values, one for each iteration.",
                    )
                });
                let reason = "Why the loop ended: `count`, `while`, `break`, `until` or `max`.";
                let mut outputs: Vec<Slot> = settings
                    .variables
                    .iter()
                    .map(plain)
                    .chain(collected)
                    .collect();
                outputs.push(Slot::new(
                    "iterations",
                    DataFlow::Integer,
                    "The iterations that ran.",
                ));
                outputs.push(Slot::new("stop_reason", DataFlow::String, reason));
                outputs
            }
            ZoneKind::Map(_) => {
                inputs.push(Slot::new("items", DataFlow::Array, "The list.").required());
                let results = "What each item gave, in the order of the list; null where it failed, and as a whole \
                     where only `result_stream` leads on.";
                let streamed = "The same, each as soon as those before it are there.";
                let errors =
                    "The items that failed: objects with index, category, code and message.";
                vec![
                    Slot::new("results", DataFlow::Array, results),
                    Slot::new("errors", DataFlow::Array, errors),
                    Slot::new("succeeded", DataFlow::Integer, "How many items succeeded."),
                    Slot::new("failed", DataFlow::Integer, "How many items failed."),
                    Slot::new(RESULT_STREAM, DataFlow::Wildcard, streamed).stream(),
                ]
            }
        };
        Shape::new(inputs, outputs)
    }

    /// Returns the inputs of each iteration; the values from around the zone follow them.
    pub fn body_inputs(&self) -> Vec<Slot> {
        let mut slots: Vec<Slot> = self
            .carried()
            .iter()
            .chain(&self.constants)
            .map(plain)
            .map(|slot| whole(&slot))
            .collect();
        slots.push(Slot::new(
            "index",
            DataFlow::Integer,
            "The number of the iteration, from 0.",
        ));
        if let ZoneKind::Map(_) = self.kind {
            slots.push(Slot::new("item", DataFlow::Wildcard, "The item."));
            slots.push(Slot::new(
                "count",
                DataFlow::Integer,
                "How many items there are.",
            ));
        }
        slots
    }

    /// Returns the outputs of each iteration.
    pub fn body_outputs(&self) -> Vec<Slot> {
        match &self.kind {
            ZoneKind::Loop(settings) => {
                let mut slots: Vec<Slot> = settings
                    .variables
                    .iter()
                    .chain(&settings.collect)
                    .map(plain)
                    .collect();
                let ends = "Whether the loop ends after this iteration.";
                slots.push(Slot::new("break", DataFlow::Boolean, ends));
                slots
            }
            ZoneKind::Map(_) => {
                vec![Slot::new(
                    "result",
                    DataFlow::Wildcard,
                    "What the item gives.",
                )]
            }
        }
    }

    /// Whether the settings alone end a loop, or the list ends a map.
    pub fn ends_by_itself(&self) -> bool {
        match &self.kind {
            ZoneKind::Loop(settings) => settings.while_holds.is_some() || settings.until.is_some(),
            ZoneKind::Map(_) => true,
        }
    }

    fn carried(&self) -> &[Slot] {
        match &self.kind {
            ZoneKind::Loop(settings) => &settings.variables,
            ZoneKind::Map(_) => &[],
        }
    }
}

/// Returns a slot without its default, which counts only for the input of the zone.
fn plain(slot: &Slot) -> Slot {
    Slot {
        default: None,
        ..slot.clone()
    }
}

/// Returns a slot for the whole value, which one iteration hands to the next.
fn whole(slot: &Slot) -> Slot {
    Slot {
        is_stream: false,
        ..slot.clone()
    }
}

struct SettingsReader<'a> {
    config: &'a Map<String, Value>,
    violations: Vec<Violation>,
}

impl<'a> SettingsReader<'a> {
    fn repeat(&mut self) -> LoopSettings {
        LoopSettings {
            variables: self.slots(VARIABLES_KEY),
            collect: self.slots("collect"),
            while_holds: self.condition("while"),
            until: self.condition("until"),
            max_iterations: self
                .whole("maxIterations", 1, MAX_ITERATIONS)
                .unwrap_or(DEFAULT_ITERATIONS),
            fail_at_max: self.choice("onMax", "stop", "fail"),
        }
    }

    fn map(&mut self) -> MapSettings {
        let continues = self.choice("onItemError", "fail", "continue");
        let tolerated = match self.given("toleratedFailures") {
            None => Some(Tolerated::All),
            Some(Value::String(text)) => text
                .strip_suffix('%')
                .and_then(|number| number.parse::<f64>().ok())
                .filter(|percent| (0.0..=100.0).contains(percent))
                .map(Tolerated::Percent),
            Some(value) => value.as_u64().map(Tolerated::Number),
        };
        if tolerated.is_none() {
            self.refuse(
                "toleratedFailures",
                "a whole number from 0, or a part such as \"10%\"",
            );
        }
        let concurrency = self.whole("concurrency", 1, MAX_CONCURRENCY);
        MapSettings {
            concurrency: concurrency.map_or(DEFAULT_CONCURRENCY, |number| number as usize),
            tolerated: tolerated.filter(|_| continues),
        }
    }

    fn given(&self, key: &str) -> Option<&'a Value> {
        self.config.get(key).filter(|value| !value.is_null())
    }

    fn refuse(&mut self, place: &str, expected: &str) {
        let message = format!("expected {expected}");
        let pointer = format!("/configValues/{place}");
        self.violations
            .push(Violation::new(pointer, "out_of_range", message));
    }

    fn whole(&mut self, key: &str, least: u64, most: u64) -> Option<u64> {
        let value = self.given(key)?;
        let number = value
            .as_u64()
            .filter(|number| (least..=most).contains(number));
        if number.is_none() {
            self.refuse(key, &format!("a whole number from {least} to {most}"));
        }
        number
    }

    /// Reads one of two words; the first is the default. Returns whether it is the second.
    fn choice(&mut self, key: &str, first: &str, second: &str) -> bool {
        match self.given(key).map(Value::as_str) {
            None => false,
            Some(word) if word == Some(first) => false,
            Some(word) if word == Some(second) => true,
            Some(_) => {
                self.refuse(key, &format!("`{first}` or `{second}`"));
                false
            }
        }
    }

    fn condition(&mut self, key: &str) -> Option<Arc<str>> {
        let source = match self.given(key)? {
            Value::String(source) => source.as_str(),
            _ => {
                self.refuse(key, "an expression in CEL");
                return None;
            }
        };
        if let Err(problem) = cel_guard::check(source, VARIABLES) {
            let pointer = join("/configValues", key);
            self.violations
                .push(Violation::new(pointer, "invalid_condition", problem));
        }
        Some(source.into())
    }

    fn slots(&mut self, key: &str) -> Vec<Slot> {
        let Some(list) = self.given(key) else {
            return Vec::new();
        };
        let Some(list) = list
            .as_array()
            .filter(|list| list.len() <= MAX_KEYS)
            .cloned()
        else {
            self.refuse(key, &format!("an array of at most {MAX_KEYS} objects"));
            return Vec::new();
        };
        let slots = list.iter().enumerate();
        slots
            .filter_map(|(at, slot)| self.slot(&format!("{key}/{at}"), slot))
            .collect()
    }

    fn slot(&mut self, place: &str, slot: &Value) -> Option<Slot> {
        let key = slot
            .get("key")
            .and_then(Value::as_str)
            .filter(|key| (1..=MAX_NAME_BYTES).contains(&key.len()) && !key.starts_with(OUTER));
        let Some(key) = key else {
            let expected =
                format!("a `key` of 1 to {MAX_NAME_BYTES} bytes that does not begin with `@`");
            self.refuse(place, &expected);
            return None;
        };
        let data_flow = match slot.get("dataFlowType").map(Value::as_str) {
            None => Some(DataFlow::Wildcard),
            Some(name) => name.and_then(DataFlow::from_name),
        };
        let Some(data_flow) = data_flow else {
            let names: Vec<&str> = DataFlow::ALL
                .iter()
                .map(|data_flow| data_flow.name())
                .collect();
            self.refuse(&format!("{place}/dataFlowType"), &names.join(", "));
            return None;
        };
        let mut made = Slot::new(key, data_flow, "Named by the settings of the zone.");
        let categories = slot.get("matchCategories").and_then(Value::as_array);
        let words = categories.into_iter().flatten().filter_map(Value::as_str);
        made.categories = words.map(str::to_owned).collect();
        if slot.get("isStream").and_then(Value::as_bool) == Some(true) {
            if !place.starts_with(VARIABLES_KEY) || data_flow != DataFlow::String {
                let expected = "nothing: only a variable of the type STRING is written in pieces";
                self.refuse(&format!("{place}/isStream"), expected);
            }
            made = made.stream();
        }
        if let Some(default) = slot.get("default").filter(|default| !default.is_null()) {
            if !data_flow.holds(default) {
                self.refuse(
                    &format!("{place}/default"),
                    &format!("a value of the type {}", data_flow.name()),
                );
            }
            made = made.default(default.clone());
        }
        Some(made)
    }

    /// Refuses keys that occur twice or that the zone uses itself.
    fn distinct(&mut self, read: &ZoneSettings) {
        let (mut seen, collect): (Vec<&str>, &[Slot]) = match &read.kind {
            ZoneKind::Loop(settings) => (OF_LOOPS.to_vec(), &settings.collect),
            ZoneKind::Map(_) => (OF_MAPS.to_vec(), &[]),
        };
        for slot in read.carried().iter().chain(&read.constants).chain(collect) {
            if seen.contains(&&*slot.key) {
                let message = format!("the key `{}` is already in use; choose another", slot.key);
                let violation = Violation::new("/configValues", "duplicate_key", message);
                self.violations.push(violation);
            }
            seen.push(&slot.key);
        }
    }
}
