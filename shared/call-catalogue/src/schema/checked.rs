//! A tool's schema in its compiled form, which dispatch uses as well, so that both find the same.

use std::sync::OnceLock;

use serde_json::{Map, Value};

use super::simple::Simple;

/// The compiled schema of a tool's arguments, made when a call asks for it first.
#[derive(Debug)]
pub(crate) struct Checked {
    simple: Simple,
    /// `None` for a schema that does not compile, which no registry accepts.
    compiled: OnceLock<Option<json_schema::Schema>>,
}

impl Checked {
    pub(crate) fn of(parameters: &Value) -> Self {
        Self {
            simple: Simple::of(parameters),
            compiled: OnceLock::new(),
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
}
