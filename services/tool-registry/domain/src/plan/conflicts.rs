//! Names that others hold (rule R108).
//!
//! Two names conflict if they are equal, or equal in lower case without punctuation and with letters
//! that look alike folded. The first owner does not win: the plan stops.

use std::collections::HashMap;

use super::{
    document::Conflict,
    input::{HeldName, NameKind, PlanInput},
};
use crate::{
    naming::{self, skeleton},
    plugin_node::node_type_of,
    tool::Origin,
};

/// Names of plugins whose namespace is the platform's.
const RESERVED_PLUGINS: [&str; 7] = [
    "system", "core", "workflow", "node", "agent", "mcp", "builtin",
];

/// Returns each name of the new version that the platform reserves or another owner holds.
pub(super) fn of(input: &PlanInput<'_>) -> Vec<Conflict> {
    let new = &input.new;
    let own = new.origin();
    let others = Held::new(input.held.iter().filter(|held| held.owner != own));
    let name = new.manifest.name.as_str();
    let mut found = Vec::new();
    if RESERVED_PLUGINS.contains(&&*skeleton(name)) {
        let how = "the name is reserved to the platform";
        found.push(conflict(NameKind::Plugin, name, None, how.to_owned()));
    }
    found.extend(others.conflict(NameKind::Plugin, name));
    for stand_in in &new.manifest.overrides {
        found.extend(others.conflict(NameKind::Override, &stand_in.service));
    }
    // The tool of a node type has the name of the type.
    let tools = new.tools.iter().map(|tool| tool.id.as_str());
    let tools = tools
        .filter(|id| node_type_of(id).is_none())
        .map(|id| (NameKind::Tool, id));
    let nodes = new
        .nodes
        .iter()
        .map(|node| (NameKind::NodeType, node.as_str()));
    let mut seen: HashMap<(NameKind, String), &str> = HashMap::new();
    for (kind, id) in tools.chain(nodes) {
        let reserved = naming::reserved("", id).filter(|_| kind == NameKind::Tool);
        if let Some(reserved) = reserved {
            found.push(conflict(kind, id, None, reserved.message));
        }
        found.extend(others.conflict(kind, id));
        if let Some(twin) = seen.insert((kind, skeleton(id)), id) {
            let twin = Conflict {
                held_by: own.to_string(),
                ..conflict(kind, id, None, how(id, twin))
            };
            found.push(twin);
        }
    }
    found
}

/// The names of other owners.
struct Held<'a> {
    by_skeleton: HashMap<(NameKind, String), &'a HeldName>,
    by_alias: HashMap<&'a str, &'a HeldName>,
}

impl<'a> Held<'a> {
    fn new(names: impl Iterator<Item = &'a HeldName>) -> Self {
        let mut held = Self {
            by_skeleton: HashMap::new(),
            by_alias: HashMap::new(),
        };
        for name in names {
            held.by_skeleton
                .insert((name.kind, skeleton(&name.id)), name);
            if !name.alias.is_empty() {
                held.by_alias.insert(&name.alias, name);
            }
        }
        held
    }

    fn conflict(&self, kind: NameKind, id: &str) -> Option<Conflict> {
        if let Some(held) = self.by_skeleton.get(&(kind, skeleton(id))) {
            return Some(conflict(kind, id, Some(&held.owner), how(id, &held.id)));
        }
        let alias = call_catalogue::alias_of(id);
        let held = [id, alias.as_str()].into_iter();
        let held = held
            .filter(|_| kind == NameKind::Tool)
            .find_map(|name| self.by_alias.get(name))?;
        let how = format!("equal to '{}', the alias of '{}'", held.alias, held.id);
        Some(Conflict {
            kind: "alias".to_owned(),
            ..conflict(kind, id, Some(&held.owner), how)
        })
    }
}

/// Makes a conflict with another owner; without one, with the platform itself.
fn conflict(kind: NameKind, id: &str, owner: Option<&Origin>, how: String) -> Conflict {
    let (word, noun) = match kind {
        NameKind::Tool => ("tool_id", "tool"),
        NameKind::NodeType => ("node_type", "node type"),
        NameKind::Plugin => ("plugin", "plugin"),
        NameKind::Override => ("override", "override"),
    };
    let verb = match kind {
        NameKind::Override => "remove",
        _ => "rename",
    };
    let other = match owner {
        Some(Origin::Plugin(name)) => format!(", or uninstall {name} first"),
        Some(Origin::Registered) => ", or delete the registered tool first".to_owned(),
        _ => String::new(),
    };
    Conflict {
        kind: word.to_owned(),
        id: id.to_owned(),
        held_by: owner.map_or("platform".to_owned(), ToString::to_string),
        how,
        remedy: format!("{verb} the {noun}{other}"),
    }
}

/// Returns the likeness of two names with the same skeleton.
fn how(id: &str, other: &str) -> String {
    if id == other {
        return "the same name".to_owned();
    }
    let squashed = json_schema::squash(id);
    match squashed == json_schema::squash(other) {
        true => format!("equal after squashing to {squashed}"),
        false => format!("looks like '{other}'"),
    }
}
