//! The names that the tool of a step declares (N1, T19).

use call_catalogue::{Entry, names};

use super::StepDraft;

/// Whether the tool of a step has a parameter of this name.
pub(super) fn declares(step: &StepDraft<'_>, name: &str) -> bool {
    step.entry.is_some_and(|entry| tool_declares(entry, name))
}

/// Whether a tool has a parameter of this name.
pub(super) fn tool_declares(entry: &Entry, name: &str) -> bool {
    entry.declares(name)
        || entry.only_squashed_match(name).is_some()
        || (entry.command_alias && names::squashes_to(name, "argcommand"))
}

/// The last tool, and whether it declares one name: most steps of a block call the same tool.
#[derive(Default)]
pub(super) struct DeclarationMemo<'c>(Option<(&'c Entry, bool)>);

impl<'c> DeclarationMemo<'c> {
    pub(super) fn declares(&mut self, step: &StepDraft<'c>, name: &str) -> bool {
        let Some(entry) = step.entry else {
            return false;
        };
        match self.0 {
            Some((asked, answer)) if std::ptr::eq(asked, entry) => answer,
            _ => {
                let answer = declares(step, name);
                self.0 = Some((entry, answer));
                answer
            }
        }
    }
}

/// The parameter that a name means, or the name itself.
pub(super) fn declared_name(entry: Option<&Entry>, written: &str) -> String {
    let found = entry.and_then(|entry| {
        let position = entry.only_squashed_match(written)?;
        Some(&*entry.parameters[position].name)
    });
    found.unwrap_or(written).to_owned()
}
