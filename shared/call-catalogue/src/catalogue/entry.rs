//! A visible tool and the values derived from it once, when the catalogue was built.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::{Tool, alias_of};
use crate::names;
use crate::schema::{Checked, Facts, Schema};

/// A tool and the values derived from it once.
#[derive(Debug)]
pub struct Entry {
    /// The tool as it was given.
    pub tool: Tool,
    /// The name published for dialects that need an XML name (N7).
    pub alias: String,
    /// The name before another tool's made it longer.
    plain_alias: String,
    /// Top-level parameters in schema order.
    pub parameters: Vec<Parameter>,
    /// The names of the required parameters.
    pub required: Vec<String>,
    /// Whether `arg_command` means the parameter `command` in TAM (T19).
    pub command_alias: bool,
    checked: Checked,
}

/// A top-level parameter.
#[derive(Debug)]
pub struct Parameter {
    /// Its name as the schema spells it.
    pub name: Arc<str>,
    /// Lower case, letters and digits only (N1).
    pub(super) squashed: String,
    facts: Facts,
}

impl Entry {
    pub(super) fn new(tool: Tool, alias: String) -> Self {
        let schema = Schema::root(&tool.parameters);
        let parameter = |name: String| {
            let name = Arc::from(name);
            Parameter {
                squashed: names::squash(&name),
                facts: Facts::of(&tool.parameters, &name),
                name,
            }
        };
        let required = schema.required().into_iter().map(str::to_owned).collect();
        let parameters: Vec<_> = schema.property_names().into_iter().map(parameter).collect();
        let declares = |name: &str| parameters.iter().any(|known| &*known.name == name);
        let command_alias = declares("command") && !declares("arg_command");
        Self {
            plain_alias: alias_of(&tool.id),
            checked: Checked::of(&tool.parameters),
            tool,
            alias,
            parameters,
            required,
            command_alias,
        }
    }

    // Inlined, as the scanners of `call-text` call it for every name.
    /// The position of the parameter of exactly this name.
    #[inline]
    pub fn position(&self, name: &str) -> Option<usize> {
        let mut parameters = self.parameters.iter();
        parameters.position(|parameter| &*parameter.name == name)
    }

    /// Whether a parameter has exactly this name.
    #[inline]
    pub fn declares(&self, name: &str) -> bool {
        self.position(name).is_some()
    }

    /// The names of the parameters, in schema order.
    pub fn parameter_names(&self) -> impl Iterator<Item = &str> {
        self.parameters.iter().map(|parameter| &*parameter.name)
    }

    /// The positions of the parameters with the same squashed form as a written name (N1).
    pub fn squashed_matches<'e>(&'e self, written: &'e str) -> impl Iterator<Item = usize> + 'e {
        // Most names differ in their last letter, above all names with a step number.
        let last = names::last_letter(written);
        let parameters = self.parameters.iter().enumerate();
        let same = parameters.filter(move |(_, parameter)| {
            !parameter.squashed.is_empty()
                && last.is_none_or(|last| parameter.squashed.as_bytes().last() == Some(&last))
                && names::squashes_to(written, &parameter.squashed)
        });
        same.map(|(position, _)| position)
    }

    /// The only parameter with the same squashed form as a written name.
    pub fn only_squashed_match(&self, written: &str) -> Option<usize> {
        let mut matches = self.squashed_matches(written);
        matches.next().filter(|_| matches.next().is_none())
    }

    /// The schema of the parameter at a position of [`Entry::parameters`].
    pub fn parameter_schema(&self, position: usize) -> Schema<'_> {
        Schema::known(&self.tool.parameters, &self.parameters[position].facts).with(&self.checked)
    }

    /// The schema of the arguments.
    pub fn schema(&self) -> Schema<'_> {
        Schema::root(&self.tool.parameters).with(&self.checked)
    }

    /// The compiled schema of the arguments, where it can find more in these than typing does.
    pub fn beyond_typing(&self, arguments: &Map<String, Value>) -> Option<&json_schema::Schema> {
        self.checked.beyond_typing(&self.tool.parameters, arguments)
    }

    /// Whether a closing tag's name closes this tool's element.
    pub fn is_closed_by(&self, cleaned: &str) -> bool {
        cleaned.eq_ignore_ascii_case(&self.tool.id)
            || cleaned.eq_ignore_ascii_case(&self.alias)
            || cleaned.eq_ignore_ascii_case(&self.plain_alias)
    }
}
