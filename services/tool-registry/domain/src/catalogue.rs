//! All tools that have a definition, found by id, alias or display name.
//!
//! A catalogue in use never changes: a registration makes a new one. Tools of workflows, and of node types
//! of the engine, are not in here, because the workflow service owns them.

use call_outcome::Violation;
use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use super::{
    definition::{Definition, Implementation},
    naming,
    plugin_node::node_type_of,
    tool::{Origin, Tool},
};

/// A snapshot of all tools.
#[derive(Clone, Debug, Default)]
pub struct Catalogue {
    by_id: BTreeMap<String, Arc<Tool>>,
    by_alias: HashMap<String, String>,
}

/// A name of a tool, as written in texts, inventories and workflows, read against a catalogue.
#[derive(Clone, Debug)]
pub enum Reading<'a> {
    /// The id, the alias or the display name of this tool.
    Tool(&'a Arc<Tool>),
    /// The id or the alias of a workflow, a node type or an agent, if it exists; other services
    /// know that.
    Derived(Cow<'a, str>),
}

/// The reason for which a tool cannot be added.
#[derive(Clone, Debug, PartialEq)]
pub enum AddError {
    /// The id belongs to a tool of another origin.
    Taken(Origin),
    /// The definition does not work.
    Invalid(Vec<Violation>),
}

impl Catalogue {
    /// Returns the catalogue with one more tool, or with a replaced tool of the same origin, and
    /// the tool.
    ///
    /// # Errors
    /// [`AddError`] if the id is taken or the definition does not work.
    pub fn with(
        &self,
        definition: impl Into<Arc<Definition>>,
        origin: Origin,
    ) -> Result<(Self, Arc<Tool>), AddError> {
        let mut next = self.clone();
        let tool = next.add(definition, origin)?;
        Ok((next, tool))
    }

    /// Adds a tool, or replaces one of the same origin, and returns it: for a catalogue that is being made.
    ///
    /// # Errors
    /// [`AddError`] if the id is taken or the definition does not work; the catalogue is unchanged then.
    pub fn add(
        &mut self,
        definition: impl Into<Arc<Definition>>,
        origin: Origin,
    ) -> Result<Arc<Tool>, AddError> {
        let definition = definition.into();
        let id = definition.id.to_string();
        let earlier = self.by_id.get(&id);
        if let Some(earlier) = earlier.filter(|earlier| *earlier.origin() != origin) {
            return Err(AddError::Taken(earlier.origin().clone()));
        }
        if origin != Origin::Builtin {
            check_foreign(&definition, &origin).map_err(AddError::Invalid)?;
        }
        let alias = match earlier {
            Some(earlier) => earlier.alias().to_owned(),
            None => self.alias_of(&id),
        };
        let tool = Arc::new(Tool::new(definition, origin, alias).map_err(AddError::Invalid)?);
        self.insert(Arc::clone(&tool));
        Ok(tool)
    }

    /// Inserts a tool; another one that has its alias gets a new one.
    fn insert(&mut self, tool: Arc<Tool>) {
        let (id, alias) = (tool.id().to_owned(), tool.alias().to_owned());
        let other = self.by_alias.get(&alias).filter(|other| **other != id);
        if let Some(other) = other.cloned() {
            self.give_up_alias(&other);
        }
        self.by_id.insert(id.clone(), tool);
        self.by_alias.insert(alias, id);
    }

    /// Returns the catalogue without the tool of this id.
    #[must_use]
    pub fn without(&self, id: &str) -> Self {
        let mut next = self.clone();
        next.by_id.remove(id);
        next.by_alias.retain(|_, owner| owner != id);
        next
    }

    /// Returns the catalogue without the tools of an origin.
    #[must_use]
    pub fn without_origin(&self, origin: &Origin) -> Self {
        let mut next = self.clone();
        next.by_id.retain(|_, tool| tool.origin() != origin);
        let by_id = &next.by_id;
        next.by_alias.retain(|_, owner| by_id.contains_key(owner));
        next
    }

    /// Returns the catalogue with the registered tools of `others`, which keep their schemas. A tool whose id is taken
    /// here is left out, and returned.
    pub fn with_registered_of(&self, others: &Self) -> (Self, Vec<Arc<Tool>>) {
        let (mut next, mut left_out) = (self.clone(), Vec::new());
        let registered = |tool: &&Arc<Tool>| *tool.origin() == Origin::Registered;
        for tool in others.tools().filter(registered) {
            if next.by_id.contains_key(tool.id()) {
                left_out.push(Arc::clone(tool));
                continue;
            }
            let alias = match next.by_alias.contains_key(tool.alias()) {
                true => next.alias_of(tool.id()),
                false => tool.alias().to_owned(),
            };
            let tool = match alias == tool.alias() {
                true => Arc::clone(tool),
                false => Arc::new(tool.with_alias(alias)),
            };
            next.insert(tool);
        }
        (next, left_out)
    }

    /// Returns the catalogue with the registered tools of `others` as shared ones. A tool here keeps its names: one
    /// whose id is an id or an alias here is left out, and an alias that is taken is replaced.
    #[must_use]
    pub fn sharing(&self, others: &Self) -> Self {
        let mut next = self.clone();
        let registered = |tool: &&Arc<Tool>| *tool.origin() == Origin::Registered;
        for tool in others.tools().filter(registered) {
            if self.is_taken(tool.id()) {
                continue;
            }
            let taken = |alias: &str| next.is_taken(alias) || others.is_taken(alias);
            let alias = match next.is_taken(tool.alias()) {
                true => naming::unique_alias(tool.id(), taken),
                false => tool.alias().to_owned(),
            };
            let id = tool.id().to_owned();
            let tool = tool.with_alias(alias.clone()).with_shared(true);
            next.by_id.insert(id.clone(), Arc::new(tool));
            next.by_alias.insert(alias, id);
        }
        next
    }

    /// Returns the tool of this id.
    pub fn get(&self, id: &str) -> Option<&Arc<Tool>> {
        self.by_id.get(id)
    }

    /// Finds a tool by its id, or else by its alias.
    pub fn find(&self, written: &str) -> Option<&Arc<Tool>> {
        self.by_id
            .get(written)
            .or_else(|| self.by_id.get(self.by_alias.get(written)?))
    }

    /// Reads a name (rule N7). A node type may be written without `node:`, and a workflow by its
    /// path or as a skill; a tool may be named by a unique display name.
    pub fn read<'a>(&'a self, written: &'a str) -> Reading<'a> {
        if let Some(tool) = self.find(written).or_else(|| self.displayed(written)) {
            return Reading::Tool(tool);
        }
        let name = naming::derived_id(written).map_or(Cow::Borrowed(written), Cow::Owned);
        // The tool of a plugin's node type is here.
        match self.get(&name) {
            Some(tool) => Reading::Tool(tool),
            None => Reading::Derived(name),
        }
    }

    /// Finds the only tool of a display name, a shared one only if no other has it, unless a workflow, a node type or
    /// an agent may have that spelling.
    fn displayed(&self, written: &str) -> Option<&Arc<Tool>> {
        let derived = written.contains([':', '/']) || written.contains("__");
        if derived || written.starts_with("skill_") {
            return None;
        }
        let named = |tool: &&Arc<Tool>| tool.definition().display_name == written;
        let (shared, own): (Vec<_>, Vec<_>) =
            (self.tools().filter(named)).partition(|tool| tool.is_shared());
        match (own.as_slice(), shared.as_slice()) {
            ([found], _) | ([], [found]) => Some(found),
            _ => None,
        }
    }

    /// Whether a name means the tool of this id, which need not be in the catalogue.
    pub fn means(&self, written: &str, id: &str) -> bool {
        match self.read(written) {
            Reading::Tool(tool) => tool.id() == id,
            Reading::Derived(name) => name == id || name == self.alias_of(id),
        }
    }

    /// Returns the alias of a tool that is not in the catalogue.
    pub fn alias_of(&self, id: &str) -> String {
        naming::unique_alias(id, |alias| self.is_taken(alias))
    }

    /// Returns an id that differs from `id` in letter case only.
    pub fn case_twin(&self, id: &str) -> Option<&str> {
        let folded = id.to_lowercase();
        self.by_id
            .keys()
            .map(String::as_str)
            .find(|other| *other != id && other.to_lowercase() == folded)
    }

    /// Returns the tools by id.
    pub fn tools(&self) -> impl Iterator<Item = &Arc<Tool>> {
        self.by_id.values()
    }

    /// Returns up to three ids that resemble `written`, the nearest first.
    pub fn nearest<'a>(
        &'a self,
        written: &str,
        others: impl IntoIterator<Item = &'a str>,
    ) -> Vec<String> {
        json_schema::nearest_names(written, self.by_id.keys().map(String::as_str).chain(others))
    }

    /// Assigns another alias to `id`, because a new tool's id equals the present one: an id always
    /// means itself.
    fn give_up_alias(&mut self, id: &str) {
        if let Some(tool) = self.by_id.get_mut(id) {
            let alias = naming::unique_alias(id, |_| true);
            *tool = Arc::new(tool.with_alias(alias.clone()));
            self.by_alias.insert(alias, id.to_owned());
        }
    }

    fn is_taken(&self, alias: &str) -> bool {
        self.by_alias.contains_key(alias) || self.by_id.contains_key(alias)
    }
}

/// Checks that a tool does not use the rights of the platform's own tools.
fn check_foreign(definition: &Definition, origin: &Origin) -> Result<(), Vec<Violation>> {
    let mut wrong = Vec::new();
    let id = definition.id.as_str();
    // A plugin has the namespace of its node types.
    let is_own_node = match (origin, node_type_of(id).and_then(|of| of.split_once(':'))) {
        (Origin::Plugin(plugin), Some((of, _))) => plugin == of,
        _ => false,
    };
    if let Some(reserved) = naming::reserved("/id", id).filter(|_| !is_own_node) {
        wrong.push(reserved);
    }
    if let Implementation::Builtin(method) = &definition.implementation {
        // Bound under another id, it would have the effects that its new definition declares.
        let message = format!(
            "the platform's method '{method}' cannot be bound by another tool; call the platform's own tool"
        );
        wrong.push(Violation::new(
            "/implementation",
            "builtin_reserved",
            message,
        ));
    }
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(wrong),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::definition::read_value;

    fn definition(id: &str) -> Definition {
        let source = json!({"id": id, "parameters": {"type": "object"},
            "implementation": {"type": "script", "command": "node a.js"}});
        read_value(source).unwrap()
    }

    fn catalogue(ids: &[&str]) -> Catalogue {
        ids.iter().fold(Catalogue::default(), |catalogue, id| {
            catalogue
                .with(definition(id), Origin::Registered)
                .unwrap()
                .0
        })
    }

    #[test]
    fn a_tool_is_found_by_its_id_and_by_its_alias() {
        let catalogue = catalogue(&["kb:Query", "FileOperator.WriteFile"]);
        assert_eq!(catalogue.find("kb:Query").unwrap().alias(), "kb__Query");
        assert_eq!(catalogue.find("kb__Query").unwrap().id(), "kb:Query");
        assert!(catalogue.find("kb__query").is_none());
    }

    #[test]
    fn n7_a_name_means_one_tool_by_each_of_its_spellings() {
        let catalogue = catalogue(&["kb:Query", "workflow__taken", "tales/old.json"]);
        for (written, means) in [
            ("kb:Query", "kb:Query"),
            ("kb__Query", "kb:Query"),
            ("core:TextMerge", "node:core:TextMerge"),
            ("node:core:TextMerge", "node:core:TextMerge"),
            ("node__core__TextMerge", "node:core:TextMerge"),
            ("skill_greet", "workflow:greet"),
            ("workflows/skills/greet.json", "workflow:greet"),
            ("workflow__greet", "workflow:greet"),
            ("agent__scout", "agent:scout"),
            // A tool of the catalogue precedes a workflow of the same spelling.
            ("workflow__taken", "workflow__taken"),
            ("tales/old.json", "tales/old.json"),
        ] {
            let all = [
                "kb:Query",
                "node:core:TextMerge",
                "workflow:greet",
                "agent:scout",
            ];
            let all = all.iter().chain(&["workflow__taken", "workflow:taken"]);
            let all = all.chain(&["tales/old.json", "workflow:old", "node:kb:Query"]);
            let meant: Vec<_> = all.filter(|id| catalogue.means(written, id)).collect();
            assert_eq!(meant, [&means], "{written}");
        }
    }

    #[test]
    fn a_tool_is_named_by_the_display_name_that_is_its_own() {
        let mut catalogue = catalogue(&["calculator"]);
        for (id, name) in [
            ("math.add", "Adding machine"),
            ("math.sub", "calculator"),
            ("math.mul", "Twin"),
            ("math.div", "Twin"),
            ("math.greet", "workflow:greet"),
            ("math.skill", "skill_greet"),
            ("math.path", "tales/greet.json"),
            ("math.alias", "workflow__greet"),
        ] {
            let definition = Definition {
                display_name: name.to_owned(),
                ..definition(id)
            };
            (catalogue, _) = catalogue.with(definition, Origin::Registered).unwrap();
        }
        for (written, meant) in [
            ("Adding machine", Some("math.add")),
            // An id precedes a name.
            ("calculator", Some("calculator")),
            ("adding machine", None),
            ("Twin", None),
            // A possible name of a workflow is no display name.
            ("workflow:greet", None),
            ("skill_greet", None),
            ("tales/greet.json", None),
            ("workflow__greet", None),
        ] {
            let read = match catalogue.read(written) {
                Reading::Tool(tool) => Some(tool.id()),
                Reading::Derived(_) => None,
            };
            assert_eq!(read, meant, "{written}");
            let named = meant.is_none_or(|id| catalogue.means(written, id));
            assert!(named, "{written}");
        }
    }

    #[test]
    fn the_later_of_two_equal_aliases_gets_a_hash_and_keeps_it_when_replaced() {
        let catalogue = catalogue(&["a:b", "a|b", "a:b"]);
        let second = catalogue.find("a|b").unwrap();
        assert!(second.alias().starts_with("a__b_"), "{}", second.alias());
        assert_eq!(catalogue.find("a__b").unwrap().id(), "a:b");
        let (again, tool) = catalogue
            .with(definition("a|b"), Origin::Registered)
            .unwrap();
        assert_eq!(tool.alias(), second.alias());
        assert_eq!(again.tools().count(), 2);
    }

    #[test]
    fn an_id_that_is_spelled_like_an_earlier_alias_wins() {
        let catalogue = catalogue(&["a:b", "a__b"]);
        assert_eq!(catalogue.find("a__b").unwrap().id(), "a__b");
        let renamed = catalogue.find("a:b").unwrap().alias();
        assert_ne!(renamed, "a__b");
        assert_eq!(catalogue.find(renamed).unwrap().id(), "a:b");
    }

    #[test]
    fn a_tool_that_is_removed_is_found_neither_by_id_nor_by_alias() {
        let catalogue = catalogue(&["a:b", "a|b"]).without("a:b");
        assert!(catalogue.get("a:b").is_none() && catalogue.find("a__b").is_none());
        assert!(catalogue.get("a|b").is_some());
    }

    #[test]
    fn registered_tools_move_to_another_catalogue_of_the_platform() {
        let own = catalogue(&["a:b", "kept", "taken"]);
        let plugin = Origin::Plugin("p".into());
        let mut base = Catalogue::default();
        for id in ["taken", "a|b"] {
            base.add(definition(id), plugin.clone()).unwrap();
        }
        let (moved, left_out) = base.with_registered_of(&own);
        assert_eq!(
            left_out.iter().map(|tool| tool.id()).collect::<Vec<_>>(),
            ["taken"]
        );
        assert_eq!(*moved.get("taken").unwrap().origin(), plugin);
        let aliases = ["a:b", "a|b", "kept"].map(|id| moved.get(id).unwrap().alias());
        assert_eq!(aliases[1..], ["a__b", "kept"]);
        assert_ne!(aliases[0], "a__b");
        let without = moved.without_origin(&plugin);
        assert!(without.get("taken").is_none() && without.find("a__b").is_none());
        assert!(without.get("kept").is_some());
    }

    #[test]
    fn the_first_owner_of_an_id_keeps_it() {
        let catalogue = catalogue(&["a"]);
        let error = catalogue
            .with(definition("a"), Origin::Plugin("p".into()))
            .unwrap_err();
        assert_eq!(error, AddError::Taken(Origin::Registered));
    }

    #[test]
    fn a_shared_tool_gives_way_to_each_name_of_an_own_one() {
        let named = |catalogue: Catalogue, id: &str, name: &str| {
            let definition = Definition {
                display_name: name.to_owned(),
                ..definition(id)
            };
            catalogue.with(definition, Origin::Registered).unwrap().0
        };
        let own = named(catalogue(&["a:b", "same"]), "mine", "Saw");
        let system = named(
            catalogue(&["a__b", "a|b", "same", "other"]),
            "theirs",
            "Saw",
        );
        let both = own.sharing(&system);
        assert_eq!(both.find("a__b").unwrap().id(), "a:b");
        assert!(both.get("a__b").is_none());
        let second = both.get("a|b").unwrap();
        assert!(second.is_shared() && second.alias() != "a__b");
        assert_eq!(both.find(second.alias()).unwrap().id(), "a|b");
        assert!(!both.get("same").unwrap().is_shared());
        assert!(both.means("Saw", "mine") && both.get("theirs").unwrap().is_shared());
        assert!(system.sharing(&Catalogue::default()).means("Saw", "theirs"));
        let without = own.without("same").sharing(&system);
        assert!(without.get("same").unwrap().is_shared());
        assert_eq!(both.tools().count(), 6);
    }

    #[test]
    fn near_names_and_case_twins_are_offered() {
        let catalogue = catalogue(&["FileOperator.WriteFile", "read_file"]);
        assert_eq!(
            catalogue.nearest("FileOperator.WritFile", []),
            ["FileOperator.WriteFile"]
        );
        assert_eq!(
            catalogue.nearest("workflow:greet", ["workflow:greets"]),
            ["workflow:greets"]
        );
        assert_eq!(catalogue.case_twin("READ_FILE"), Some("read_file"));
        assert_eq!(catalogue.case_twin("read_file"), None);
    }
}
