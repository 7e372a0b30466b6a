//! Worked examples made from the visible tools: plain text, one call, a structured parameter, a value
//! that needs care, a correction after an error, and several calls.

use std::{fmt::Write, sync::Arc};

use call_catalogue::schema::{Schema, Types};
use call_catalogue::{Catalogue, Dialect, Entry, ProblemCode};
use call_text::{Call, FinishReason, Policy, parse_finished};
use serde_json::{Map, Value};

use super::words::{Example, Words};
use crate::observation::{example_value, invalid};
use crate::render;

/// The most tools that are tried for an example.
const TOOLS_TRIED: usize = 32;
/// A value that every dialect has to delimit.
const AWKWARD: &str = "if a < b && b < c:\n    print(\"in order\")";

/// Adds the examples that the tools allow.
pub(super) fn write(text: &mut String, catalogue: &Catalogue, dialect: Dialect, words: &Words) {
    let maker = Maker { catalogue, dialect };
    let entries = &catalogue.entries()[..catalogue.entries().len().min(TOOLS_TRIED)];
    let first = entries
        .iter()
        .find_map(|entry| maker.call(entry, required(entry)));
    let structured = entries.iter().find_map(|entry| maker.structured(entry));
    let examples = [
        (Example::Plain, Some(String::new())),
        (Example::Call, first.clone()),
        (
            Example::Structured,
            structured.filter(|call| first.as_ref() != Some(call)),
        ),
        (
            Example::Awkward,
            entries.iter().find_map(|entry| maker.awkward(entry)),
        ),
        (
            Example::Correction,
            entries.iter().find_map(|entry| maker.correction(entry)),
        ),
        (Example::Chain, maker.chain(entries)),
    ];
    let _ = write!(text, "\n{}\n", words.examples);
    let made = examples
        .into_iter()
        .filter_map(|(example, made)| Some((example, made?)));
    for (number, (example, made)) in (1..).zip(made) {
        let (title, said) = words.example(example);
        let _ = write!(text, "\n{number}. {title}\n\n");
        match example {
            Example::Correction => {
                let (error, call) = made.split_once('\n').unwrap_or_default();
                let _ = writeln!(text, "{error}\n{said}\n{call}");
            }
            Example::Plain => {
                let _ = writeln!(text, "{said}");
            }
            _ => {
                let _ = writeln!(text, "{said}\n{made}");
            }
        }
    }
}

/// The required parameters of a tool with an example value each.
fn required(entry: &Entry) -> Map<String, Value> {
    let schema = Schema::root(&entry.tool.parameters);
    let named = |name: &str| (name.to_owned(), example_value(name, schema.member(name)));
    schema.required().into_iter().map(named).collect()
}

/// Fills a list with two items and an object with a member.
fn filled(value: Value, schema: Schema<'_>) -> Value {
    match value {
        Value::Array(items) if items.len() == 1 => {
            let item = filled(items[0].clone(), schema.items());
            Value::Array(vec![item.clone(), item])
        }
        Value::Object(members) if members.is_empty() => {
            let names = schema.property_names();
            let name = names.first().map_or("key", String::as_str);
            let value = example_value(name, schema.member(name));
            Value::Object([(name.to_owned(), value)].into_iter().collect())
        }
        value => value,
    }
}

struct Maker<'c> {
    catalogue: &'c Catalogue,
    dialect: Dialect,
}

impl Maker<'_> {
    /// Writes a call that is read back without a problem.
    fn call(&self, entry: &Entry, arguments: Map<String, Value>) -> Option<String> {
        let id = &entry.tool.id;
        let call = render::render_call(id, &arguments, self.dialect, self.catalogue).ok()?;
        let read = self.read(&call)?;
        read.problems.is_empty().then_some(call)
    }

    fn read(&self, call: &str) -> Option<Arc<Call>> {
        let policy = Policy::fixed(self.dialect);
        let parsed = parse_finished(call, self.catalogue, &policy, FinishReason::Stop);
        parsed.calls.into_iter().next()
    }

    /// A call with a list and an object among its parameters, or one of them.
    fn structured(&self, entry: &Entry) -> Option<String> {
        let schema = Schema::root(&entry.tool.parameters);
        let of = |kind: Types| {
            let mut names = entry.parameter_names();
            names.find(|name| {
                let types = schema.member(name).types();
                types.has(kind) && !types.has(Types::STRING)
            })
        };
        let mut arguments = required(entry);
        let (list, object) = (of(Types::ARRAY), of(Types::OBJECT));
        for name in [list.or(object)?, object.or(list)?] {
            let member = schema.member(name);
            let value = filled(example_value(name, member), member);
            arguments.insert(name.to_owned(), value);
        }
        let elements = match self.dialect {
            Dialect::Action => render::render_in_elements(entry, &arguments, self.catalogue),
            _ => None,
        };
        elements.or_else(|| self.call(entry, arguments))
    }

    /// A call with a text that every dialect has to delimit.
    fn awkward(&self, entry: &Entry) -> Option<String> {
        let schema = Schema::root(&entry.tool.parameters);
        let mut names = entry.parameter_names();
        names.find_map(|name| {
            let member = schema.member(name);
            let is_text = member.types().has(Types::STRING) && !member.types().is_any();
            if !is_text || member.allowed().is_some() {
                return None;
            }
            let mut arguments = required(entry);
            arguments.insert(name.to_owned(), AWKWARD.into());
            self.call(entry, arguments)
        })
    }

    /// The observation about a misspelled parameter, in one line, and below it the corrected call.
    fn correction(&self, entry: &Entry) -> Option<String> {
        let right = required(entry);
        let name = right.keys().find(|name| name.len() > 3)?;
        let mut wrong = right.clone();
        let value = wrong.remove(name)?;
        wrong.insert(
            name[..name.floor_char_boundary(name.len() - 1)].to_owned(),
            value,
        );
        let id = &entry.tool.id;
        let wrong = render::render_unchecked(id, &wrong, self.dialect, self.catalogue).ok()?;
        let mut problems = self.read(&wrong)?.problems.clone();
        problems.retain(|problem| problem.code == ProblemCode::UnknownParameter);
        let error = (!problems.is_empty()).then(|| invalid(id, &problems, None))?;
        Some(format!("{error}\n{}", self.call(entry, right)?))
    }

    /// Two calls in one block, where they are numbered.
    fn chain(&self, entries: &[Entry]) -> Option<String> {
        let (open, close, joint) = match self.dialect {
            Dialect::TamV1 => ("「始」", "「末」", ""),
            Dialect::TamV2 => ("»»»", "«««", "_"),
            _ => return None,
        };
        let mut chain = String::from("<|[REQUEST_TOOL]|>\n");
        for (step, entry) in (1..).zip(entries.get(..2)?) {
            let id = &entry.tool.id;
            let _ = writeln!(chain, "command{joint}{step}:{open}{id}{close}");
            for (name, value) in required(entry) {
                let value = value
                    .as_str()
                    .map_or_else(|| value.to_string(), str::to_owned);
                let _ = writeln!(chain, "{name}{joint}{step}:{open}{value}{close}");
            }
        }
        chain.push_str("<|[END_TOOL]|>");
        Some(chain)
    }
}
