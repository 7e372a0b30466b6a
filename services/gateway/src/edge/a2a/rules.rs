//! The method of an address, by the option `google.api.http` of each method.

use std::sync::LazyLock;

use http::Method;
use prost_reflect::{DynamicMessage, MethodDescriptor};
use serde_json::{Map, Value};

use super::SERVICE;
use crate::edge::contract;

/// A method at an address.
#[derive(Debug)]
struct Rule {
    verb: Method,
    segments: Vec<Segment>,
    method: MethodDescriptor,
}

/// A part of an address between slashes.
#[derive(Clone, Debug)]
enum Segment {
    Literal(String),
    /// The value of a field, by its JSON name, and the text after it.
    Field {
        name: String,
        suffix: String,
    },
}

/// The meaning of an address.
#[derive(Debug)]
pub(super) enum Found {
    /// A method, and the fields whose values the address holds.
    Method(MethodDescriptor, Map<String, Value>),
    /// An address that accepts other verbs.
    OtherVerbs,
    /// No address of A2A.
    Nothing,
}

static RULES: LazyLock<Vec<Rule>> = LazyLock::new(|| {
    let methods = contract::methods(&[SERVICE]).into_iter();
    let mut rules: Vec<Rule> = methods.flat_map(rules_of).collect();
    // `{id}:cancel` before `{id}`, which would take the suffix for a part of the id.
    rules.sort_by_key(|rule| !matches!(rule.segments.last(), Some(Segment::Field { suffix, .. }) if !suffix.is_empty()));
    rules
});

/// Finds the method at a path.
pub(super) fn find(verb: &Method, path: &str) -> Found {
    let parts: Vec<&str> = path.split('/').collect();
    let mut fits = RULES
        .iter()
        .filter_map(|rule| Some((rule, values(&rule.segments, &parts)?)))
        .peekable();
    if fits.peek().is_none() {
        return Found::Nothing;
    }
    match fits.find(|(rule, _)| rule.verb == *verb) {
        Some((rule, values)) => Found::Method(rule.method.clone(), values),
        None => Found::OtherVerbs,
    }
}

fn rules_of(method: MethodDescriptor) -> Vec<Rule> {
    let Some(option) = contract::option("google.api.http") else {
        return Vec::new();
    };
    let options = method.options();
    let first = options.get_extension(&option).into_owned();
    let first = first.as_message().cloned();
    let more = first.as_ref().map(additional).unwrap_or_default();
    let bindings = first.into_iter().chain(more);
    let mut rules: Vec<Rule> = bindings
        .filter_map(|binding| {
            let verbs = [
                ("get", Method::GET),
                ("post", Method::POST),
                ("delete", Method::DELETE),
            ];
            let (field, verb) = verbs
                .into_iter()
                .find(|(field, _)| binding.has_field_by_name(field))?;
            let path = binding.get_field_by_name(field)?.as_str()?.to_owned();
            Some(Rule {
                verb,
                segments: segments(&path, &method),
                method: method.clone(),
            })
        })
        .collect();
    if method.name() == "SubscribeToTask" {
        // The specification has POST where the proto file has GET; clients send either.
        let posts = rules.iter().map(|rule| Rule {
            verb: Method::POST,
            segments: rule.segments.clone(),
            method: method.clone(),
        });
        let posts: Vec<Rule> = posts.collect();
        rules.extend(posts);
    }
    rules
}

fn additional(rule: &DynamicMessage) -> Vec<DynamicMessage> {
    let more = rule.get_field_by_name("additional_bindings");
    let more = more.as_ref().and_then(|more| more.as_list());
    let messages = more.into_iter().flatten();
    messages
        .filter_map(|binding| binding.as_message().cloned())
        .collect()
}

fn segments(path: &str, method: &MethodDescriptor) -> Vec<Segment> {
    let parts = path.trim_start_matches('/').split('/');
    let segment = |part: &str| {
        let field = part.strip_prefix('{').and_then(|part| part.split_once('}'));
        let Some((template, suffix)) = field else {
            return Segment::Literal(part.to_owned());
        };
        let name = template.split('=').next().unwrap_or_default();
        let field = method.input().get_field_by_name(name);
        let name = field.map_or(name.to_owned(), |field| field.json_name().to_owned());
        Segment::Field {
            name,
            suffix: suffix.to_owned(),
        }
    };
    parts.map(segment).collect()
}

/// Returns the values of the fields if a path matches.
fn values(segments: &[Segment], parts: &[&str]) -> Option<Map<String, Value>> {
    if segments.len() != parts.len() {
        return None;
    }
    let mut values = Map::new();
    for (segment, part) in segments.iter().zip(parts) {
        match segment {
            Segment::Literal(literal) if literal == part => {}
            Segment::Literal(_) => return None,
            Segment::Field { name, suffix } => {
                let value = part.strip_suffix(suffix.as_str());
                let value = value.filter(|value| !value.is_empty())?;
                values.insert(name.clone(), value.into());
            }
        }
    }
    Some(values)
}
