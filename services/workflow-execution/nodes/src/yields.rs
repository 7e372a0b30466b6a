//! The setting `yields`: the values that a script or tool outputs one after the other.

use std::sync::Arc;

use call_outcome::{Category, Failure, Violation};
use serde_json::{Map, Value};

use json_schema::pointer::join;
use workflow_domain::data_flow::{DataFlow, kind_of};
use workflow_domain::node_definition::ConfigSlot;
use workflow_domain::slot::Slot;

const YIELDS: &str = "yields";

/// Describes the setting.
pub(super) fn setting(description: &'static str) -> ConfigSlot {
    ConfigSlot {
        options: types().map(|of| of.name().into()).collect(),
        ..ConfigSlot::new(YIELDS, DataFlow::String, description)
    }
}

/// Reads the type of the values; none if the node yields none.
///
/// # Errors
/// It is not a type of values; every script and tool writes text anyway.
pub(super) fn yielded(config: &Map<String, Value>) -> Result<Option<DataFlow>, Vec<Violation>> {
    let Some(given) = config.get(YIELDS).filter(|value| !value.is_null()) else {
        return Ok(None);
    };
    let found = types().find(|data_flow| given.as_str() == Some(data_flow.name()));
    if found.is_some() {
        return Ok(found);
    }
    let names: Vec<&str> = types().map(DataFlow::name).collect();
    let expected = format!("one of {}", names.join(", "));
    let message = format!("expected {expected}");
    let violation = Violation::new(join("/configValues", YIELDS), "out_of_range", message);
    Err(vec![violation.found(expected, &given.to_string())])
}

/// Makes the output of the values.
pub(super) fn slot(data_flow: DataFlow) -> Slot {
    Slot::new("values", data_flow, "What it yields, while it does.")
        .stream()
        .excluded_from_bypass()
}

/// Makes the value of that output. Null yields nothing, an array its items, any other value itself.
///
/// # Errors
/// A value is of another type.
pub(super) fn values<'v>(
    data_flow: DataFlow,
    given: impl IntoIterator<Item = &'v Value>,
) -> Result<Arc<Value>, Failure> {
    let items = given.into_iter().flat_map(|value| match value {
        Value::Null => &[],
        Value::Array(items) => items.as_slice(),
        one => std::slice::from_ref(one),
    });
    let items = items.map(|item| match data_flow.holds(item) {
        true => Ok(item.clone()),
        false => {
            let (wanted, found) = (data_flow.name(), kind_of(item));
            let message = format!("the node yields {wanted}, but a value is {found}");
            Err(Failure::new(Category::Runtime, "value_malformed", message))
        }
    });
    items
        .collect::<Result<_, _>>()
        .map(|items| Arc::new(Value::Array(items)))
}

fn types() -> impl Iterator<Item = DataFlow> {
    let all = DataFlow::ALL.into_iter();
    all.filter(|data_flow| *data_flow != DataFlow::String)
}
