//! The steps of a block while they are put together, in the order of their numbers.

use call_catalogue::Entry;

use super::{Number, StepCall, StepDraft};

/// Steps by number. Blocks have few of them and name them in order, so a sorted list it is.
#[derive(Default)]
pub(super) struct StepList<'c>(Vec<(Number, StepDraft<'c>)>);

impl<'c> StepList<'c> {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn position(&self, number: Number) -> Result<usize, usize> {
        self.0.binary_search_by_key(&number, |(known, _)| *known)
    }

    pub(super) fn get(&self, number: Number) -> Option<&StepDraft<'c>> {
        let position = self.position(number).ok()?;
        self.0.get(position).map(|(_, step)| step)
    }

    pub(super) fn get_mut(&mut self, number: Number) -> Option<&mut StepDraft<'c>> {
        let position = self.position(number).ok()?;
        self.0.get_mut(position).map(|(_, step)| step)
    }

    /// The tools of the steps, each once.
    pub(super) fn tools(&self) -> Vec<&'c Entry> {
        let mut tools: Vec<&Entry> = Vec::new();
        for entry in self.0.iter().filter_map(|(_, step)| step.entry) {
            if !tools.iter().any(|known| std::ptr::eq(*known, entry)) {
                tools.push(entry);
            }
        }
        tools
    }

    /// Adds a step, or replaces the step of the same number.
    pub(super) fn insert(&mut self, number: Number, step: StepDraft<'c>) {
        match self.position(number) {
            Ok(position) => self.0[position].1 = step,
            Err(position) => self.0.insert(position, (number, step)),
        }
    }

    pub(super) fn numbers(&self) -> impl Iterator<Item = Number> + '_ {
        self.0.iter().map(|(number, _)| *number)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Number, &StepDraft<'c>)> {
        self.0.iter().map(|(number, step)| (*number, step))
    }

    pub(super) fn steps_mut(&mut self) -> impl Iterator<Item = &mut StepDraft<'c>> {
        self.0.iter_mut().map(|(_, step)| step)
    }

    pub(super) fn into_calls(self) -> Vec<StepCall> {
        self.0.into_iter().map(|(_, step)| step.built).collect()
    }
}
