//! Changes of states on the wire.

use agent_domain::state::{Operation, Path};
use agent_store::store::StateRow;
use contracts::tavern::agent::v1::{StateOperation, state_operation::Kind};
use core_types::RequestId;
use grpc_kit::Failure;
use json_schema::parse_json_strict;
use serde_json::Value;

/// Reads the name of a request and its changes; reports every invalid field.
pub(super) fn operations(
    request_id: &str,
    written: &[StateOperation],
) -> Result<Vec<Operation>, Failure> {
    let mut failure = Failure::invalid_fields();
    if !request_id.is_empty()
        && let Err(error) = RequestId::new(request_id)
    {
        failure.add_violation("request_id", error.to_string());
    }
    let mut operations = Vec::new();
    for (index, written) in written.iter().enumerate() {
        match operation(written) {
            Ok(operation) => operations.push(operation),
            Err(problems) => {
                for (field, problem) in problems {
                    failure.add_violation(format!("operations[{index}].{field}"), problem);
                }
            }
        }
    }
    match failure.is_empty() {
        true => Ok(operations),
        false => Err(failure),
    }
}

pub(super) fn paths(row: &StateRow) -> Vec<String> {
    serde_json::from_str(&row.paths).unwrap_or_default()
}

pub(super) fn path(field: &str, written: &str) -> Result<Path, Failure> {
    Path::parse(written).map_err(|problem| Failure::invalid_fields().violation(field, problem))
}

/// Reads a change; reports every invalid field.
fn operation(written: &StateOperation) -> Result<Operation, Vec<(&'static str, String)>> {
    let mut problems = Vec::new();
    let path = Path::parse(&written.path).map_err(|problem| problems.push(("path", problem)));
    let kind = written.kind();
    let value = match kind {
        Kind::Remove => Ok(Value::Null),
        _ => parse_json_strict(&written.value_json),
    };
    let value = value.map_err(|error| problems.push(("value_json", error.to_string())));
    if kind == Kind::Unspecified {
        problems.push(("kind", "is missing; name a kind".to_owned()));
    }
    let (Ok(path), Ok(value), true) = (path, value, problems.is_empty()) else {
        return Err(problems);
    };
    Ok(match (kind, value) {
        (Kind::Unspecified | Kind::Remove, _) => Operation::Remove(path),
        (Kind::Set, value) => Operation::Set(path, value),
        (Kind::Append, value) => Operation::Append(path, value),
        (Kind::Test, value) => Operation::Test(path, value),
        (Kind::Increment, Value::Number(by)) => Operation::Increment(path, by),
        (Kind::Increment, _) => return Err(vec![("value_json", "is not a number".to_owned())]),
    })
}
