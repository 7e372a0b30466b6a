//! Which tools a text may speak of.

/// A scope as a key: two requests with the same scope share a catalogue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Scope {
    /// The agent whose inventory counts; empty for none.
    pub(crate) profile_id: String,
    /// Just these tools; empty for the whole inventory, or every tool.
    pub(crate) tool_ids: Vec<String>,
}

impl Scope {
    /// Returns whether no agent is named.
    pub(crate) fn without_agent(&self) -> bool {
        self.profile_id.is_empty()
    }

    /// Returns the ids that the scope takes: those named, and of an agent's inventory only those.
    /// Nothing means every tool.
    pub(crate) fn wanted(&self, inventory: Option<Vec<String>>) -> Option<Vec<String>> {
        match inventory {
            None if self.tool_ids.is_empty() => None,
            None => Some(self.tool_ids.clone()),
            Some(mut inventory) => {
                if !self.tool_ids.is_empty() {
                    inventory.retain(|id| self.tool_ids.contains(id));
                }
                Some(inventory)
            }
        }
    }

    /// Returns the ids that the scope names and that are not among those that it takes, because its
    /// agent's inventory lacks them.
    pub(crate) fn beyond(&self, wanted: Option<&[String]>) -> Vec<String> {
        let named = self.tool_ids.iter();
        let beyond = named.filter(|id| wanted.is_some_and(|wanted| !wanted.contains(id)));
        beyond.cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(ids: &[&str]) -> Vec<String> {
        ids.iter().map(|id| (*id).to_owned()).collect()
    }

    #[test]
    fn a_scope_takes_what_is_named_and_nothing_beyond_the_inventory() {
        for (named, inventory, wanted) in [
            (ids(&[]), None, None),
            (ids(&["a"]), None, Some(ids(&["a"]))),
            (ids(&[]), Some(ids(&["a", "b"])), Some(ids(&["a", "b"]))),
            (ids(&["b", "c"]), Some(ids(&["a", "b"])), Some(ids(&["b"]))),
            (ids(&["c"]), Some(ids(&["a"])), Some(ids(&[]))),
        ] {
            let scope = Scope {
                profile_id: String::new(),
                tool_ids: named.clone(),
            };
            assert_eq!(
                scope.wanted(inventory.clone()),
                wanted,
                "{named:?} of {inventory:?}"
            );
        }
    }

    #[test]
    fn what_is_named_beyond_the_inventory_is_not_passed_over() {
        let scope = Scope {
            profile_id: "p".to_owned(),
            tool_ids: ids(&["b", "c"]),
        };
        let wanted = scope.wanted(Some(ids(&["a", "b"])));
        assert_eq!(scope.beyond(wanted.as_deref()), ids(&["c"]));
        assert_eq!(scope.beyond(None), ids(&[]));
    }
}
