//! The tools that a message may call: visible tools, known but hidden tools, and the names by which
//! each may be written.

mod alias;
mod entry;
mod lengths;
mod lookup;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use alias::alias_of;
pub use entry::{Entry, Parameter};
use lengths::Lengths;
pub use lookup::{NameReading, ToolMatch};

/// Whether the prompt lists an entry among the tools or among the skills (seed 002 §4.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum ToolKind {
    /// A direct function call.
    #[default]
    Tool,
    /// A workflow execution.
    Skill,
}

/// One tool as the parser and the prompt need it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tool {
    /// Stable id, for instance `workflow:summarize_text`.
    pub id: String,
    /// The description of the tool, one or two sentences for the model.
    #[serde(default)]
    pub description: String,
    /// JSON Schema of the arguments; `null` or `{}` if there is none.
    #[serde(default)]
    pub parameters: Value,
    /// Listed as a tool or as a skill.
    #[serde(default)]
    pub kind: ToolKind,
    /// Whether it is declared free of side effects: it may run even if its call needed a repair.
    #[serde(default)]
    pub read_only: bool,
    /// Whether it is declared safe to run at the same time as other calls of the block.
    #[serde(default)]
    pub parallel_safe: bool,
    /// Whether it is declared safe to run twice.
    #[serde(default)]
    pub idempotent: bool,
    /// Whether calls of this tool with a tolerance beyond *verbatim* are refused.
    #[serde(default)]
    pub strict: bool,
}

impl Tool {
    /// Creates a tool without flags.
    pub fn new(id: impl Into<String>, description: impl Into<String>, parameters: Value) -> Self {
        Self {
            id: id.into(),
            description: description.into(),
            parameters,
            kind: ToolKind::Tool,
            read_only: false,
            parallel_safe: false,
            idempotent: false,
            strict: false,
        }
    }

    /// The same tool, declared read-only.
    pub fn read_only(mut self) -> Self {
        self.read_only = true;
        self
    }

    /// The same tool, listed as a skill.
    pub fn skill(mut self) -> Self {
        self.kind = ToolKind::Skill;
        self
    }

    /// The same tool, declared safe in parallel with other calls.
    pub fn parallel_safe(mut self) -> Self {
        self.parallel_safe = true;
        self
    }
}

/// The reasons why a catalogue cannot be built; every violation is listed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .violations.join("; "))]
pub struct CatalogueError {
    /// One sentence per violation, each naming the id.
    pub violations: Vec<String>,
}

/// A tool that was there, and cannot be called any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemovedTool {
    /// Its id.
    pub id: String,
    /// The plugin that brought it.
    pub plugin: String,
}

/// The ids of tools that cannot be called, by the reason.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Absent {
    /// Tools that exist and are not available here (N5).
    pub hidden: Vec<String>,
    /// Tools that do not exist any more. A visible or hidden tool of the same id comes first.
    pub removed: Vec<RemovedTool>,
}

/// A set of visible tools and of ids that cannot be called, ready for look-up. Cloning is cheap.
#[derive(Debug, Clone, Default)]
pub struct Catalogue {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    entries: Vec<Entry>,
    hidden: Vec<String>,
    /// Exact id or alias → entry.
    exact: HashMap<String, usize>,
    /// Lower-case id or alias → entry, `None` if several share it.
    folded: HashMap<String, Option<usize>>,
    /// Lower-case hidden ids and their aliases.
    hidden_folded: HashMap<String, usize>,
    removed: Vec<RemovedTool>,
    /// Lower-case removed ids, their aliases, and names that were added for them.
    removed_folded: HashMap<String, usize>,
    /// Name of a workflow or node as in the seeds, or name that was added → entry, `None` if several share it.
    /// Ids and aliases come first.
    other_names: HashMap<String, Option<usize>>,
    /// Squashed parameter names of all visible tools.
    parameters: HashSet<String>,
    /// Of all names by which a tool can be found.
    lengths: Lengths,
}

impl Catalogue {
    /// Builds a catalogue of visible tools and of ids that are known but not available here.
    pub fn new(tools: Vec<Tool>, hidden: Vec<String>) -> Result<Self, CatalogueError> {
        let removed = Vec::new();
        Self::with_names(tools, Absent { hidden, removed }, &[])
    }

    /// Builds a catalogue as [`Self::new`] does, in which visible and removed tools have further names, which come
    /// after ids and aliases: pairs of a name and the id of its tool.
    pub fn with_names(
        tools: Vec<Tool>,
        absent: Absent,
        names: &[(String, String)],
    ) -> Result<Self, CatalogueError> {
        let mut violations = Vec::new();
        let mut inner = Inner::default();
        for tool in tools {
            check_id(&tool.id, &mut violations);
            if !matches!(
                tool.parameters,
                Value::Null | Value::Object(_) | Value::Bool(true)
            ) {
                violations.push(format!(
                    "tool '{}': parameters is not a schema object",
                    tool.id
                ));
            }
            if inner.exact.contains_key(&tool.id)
                && inner.entries.iter().any(|entry| entry.tool.id == tool.id)
            {
                violations.push(format!("tool '{}' is listed twice", tool.id));
                continue;
            }
            inner.add(tool);
        }
        for id in absent.hidden {
            check_id(&id, &mut violations);
            let position = inner.hidden.len();
            inner.hidden_folded.insert(id.to_lowercase(), position);
            inner
                .hidden_folded
                .insert(alias_of(&id).to_lowercase(), position);
            inner.hidden.push(id);
        }
        for tool in absent.removed {
            let position = inner.removed.len();
            for name in [&tool.id, &alias_of(&tool.id)] {
                inner.removed_folded.insert(name.to_lowercase(), position);
            }
            inner.removed.push(tool);
        }
        for (name, id) in names {
            if let Some(index) = inner.entries.iter().position(|entry| entry.tool.id == *id) {
                inner.name(name.clone(), index);
            } else if let Some(index) = inner.removed.iter().position(|tool| tool.id == *id) {
                inner.removed_folded.insert(name.to_lowercase(), index);
            }
        }
        inner.measure();
        if violations.is_empty() {
            Ok(Self {
                inner: Arc::new(inner),
            })
        } else {
            Err(CatalogueError { violations })
        }
    }

    /// The visible tools in the order given.
    pub fn tools(&self) -> impl ExactSizeIterator<Item = &Tool> {
        self.inner.entries.iter().map(|entry| &entry.tool)
    }

    /// The visible tool of exactly this id.
    pub fn tool(&self, id: &str) -> Option<&Tool> {
        self.entry_of(id).map(|entry| &entry.tool)
    }

    /// Whether no tool is visible.
    pub fn is_empty(&self) -> bool {
        self.inner.entries.is_empty()
    }

    /// The visible tool of exactly this id, with the values derived from it.
    pub fn entry_of(&self, id: &str) -> Option<&Entry> {
        let index = *self.inner.exact.get(id)?;
        self.inner
            .entries
            .get(index)
            .filter(|entry| entry.tool.id == id)
    }

    /// The visible tool at a position from [`ToolMatch::Visible`].
    ///
    /// # Panics
    /// If this catalogue has no such position.
    pub fn entry(&self, index: usize) -> &Entry {
        &self.inner.entries[index]
    }

    /// The tool at a position from [`ToolMatch::Removed`].
    ///
    /// # Panics
    /// If this catalogue has no such position.
    pub fn removed(&self, index: usize) -> &RemovedTool {
        &self.inner.removed[index]
    }

    /// Whether a key of a TAM or VCP field is a control key or a parameter of a visible tool, with
    /// or without a step number.
    pub fn is_known_field(&self, key: &str) -> bool {
        crate::names::with_squashed(key, |squashed| self.inner.is_known(squashed))
    }

    /// The visible tools in the order given, with the values derived from them.
    pub fn entries(&self) -> &[Entry] {
        &self.inner.entries
    }
}

impl Inner {
    /// Whether the squashed form of a key is a control key or a parameter.
    fn is_known(&self, squashed: &str) -> bool {
        const CONTROLS: &[&str] = &[
            "command",
            "toolname",
            "requestid",
            "comment",
            "onerror",
            "retry",
            "archery",
            "argcommand",
        ];
        const PREFIXES: &[&str] = &["typehint", "uri", "common"];
        let stem = squashed.trim_end_matches(|c: char| c.is_ascii_digit());
        CONTROLS.contains(&stem)
            || self.parameters.contains(stem)
            || (stem.len() < squashed.len() && self.parameters.contains(squashed))
            || PREFIXES.iter().any(|prefix| {
                [squashed, stem].iter().any(|whole| {
                    whole
                        .strip_prefix(prefix)
                        .is_some_and(|rest| self.parameters.contains(rest))
                })
            })
    }

    /// Notes the lengths of all names.
    fn measure(&mut self) {
        let names = (self.exact.keys())
            .chain(self.folded.keys())
            .chain(self.hidden_folded.keys())
            .chain(self.removed_folded.keys())
            .chain(self.other_names.keys());
        for name in names {
            self.lengths.add(name);
        }
    }

    /// Notes a name of an entry that comes after ids and aliases.
    fn name(&mut self, name: String, index: usize) {
        self.other_names
            .entry(name)
            .and_modify(|slot| *slot = None)
            .or_insert(Some(index));
    }

    fn add(&mut self, tool: Tool) {
        let index = self.entries.len();
        let mut alias = alias_of(&tool.id);
        if alias != tool.id && self.exact.contains_key(&alias) {
            alias = alias::with_suffix(&alias, &tool.id);
        }
        // An id always means itself, even if an earlier tool's alias looked the same.
        let taken = self.exact.insert(tool.id.clone(), index);
        if let Some(earlier) = taken {
            let entry = &mut self.entries[earlier];
            entry.alias = alias::with_suffix(&entry.alias, &entry.tool.id);
            let renamed = entry.alias.clone();
            self.exact.insert(renamed, earlier);
        }
        self.exact.insert(alias.clone(), index);
        for name in [tool.id.to_lowercase(), alias.to_lowercase()] {
            self.folded
                .entry(name)
                .and_modify(|slot| {
                    if *slot != Some(index) {
                        *slot = None;
                    }
                })
                .or_insert(Some(index));
        }
        for name in alias::seed_spellings(&tool.id) {
            self.name(name, index);
        }
        let entry = Entry::new(tool, alias);
        let squashed = entry.parameters.iter().map(|parameter| &parameter.squashed);
        self.parameters.extend(squashed.cloned());
        self.entries.push(entry);
    }
}

fn check_id(id: &str, violations: &mut Vec<String>) {
    if id.is_empty() || id.len() > 128 {
        violations.push(format!(
            "tool id '{}' must have 1 to 128 bytes",
            crate::diagnostic::cut(id)
        ));
    }
    if id.ends_with('/') {
        violations.push(format!(
            "tool id '{id}' ends with a slash, which would read as a self-closing tag"
        ));
    }
    if let Some(bad) = id
        .chars()
        .find(|c| c.is_whitespace() || c.is_control() || "<>`\"'&=".contains(*c))
    {
        violations.push(format!(
            "tool id '{id}' contains {bad:?}, which no dialect can carry"
        ));
    }
}

#[cfg(test)]
mod tests;
