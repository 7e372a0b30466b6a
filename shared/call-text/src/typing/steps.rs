//! From the fields of a TAM or VCP block to its calls: commands, steps, control keys (T18 to T32).

mod declared;
mod keys;

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use self::declared::{Asked, declared_name, declares};
use self::keys::{Control, Key, Suffix};
use crate::catalogue::{Entry, ToolMatch};
use crate::dialect::element::Context;
use crate::dialect::raw::{Content, Controls, RawCall, RawField, RawValue};
use crate::{Class, Dialect, Problem, ProblemCode, Rule, Span, StepControl, Tolerance, names};

/// The calls of a block and what belongs to the block as a whole.
#[derive(Default)]
pub(crate) struct Steps {
    pub(crate) calls: Vec<StepCall>,
    pub(crate) controls: Controls,
    pub(crate) notes: Vec<Tolerance>,
    pub(crate) problems: Vec<Problem>,
    pub(crate) keys_seen: Vec<String>,
}

#[derive(Default)]
pub(crate) struct StepCall {
    pub(crate) call: RawCall,
    pub(crate) control: StepControl,
    pub(crate) hints: Map<String, Value>,
}

/// A step while it is put together. Without numbers the only step is `None`.
struct Step<'c> {
    built: StepCall,
    entry: Option<&'c Entry>,
}

type Number = Option<u32>;

/// Sorts the fields of a block into calls.
pub(crate) fn split(
    fields: Vec<RawField>,
    dialect: Dialect,
    text: &str,
    context: &Context<'_>,
) -> Steps {
    let mut out = Steps::default();
    let mut commands = Vec::new();
    let mut others = Vec::new();
    let vcp_reading = fields
        .iter()
        .any(|field| names::squash(&field.key).starts_with("toolname"));
    for mut field in fields {
        without_remark(&mut field, context, &mut out.notes);
        let key = Key::read(&field.key);
        if key.is_command(vcp_reading) {
            commands.push((key.number, field));
        } else {
            others.push(field);
        }
    }
    if commands.is_empty() {
        let keys = others.iter().take(32).map(|field| field.key.clone());
        out.keys_seen = keys.collect();
    }
    let (mut steps, promoted) = open_steps(commands, dialect, text, context, &mut out);
    if vcp_reading {
        sub_commands(&mut steps, &mut others, text, context);
    }
    let mut orphans = Vec::new();
    // Numbered fields first: a step's own value beats a shared one, wherever it stands.
    let (numbered, shared): (Vec<_>, Vec<_>) = others
        .into_iter()
        .partition(|field| has_own_step(field, &steps, dialect));
    for field in numbered.into_iter().chain(shared) {
        place_field(
            field,
            &mut steps,
            promoted,
            dialect,
            text,
            &mut out,
            &mut orphans,
        );
    }
    if !orphans.is_empty() && !steps.is_empty() {
        let span = orphans[0].1;
        let listed: Vec<String> = orphans.into_iter().map(|(key, _)| key).collect();
        let message = format!(
            "These parameters belong to a step without command: {}",
            listed.join(", ")
        );
        out.problems.push(
            Problem::new(ProblemCode::OrphanStepParameters, Rule::T25, span, message)
                .received(&listed.join(", ")),
        );
    }
    out.calls = steps.into_values().map(|step| step.built).collect();
    for step in &mut out.calls {
        uri_conflicts(step);
    }
    out
}

/// Takes a remark off the front of a key: `now the path: 「始」…` (T33).
fn without_remark(field: &mut RawField, context: &Context<'_>, notes: &mut Vec<Tolerance>) {
    if context.catalogue.is_known_field(&field.key) || !field.key.contains(' ') {
        return;
    }
    let mut rest = field.key.as_str();
    while let Some((_, tail)) = rest.split_once(' ') {
        rest = tail.trim_start();
        if context.catalogue.is_known_field(rest) {
            let note = Tolerance::new(
                Rule::T33,
                Class::Spelling,
                "remark_before_key",
                field.key_span,
                &field.key,
                rest,
            );
            notes.push(note);
            field.key = rest.to_owned();
            return;
        }
    }
}

/// Makes a step of every command (T18, T20, T24).
fn open_steps<'c>(
    commands: Vec<(Number, RawField)>,
    dialect: Dialect,
    text: &str,
    context: &Context<'c>,
    out: &mut Steps,
) -> (BTreeMap<Number, Step<'c>>, bool) {
    let plain = commands.iter().any(|(number, _)| number.is_none());
    let numbers: Vec<u32> = commands.iter().filter_map(|(number, _)| *number).collect();
    // An un-numbered command before `command2` is step 1.
    let promote =
        plain && !numbers.is_empty() && !numbers.contains(&1) && numbers.iter().min() == Some(&2);
    if plain && !numbers.is_empty() && !promote {
        let span = commands[0].1.key_span;
        let message = "the block mixes a command without number and numbered ones";
        out.problems.push(Problem::new(
            ProblemCode::MixedNumbering,
            Rule::T24,
            span,
            message,
        ));
    }
    let mut steps: BTreeMap<Number, Step<'c>> = BTreeMap::new();
    for (number, field) in commands {
        let number = if promote && number.is_none() {
            out.notes.push(Tolerance::new(
                Rule::T24,
                Class::Repair,
                "first_step_supplied",
                field.key_span,
                &field.key,
                "command1",
            ));
            Some(1)
        } else {
            number
        };
        let written = names::clean(field.value.span.of(text))
            .trim_matches(['<', '>', '"', '\''])
            .to_owned();
        if let Some(earlier) = steps.get(&number) {
            if earlier.built.call.name != written {
                let message = format!(
                    "two commands for one step: '{}' and '{written}'",
                    earlier.built.call.name
                );
                out.problems.push(Problem::new(
                    ProblemCode::DuplicateStep,
                    Rule::T20,
                    field.key_span,
                    message,
                ));
            }
            continue;
        }
        steps.insert(number, new_step(number, written, field, dialect, context));
    }
    (steps, promote)
}

fn new_step<'c>(
    number: Number,
    written: String,
    field: RawField,
    dialect: Dialect,
    context: &Context<'c>,
) -> Step<'c> {
    let mut call = RawCall {
        name: written,
        name_span: field.value.span,
        span: Span::new(field.key_span.start, field.value.span.end),
        dialect: Some(dialect),
        notes: field.notes,
        ..RawCall::default()
    };
    let entry = entry_of(&mut call, context);
    let control = StepControl {
        step: number,
        ..StepControl::default()
    };
    Step {
        built: StepCall {
            call,
            control,
            hints: Map::new(),
        },
        entry,
    }
}

fn entry_of<'c>(call: &mut RawCall, context: &Context<'c>) -> Option<&'c Entry> {
    let ToolMatch::Visible(index, reading) = context.catalogue.find(&call.name) else {
        return None;
    };
    let entry = context.catalogue.entry(index);
    if reading != crate::NameReading::Exact {
        let rule = if reading == crate::NameReading::CaseFolded {
            Rule::N6
        } else {
            Rule::N7
        };
        call.notes.push(Tolerance::new(
            rule,
            Class::Spelling,
            "tool_letter_case",
            call.name_span,
            &call.name,
            &entry.tool.id,
        ));
    }
    Some(entry)
}

/// VCP: `command` beside `tool_name` is a sub-command: part of the id or an argument (T18).
fn sub_commands<'c>(
    steps: &mut BTreeMap<Number, Step<'c>>,
    others: &mut Vec<RawField>,
    text: &str,
    context: &Context<'c>,
) {
    others.retain(|field| {
        let key = Key::read(&field.key);
        if key.stem != "command" {
            return true;
        }
        let Some(step) = steps.get_mut(&key.number) else {
            return true;
        };
        if step
            .entry
            .is_some_and(|entry| entry.parameters.iter().any(|name| name == "command"))
        {
            return true;
        }
        let sub = field.value.span.of(text).trim();
        for joined in [
            format!("{}.{sub}", step.built.call.name),
            format!("{}:{sub}", step.built.call.name),
        ] {
            if let ToolMatch::Visible(index, _) = context.catalogue.find(&joined) {
                let call = &mut step.built.call;
                call.notes.push(Tolerance::new(
                    Rule::T18,
                    Class::Spelling,
                    "sub_command",
                    field.value.span,
                    sub,
                    &joined,
                ));
                call.name = joined;
                step.entry = Some(context.catalogue.entry(index));
                return false;
            }
        }
        true
    });
}

/// The way to cut a number off a key so that its step declares the rest.
fn own_step<'s>(
    suffixes: &'s [Suffix],
    steps: &BTreeMap<Number, Step<'_>>,
    dialect: Dialect,
) -> Option<&'s Suffix> {
    suffixes.iter().find(|suffix| {
        steps.get(&Some(suffix.number)).is_some_and(|step| {
            declares(step, &suffix.stem) || control_of(suffix, step, dialect).is_some()
        })
    })
}

fn has_own_step(field: &RawField, steps: &BTreeMap<Number, Step<'_>>, dialect: Dialect) -> bool {
    own_step(&keys::suffixes(&names::clean(&field.key)), steps, dialect).is_some()
}

/// Puts a field where it belongs: a control, a parameter of one step, or of all that declare it.
fn place_field(
    field: RawField,
    steps: &mut BTreeMap<Number, Step<'_>>,
    promoted: bool,
    dialect: Dialect,
    text: &str,
    out: &mut Steps,
    orphans: &mut Vec<(String, Span)>,
) {
    let numbered = steps.keys().any(Option::is_some);
    let cleaned = names::clean(&field.key).into_owned();
    let mut asked = Asked::default();
    let declaring = steps
        .iter()
        .filter(|(_, step)| asked.declares(step, &cleaned))
        .map(|(number, _)| *number);
    // What stands beside an un-numbered first command is its own (T24).
    let whole: Vec<Number> = declaring
        .filter(|number| !promoted || *number == Some(1))
        .collect();
    let suffixes = keys::suffixes(&cleaned);
    let fitting = own_step(&suffixes, steps, dialect);
    if let (false, Some(suffix)) = (whole.is_empty(), fitting)
        && !suffix.underscore
    {
        let message = format!(
            "Parameter '{cleaned}' may be the parameter of that name or '{}' of step {}",
            suffix.stem, suffix.number
        );
        let problem = Problem::new(
            ProblemCode::AmbiguousParameter,
            Rule::T22,
            field.key_span,
            message,
        )
        .received(&cleaned);
        out.problems.push(problem);
        return;
    }
    let prefer_suffix = fitting.is_some_and(|suffix| suffix.underscore || whole.is_empty());
    if let Some(suffix) = fitting.filter(|_| prefer_suffix) {
        let suffix = suffix.clone();
        if let Some(step) = steps.get_mut(&Some(suffix.number)) {
            give(step, &suffix.stem, field, dialect, text);
        }
        return;
    }
    if !whole.is_empty() {
        for number in whole {
            share(steps, number, &cleaned, &field, dialect, text);
        }
        return;
    }
    match Control::read(&cleaned, dialect) {
        Some(Control::Block(name)) => {
            out.controls.insert(
                name,
                Value::String(field.value.span.of(text).trim().to_owned()),
            );
        }
        Some(Control::Common(name)) => {
            let numbers: Vec<Number> = steps
                .iter()
                .filter(|(_, step)| step.entry.is_none() || declares(step, &name))
                .map(|(number, _)| *number)
                .collect();
            for number in numbers {
                share(steps, number, &name, &field, dialect, text);
            }
        }
        Some(_) => {
            for step in steps.values_mut() {
                give(step, &cleaned, field.clone(), dialect, text);
            }
        }
        None => unplaced(
            field, cleaned, &suffixes, numbered, steps, dialect, text, orphans,
        ),
    }
}

/// A field that no step declares: an orphan, or an unknown parameter of the first step that it
/// could belong to.
#[expect(
    clippy::too_many_arguments,
    reason = "the tail of place_field, split off for its length"
)]
fn unplaced(
    field: RawField,
    cleaned: String,
    suffixes: &[Suffix],
    numbered: bool,
    steps: &mut BTreeMap<Number, Step<'_>>,
    dialect: Dialect,
    text: &str,
    orphans: &mut Vec<(String, Span)>,
) {
    if let Some(suffix) = suffixes
        .iter()
        .find(|suffix| steps.contains_key(&Some(suffix.number)))
        .cloned()
    {
        if let Some(step) = steps.get_mut(&Some(suffix.number)) {
            give(step, &suffix.stem, field, dialect, text);
        }
    } else if numbered && !suffixes.is_empty() {
        orphans.push((cleaned, field.key_span));
    } else if let Some(step) = steps.values_mut().next() {
        give(step, &cleaned, field, dialect, text);
    }
}

fn control_of(suffix: &Suffix, step: &Step<'_>, dialect: Dialect) -> Option<Control> {
    let control = Control::read(&suffix.stem, dialect)?;
    let fits = match &control {
        Control::TypeHint(name) | Control::Uri(name) => {
            step.entry.is_none() || declares(step, name)
        }
        Control::Block(_) => false,
        _ => true,
    };
    fits.then_some(control)
}

/// A value that several steps share; a step's own value wins (T23).
fn share(
    steps: &mut BTreeMap<Number, Step<'_>>,
    number: Number,
    name: &str,
    field: &RawField,
    dialect: Dialect,
    text: &str,
) {
    let Some(step) = steps.get_mut(&number) else {
        return;
    };
    let own = step
        .built
        .call
        .arguments
        .iter()
        .any(|argument| names::same_squashed(&argument.name, name));
    if own && number.is_some() {
        return;
    }
    let mut field = field.clone();
    if number.is_some() {
        let note = Tolerance::new(
            Rule::T23,
            Class::Verbatim,
            "shared_parameter",
            field.key_span,
            &field.key,
            name,
        );
        field.notes.push(note);
    }
    give(step, name, field, dialect, text);
}

/// Gives a step a control or an argument.
fn give(step: &mut Step<'_>, name: &str, field: RawField, dialect: Dialect, text: &str) {
    let value = field.value.span.of(text).trim();
    let declared = declares(step, name);
    let built = &mut step.built;
    built.call.span = Span::new(
        built.call.span.start.min(field.key_span.start),
        built.call.span.end.max(field.value.span.end),
    );
    built.call.notes.extend(field.notes);
    match Control::read(name, dialect).filter(|_| !declared) {
        Some(Control::OnError) if value.eq_ignore_ascii_case("continue") => {
            built.control.continue_on_error = true
        }
        Some(Control::OnError) if value.eq_ignore_ascii_case("stop") => {}
        Some(Control::OnError) => refuse_control(
            &mut built.call,
            "on_error",
            "stop or continue",
            value,
            field.value.span,
        ),
        Some(Control::Retry) => match value.parse::<u32>() {
            Ok(retries) => built.control.retries = retries,
            Err(_) => refuse_control(
                &mut built.call,
                "retry",
                "a whole number",
                value,
                field.value.span,
            ),
        },
        Some(Control::TypeHint(parameter)) => {
            built.hints.insert(
                declared_name(step.entry, &parameter),
                Value::String(value.to_owned()),
            );
        }
        Some(Control::Uri(parameter)) => {
            built.control.uris.insert(
                declared_name(step.entry, &parameter),
                Value::String(value.to_owned()),
            );
        }
        Some(Control::Archery) => {
            built.control.no_reply = matches!(
                value.to_ascii_lowercase().as_str(),
                "true" | "no_reply" | "noreply"
            );
            let note = Tolerance::new(
                Rule::T27,
                Class::Verbatim,
                "asynchronous_call",
                field.key_span,
                value,
                value,
            );
            built.call.notes.push(note);
        }
        Some(Control::Metadata(key)) => {
            built
                .control
                .metadata
                .insert(key, Value::String(value.to_owned()));
        }
        _ => {
            let content = Content::Plain(field.value);
            built.call.arguments.push(RawValue {
                name: name.to_owned(),
                name_span: field.key_span,
                content,
            });
        }
    }
}

/// Reports a control value that means nothing (T26).
fn refuse_control(call: &mut RawCall, key: &str, expected: &str, value: &str, span: Span) {
    let message = format!(
        "{key} must be {expected}, not '{}'",
        crate::diagnostic::cut(value)
    );
    let problem = Problem::new(ProblemCode::NotAllowedValue, Rule::T26, span, message);
    call.problems
        .push(problem.expected(expected).received(value));
}

/// `uri_x` and `x` exclude each other (T30).
fn uri_conflicts(step: &mut StepCall) {
    for name in step.control.uris.keys() {
        let both = step
            .call
            .arguments
            .iter()
            .find(|argument| names::same_squashed(&argument.name, name));
        if let Some(argument) = both {
            let message = format!("Parameter '{name}' is given both as a value and as a URI");
            let problem = Problem::new(
                ProblemCode::UriConflict,
                Rule::T30,
                argument.name_span,
                message,
            )
            .at(format!("/{name}"));
            step.call.problems.push(problem);
        }
    }
}
