//! Giving a step a value, a control key or a shared parameter (T23, T26 to T28, T30).

use call_catalogue::{Class, Dialect, Problem, ProblemCode, Rule, Span, Tolerance, names};
use serde_json::Value;

use super::declared::{declared_name, declares};
use super::keys::Control;
use super::list::StepList;
use super::{Number, StepCall, StepDraft};
use crate::dialect::raw::{Content, RawCall, RawField, RawValue, Written};

/// A value that several steps share; a step's own value wins (T23).
pub(super) fn share(
    steps: &mut StepList<'_>,
    number: Number,
    name: &Written,
    field: &RawField,
    dialect: Dialect,
    text: &str,
) {
    let Some(step) = steps.get_mut(number) else {
        return;
    };
    let own = step
        .built
        .call
        .arguments
        .iter()
        .any(|argument| names::same_squashed(argument.name.of(text), name.of(text)));
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
            field.key.of(text),
            name.of(text),
        );
        field.notes.push(note);
    }
    let control = control_for(step, name.of(text), dialect);
    give(step, name.clone(), field, control, text);
}

/// The control key that a name is for a step, unless its tool has such a parameter (N11).
pub(super) fn control_for(step: &StepDraft<'_>, name: &str, dialect: Dialect) -> Option<Control> {
    match declares(step, name) {
        true => None,
        false => Control::read(name, dialect),
    }
}

/// Adds a control or an argument to a step.
pub(super) fn give(
    step: &mut StepDraft<'_>,
    name: Written,
    field: RawField,
    control: Option<Control>,
    text: &str,
) {
    let call = &mut step.built.call;
    call.span = Span::new(
        call.span.start.min(field.key_span.start),
        call.span.end.max(field.value.span.end),
    );
    call.notes.extend(field.notes);
    match control {
        // The controls of the block are not a step's.
        None | Some(Control::Block(_) | Control::Common(_)) => call.arguments.push(RawValue {
            name,
            name_span: field.key_span,
            content: Content::Plain(field.value),
        }),
        Some(control) => set(step, control, field.key_span, field.value.span, text),
    }
}

/// Sets a control of a step.
fn set(step: &mut StepDraft<'_>, control: Control, key_span: Span, value_span: Span, text: &str) {
    let value = value_span.of(text).trim();
    let built = &mut step.built;
    match control {
        Control::OnError if value.eq_ignore_ascii_case("continue") => {
            built.control.continue_on_error = true
        }
        Control::OnError if value.eq_ignore_ascii_case("stop") => {}
        Control::OnError => refuse_control(
            &mut built.call,
            "on_error",
            "stop or continue",
            value,
            value_span,
        ),
        Control::Retry => match value.parse::<u32>() {
            Ok(retries) => built.control.retries = retries,
            Err(_) => refuse_control(
                &mut built.call,
                "retry",
                "a whole number",
                value,
                value_span,
            ),
        },
        Control::TypeHint(parameter) => {
            let value = Value::String(value.to_owned());
            let name = declared_name(step.entry, &parameter);
            built.hints.insert(name, value);
        }
        Control::Uri(parameter) => {
            let value = Value::String(value.to_owned());
            let name = declared_name(step.entry, &parameter);
            built.control.uris.insert(name, value);
        }
        Control::Archery => {
            built.control.no_reply = asks_for_no_reply(value);
            built.call.notes.push(asynchronous(key_span, value));
        }
        Control::Metadata(key) => {
            let value = Value::String(value.to_owned());
            built.control.metadata.insert(key, value);
        }
        Control::Block(_) | Control::Common(_) => {}
    }
}

/// Whether the value of `archery` requests not to wait for the result (T27).
pub(in crate::typing) fn asks_for_no_reply(value: &str) -> bool {
    let words = ["true", "no_reply", "noreply"];
    words.iter().any(|word| value.eq_ignore_ascii_case(word))
}

/// The remark on a call that states whether it is waited for (T27).
pub(in crate::typing) fn asynchronous(span: Span, value: &str) -> Tolerance {
    let (rule, class) = (Rule::T27, Class::Verbatim);
    Tolerance::new(rule, class, "asynchronous_call", span, value, value)
}

/// Reports a control value without a meaning (T26).
fn refuse_control(call: &mut RawCall, key: &str, expected: &str, value: &str, span: Span) {
    let message = format!(
        "{key} must be {expected}, not '{}'",
        call_catalogue::cut(value)
    );
    let problem = Problem::new(ProblemCode::NotInEnum, Rule::T26, span, message);
    call.problems
        .push(problem.expected(expected).received(value));
}

/// `uri_x` and `x` exclude each other (T30).
pub(super) fn uri_conflicts(step: &mut StepCall, text: &str) {
    for name in step.control.uris.keys() {
        let both = step
            .call
            .arguments
            .iter()
            .find(|argument| names::same_squashed(argument.name.of(text), name));
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
