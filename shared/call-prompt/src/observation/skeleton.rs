//! Calls to copy: a tool's call with values from its schema, and a wrong call set right.

use call_catalogue::placeholder::PLACEHOLDER;
use call_catalogue::schema::{Schema, Types};
use call_catalogue::{Catalogue, Dialect, ProblemCode, Tool};
use call_text::Call;
use serde_json::{Map, Value};

use super::neutralise;
use crate::render;

/// A call of a tool with a placeholder for each required parameter, which cannot run as written.
pub fn outline(tool: &Tool, dialect: Dialect, catalogue: &Catalogue) -> Option<String> {
    let schema = Schema::root(&tool.parameters);
    let required = schema.required().into_iter();
    let arguments = required
        .map(|name| (name.to_owned(), placeholder(name, schema.member(name))))
        .collect();
    render::render_unchecked(&tool.id, &arguments, dialect, catalogue).ok()
}

/// The placeholder in an example for a value that only the model knows: it names the parameter and
/// the expected type, and is refused wherever it is copied to. Of a list one item is shown, and of
/// an object in it the required members.
fn placeholder(name: &str, schema: Schema<'_>) -> Value {
    if schema.allowed().is_none() && schema.types() == Types::ARRAY {
        return Value::Array(vec![item(name, schema.items(), 1)]);
    }
    words(name, schema)
}

/// The placeholder of an item, `depth` lists deep.
fn item(name: &str, schema: Schema<'_>, depth: usize) -> Value {
    const DEEPEST: usize = 4;
    let types = schema.types();
    if depth < DEEPEST && schema.allowed().is_none() {
        if types == Types::ARRAY {
            return Value::Array(vec![item(name, schema.items(), depth + 1)]);
        }
        let required = schema.required();
        if types == Types::OBJECT && !schema.is_union() && !required.is_empty() {
            let member = |name: &str| item(name, schema.member(name), depth + 1);
            let members = required
                .iter()
                .map(|name| ((*name).to_owned(), member(name)));
            return Value::Object(members.collect());
        }
    }
    words(name, schema)
}

/// The words of a placeholder.
fn words(name: &str, schema: Schema<'_>) -> Value {
    let expected = match schema.allowed() {
        Some(values) => {
            let text = |value: &&Value| {
                value
                    .as_str()
                    .map_or_else(|| value.to_string(), str::to_owned)
            };
            let values: Vec<String> = values.iter().take(20).map(text).collect();
            format!(": {}", values.join(" or "))
        }
        None if schema.types() == Types::STRING || schema.types().is_any() => String::new(),
        None => format!(": {}", schema.types().describe()),
    };
    let words = format!("{name}{expected}").replace(['\n', '\r', '‹', '›'], " ");
    let (open, close) = PLACEHOLDER;
    Value::String(format!("{open}{}{close}", neutralise(&words)))
}

/// A call of a tool with an example for each required parameter.
pub fn skeleton(tool: &Tool, dialect: Dialect, catalogue: &Catalogue) -> Option<String> {
    let schema = Schema::root(&tool.parameters);
    let mut arguments = Map::new();
    for name in schema.required() {
        arguments.insert(name.to_owned(), example(name, schema.member(name)));
    }
    render::render_call(&tool.id, &arguments, dialect, catalogue).ok()
}

/// The call with valid arguments kept, near misses renamed and placeholders for missing or invalid
/// ones; `None` if it cannot be written.
pub fn corrected(call: &Call, catalogue: &Catalogue) -> Option<String> {
    corrected_in(call, call.dialect, catalogue)
}

/// The same in another dialect than its own.
pub(super) fn corrected_in(call: &Call, dialect: Dialect, catalogue: &Catalogue) -> Option<String> {
    let tool = catalogue.tool(&call.tool_id)?;
    let schema = Schema::root(&tool.parameters);
    let is_wrong = |name: &str| {
        let pointer = json_schema::pointer::join("", name);
        call.problems.iter().any(|problem| {
            problem.path == pointer || problem.path.starts_with(&format!("{pointer}/"))
        })
    };
    let mut arguments = Map::new();
    for (name, value) in &call.arguments {
        if is_wrong(name) && schema.property(name).is_some() {
            arguments.insert(name.clone(), placeholder(name, schema.member(name)));
        } else if !is_wrong(name) {
            arguments.insert(name.clone(), value.clone());
        }
    }
    for problem in call
        .problems
        .iter()
        .filter(|problem| problem.code == ProblemCode::UnknownParameter)
    {
        let Some(name) = problem
            .suggestions
            .first()
            .filter(|name| !arguments.contains_key(*name))
        else {
            continue;
        };
        arguments.insert(name.clone(), placeholder(name, schema.member(name)));
    }
    for name in schema.required() {
        if !arguments.contains_key(name) {
            arguments.insert(name.to_owned(), placeholder(name, schema.member(name)));
        }
    }
    render::render_unchecked(&tool.id, &arguments, dialect, catalogue).ok()
}

/// An example value: the schema's own, or a value that shows the type.
pub(crate) fn example(name: &str, schema: Schema<'_>) -> Value {
    let types = schema.types();
    let fits = |value: &&Value| types.has(Types::of_value(value));
    if let Some(value) = schema
        .examples()
        .iter()
        .find(fits)
        .or_else(|| schema.default().filter(fits))
    {
        return value.clone();
    }
    // Authors write examples of objects and lists as JSON text, too.
    let read = |text: &Value| serde_json::from_str(text.as_str()?).ok();
    let mut written = schema.examples().iter().filter_map(read);
    if let Some(value) = written.find(|value: &Value| types.has(Types::of_value(value))) {
        return value;
    }
    if let Some(first) = schema.allowed().and_then(|values| values.first().copied()) {
        return first.clone();
    }
    if types.is_any() || types.has(Types::STRING) {
        return Value::String(format!("your {name}"));
    }
    if types.has(Types::INTEGER) {
        return 1.into();
    }
    if types.has(Types::NUMBER) {
        return Value::Number(serde_json::Number::from_f64(0.5).unwrap_or_else(|| 1.into()));
    }
    if types.has(Types::BOOLEAN) {
        return Value::Bool(true);
    }
    if types.has(Types::ARRAY) {
        return Value::Array(vec![example(name, schema.items())]);
    }
    if types.has(Types::OBJECT) {
        let required = schema.required();
        return Value::Object(
            required
                .iter()
                .take(8)
                .map(|name| ((*name).to_owned(), example(name, schema.member(name))))
                .collect(),
        );
    }
    Value::Null
}
