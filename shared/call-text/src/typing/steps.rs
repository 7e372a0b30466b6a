//! From the fields of a TAM or VCP block to its calls: commands, steps, control keys (T18 to T32).

mod declared;
pub(in crate::typing) mod give;
mod keys;
mod list;
mod place;
mod repeated;

use call_catalogue::{
    Class, Dialect, Entry, NameReading, Problem, ProblemCode, Rule, Span, Tolerance, ToolMatch,
    names,
};
use serde_json::{Map, Value};

use self::declared::tool_declares;
use self::give::uri_conflicts;
use self::keys::{Control, suffixes};
use self::list::StepList;
use self::place::{Placing, own_step};
use self::repeated::{Commands, place_repeated};
use crate::StepControl;
use crate::dialect::command::CommandKey;
use crate::dialect::context::Context;
use crate::dialect::fields::key::without_colon;
use crate::dialect::raw::{Controls, RawCall, RawField, Written};

/// The calls of a block and the controls of the block as a whole.
#[derive(Default)]
pub(crate) struct Steps {
    pub(crate) calls: Vec<StepCall>,
    pub(crate) controls: Controls,
    pub(crate) notes: Vec<Tolerance>,
    pub(crate) problems: Vec<Problem>,
    pub(crate) keys_seen: Vec<String>,
}

/// A call with the controls and the encoding hints of its step.
#[derive(Default)]
pub(crate) struct StepCall {
    pub(crate) call: RawCall,
    pub(crate) control: StepControl,
    pub(crate) hints: Map<String, Value>,
}

/// A step while it is put together. Without numbers the only step is `None`.
struct StepDraft<'c> {
    built: StepCall,
    entry: Option<&'c Entry>,
}

type Number = Option<u32>;

/// A field while its place is looked for.
struct Field {
    raw: RawField,
    /// The key without the marks that may surround it.
    name: Written,
}

impl Field {
    fn new(raw: RawField, text: &str) -> Self {
        let name = match &raw.key {
            Written::At(span) if raw.reading.plain => Written::At(*span),
            Written::At(span) => Written::cleaned(*span, text),
            Written::Other(name) => Written::Other(names::clean(name).into_owned()),
        };
        Self { raw, name }
    }
}

/// Sorts the fields of a block into calls.
pub(crate) fn split(
    mut fields: Vec<RawField>,
    dialect: Dialect,
    text: &str,
    context: &Context<'_>,
) -> Steps {
    let mut out = Steps::default();
    let vcp_reading = is_vcp_reading(&fields, text, context);
    for field in fields.iter_mut().filter(|field| !field.reading.plain) {
        without_remark(field, text, context, &mut out.notes);
    }
    let is_command = |field: &RawField| field.reading.is_command(vcp_reading);
    let commands = fields.iter().filter(|field| is_command(field));
    let (mut steps, promoted) = open_steps(commands, dialect, text, context, &mut out);
    if steps.is_empty() {
        let keys = fields.iter().take(32);
        out.keys_seen = keys.map(|field| field.key.of(text).to_owned()).collect();
    }
    if vcp_reading {
        sub_commands(&mut steps, &mut fields, text, context);
    }
    // Numbered fields first: a step's own value beats a shared one, wherever it is.
    let mut shared = Vec::new();
    let mut placing = Placing {
        dialect,
        text,
        promoted,
        tools: steps.tools(),
        numbered: steps.numbers().any(|number| number.is_some()),
        orphans: Vec::new(),
    };
    let swallowed: Vec<Problem> = fields
        .iter()
        .filter_map(|field| swallowed_field(field, &placing.tools, dialect, text, context))
        .collect();
    let places = Commands::of(fields.iter().filter(|field| is_command(field)), promoted);
    for field in fields {
        if is_command(&field) {
            continue;
        }
        let field = Field::new(field, text);
        match own_step(field.name.of(text), &steps, dialect) {
            Some(own) => placing.place(field, Some(own), &mut steps, &mut out),
            None => shared.push(field),
        }
    }
    if placing.numbered {
        shared = place_repeated(shared, &places, &mut steps, dialect, text, &mut out);
    }
    for field in shared {
        placing.place(field, None, &mut steps, &mut out);
    }
    let orphans = placing.orphans;
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
    out.problems.extend(swallowed);
    out.calls = steps.into_calls();
    for step in &mut out.calls {
        uri_conflicts(step, text);
    }
    out
}

/// Whether `tool_name` names the tools of the block: it does, except where the tool that `command`
/// names declares a parameter of that name (T18).
fn is_vcp_reading(fields: &[RawField], text: &str, context: &Context<'_>) -> bool {
    let declared = |field: &RawField| {
        let mut commands = fields.iter().filter(|other| {
            other.reading.is_plain_command() && other.reading.number == field.reading.number
        });
        let key = field.key.of(text);
        let stem = key.trim_end_matches(|c: char| c.is_ascii_digit());
        commands.any(|command| {
            let written = command_name(command, text);
            match context.catalogue.find(&written) {
                ToolMatch::Visible(index, _) => {
                    let entry = context.catalogue.entry(index);
                    tool_declares(entry, key) || tool_declares(entry, stem)
                }
                _ => false,
            }
        })
    };
    let mut named = fields.iter().filter(|field| field.reading.is_tool_name());
    named.any(|field| !declared(field))
}

/// The tool that the value of a command names.
fn command_name(field: &RawField, text: &str) -> String {
    names::clean(field.value.span.of(text))
        .trim_matches(['<', '>', '"', '\''])
        .to_owned()
}

/// The problem of a value in which a field of the block's tools begins: its closing delimiter was
/// forgotten, however it ends (T9).
fn swallowed_field(
    field: &RawField,
    tools: &[&Entry],
    dialect: Dialect,
    text: &str,
    context: &Context<'_>,
) -> Option<Problem> {
    let of_block = |key: &str| {
        CommandKey::read(key).is_any_command()
            || Control::read(key, dialect).is_some()
            || tools.iter().any(|entry| tool_declares(entry, key))
            // The commands behind it are then part of the value as well.
            || (field.value.escaped && context.catalogue.is_known_field(key))
    };
    let inner = field.inner_keys.iter().find(|inner| {
        let key = inner.of(text);
        of_block(key) || suffixes(key).any(|suffix| of_block(&key[..suffix.stem]))
    })?;
    let (key, found) = (field.key.of(text), inner.of(text));
    let missing = match without_colon(&text[inner.start..]) {
        Some(_) => "the colon behind it is missing",
        None => "a delimiter is missing before it",
    };
    let message = format!(
        "The value of '{key}' holds the field '{found}': {missing}, or the value must be between 「始ESCAPE」 and 「末ESCAPE」"
    );
    Some(
        Problem::new(ProblemCode::UnterminatedValue, Rule::T9, *inner, message)
            .at(format!("/{key}"))
            .received(found),
    )
}

/// Removes a remark from the front of a key: `now the path: 「始」…` (T33).
fn without_remark(
    field: &mut RawField,
    text: &str,
    context: &Context<'_>,
    notes: &mut Vec<Tolerance>,
) {
    let key = field.key.of(text);
    if !key.contains(' ') || context.catalogue.is_known_field(key) {
        return;
    }
    let mut rest = key;
    while let Some((_, tail)) = rest.split_once(' ') {
        rest = tail.trim_start();
        if context.catalogue.is_known_field(rest) {
            let (rule, class) = (Rule::T33, Class::Spelling);
            let code = "remark_before_key";
            notes.push(Tolerance::new(rule, class, code, field.key_span, key, rest));
            let rest = rest.to_owned();
            field.reading = CommandKey::read(&rest);
            field.key = Written::Other(rest);
            return;
        }
    }
}

/// Opens a step for every command (T18, T20, T24).
fn open_steps<'c, 'f>(
    commands: impl Iterator<Item = &'f RawField> + Clone,
    dialect: Dialect,
    text: &str,
    context: &Context<'c>,
    out: &mut Steps,
) -> (StepList<'c>, bool) {
    let plain = commands
        .clone()
        .find(|field| field.reading.number.is_none());
    let numbers = || commands.clone().filter_map(|field| field.reading.number);
    // An un-numbered command before `command2` is step 1.
    let promote =
        plain.is_some() && numbers().all(|number| number != 1) && numbers().min() == Some(2);
    if plain.is_some()
        && numbers().next().is_some()
        && !promote
        && let Some(first) = commands.clone().next()
    {
        let span = first.key_span;
        let message = "the block mixes a command without number and numbered ones";
        out.problems.push(Problem::new(
            ProblemCode::MixedNumbering,
            Rule::T24,
            span,
            message,
        ));
    }
    let mut steps: StepList<'c> = StepList::default();
    for field in commands {
        let number = field.reading.number;
        let number = if promote && number.is_none() {
            out.notes.push(Tolerance::new(
                Rule::T24,
                Class::Repair,
                "first_step_supplied",
                field.key_span,
                field.key.of(text),
                "command1",
            ));
            Some(1)
        } else {
            number
        };
        let written = command_name(field, text);
        if let Some(earlier) = steps.get(number) {
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
    field: &RawField,
    dialect: Dialect,
    context: &Context<'c>,
) -> StepDraft<'c> {
    let mut call = RawCall {
        name: written,
        name_span: field.value.span,
        span: Span::new(field.key_span.start, field.value.span.end),
        dialect: Some(dialect),
        notes: field.notes.clone(),
        ..RawCall::default()
    };
    let entry = entry_of(&mut call, context);
    let control = StepControl {
        step: number,
        ..StepControl::default()
    };
    StepDraft {
        built: StepCall {
            call,
            control,
            hints: Map::new(),
        },
        entry,
    }
}

fn entry_of<'c>(call: &mut RawCall, context: &Context<'c>) -> Option<&'c Entry> {
    let found = context.catalogue.find(&call.name);
    call.found = Some(found);
    let ToolMatch::Visible(index, reading) = found else {
        return None;
    };
    let entry = context.catalogue.entry(index);
    if reading != NameReading::Exact {
        let rule = if reading == NameReading::CaseFolded {
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

/// VCP: `command` next to `tool_name` is a sub-command: part of the id or an argument (T18).
fn sub_commands<'c>(
    steps: &mut StepList<'c>,
    fields: &mut Vec<RawField>,
    text: &str,
    context: &Context<'c>,
) {
    fields.retain(|field| {
        if !field.reading.is_plain_command() {
            return true;
        }
        let Some(step) = steps.get_mut(field.reading.number) else {
            return true;
        };
        if step.entry.is_some_and(|entry| entry.declares("command")) {
            return true;
        }
        let sub = field.value.span.of(text).trim();
        for joined in [
            format!("{}.{sub}", step.built.call.name),
            format!("{}:{sub}", step.built.call.name),
        ] {
            let found = context.catalogue.find(&joined);
            if let ToolMatch::Visible(index, _) = found {
                let call = &mut step.built.call;
                let (rule, class) = (Rule::T18, Class::Spelling);
                let span = field.value.span;
                let note = Tolerance::new(rule, class, "sub_command", span, sub, &joined);
                call.notes.push(note);
                call.name = joined;
                call.found = Some(found);
                step.entry = Some(context.catalogue.entry(index));
                return false;
            }
        }
        true
    });
}
