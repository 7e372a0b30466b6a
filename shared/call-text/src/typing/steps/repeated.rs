//! Parameters without a number that occur more than once in a chain: each belongs to the command
//! before it, or all of them are refused (T17). None is dropped.

use call_catalogue::{Class, Dialect, Problem, ProblemCode, Rule, Span, Tolerance, names};

use super::declared::declares;
use super::give::{control_for, give};
use super::keys::Control;
use super::list::StepList;
use super::{Field, Number, Steps};
use crate::dialect::raw::RawField;

/// The commands of a chain in the order of the text: the place of each, and its step.
pub(super) struct Commands(Vec<(usize, Number)>);

impl Commands {
    /// Reads the places of the commands among some fields; a command without number is a step of
    /// its own, or the first where it was promoted.
    pub(super) fn of<'f>(fields: impl Iterator<Item = &'f RawField>, promoted: bool) -> Self {
        let first = promoted.then_some(1);
        let place = |field: &RawField| (field.key_span.start, field.reading.number.or(first));
        let mut commands: Vec<_> = fields.map(place).collect();
        commands.sort_unstable();
        Self(commands)
    }

    /// The position of the command before a field.
    fn before(&self, field: &Field) -> Option<usize> {
        let start = field.raw.key_span.start;
        self.0.partition_point(|(at, _)| *at < start).checked_sub(1)
    }
}

/// Assigns repeated fields to the steps of a chain by place, and returns all other fields.
pub(super) fn place_repeated(
    fields: Vec<Field>,
    commands: &Commands,
    steps: &mut StepList<'_>,
    dialect: Dialect,
    text: &str,
    out: &mut Steps,
) -> Vec<Field> {
    let mut groups: Vec<Vec<Field>> = Vec::new();
    for field in fields {
        let name = field.name.of(text);
        let same = |group: &&mut Vec<Field>| names::same_squashed(group[0].name.of(text), name);
        match groups.iter_mut().find(same) {
            Some(group) => group.push(field),
            None => groups.push(vec![field]),
        }
    }
    let mut others = Vec::new();
    for mut group in groups {
        let value = |field: &Field| field.raw.value.span.of(text).trim();
        let equal = group.iter().all(|field| value(field) == value(&group[0]));
        let control = Control::read(group[0].name.of(text), dialect);
        let of_block = matches!(control, Some(Control::Block(_) | Control::Common(_)));
        if equal {
            // One of them is as good as all.
            others.extend(group.drain(..1));
            continue;
        }
        let owners = match of_block {
            true => None,
            false => owners(&group, commands, steps, control.is_some(), text),
        };
        let Some(owners) = owners else {
            out.problems.push(refused(&group, text));
            // Placed, so that the parameter is not reported missing as well.
            others.extend(group.drain(..1));
            continue;
        };
        for (mut field, number) in group.into_iter().zip(owners) {
            let Some(step) = steps.get_mut(number) else {
                continue;
            };
            let key = field.raw.key.of(text);
            let numbered = format!("{key}{}", number.map(|n| n.to_string()).unwrap_or_default());
            let (rule, class, code) = (Rule::T17, Class::Spelling, "parameter_by_place");
            let note = Tolerance::new(rule, class, code, field.raw.key_span, key, &numbered);
            field.raw.notes.push(note);
            let control = control_for(step, field.name.of(text), dialect);
            give(step, field.name, field.raw, control, text);
        }
    }
    others
}

/// The step of each field of one name, where each is between its own command and the next, and the
/// tool of that command declares it and has no other value for it.
fn owners(
    group: &[Field],
    commands: &Commands,
    steps: &StepList<'_>,
    control: bool,
    text: &str,
) -> Option<Vec<Number>> {
    let places: Vec<usize> =
        (group.iter().map(|field| commands.before(field))).collect::<Option<_>>()?;
    if places.windows(2).any(|pair| pair[0] == pair[1]) {
        return None;
    }
    let owner = |(field, place): (&Field, &usize)| {
        let number = commands.0.get(*place)?.1;
        let (step, name) = (steps.get(number)?, field.name.of(text));
        let mut given = step.built.call.arguments.iter();
        let own = given.any(|argument| names::same_squashed(argument.name.of(text), name));
        let declared = control || step.entry.is_none() || declares(step, name);
        (declared && !own).then_some(number)
    };
    group.iter().zip(&places).map(owner).collect()
}

/// The problem of values of which no step is known.
fn refused(group: &[Field], text: &str) -> Problem {
    let key = group[0].raw.key.of(text);
    let span = group
        .last()
        .map_or(Span::default(), |field| field.raw.key_span);
    let message = format!(
        "'{key}' appears {} times without the number of a step; number them: {key}1, {key}2",
        group.len()
    );
    Problem::new(ProblemCode::DuplicateParameter, Rule::T17, span, message)
        .at(format!("/{key}"))
        .expected(format!("{key}1, {key}2"))
        .received(key)
}
