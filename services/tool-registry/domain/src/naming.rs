//! Names of tools: the form of an id, its alias, and words that dialects reserve.

mod look_alike;

use call_outcome::Violation;
use core_types::ToolId;
use serde_json::Value;
use sha2::{Digest, Sha256};

pub use look_alike::{fold_confusables, skeleton};

/// The longest id of a tool that every dialect can carry, in bytes.
pub const MAX_TOOL_ID_BYTES: usize = 128;

/// The namespace of the tools of node types.
pub const NODE_PREFIX: &str = "node:";

/// The namespaces whose ids the platform assigns itself.
pub const DERIVED_PREFIXES: [&str; 3] = ["workflow:", NODE_PREFIX, "agent:"];

const RESERVED_WORDS: [&str; 8] = [
    "ACTION",
    "item",
    "command",
    "tool_name",
    "comment",
    "request_id",
    "on_error",
    "retry",
];
/// The namespaces that are reserved to the platform's tools and node types, besides the derived ones.
const PLATFORM_PREFIXES: [&str; 4] = ["system:", "core:", "agent:", "mcp:"];
const RESERVED_PREFIXES: [&str; 3] = ["common_", "uri_", "type_hint_"];

/// Checks an id that a definition declares.
///
/// # Errors
/// Every reason for which no tool can have this id, pointing at `pointer`.
pub fn check_tool_id(pointer: &str, text: &str) -> Result<ToolId, Vec<Violation>> {
    let mut wrong = Vec::new();
    let mut add = |message: String| wrong.push(Violation::new(pointer, "invalid_id", message));
    if text.len() > MAX_TOOL_ID_BYTES {
        add(format!(
            "a tool id has at most {MAX_TOOL_ID_BYTES} bytes; this one has {}",
            text.len()
        ));
    }
    if text.ends_with('/') {
        add("a tool id must not end with '/', which reads as a self-closing tag; remove it".into());
    }
    if let Some(prefix) = DERIVED_PREFIXES
        .iter()
        .find(|prefix| text.starts_with(**prefix))
    {
        add(format!(
            "ids that begin with '{prefix}' are given out by the platform; take another id"
        ));
    }
    let bad =
        |c: char| c.is_whitespace() || c.is_control() || invisible(c) || "<>`\"'&=".contains(c);
    if let Some(character) = text.chars().find(|c| bad(*c)) {
        add(format!(
            "the id contains {character:?}, which no dialect can carry; remove it"
        ));
    }
    match ToolId::new(text) {
        Ok(id) if wrong.is_empty() => Ok(id),
        Ok(_) => Err(wrong),
        Err(error) => {
            if wrong.is_empty() {
                wrong.push(Violation::new(pointer, "invalid_id", error.to_string()));
            }
            Err(wrong)
        }
    }
}

/// Returns the reason for which an id is reserved, if it is: dialects or the platform use it
/// otherwise (rules N11 and R108). For tools other than the platform's own.
pub fn reserved(pointer: &str, id: &str) -> Option<Violation> {
    let squashed = |text: &str| -> String {
        let letters = text.chars().filter(|c| c.is_alphanumeric());
        letters.flat_map(char::to_lowercase).collect()
    };
    let written = squashed(id);
    if let Some(word) = RESERVED_WORDS.iter().find(|word| squashed(word) == written) {
        let message = format!(
            "'{id}' reads as '{word}', a word that dialects reserve, so no call could name the tool; take \
             another id"
        );
        return Some(Violation::new(pointer, "reserved_word", message));
    }
    let folded = fold_confusables(id);
    let mut prefixes = PLATFORM_PREFIXES.iter().chain(&DERIVED_PREFIXES);
    let prefix = prefixes.find(|prefix| folded.starts_with(**prefix))?;
    let message = format!("ids that begin with '{prefix}' belong to the platform; take another id");
    Some(Violation::new(pointer, "reserved_prefix", message))
}

/// Whether a character has no glyph or turns the direction of a text, so that one text could pose as
/// another.
pub fn invisible(character: char) -> bool {
    matches!(character, '\u{feff}' | '\u{200b}'..='\u{200f}' | '\u{2060}'..='\u{2064}'
        | '\u{00ad}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Returns the id of the node or workflow that a name without prefix may mean: `core:TextMerge` is a
/// node type, `skill_greet_player` and `workflows/skills/greet_player.json` are workflows.
pub fn derived_id(written: &str) -> Option<String> {
    if DERIVED_PREFIXES
        .iter()
        .any(|prefix| written.starts_with(prefix))
    {
        return None;
    }
    if let Some((_, file)) = written.rsplit_once('/') {
        let stem = file.strip_suffix(".json").unwrap_or(file);
        return Some(format!("workflow:{stem}"));
    }
    if let Some(skill) = written.strip_prefix("skill_") {
        return Some(format!("workflow:{skill}"));
    }
    written.contains(':').then(|| format!("node:{written}"))
}

/// Returns the alias of `id`: its spelling as a plain XML name, made unique by digits of the id's
/// hash if another tool has it, by `taken`.
pub fn unique_alias(id: &str, taken: impl Fn(&str) -> bool) -> String {
    let alias = call_catalogue::alias_of(id);
    if alias == id || !taken(&alias) {
        return alias;
    }
    let digest = Sha256::digest(id.as_bytes());
    format!(
        "{alias}_{:02x}{:02x}{:02x}",
        digest[0], digest[1], digest[2]
    )
}

/// Returns a remark for each parameter whose name is a word of a dialect.
pub fn reserved_word_warnings(parameters: &Value) -> Vec<String> {
    let names = parameters.get("properties").and_then(Value::as_object);
    names
        .into_iter()
        .flat_map(|names| names.keys())
        .filter_map(|name| remark(name))
        .collect()
}

fn remark(name: &str) -> Option<String> {
    if name == "command" {
        return Some(
            "the parameter 'command' is written 'arg_command' in TAM blocks, where 'command' names \
             the tool; consider another name"
                .to_owned(),
        );
    }
    let reserved = RESERVED_WORDS.contains(&name)
        || RESERVED_PREFIXES
            .iter()
            .any(|prefix| name.starts_with(prefix));
    reserved.then(|| {
        format!(
            "the parameter '{name}' has a name that dialects reserve; it is read as the parameter, \
             so the reserved meaning is lost for this tool: consider another name"
        )
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn ids_seen_in_the_wild_are_accepted() {
        for id in [
            "ReadPrivateStateTool",
            "core:ReadPrivateState",
            "FileOperator.WriteFile",
            "workflows/skills/x.json",
            "CodeInterpreter:execute",
            "工具",
        ] {
            assert_eq!(
                check_tool_id("/id", id).map(String::from),
                Ok(id.to_owned())
            );
        }
    }

    #[test]
    fn an_id_that_no_dialect_can_carry_or_that_poses_as_another_is_refused() {
        for id in [
            "",
            "a b",
            "x/",
            "<x>",
            "workflow:mine",
            "node:core:X",
            "read\u{200b}file",
            "a\u{202e}b",
        ] {
            assert!(check_tool_id("/id", id).is_err(), "{id:?}");
        }
        assert!(check_tool_id("/id", &"x".repeat(129)).is_err());
    }

    #[test]
    fn words_of_dialects_and_namespaces_of_the_platform_are_not_to_be_had() {
        for (id, code) in [
            ("ACTION", "reserved_word"),
            ("action", "reserved_word"),
            ("tool-name", "reserved_word"),
            ("onError", "reserved_word"),
            ("Item", "reserved_word"),
            ("system:now", "reserved_prefix"),
            ("core:Echo", "reserved_prefix"),
            ("Agent:x", "reserved_prefix"),
            ("ѕystem:now", "reserved_prefix"),
            ("wоrkflow:greet", "reserved_prefix"),
        ] {
            let refused = reserved("/id", id).unwrap();
            assert_eq!(refused.code, code, "{id}");
        }
        for id in ["ActionTool", "items", "systems", "kb:Query"] {
            assert_eq!(reserved("/id", id), None);
        }
    }

    #[test]
    fn a_taken_alias_gets_digits_of_the_hash_and_a_plain_id_keeps_itself() {
        assert_eq!(unique_alias("kb:Query", |_| false), "kb__Query");
        let second = unique_alias("kb|Query", |alias| alias == "kb__Query");
        assert!(second.starts_with("kb__Query_") && second.len() == "kb__Query_".len() + 6);
        assert_eq!(unique_alias("read_file", |_| true), "read_file");
    }

    #[test]
    fn a_name_of_the_seeds_means_a_node_or_a_workflow() {
        for (written, id) in [
            ("core:TextMerge", Some("node:core:TextMerge")),
            ("skill_greet_player", Some("workflow:greet_player")),
            ("workflows/skills/x.json", Some("workflow:x")),
            ("workflow:x", None),
            ("node:core:TextMerge", None),
            ("read_file", None),
        ] {
            assert_eq!(derived_id(written).as_deref(), id, "{written}");
        }
    }

    #[test]
    fn each_reserved_word_among_the_parameters_is_remarked() {
        let parameters = json!({"properties": {
            "command": {}, "item": {}, "uri_x": {}, "retry": {}, "path": {}
        }});
        let remarks = reserved_word_warnings(&parameters);
        assert_eq!(remarks.len(), 4);
        assert!(remarks[0].contains("arg_command"));
    }
}
