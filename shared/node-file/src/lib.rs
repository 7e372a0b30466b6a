//! The files that declare node types of plugins, `*.node.json` (rule R116).
//!
//! The registry checks a file when its plugin is planned, and makes a tool of it; the engine makes a node type of the
//! same text. Slots are written as the interface of a workflow writes them.

mod check;
mod file;

pub use file::{Effects, Handler, Mode, NodeFile, Setting, Slot, setting_schema};

use std::sync::LazyLock;

use call_outcome::Violation;
use json_schema::{JsonLimits, Schema};
use serde_json::Value;

/// The end of the name of each file.
pub const EXTENSION: &str = ".node.json";

/// The largest file, in bytes.
pub const MAX_BYTES: usize = 256 << 10;

/// The deepest nesting of a file: a default of a slot may be a value of some depth.
const MAX_DEPTH: usize = 32;

/// The form of a file, without the conditions that several of its members make together.
static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
    let schema: Value = serde_json::from_str(include_str!("node.schema.json")).expect("it is JSON");
    Schema::compile(&schema).expect("the schema is valid")
});

/// Reads the file of a node type of a plugin.
///
/// # Errors
/// All violations, each with a JSON pointer into the text.
pub fn read(text: &str, plugin: &str) -> Result<NodeFile, Vec<Violation>> {
    let limits = JsonLimits {
        max_bytes: MAX_BYTES,
        max_depth: MAX_DEPTH,
        ..JsonLimits::default()
    };
    let parsed = json_schema::parse_json_strict_with(text, &limits);
    let source = parsed.map_err(|error| {
        let problems = error.problems.into_iter();
        problems.map(Violation::from).collect::<Vec<_>>()
    })?;
    let mut wrong: Vec<Violation> = SCHEMA
        .validate(&source)
        .into_iter()
        .map(Violation::from)
        .collect();
    match serde_json::from_value::<NodeFile>(source) {
        Ok(mut file) => {
            wrong.extend(check::check(&mut file, plugin));
            wrong.is_empty().then_some(file).ok_or(wrong)
        }
        // The schema finds each member of a wrong type.
        Err(error) if wrong.is_empty() => {
            let message = format!("the file cannot be read: {error}");
            Err(vec![Violation::new("", "type_mismatch", message)])
        }
        Err(_) => Err(wrong),
    }
}

#[cfg(test)]
mod tests;
