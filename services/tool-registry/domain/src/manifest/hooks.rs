//! `hooks`: handlers at points of the server.

use std::time::Duration;

use call_outcome::Violation;
use serde_json::Value;

use crate::{
    hook_point::HookPoint,
    program::{self, Program},
    section::{Findings, Section},
};

const DEFAULT_TIMEOUT_MS: i64 = 500;
const MAX_TIMEOUT_MS: i64 = 5_000;
const MAX_ID_BYTES: usize = 64;
/// The range of `order`.
const ORDERS: std::ops::RangeInclusive<i64> = -1_000_000..=1_000_000;

/// A hook of a plugin.
#[derive(Clone, Debug, PartialEq)]
pub struct Hook {
    /// Its id, unique within the plugin.
    pub id: String,
    /// The point at which it runs.
    pub point: HookPoint,
    /// The condition, an expression of CEL that was compiled; none for always.
    pub when: Option<String>,
    /// The handler.
    pub handler: HookHandler,
    /// The place in the chain of its point, the least first; 0 if none is written.
    pub order: i64,
    /// The time limit of one application, at most 5 s; 500 ms if none is written.
    pub timeout: Duration,
    /// The effect of a failure: to deny before an act and to skip after it, unless written.
    pub on_failure: OnFailure,
}

/// The handler of a hook.
#[derive(Clone, Debug, PartialEq)]
pub enum HookHandler {
    /// A program of the plugin.
    Script(Program),
    /// A gRPC server that the operator registered, by its name.
    Backend(String),
}

/// The effect of a hook that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFailure {
    /// The act is refused, or its result withheld.
    Deny,
    /// The hook is passed over.
    Skip,
}

impl OnFailure {
    /// Returns the word of manifests.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Deny => "deny",
            Self::Skip => "skip",
        }
    }
}

/// Reads `hooks`.
pub(super) fn read(root: &mut Section<'_>, findings: &mut Findings) -> Vec<Hook> {
    let mut hooks: Vec<Hook> = Vec::new();
    let items = root.list("hooks", "a list of {id, point, handler}", findings);
    for (place, item) in items {
        let Some(hook) = read_one(&place, item, findings) else {
            continue;
        };
        if hooks.iter().any(|other| other.id == hook.id) {
            let message = format!("the id '{}' is given twice; change one", hook.id);
            findings.wrong(format!("{place}/id"), "id_taken", message);
        }
        hooks.push(hook);
    }
    hooks
}

fn read_one(place: &str, item: &Value, findings: &mut Findings) -> Option<Hook> {
    let wanted = "a mapping with 'id', 'point' and 'handler'";
    let mut section = Section::of(item, place, "each hook", wanted, findings)?;
    let id = section.required_text("id", "metric-units", findings);
    if let Some(id) = id.as_ref().filter(|id| !has_form(id)) {
        let message = format!(
            "the id '{id}' may have letters, digits, '-' and '_' only, at most {MAX_ID_BYTES}; rename the hook"
        );
        findings.wrong(section.place("id"), "invalid_id", message);
    }
    let point = point(&mut section, findings);
    let when = when(&mut section, point, findings);
    let handler = handler(&mut section, findings);
    let order = section.whole("order", ORDERS, findings).unwrap_or_default();
    let timeout = section
        .whole("timeout_ms", 1..=MAX_TIMEOUT_MS, findings)
        .unwrap_or(DEFAULT_TIMEOUT_MS);
    let on_failure = section.word("on_failure", &["deny", "skip"], findings);
    section.close(findings);
    let point = point?;
    Some(Hook {
        id: id?,
        point,
        when,
        handler: handler?,
        order,
        timeout: Duration::from_millis(timeout.unsigned_abs()),
        on_failure: match on_failure {
            Some("deny") => OnFailure::Deny,
            Some(_) => OnFailure::Skip,
            None if point.is_before() => OnFailure::Deny,
            None => OnFailure::Skip,
        },
    })
}

fn has_form(id: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    id.len() <= MAX_ID_BYTES && id.chars().all(plain)
}

fn point(section: &mut Section<'_>, findings: &mut Findings) -> Option<HookPoint> {
    let place = section.place("point");
    let text = section.required_text("point", "tool:before-call", findings)?;
    let point = HookPoint::parse(&text);
    if point.is_none() {
        let names = || HookPoint::all().map(HookPoint::as_str);
        let message = format!(
            "'{text}' is not a point of the server; write one of {}",
            names().collect::<Vec<_>>().join(", ")
        );
        let violation = Violation::new(place, "not_in_enum", message);
        findings.add(violation.nearest(&text, names()));
    }
    point
}

/// Reads the condition. Without a known point only its length counts, as variables depend on it.
fn when(
    section: &mut Section<'_>,
    point: Option<HookPoint>,
    findings: &mut Findings,
) -> Option<String> {
    let place = section.place("when");
    let text = section.text("when", findings)?;
    if let Some(point) = point
        && let Err(problem) = cel_guard::check(&text, point.variables())
    {
        let message =
            format!("the condition cannot be used: {problem}; correct it or leave it out");
        findings.wrong(place, "invalid_expression", message);
    }
    Some(text)
}

fn handler(section: &mut Section<'_>, findings: &mut Findings) -> Option<HookHandler> {
    let place = section.place("handler");
    let wanted = "a mapping with 'type', and 'command' or 'backend'";
    if section.get("handler").is_none() {
        let message = "handler is missing; add {type: script, command: python scripts/hook.py}, or \
                       {type: grpc, backend: <name>}";
        findings.wrong(place, "missing_parameter", message);
        return None;
    }
    let mut handler = section.section("handler", wanted, findings)?;
    let kind = handler.required_text("type", "script", findings);
    let found = match kind.as_deref() {
        Some("script") => {
            let command = handler.required_text("command", "python scripts/hook.py", findings);
            command.and_then(|command| {
                match program::parse_command(&handler.place("command"), &command) {
                    Ok(program) => Some(HookHandler::Script(program)),
                    Err(wrong) => {
                        wrong.into_iter().for_each(|each| findings.add(each));
                        None
                    }
                }
            })
        }
        Some("grpc") => handler
            .required_text("backend", "alerts", findings)
            .map(HookHandler::Backend),
        Some(other) => {
            let message = format!("'{other}' is not a type of handler; write script or grpc");
            findings.wrong(handler.place("type"), "not_in_enum", message);
            return None;
        }
        None => return None,
    };
    handler.close(findings);
    found
}
