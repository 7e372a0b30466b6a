//! Names for tools whose ids are not XML names (N7).

use std::borrow::Cow;

use sha2::{Digest, Sha256};

/// The name published for an id: the id itself where it is a plain name, otherwise a spelling made
/// of letters, digits, `_`, `.` and `-` only.
pub fn alias_of(id: &str) -> String {
    let stem = id.strip_suffix(".json").unwrap_or(id);
    let base = match stem.rsplit_once('/') {
        Some((_, last)) => format!("skill_{last}"),
        None => stem.to_owned(),
    };
    let mut alias = String::with_capacity(base.len());
    let mut in_run = false;
    for c in base.chars() {
        if c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-') {
            alias.push(c);
            in_run = false;
        } else if !in_run {
            alias.push_str("__");
            in_run = true;
        }
    }
    if !alias.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
        alias.insert_str(0, "t_");
    }
    alias
}

/// The alias with six digits of the id's hash, for an alias that another tool already has.
pub(super) fn with_suffix(alias: &str, id: &str) -> String {
    let digest = Sha256::digest(id.as_bytes());
    format!(
        "{alias}_{:02x}{:02x}{:02x}",
        digest[0], digest[1], digest[2]
    )
}

/// The names of a tool other than its id and alias: a workflow as a skill, a node by its type.
pub(super) fn seed_spellings(id: &str) -> Vec<String> {
    if let Some(workflow) = id.strip_prefix("workflow:") {
        return vec![skill_name(workflow)];
    }
    let node = id.strip_prefix("node:").filter(|node| node.contains(':'));
    node.map_or_else(Vec::new, |node| vec![node.to_owned(), alias_of(node)])
}

/// The name of a skill that is written as a path; other names stay as they are.
pub(super) fn skill_of(written: &str) -> Cow<'_, str> {
    match written.rsplit_once('/') {
        Some((_, file)) => Cow::Owned(skill_name(file.strip_suffix(".json").unwrap_or(file))),
        None => Cow::Borrowed(written),
    }
}

fn skill_name(stem: &str) -> String {
    match stem.starts_with("skill_") {
        true => stem.to_owned(),
        false => format!("skill_{stem}"),
    }
}
