//! The calls of a format that is not read, as far as their values are plain: for the example that a model is shown.

use serde_json::{Map, Value};

use crate::dialect::json::{name_and_arguments, of_members};
use crate::dialect::raw::RawCall;
use crate::scan::json::parse_spelled;
use call_catalogue::Span;

/// The most calls of one block.
const MOST_CALLS: usize = 8;

/// The calls in JSON or in the calls of Python; none where nothing is plain.
pub(super) fn calls_of(body: &str) -> Vec<RawCall> {
    let json = body
        .find(['{', '['])
        .and_then(|at| parse_spelled(&body[at..]).ok());
    if let Some((name, input)) = body.split_once("Action Input:") {
        let input = input.trim_start();
        let end = input.rfind('}').map_or(0, |at| at + 1);
        let arguments = parse_spelled(&input[..end]).ok();
        let arguments = arguments.and_then(|(value, _)| value.as_object().cloned());
        return vec![call(
            name.trim().trim_matches('`'),
            arguments.unwrap_or_default(),
        )];
    }
    let items = match json {
        Some((Value::Array(items), _)) => items,
        Some((other, _)) => vec![other],
        None => return python_calls(body),
    };
    let named = items
        .iter()
        .filter_map(Value::as_object)
        .filter_map(name_and_arguments);
    let calls = named.take(MOST_CALLS).map(|(name, arguments)| {
        let members = arguments.and_then(Value::as_object).cloned();
        call(name, members.unwrap_or_default())
    });
    calls.collect()
}

fn call(name: &str, arguments: Map<String, Value>) -> RawCall {
    RawCall {
        name: super::function_name(name).to_owned(),
        arguments: of_members(arguments, Span::default()),
        ..RawCall::default()
    }
}

/// The calls `name(key=value, …)` in a text.
fn python_calls(body: &str) -> Vec<RawCall> {
    let mut calls = Vec::new();
    let mut rest = body;
    while let Some(open) = rest.find('(') {
        if calls.len() == MOST_CALLS {
            break;
        }
        let is_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | ':' | '-');
        let start = rest[..open].rfind(|c| !is_name(c)).map_or(0, |at| {
            at + rest[at..].chars().next().map_or(1, char::len_utf8)
        });
        let name = &rest[start..open];
        rest = &rest[open + 1..];
        if name.is_empty() || matches!(name, "print" | "str" | "len") {
            continue;
        }
        let (arguments, behind) = keywords(rest);
        calls.push(call(name, arguments));
        rest = behind;
    }
    calls
}

/// The arguments `key=value` up to the first that is not plain, and the text behind them.
fn keywords(mut rest: &str) -> (Map<String, Value>, &str) {
    let mut arguments = Map::new();
    loop {
        let at = rest.trim_start_matches([',', ' ', '\n', '\r', '\t']);
        let Some((key, value)) = at.split_once('=') else {
            return (arguments, at);
        };
        let key = key.trim();
        if key.is_empty() || !key.chars().all(|c| c.is_alphanumeric() || c == '_') {
            return (arguments, at);
        }
        let Some((value, behind)) = literal(value.trim_start()) else {
            return (arguments, value);
        };
        arguments.insert(key.to_owned(), value);
        rest = behind;
    }
}

/// The literal that a text begins with: a string, a number or a word.
fn literal(text: &str) -> Option<(Value, &str)> {
    let quote = text.chars().next()?;
    if matches!(quote, '"' | '\'') {
        let end = text[1..].find(quote)? + 1;
        let inner = &text[1..end];
        return (!inner.contains('\\'))
            .then(|| (Value::String(inner.to_owned()), &text[end + 1..]));
    }
    let end = text.find([',', ')', '\n'])?;
    let (value, _) = parse_spelled(text[..end].trim()).ok()?;
    (!value.is_object() && !value.is_array()).then(|| (value, &text[end..]))
}
