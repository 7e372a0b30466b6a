//! The descriptions of implementations in definitions.

use call_outcome::Violation;
use std::time::Duration;

use serde_json::{Map, Value};

use super::{Fields, Implementation, fields::kind_of};
use crate::program::{self, Program};

/// The service name under which the platform's own methods are known.
const BUILTIN_SERVICE: &str = "builtin";
/// The method of the platform that asks a person.
const QUESTION: &str = "RequestUserInteractionTool";

const MAX_TIMEOUT: Duration = Duration::from_secs(30 * 60);

type Found = (Option<Implementation>, Option<Duration>);

/// Reads `implementation{type, ...}` of the first form.
pub(super) fn from_implementation(fields: &mut Fields<'_>) -> Found {
    let Some(object) = fields.required_object("implementation") else {
        return (None, None);
    };
    let place = "/implementation";
    let timeout = read_timeout(fields, object, place);
    if let Some(protocol) = object
        .get("protocol")
        .filter(|protocol| **protocol != "stdio")
    {
        let message = format!("protocol {protocol} is not known; scripts speak \"stdio\"");
        fields.add("/implementation/protocol", "not_in_enum", message);
    }
    let Some(kind) = fields.text_of(object, place, "type", true) else {
        return (None, timeout);
    };
    let implementation = match kind.as_str() {
        "script" => fields
            .text_of(object, place, "command", true)
            .and_then(|command| {
                keep(
                    fields,
                    program::parse_command("/implementation/command", &command),
                )
                .map(|program| with_packages(fields, object, place, program))
            }),
        "service" => {
            let service = fields.text_of(object, place, "service", true);
            let method = fields.text_of(object, place, "method", true);
            service.zip(method).and_then(|(service, method)| {
                service_method(fields, "/implementation/method", service, method)
            })
        }
        "workflow" => text_under(
            fields,
            object,
            place,
            &["workflowId", "workflow_id", "workflow"],
        )
        .map(|workflow_id| Implementation::Workflow { workflow_id }),
        "node" => {
            let config = read_config(fields, object);
            text_under(
                fields,
                object,
                place,
                &["nodeType", "node_type", "fullType", "node"],
            )
            .map(|full_type| Implementation::Node {
                full_type,
                config,
                interface: None,
            })
        }
        other => {
            let message = format!(
                "'{other}' is not a type of implementation; take script, service, workflow or node"
            );
            fields.add("/implementation/type", "not_in_enum", message);
            None
        }
    };
    (implementation, timeout)
}

/// Reads `handler{type, ...}` of the second form.
pub(super) fn from_handler(fields: &mut Fields<'_>) -> Found {
    let Some(object) = fields.required_object("handler") else {
        return (None, None);
    };
    let place = "/handler";
    let timeout = read_timeout(fields, object, place);
    let Some(kind) = fields.text_of(object, place, "type", true) else {
        return (None, timeout);
    };
    let implementation = match kind.as_str() {
        "external-script" => {
            let language = fields.text_of(object, place, "language", true);
            let path = fields.text_of(object, place, "scriptPath", true);
            language.zip(path).and_then(|(language, path)| {
                keep(
                    fields,
                    program::from_handler("/handler/scriptPath", &language, &path),
                )
                .map(|program| with_packages(fields, object, place, program))
            })
        }
        "service-method" => {
            let service = fields.text_of(object, place, "serviceName", true);
            let method = fields.text_of(object, place, "methodName", true);
            service.zip(method).and_then(|(service, method)| {
                service_method(fields, "/handler/methodName", service, method)
            })
        }
        other => {
            let message = format!(
                "'{other}' is not a type of handler; take external-script or service-method"
            );
            fields.add("/handler/type", "not_in_enum", message);
            None
        }
    };
    if object.contains_key("entryPoint")
        && matches!(implementation, Some(Implementation::Script(_)))
    {
        let message = "entryPoint is not supported: a script reads its arguments as JSON from \
                       standard input and writes JSON to standard output; remove it";
        fields.add("/handler/entryPoint", "unknown_parameter", message);
    }
    (implementation, timeout)
}

/// Adds the package set that a script imports.
fn with_packages(
    fields: &mut Fields<'_>,
    object: &Map<String, Value>,
    place: &str,
    program: Program,
) -> Implementation {
    let packages = fields.text_of(object, place, "packages", false);
    Implementation::Script(Program {
        packages: packages.unwrap_or_default(),
        ..program
    })
}

fn service_method(
    fields: &mut Fields<'_>,
    pointer: &str,
    service: String,
    method: String,
) -> Option<Implementation> {
    if service == BUILTIN_SERVICE {
        return Some(match method.as_str() {
            QUESTION => Implementation::Question,
            _ => Implementation::Builtin(method),
        });
    }
    let parts: Vec<&str> = method.split('/').collect();
    if parts.len() != 2 || parts.iter().any(|part| part.is_empty()) {
        let message =
            format!("'{method}' is not a gRPC method; write it as package.Service/Method");
        fields.add(pointer, "invalid_method", message);
        return None;
    }
    Some(Implementation::Backend { service, method })
}

/// Returns the text under the first existing one of several spellings.
fn text_under(
    fields: &mut Fields<'_>,
    object: &Map<String, Value>,
    place: &str,
    keys: &[&str],
) -> Option<String> {
    let key = keys
        .iter()
        .find(|key| object.contains_key(**key))
        .or(keys.first())?;
    fields.text_of(object, place, key, true)
}

fn read_config(fields: &mut Fields<'_>, object: &Map<String, Value>) -> Map<String, Value> {
    match object.get("configValues") {
        None => Map::new(),
        Some(Value::Object(config)) => config.clone(),
        Some(other) => {
            let message = format!("configValues must be an object; found {}", kind_of(other));
            fields.add("/implementation/configValues", "type_mismatch", message);
            Map::new()
        }
    }
}

/// Reads a number of milliseconds or a text such as `30s`.
fn read_timeout(
    fields: &mut Fields<'_>,
    object: &Map<String, Value>,
    place: &str,
) -> Option<Duration> {
    let limit = time_limit(object.get("timeout")?);
    let accepted = limit.map_err(|message| {
        fields.add(&format!("{place}/timeout"), "out_of_range", message);
    });
    accepted.ok()
}

/// Reads a time limit: milliseconds as a number, or a text such as `30s`.
///
/// # Errors
/// The problem, as a sentence.
pub(crate) fn time_limit(written: &Value) -> Result<Duration, String> {
    let duration = match written {
        Value::Number(milliseconds) => milliseconds.as_u64().map(Duration::from_millis),
        Value::String(text) => settings::duration::parse(text),
        _ => None,
    };
    let accepted = duration.filter(|duration| !duration.is_zero() && *duration <= MAX_TIMEOUT);
    accepted.ok_or_else(|| {
        format!(
            "{written} is not a time limit; give milliseconds as a number, or a text such as \"30s\", \
             from 1 ms to 30 min"
        )
    })
}

fn keep<T>(fields: &mut Fields<'_>, result: Result<T, Vec<Violation>>) -> Option<T> {
    result.map_err(|wrong| fields.wrong.extend(wrong)).ok()
}
