//! Which names the tool of a step declares (N1, T19).

use super::Step;
use crate::catalogue::Entry;
use crate::names;

/// Whether the tool of a step has a parameter of this name.
pub(super) fn declares(step: &Step<'_>, name: &str) -> bool {
    step.entry.is_some_and(|entry| {
        entry.parameters.iter().any(|parameter| parameter == name)
            || names::squashed_matches(name, entry.parameters.iter().map(String::as_str)).len() == 1
            || (entry.command_alias && names::same_squashed(name, "argcommand"))
    })
}

/// What the last tool said of one name: most steps of a block call the same tool.
#[derive(Default)]
pub(super) struct Asked<'c>(Option<(&'c Entry, bool)>);

impl<'c> Asked<'c> {
    pub(super) fn declares(&mut self, step: &Step<'c>, name: &str) -> bool {
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
    let found = entry
        .map(|entry| names::squashed_matches(written, entry.parameters.iter().map(String::as_str)));
    match found.as_deref() {
        Some([one]) => (*one).to_owned(),
        _ => written.to_owned(),
    }
}
