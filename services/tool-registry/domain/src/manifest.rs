//! `plugin.yaml`: the contents of a plugin and the permissions that it requests.

#[cfg(test)]
mod tests;

use call_outcome::Violation;
use core_types::PluginId;
use serde_json::{Map, Value};
use serde_yaml_ng::Value as Yaml;

use super::{diagnostic::Diagnostic, package};

/// The most bytes of a manifest.
pub const MAX_MANIFEST_BYTES: usize = 16 << 10;
/// The most repetitions of parts by YAML aliases in a manifest. The parts multiply when aliases
/// nest, so the number is small.
const MAX_ALIASES: usize = 8;
const MAX_DEPTH: usize = 16;
/// The most findings that are kept of one manifest.
const MAX_DIAGNOSTICS: usize = 64;

const KNOWN_KEYS: [&str; 9] = [
    "name",
    "displayName",
    "version",
    "description",
    "nodes",
    "tools",
    "frontend",
    "permissions",
    "configOptions",
];

/// A manifest that was read.
#[derive(Clone, Debug, PartialEq)]
pub struct Manifest {
    /// The plugin's name for itself.
    pub name: PluginId,
    /// The name for people.
    pub display_name: String,
    /// The version; empty if none is stated.
    pub version: String,
    /// The purpose of the plugin.
    pub description: String,
    /// The directory of its tool definitions; none if it has no tools.
    pub tools_entry: Option<String>,
    /// The directory of its nodes; none if it has no nodes.
    pub nodes_entry: Option<String>,
    /// Findings that do not keep it from working.
    pub diagnostics: Vec<Diagnostic>,
}

/// Reads the text of a `plugin.yaml`.
///
/// # Errors
/// All problems, each with a JSON pointer.
pub fn read(text: &str) -> Result<Manifest, Vec<Violation>> {
    let fail = |code: &'static str, message: String| vec![Violation::new("", code, message)];
    if text.len() > MAX_MANIFEST_BYTES {
        let message = format!(
            "plugin.yaml has {} bytes; at most {MAX_MANIFEST_BYTES}",
            text.len()
        );
        return Err(fail("too_large", message));
    }
    if count_opening(text, '!') > 0 {
        let message =
            "plugin.yaml has a YAML tag; remove it, or put text that begins with '!' into quotes";
        return Err(fail("tag", message.to_owned()));
    }
    let aliases = count_opening(text, '*');
    if aliases > MAX_ALIASES {
        let message = format!(
            "plugin.yaml repeats parts {aliases} times by YAML aliases; at most {MAX_ALIASES}: write \
             the parts out"
        );
        return Err(fail("limit_exceeded", message));
    }
    let yaml: Yaml = serde_yaml_ng::from_str(text).map_err(|error| {
        fail(
            "malformed_yaml",
            format!("plugin.yaml is not YAML: {error}"),
        )
    })?;
    let mut wrong = Vec::new();
    let root = to_json(&yaml, "", 0, &mut wrong);
    if !wrong.is_empty() {
        return Err(wrong);
    }
    match root {
        Value::Object(root) => read_root(&root),
        _ => Err(fail(
            "type_mismatch",
            "plugin.yaml must be a mapping with at least 'name'".to_owned(),
        )),
    }
}

fn read_root(root: &Map<String, Value>) -> Result<Manifest, Vec<Violation>> {
    let mut wrong = Vec::new();
    let name = text_at(root, "name", &mut wrong).unwrap_or_default();
    let name = match PluginId::new(name) {
        Ok(name) => Some(name),
        Err(error) => {
            wrong.push(Violation::new("/name", "invalid_name", error.to_string()));
            None
        }
    };
    let mut text = |key: &str| text_at(root, key, &mut wrong).unwrap_or_default();
    let display_name = text("displayName");
    let version = text("version");
    let description = text("description");
    let tools_entry = entry_of(root, "tools", &mut wrong);
    let nodes_entry = entry_of(root, "nodes", &mut wrong);
    check_frontend(root.get("frontend"), &mut wrong);
    check_permissions(root.get("permissions"), &mut wrong);
    if let Some(name) = &name {
        check_config_options(root.get("configOptions"), name.as_str(), &mut wrong);
    }
    let Some(name) = name.filter(|_| wrong.is_empty()) else {
        return Err(wrong);
    };
    let mut diagnostics = unsupported(root);
    diagnostics.truncate(MAX_DIAGNOSTICS);
    Ok(Manifest {
        display_name: if display_name.is_empty() {
            name.to_string()
        } else {
            display_name
        },
        name,
        version,
        description,
        tools_entry,
        nodes_entry,
        diagnostics,
    })
}

/// Returns findings on all contents and requests of a manifest without effect.
fn unsupported(root: &Map<String, Value>) -> Vec<Diagnostic> {
    let without_effect = [
        ("nodes", "nodes of plugins are not loaded; its tools are"),
        ("frontend", "front-end assets are not served yet"),
        (
            "permissions",
            "permissions are not granted yet, so nothing that needs one works",
        ),
        ("configOptions", "settings of plugins are not offered yet"),
    ];
    let used = without_effect
        .iter()
        .filter(|(key, _)| root.get(*key).is_some_and(asks_for_something));
    let mut found: Vec<Diagnostic> = used
        .map(|(key, message)| Diagnostic::not_supported(&format!("/{key}"), *message))
        .collect();
    for key in root
        .keys()
        .filter(|key| !KNOWN_KEYS.contains(&key.as_str()))
    {
        let path = format!("/{}", key.replace('~', "~0").replace('/', "~1"));
        let message =
            format!("plugin.yaml has the key '{key}', which is not known and has no effect");
        found.push(Diagnostic::warning(path, "unknown_key", message));
    }
    found
}

/// Whether a value holds anything but empty lists and mappings.
fn asks_for_something(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Array(items) => items.iter().any(asks_for_something),
        Value::Object(members) => members.values().any(asks_for_something),
        _ => true,
    }
}

/// Counts the places where a value begins with `mark`: `*` for YAML aliases, `!` for tags. It may
/// count text that is none, such as a line of a long text; never the other way round.
fn count_opening(text: &str, mark: char) -> usize {
    let mut count = 0;
    for line in text.lines() {
        let mut before = None;
        let mut characters = line.chars().peekable();
        while let Some(character) = characters.next() {
            let opens = before.is_none_or(|before| "[{,:-?".contains(before));
            let named = characters.peek().is_some_and(|next| !next.is_whitespace());
            count += usize::from(character == mark && opens && named);
            if !character.is_whitespace() {
                before = Some(character);
            }
        }
    }
    count
}

fn to_json(yaml: &Yaml, pointer: &str, depth: usize, wrong: &mut Vec<Violation>) -> Value {
    if depth > MAX_DEPTH {
        let message = format!("is nested more than {MAX_DEPTH} deep; flatten it");
        wrong.push(Violation::new(pointer, "too_deep", message));
        return Value::Null;
    }
    match yaml {
        Yaml::Null => Value::Null,
        Yaml::Bool(flag) => Value::Bool(*flag),
        Yaml::Number(number) => number_to_json(number),
        Yaml::String(text) => Value::String(text.clone()),
        Yaml::Sequence(items) => items
            .iter()
            .enumerate()
            .map(|(index, item)| to_json(item, &format!("{pointer}/{index}"), depth + 1, wrong))
            .collect(),
        Yaml::Mapping(mapping) => {
            let mut object = Map::new();
            for (key, value) in mapping {
                let Yaml::String(key) = key else {
                    let message = "has a key that is not text; write keys as plain words";
                    wrong.push(Violation::new(pointer, "type_mismatch", message));
                    continue;
                };
                let place = format!("{pointer}/{key}");
                object.insert(key.clone(), to_json(value, &place, depth + 1, wrong));
            }
            Value::Object(object)
        }
        Yaml::Tagged(tagged) => {
            let message = format!("has the YAML tag {}; remove it", tagged.tag);
            wrong.push(Violation::new(pointer, "tag", message));
            Value::Null
        }
    }
}

fn number_to_json(number: &serde_yaml_ng::Number) -> Value {
    if let Some(whole) = number.as_i64() {
        return Value::from(whole);
    }
    number
        .as_u64()
        .map_or_else(|| Value::from(number.as_f64()), Value::from)
}

fn text_at(root: &Map<String, Value>, key: &str, wrong: &mut Vec<Violation>) -> Option<String> {
    match root.get(key)? {
        Value::String(text) => Some(text.clone()),
        // `version: 1.0` is a number in YAML; the author's intention is plain.
        Value::Number(number) => Some(number.to_string()),
        _ => {
            let message = format!("{key} must be text");
            wrong.push(Violation::new(format!("/{key}"), "type_mismatch", message));
            None
        }
    }
}

/// Reads `<key>.entry`, a path beneath the plugin.
fn entry_of(root: &Map<String, Value>, key: &str, wrong: &mut Vec<Violation>) -> Option<String> {
    let section = root.get(key).filter(|section| !section.is_null())?;
    let pointer = format!("/{key}/entry");
    let Some(written) = section.get("entry").and_then(Value::as_str) else {
        let message = format!("{key} must name its directory as 'entry', such as ./{key}");
        wrong.push(Violation::new(pointer, "missing_parameter", message));
        return None;
    };
    check_path(&pointer, written, wrong)
}

fn check_path(pointer: &str, written: &str, wrong: &mut Vec<Violation>) -> Option<String> {
    match package::relative_path(written) {
        Ok(path) => Some(path),
        Err(problem) => {
            let message = format!("the path '{written}' {problem}");
            wrong.push(Violation::new(pointer, "invalid_path", message));
            None
        }
    }
}

fn check_frontend(frontend: Option<&Value>, wrong: &mut Vec<Violation>) {
    let Some(build) = frontend.and_then(|frontend| frontend.get("build")) else {
        return;
    };
    if let Some(entry) = build.get("entry").and_then(Value::as_str) {
        check_path("/frontend/build/entry", entry, wrong);
    }
    let styles = build.get("styles").and_then(Value::as_array);
    for (index, style) in styles.into_iter().flatten().enumerate() {
        let pointer = format!("/frontend/build/styles/{index}");
        check_path(&pointer, style.as_str().unwrap_or_default(), wrong);
    }
}

fn check_permissions(permissions: Option<&Value>, wrong: &mut Vec<Violation>) {
    let permissions = match permissions {
        None | Some(Value::Null) => return,
        Some(Value::Object(permissions)) => permissions,
        Some(_) => {
            let message = "permissions must be a mapping of hooks, ui and services";
            wrong.push(Violation::new("/permissions", "type_mismatch", message));
            return;
        }
    };
    for (area, asked) in permissions {
        let pointer = format!("/permissions/{area}");
        let parts: &[&str] = match area.as_str() {
            "hooks" => {
                check_names(&pointer, asked, wrong);
                continue;
            }
            "ui" => &["wrap", "inject"],
            "services" => &["override"],
            _ => {
                wrong.push(unknown_permission(&pointer, area));
                continue;
            }
        };
        let Value::Object(asked) = asked else {
            let message = format!(
                "permissions.{area} must be a mapping of {}",
                parts.join(", ")
            );
            wrong.push(Violation::new(pointer, "type_mismatch", message));
            continue;
        };
        for (part, names) in asked {
            let pointer = format!("{pointer}/{part}");
            if parts.contains(&part.as_str()) {
                check_names(&pointer, names, wrong);
            } else {
                wrong.push(unknown_permission(&pointer, &format!("{area}.{part}")));
            }
        }
    }
}

fn unknown_permission(pointer: &str, name: &str) -> Violation {
    let message = format!(
        "'{name}' is not a permission that exists, so what it allows cannot be judged; remove it \
         or take hooks, ui.wrap, ui.inject or services.override"
    );
    Violation::new(pointer, "unknown_permission", message)
}

fn check_names(pointer: &str, names: &Value, wrong: &mut Vec<Violation>) {
    let all_text = names
        .as_array()
        .is_some_and(|names| names.iter().all(Value::is_string));
    if !all_text && !names.is_null() {
        let message = "must be a list of names";
        wrong.push(Violation::new(pointer, "type_mismatch", message));
    }
}

fn check_config_options(options: Option<&Value>, plugin: &str, wrong: &mut Vec<Violation>) {
    let options = match options {
        None | Some(Value::Null) => return,
        Some(Value::Array(options)) => options,
        Some(_) => {
            let message = "configOptions must be a list";
            wrong.push(Violation::new("/configOptions", "type_mismatch", message));
            return;
        }
    };
    let prefix = format!("extensions.{plugin}.");
    for (index, option) in options.iter().enumerate() {
        let key = option
            .get("key")
            .and_then(Value::as_str)
            .unwrap_or_default();
        if key.strip_prefix(&prefix).is_none_or(str::is_empty) {
            let message = format!("the key '{key}' must look like {prefix}<option>");
            wrong.push(Violation::new(
                format!("/configOptions/{index}/key"),
                "invalid_key",
                message,
            ));
        }
    }
}
