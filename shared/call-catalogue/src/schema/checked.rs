//! A tool's schema in its compiled form, which dispatch uses as well, so that both find the same.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use json_schema::SchemaPart;
use serde_json::{Map, Value};

use super::simple::Simple;

/// The compiled schema of a tool's arguments, compiled on first use by a call.
#[derive(Debug)]
pub(crate) struct Checked {
    simple: Simple,
    /// `None` for a schema that does not compile, which no registry accepts.
    compiled: OnceLock<Option<json_schema::Schema>>,
    /// Parts with alternatives, by the address of their node, which stays where it is as long as
    /// the tool. Held while one is looked up or compiled, never while a value is checked.
    parts: Mutex<HashMap<usize, Option<Arc<SchemaPart>>>>,
}

impl Checked {
    pub(crate) fn of(parameters: &Value) -> Self {
        Self {
            simple: Simple::of(parameters),
            compiled: OnceLock::new(),
            parts: Mutex::default(),
        }
    }

    /// The compiled form, where it can find more in these arguments than typing does.
    pub(crate) fn beyond_typing(
        &self,
        parameters: &Value,
        arguments: &Map<String, Value>,
    ) -> Option<&json_schema::Schema> {
        match self.simple.settles(arguments) {
            true => None,
            false => self.compiled(parameters),
        }
    }

    pub(super) fn compiled(&self, parameters: &Value) -> Option<&json_schema::Schema> {
        let compiled = || json_schema::Schema::compile_parameters(parameters).ok();
        self.compiled.get_or_init(compiled).as_ref()
    }

    /// Whether a value meets a part of the schema; a part that does not compile refuses no value.
    pub(super) fn part_is_valid(&self, parameters: &Value, part: &Value, value: &Value) -> bool {
        let compile = || {
            let pointer = pointer_to(parameters, part)?;
            let part = self.compiled(parameters)?.part(&pointer)?;
            Some(Arc::new(part))
        };
        let address = std::ptr::from_ref(part).addr();
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        let part = parts.entry(address).or_insert_with(compile).clone();
        drop(parts);
        let whole = self.compiled(parameters);
        let met =
            |part: Arc<SchemaPart>| whole.is_none_or(|whole| whole.part_is_valid(&part, value));
        part.is_none_or(met)
    }
}

/// The JSON pointer that leads from a value to a part of it.
fn pointer_to(whole: &Value, part: &Value) -> Option<String> {
    if std::ptr::eq(whole, part) {
        return Some(String::new());
    }
    let within = |key: &str, value| {
        let rest = pointer_to(value, part)?;
        Some(json_schema::pointer::join("", key) + &rest)
    };
    match whole {
        Value::Object(members) => members.iter().find_map(|(key, value)| within(key, value)),
        Value::Array(items) => {
            let mut items = items.iter().enumerate();
            items.find_map(|(index, value)| within(&index.to_string(), value))
        }
        _ => None,
    }
}
