//! The table of the facts that methods declare by the option `tavern.access.v1.access`.
//!
//! A method of ours without permission or scope fails the build.

use std::borrow::Cow;

use prost_reflect::{
    DescriptorPool, DynamicMessage, FieldDescriptor, Kind, MethodDescriptor, ReflectMessage, Value,
};

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
        if variants(stated, fact)
            .iter()
            .all(|name| name.ends_with("::Unspecified"))
        {
            return Err(missing(fact));
        }
    }
    let one = |fact| variants(stated, fact).join("");
    Ok(format!(
        "Access {{ permission: {}, scope: {}, route: {}, peers: &[{}], while_draining: {}, long: {} }}",
        one("permission"),
        one("scope"),
        one("route"),
        variants(stated, "peers").join(", "),
        flag(stated, "while_draining"),
        flag(stated, "long"),
    ))
}

/// Returns the values of a fact as paths of the generated enums, such as `Peer::ToolRegistry`.
fn variants(stated: &DynamicMessage, fact: &str) -> Vec<String> {
    let descriptor = stated.descriptor();
    let field = descriptor.get_field_by_name(fact);
    let Some(Kind::Enum(kind)) = field.as_ref().map(FieldDescriptor::kind) else {
        return Vec::new();
    };
    let value = stated
        .get_field_by_name(fact)
        .unwrap_or(Cow::Owned(Value::EnumNumber(0)));
    let numbers = match value.as_ref() {
        Value::List(list) => list.iter().filter_map(Value::as_enum_number).collect(),
        one => Vec::from_iter(one.as_enum_number()),
    };
    let path = |number| {
        let value = kind.get_value(number)?;
        let prefix = format!("{}_", kind.name().to_uppercase());
        let words = value.name().strip_prefix(&prefix)?.split('_');
        let camel = words.map(|word| format!("{}{}", &word[..1], word[1..].to_lowercase()));
        Some(format!("{}::{}", kind.name(), camel.collect::<String>()))
    };
    numbers.into_iter().filter_map(path).collect()
}

fn flag(stated: &DynamicMessage, fact: &str) -> bool {
    let value = stated.get_field_by_name(fact);
    value.and_then(|value| value.as_bool()).unwrap_or_default()
}
