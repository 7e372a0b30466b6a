//! The setting `dialect` of nodes that teach and read calls.

use call_catalogue::Dialect;
use call_outcome::Violation;
use serde_json::{Map, Value};

use json_schema::pointer::join;
use workflow_domain::data_flow::DataFlow;
use workflow_domain::node_definition::ConfigSlot;

const KEY: &str = "dialect";

/// Describes the setting.
pub(super) fn config_slot(missing: &'static str) -> ConfigSlot {
    ConfigSlot {
        options: Dialect::ALL
            .iter()
            .map(|dialect| dialect.as_str().into())
            .collect(),
        ..ConfigSlot::new(KEY, DataFlow::String, missing)
    }
}

/// Reads the setting.
///
/// # Errors
/// It names no dialect.
pub(super) fn read(config: &Map<String, Value>) -> Result<Option<Dialect>, Vec<Violation>> {
    let Some(given) = config.get(KEY).filter(|given| !given.is_null()) else {
        return Ok(None);
    };
    let known = |dialect: &&Dialect| given.as_str() == Some(dialect.as_str());
    match Dialect::ALL.iter().find(known) {
        Some(dialect) => Ok(Some(*dialect)),
        None => {
            let names = Dialect::ALL.iter().map(|dialect| dialect.as_str());
            let message = format!(
                "expected one of {}",
                names.clone().collect::<Vec<_>>().join(", ")
            );
            let violation = Violation::new(join("/configValues", KEY), "unknown_option", message);
            Err(vec![violation.nearest(given.as_str().unwrap_or(""), names)])
        }
    }
}
