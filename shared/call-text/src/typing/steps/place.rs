//! The place of a field: a control, a parameter of one step, or of all that declare it (T21 to
//! T23, T25).

use call_catalogue::{Dialect, Entry, Problem, ProblemCode, Rule, Span};
use serde_json::Value;

use super::declared::{DeclarationMemo, declares, tool_declares};
use super::give::{control_for, give, share};
use super::keys::{Control, Suffix, suffixes};
use super::list::StepList;
use super::{Field, Number, StepDraft, Steps};
use crate::dialect::raw::RawField;

/// The step that a key's number names, and the control key of the rest, if it is one.
pub(super) struct Own {
    suffix: Suffix,
    control: Option<Control>,
}

/// The way to cut a number off a key so that its step declares the rest.
pub(super) fn own_step(key: &str, steps: &StepList<'_>, dialect: Dialect) -> Option<Own> {
    suffixes(key).find_map(|suffix| {
        let stem = &key[..suffix.stem];
        let step = steps.get(Some(suffix.number))?;
        let control = match declares(step, stem) {
            true => None,
            false => Some(control_of(stem, step, dialect)?),
        };
        Some(Own { suffix, control })
    })
}

fn control_of(stem: &str, step: &StepDraft<'_>, dialect: Dialect) -> Option<Control> {
    let control = Control::read(stem, dialect)?;
    let fits = match &control {
        Control::TypeHint(name) | Control::Uri(name) => {
            step.entry.is_none() || declares(step, name)
        }
        Control::Block(_) => false,
        _ => true,
    };
    fits.then_some(control)
}

/// The assignment of the fields of a block to its steps.
pub(super) struct Placing<'t, 'c> {
    pub(super) dialect: Dialect,
    pub(super) text: &'t str,
    /// Whether the first command had no number and became step 1 (T24).
    pub(super) promoted: bool,
    /// The tools that the steps call, each once: most blocks call few tools many times.
    pub(super) tools: Vec<&'c Entry>,
    /// Whether the steps have numbers.
    pub(super) numbered: bool,
    /// Keys of steps that no command opens.
    pub(super) orphans: Vec<(String, Span)>,
}

impl Placing<'_, '_> {
    /// Places a field; `own` is the step that its number names.
    pub(super) fn place(
        &mut self,
        field: Field,
        own: Option<Own>,
        steps: &mut StepList<'_>,
        out: &mut Steps,
    ) {
        let name = field.name.of(self.text);
        if let Some(Own { suffix, control }) = own {
            if !suffix.underscore && self.is_whole(name, steps) {
                out.problems.push(two_readings(name, suffix, &field.raw));
                return;
            }
            if let Some(step) = steps.get_mut(Some(suffix.number)) {
                let stem = field.name.prefix(suffix.stem);
                give(step, stem, field.raw, control, self.text);
            }
            return;
        }
        let mut asked = DeclarationMemo::default();
        let declaring = steps
            .iter()
            .filter(|(_, step)| asked.declares(step, name))
            .map(|(number, _)| number);
        // A field next to an un-numbered first command is its own (T24).
        let whole: Vec<Number> = declaring
            .filter(|number| !self.promoted || *number == Some(1))
            .collect();
        if !whole.is_empty() {
            for number in whole {
                share(
                    steps,
                    number,
                    &field.name,
                    &field.raw,
                    self.dialect,
                    self.text,
                );
            }
            return;
        }
        match Control::read(name, self.dialect) {
            Some(Control::Block(name)) => {
                let value = field.raw.value.span.of(self.text).trim();
                out.controls.insert(name, Value::String(value.to_owned()));
            }
            Some(Control::Common(name)) => {
                let open = |step: &StepDraft<'_>| step.entry.is_none() || declares(step, &name);
                let numbers = steps.iter().filter(|(_, step)| open(step));
                let numbers: Vec<Number> = numbers.map(|(number, _)| number).collect();
                let name = crate::dialect::raw::Written::Other(name);
                for number in numbers {
                    share(steps, number, &name, &field.raw, self.dialect, self.text);
                }
            }
            Some(_) => {
                for step in steps.steps_mut() {
                    let control = control_for(step, name, self.dialect);
                    let (name, raw) = (field.name.clone(), field.raw.clone());
                    give(step, name, raw, control, self.text);
                }
            }
            None => self.unplaced(field, steps),
        }
    }

    /// Whether a step that may have un-numbered fields declares the whole name.
    fn is_whole(&self, name: &str, steps: &StepList<'_>) -> bool {
        match self.promoted {
            true => (steps.get(Some(1))).is_some_and(|step| declares(step, name)),
            false => (self.tools.iter()).any(|entry| tool_declares(entry, name)),
        }
    }

    /// A field that no step declares: an orphan, or an unknown parameter of the first step that it
    /// could belong to.
    fn unplaced(&mut self, field: Field, steps: &mut StepList<'_>) {
        let name = field.name.of(self.text);
        let known = suffixes(name).find(|suffix| steps.get(Some(suffix.number)).is_some());
        if let Some(suffix) = known {
            if let Some(step) = steps.get_mut(Some(suffix.number)) {
                let stem = field.name.prefix(suffix.stem);
                let control = control_for(step, stem.of(self.text), self.dialect);
                give(step, stem, field.raw, control, self.text);
            }
        } else if self.numbered && suffixes(name).next().is_some() {
            self.orphans.push((name.to_owned(), field.raw.key_span));
        } else if let Some(step) = steps.steps_mut().next() {
            let control = control_for(step, name, self.dialect);
            give(step, field.name.clone(), field.raw, control, self.text);
        }
    }
}

/// A key that is a whole parameter and a numbered one (T22).
fn two_readings(name: &str, suffix: Suffix, field: &RawField) -> Problem {
    let message = format!(
        "Parameter '{name}' may be the parameter of that name or '{}' of step {}",
        &name[..suffix.stem],
        suffix.number
    );
    let code = ProblemCode::AmbiguousParameter;
    Problem::new(code, Rule::T22, field.key_span, message).received(name)
}
