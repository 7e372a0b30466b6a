//! The classes of a change of a tool.

use serde_json::Value;

use super::{
    document::ChangeClass,
    schema_change::{self, SchemaChange},
};
use crate::definition::Definition;

/// Keys of the schema of a result.
const OUTPUTS: [&str; 6] = [
    "output",
    "outputs",
    "outputSchema",
    "output_schema",
    "returns",
    "responseSchema",
];

/// Returns the classes of a change from `before` to `after`; `files_differ` is whether their packages
/// do. A tool with any difference has at least one class.
pub(super) fn of(before: &Definition, after: &Definition, files_differ: bool) -> Vec<ChangeClass> {
    let empty = Value::Null;
    let schema = schema_change::compare(
        before.parameters.as_ref().unwrap_or(&empty),
        after.parameters.as_ref().unwrap_or(&empty),
    );
    let (written_before, written_after) = (before.written(), after.written());
    let differ = |keys: &[&str]| {
        let mut keys = keys.iter();
        keys.any(|key| written_before.get(key) != written_after.get(key))
    };
    let words = before.description != after.description
        || before.display_name != after.display_name
        || schema == SchemaChange::Words;
    let all = [
        (words, ChangeClass::Description),
        (schema == SchemaChange::Wider, ChangeClass::SchemaWider),
        (
            schema == SchemaChange::Narrower,
            ChangeClass::SchemaNarrower,
        ),
        (differ(&OUTPUTS), ChangeClass::Output),
        (differ(&["examples"]), ChangeClass::Examples),
        (before.flags != after.flags, ChangeClass::Effects),
        (
            before.implementation != after.implementation || files_differ,
            ChangeClass::Implementation,
        ),
        (differ(&["securityContext"]), ChangeClass::Permissions),
        (before.timeout != after.timeout, ChangeClass::Timeout),
    ];
    let mut classes: Vec<ChangeClass> = all
        .into_iter()
        .filter_map(|(differs, class)| differs.then_some(class))
        .collect();
    if classes.is_empty() && before.source != after.source {
        // Version, author, tags: texts for people.
        classes.push(ChangeClass::Description);
    }
    classes
}
