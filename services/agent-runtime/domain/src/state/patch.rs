//! Changes of a world state that a workflow writes (rule G109).

use serde_json::Value;

use super::{Operation, Path};

/// The most changes of one workflow.
const MOST_OPERATIONS: usize = 1_000;

/// Reads changes: an object that is merged over the state, or a list of operations
/// `{op, path, value}`.
///
/// # Errors
/// A sentence that describes the problem.
pub fn from_patch(patch: &Value) -> Result<Vec<Operation>, String> {
    let mut operations = Vec::new();
    match patch {
        Value::Null => {}
        Value::Object(_) => lay_over(patch, "", &mut operations)?,
        Value::Array(written) => {
            for (index, written) in written.iter().enumerate() {
                let operation = operation(written);
                operations.push(operation.map_err(|problem| format!("/{index}: {problem}"))?);
            }
        }
        _ => return Err("is neither an object nor a list of operations".to_owned()),
    }
    match operations.len() > MOST_OPERATIONS {
        true => Err(format!("has more than {MOST_OPERATIONS} changes")),
        false => Ok(operations),
    }
}

/// Sets values other than objects; objects merge by key (rule G106).
fn lay_over(value: &Value, place: &str, operations: &mut Vec<Operation>) -> Result<(), String> {
    if let Value::Object(members) = value
        && (place.is_empty() || !members.is_empty())
    {
        for (key, value) in members {
            let key = key.replace('~', "~0").replace('/', "~1");
            lay_over(value, &format!("{place}/{key}"), operations)?;
        }
        return Ok(());
    }
    operations.push(Operation::Set(Path::parse(place)?, value.clone()));
    Ok(())
}

fn operation(written: &Value) -> Result<Operation, String> {
    let path = written["path"].as_str().ok_or("names no path")?;
    let path = Path::parse(path).map_err(|problem| format!("path {problem}"))?;
    let value = written["value"].clone();
    match written["op"].as_str().unwrap_or("set") {
        "set" | "add" | "replace" => Ok(Operation::Set(path, value)),
        "remove" => Ok(Operation::Remove(path)),
        "append" => Ok(Operation::Append(path, value)),
        "test" => Ok(Operation::Test(path, value)),
        "increment" => match value {
            Value::Number(by) => Ok(Operation::Increment(path, by)),
            _ => Err("value is not a number".to_owned()),
        },
        other => Err(format!(
            "`{other}` is not an operation; use set, remove, append, increment or test"
        )),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn written(patch: &Value) -> Vec<String> {
        let operations = from_patch(patch).unwrap();
        operations.iter().map(|one| format!("{one:?}")).collect()
    }

    #[test]
    fn g109_an_object_is_laid_over_the_state() {
        let patch = json!({"flags": {"warned": true, "a/b": null}, "weather": "mist", "bag": {}});
        let by_path: Vec<String> = from_patch(&patch)
            .unwrap()
            .iter()
            .filter_map(|one| Some(one.changes()?.pointer()))
            .collect();
        assert_eq!(
            by_path,
            ["/flags/warned", "/flags/a~1b", "/weather", "/bag"]
        );
        assert_eq!(written(&json!({})).len(), 0);
        assert_eq!(written(&Value::Null).len(), 0);
    }

    #[test]
    fn g109_operations_are_read_and_what_is_wrong_with_one_is_named() {
        let good = json!([
            {"op": "test", "path": "/flags/warned", "value": false},
            {"op": "set", "path": "flags.warned", "value": true},
            {"op": "increment", "path": "time.hour", "value": 1},
            {"op": "remove", "path": "/weather"}
        ]);
        assert_eq!(written(&good).len(), 4);
        for (bad, problem) in [
            (
                json!([{"op": "move", "path": "a"}]),
                "/0: `move` is not an operation",
            ),
            (json!([{"op": "set"}]), "/0: names no path"),
            (
                json!([{"path": "a"}, {"op": "increment", "path": "a", "value": "x"}]),
                "/1: value is not a number",
            ),
            (json!("x"), "is neither"),
        ] {
            let found = from_patch(&bad).unwrap_err();
            assert!(found.starts_with(problem), "{found}");
        }
    }
}
