//! The interface of a single node: inputs and settings, in each of its modes.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use call_outcome::Violation;
use core_types::LoadDiagnostic;
use json_schema::Schema;

use super::{
    diagnostic::Diagnostic,
    parameters::{Input, parameters_of},
};

/// The place where a definition pins settings.
const PINNED: &str = "/implementation/configValues";
/// The setting that every node has in addition to its own.
const EXECUTION: &str = "execution";

/// The interface of a node type.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeInterface {
    /// The inputs without a settled mode.
    pub inputs: Vec<Input>,
    /// The setting that selects a mode; empty for a type without modes.
    pub mode_key: String,
    /// The modes with their inputs.
    pub modes: Vec<(String, Vec<Input>)>,
    /// The schemas of the settings.
    pub settings: Map<String, Value>,
}

impl NodeInterface {
    /// Makes the schema of the arguments: the inputs, and the settings that are not pinned. If the
    /// mode is pinned, the inputs are the inputs of the mode.
    pub fn parameters(&self, pinned: &Map<String, Value>) -> Value {
        let mut inputs = self.inputs(pinned).to_vec();
        for mode in inputs.iter_mut().filter(|input| input.key == self.mode_key) {
            mode.choices = self.mode_ids();
        }
        let mut parameters = parameters_of(&inputs);
        for key in self.free_settings(pinned) {
            let mut schema = self.settings[key].clone();
            if *key == self.mode_key {
                schema["enum"] = json!(self.mode_ids());
            }
            parameters["properties"][key] = schema;
        }
        parameters
    }

    /// Moves the settings out of arguments, and returns them with the pinned settings.
    pub fn take_settings(
        &self,
        pinned: &Map<String, Value>,
        arguments: &mut Map<String, Value>,
    ) -> Map<String, Value> {
        let mut config = pinned.clone();
        for key in self.free_settings(pinned) {
            if let Some(value) = arguments.shift_remove(key) {
                config.insert(key.clone(), value);
            }
        }
        config
    }

    /// Returns the problems with the values of pinned settings: each that its schema refuses, and a
    /// mode that the node does not have.
    pub fn problems(&self, pinned: &Map<String, Value>) -> Vec<Violation> {
        let mut problems = Vec::new();
        for (key, value) in pinned.iter().filter(|(key, _)| **key != self.mode_key) {
            let schema = self.settings.get(key).map(Schema::compile);
            let found = schema
                .and_then(Result::ok)
                .map(|schema| schema.validate(value));
            for mut violation in found.into_iter().flatten() {
                violation.pointer = format!("{PINNED}/{key}{}", violation.pointer);
                problems.push(Violation::from(violation));
            }
        }
        let mode = pinned.get(&self.mode_key);
        if let Some(mode) = mode.filter(|mode| !self.mode_ids().contains(mode)) {
            let modes = self
                .mode_ids()
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>();
            let message = format!("{mode} is no mode of the node; take {}", modes.join(", "));
            let place = format!("{PINNED}/{}", self.mode_key);
            problems.push(Violation::new(place, "not_in_enum", message));
        }
        problems
    }

    /// Returns the findings about pinned settings that the node does not read.
    pub fn unread(&self, pinned: &Map<String, Value>) -> Vec<Diagnostic> {
        let known = self.settings.keys().map(String::as_str);
        let known: Vec<&str> = known.chain([EXECUTION]).collect();
        let unread = pinned.keys().filter(|key| !known.contains(&key.as_str()));
        unread
            .map(|key| {
                let near = json_schema::nearest_names(key, known.iter().copied());
                let nearest = near.first().map(String::as_str);
                let found = LoadDiagnostic::unknown_key(format!("{PINNED}/{key}"), key, nearest);
                Diagnostic::warning(found.path, found.code, found.message)
            })
            .collect()
    }

    fn inputs(&self, pinned: &Map<String, Value>) -> &[Input] {
        let mode = pinned.get(&self.mode_key).and_then(Value::as_str);
        let mode = mode.and_then(|mode| self.modes.iter().find(|(id, _)| id == mode));
        mode.map_or(&self.inputs, |(_, inputs)| inputs)
    }

    /// Returns the settings that arguments may have. An input of the same name replaces the
    /// setting.
    fn free_settings(&self, pinned: &Map<String, Value>) -> Vec<&String> {
        let inputs = self.inputs(pinned).iter().map(|input| input.key.as_str());
        let inputs: BTreeSet<&str> = inputs.collect();
        let free = |key: &&String| !pinned.contains_key(*key) && !inputs.contains(key.as_str());
        self.settings.keys().filter(free).collect()
    }

    fn mode_ids(&self) -> Vec<Value> {
        self.modes.iter().map(|(id, _)| json!(id)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input(key: &str) -> Input {
        Input {
            key: key.to_owned(),
            data_flow_type: "FLOAT".to_owned(),
            ..Input::default()
        }
    }

    /// A node whose mode is a setting, with one more setting.
    fn node() -> NodeInterface {
        let settings = json!({
            "mode": {"type": "string"},
            "round": {"type": "boolean", "default": false},
        });
        NodeInterface {
            inputs: vec![input("a"), input("b"), input("c")],
            mode_key: "mode".to_owned(),
            modes: vec![
                ("add".to_owned(), vec![input("a"), input("b")]),
                ("root".to_owned(), vec![input("c")]),
            ],
            settings: settings.as_object().unwrap().clone(),
        }
    }

    fn pinned(config: Value) -> Map<String, Value> {
        config.as_object().unwrap().clone()
    }

    fn keys(parameters: &Value) -> Vec<&String> {
        parameters["properties"]
            .as_object()
            .unwrap()
            .keys()
            .collect()
    }

    #[test]
    fn modes_are_an_enum_and_what_is_pinned_is_left_out() {
        let node = node();
        let free = node.parameters(&Map::new());
        assert_eq!(keys(&free), ["a", "b", "c", "mode", "round"]);
        assert_eq!(free["properties"]["mode"]["enum"], json!(["add", "root"]));
        let of_mode = node.parameters(&pinned(json!({"mode": "root"})));
        assert_eq!(keys(&of_mode), ["c", "round"]);
        let of_both = node.parameters(&pinned(json!({"mode": "add", "round": true})));
        assert_eq!(keys(&of_both), ["a", "b"]);
    }

    #[test]
    fn an_input_that_selects_the_mode_stands_for_the_setting() {
        let mut node = node();
        node.inputs.push(input("mode"));
        let parameters = node.parameters(&Map::new());
        assert_eq!(keys(&parameters), ["a", "b", "c", "mode", "round"]);
        assert_eq!(
            parameters["properties"]["mode"]["enum"],
            json!(["add", "root"])
        );
        let mut arguments = pinned(json!({"a": 1, "mode": "add", "round": true}));
        let config = node.take_settings(&Map::new(), &mut arguments);
        assert_eq!(Value::Object(config), json!({"round": true}));
        assert_eq!(Value::Object(arguments), json!({"a": 1, "mode": "add"}));
    }

    #[test]
    fn what_is_pinned_to_nonsense_is_named() {
        let places = |config: Value| {
            let config = pinned(config);
            let wrong = node().problems(&config).into_iter().map(|it| it.pointer);
            let unread = node().unread(&config).into_iter().map(|it| it.path);
            (wrong.collect::<Vec<_>>(), unread.collect::<Vec<_>>())
        };
        let place = |key: &str| vec![format!("/implementation/configValues/{key}")];
        let none: Vec<String> = Vec::new();
        for (config, wrong, unread) in [
            (json!({}), none.clone(), none.clone()),
            (
                json!({"mode": "root", "round": true, "execution": {}}),
                none.clone(),
                none.clone(),
            ),
            (json!({"mode": "cube"}), place("mode"), none.clone()),
            (json!({"round": "yes"}), place("round"), none.clone()),
            (json!({"rond": true}), none.clone(), place("rond")),
        ] {
            assert_eq!(places(config.clone()), (wrong, unread), "{config}");
        }
        let mode = &node().problems(&pinned(json!({"mode": "cube"})))[0].message;
        assert_eq!(
            mode,
            "\"cube\" is no mode of the node; take \"add\", \"root\""
        );
        let near = &node().unread(&pinned(json!({"rond": true})))[0].message;
        assert!(near.contains("did you mean `round`"), "{near}");
    }

    #[test]
    fn no_argument_takes_the_place_of_what_is_pinned() {
        let mut arguments = pinned(json!({"c": 9, "mode": "add", "round": true}));
        let config = node().take_settings(&pinned(json!({"mode": "root"})), &mut arguments);
        assert_eq!(
            Value::Object(config),
            json!({"mode": "root", "round": true})
        );
        assert_eq!(Value::Object(arguments), json!({"c": 9, "mode": "add"}));
    }
}
