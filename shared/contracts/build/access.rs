//! The table of the facts that methods declare by the option `tavern.access.v1.access`.
//!
//! A method of ours without permission or scope fails the build.

use prost_reflect::{DescriptorPool, DynamicMessage, MethodDescriptor};

type Result<T> = std::result::Result<T, String>;

const OPTION: &str = "tavern.access.v1.access";

/// Writes the facts of every method of ours, in the order of the names.
pub(super) fn table(pool: &DescriptorPool) -> Result<String> {
    let mut methods = Vec::new();
    for service in pool.services() {
        if service.full_name().starts_with("tavern.") {
            for method in service.methods() {
                let name = format!("{}/{}", service.full_name(), method.name());
                methods.push((name, facts(&method)?));
            }
        }
    }
    methods.sort();
    let rows = methods
        .iter()
        .map(|(name, facts)| format!("({name:?}, {facts})"));
    let rows = rows.collect::<Vec<_>>().join(",\n");
    Ok(format!(
        "static CONTRACT: &[(&str, Access)] = &[\n{rows}\n];\n"
    ))
}

fn facts(method: &MethodDescriptor) -> Result<String> {
    let missing = |fact: &str| format!("{}: state its {fact} by ({OPTION})", method.full_name());
    let pool = method.parent_pool();
    let option = pool.get_extension_by_name(OPTION);
    let option = option.ok_or_else(|| missing("access"))?;
    let stated = method.options().get_extension(&option).into_owned();
    let stated = stated.as_message().ok_or_else(|| missing("access"))?;
    for fact in ["permission", "scope"] {
        if number(stated, fact) == 0 {
            return Err(missing(fact));
        }
    }
    Ok(format!(
        "Access {{ permission: {}, scope: {}, route: {}, while_draining: {}, long: {} }}",
        number(stated, "permission"),
        number(stated, "scope"),
        number(stated, "route"),
        flag(stated, "while_draining"),
        flag(stated, "long"),
    ))
}

fn number(stated: &DynamicMessage, fact: &str) -> i32 {
    let value = stated.get_field_by_name(fact);
    value
        .and_then(|value| value.as_enum_number())
        .unwrap_or_default()
}

fn flag(stated: &DynamicMessage, fact: &str) -> bool {
    let value = stated.get_field_by_name(fact);
    value.and_then(|value| value.as_bool()).unwrap_or_default()
}
