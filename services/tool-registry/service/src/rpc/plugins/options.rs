//! The options of plugins.

use call_outcome::Violation;
use contracts::tavern::registry::v1::{
    GetPluginOptionsResponse, PluginOption, UpdatePluginOptionsRequest, UpdatePluginOptionsResponse,
};
use core_types::Tenant;
use grpc_kit::Failure;
use run_events::store_failure;
use serde_json::{Map, Value, json};
use tonic::Status;
use tool_domain::options::{
    OptionDeclaration, OptionKind, OptionScope, OptionState, OptionValues, assignment::parse,
};

use super::super::refusal;
use crate::tools::{ActivePlugin, ChangeError, Tools};

/// Returns the options of a plugin with their values for a tenant.
pub(super) async fn get(
    tools: &Tools,
    tenant: Tenant,
    name: &str,
) -> Result<GetPluginOptionsResponse, Status> {
    let revision = tools.revision();
    let plugin = revision.plugins.get(name);
    let plugin = plugin.ok_or_else(|| refusal::no_plugin_named(name))?;
    let choices = tools.choices(tenant).await;
    let choices = choices.map_err(|error| store_failure(&error).into_status())?;
    let values = plugin.values(choices.values(name));
    let declared = plugin.plugin.manifest.options.iter();
    Ok(GetPluginOptionsResponse {
        options: declared
            .map(|option| option_to_proto(option, &values))
            .collect(),
        etag: etag_of(plugin, &values),
    })
}

/// Sets options of a plugin for a tenant: all of them or none.
pub(super) async fn update(
    tools: &Tools,
    tenant: Tenant,
    request: &UpdatePluginOptionsRequest,
) -> Result<UpdatePluginOptionsResponse, Status> {
    let name = request.name.as_str();
    let revision = tools.revision();
    let plugin = revision.plugins.get(name);
    let plugin = plugin.ok_or_else(|| refusal::no_plugin_named(name))?;
    let written = read(plugin, request)?;
    let set = tools.set_options(tenant, name, |stored| {
        let present = plugin.values(stored);
        let etag = etag_of(plugin, &present);
        if !request.etag.is_empty() && request.etag != etag {
            return Err(ChangeError::EtagMismatch { stored: etag });
        }
        let mut values = present.stored().clone();
        for (key, value) in &written {
            match value {
                Value::Null => drop(values.remove(key)),
                value => drop(values.insert(key.clone(), value.clone())),
            }
        }
        Ok(values)
    });
    set.await.map_err(status_of)?;
    let GetPluginOptionsResponse { options, etag } = get(tools, tenant, name).await?;
    Ok(UpdatePluginOptionsResponse { options, etag })
}

/// Reads the values of a request by whole key; null restores a default.
fn read(
    plugin: &ActivePlugin,
    request: &UpdatePluginOptionsRequest,
) -> Result<Map<String, Value>, Status> {
    let declared = &plugin.plugin.manifest.options;
    let mut failure = Failure::invalid_fields();
    let mut refuse = |field: &str, violations: Vec<Violation>| {
        for violation in violations {
            let field = format!("{field}{}", violation.pointer);
            failure.add_violation(field, violation.message);
        }
    };
    let mut written = Map::new();
    if !request.values_json.is_empty() {
        match json_schema::parse_json_strict(&request.values_json) {
            Ok(Value::Object(values)) => {
                let read = OptionValues::read(declared, &values, OptionScope::Service);
                if let Err(violations) = read {
                    refuse("values_json", violations);
                }
                let of_option = |(written, value): (String, Value)| {
                    let named = |option: &&OptionDeclaration| {
                        option.key == written || option.name == written
                    };
                    Some((declared.iter().find(named)?.key.clone(), value))
                };
                written.extend(values.into_iter().filter_map(of_option));
            }
            _ => {
                let message = "must be a JSON object of values by key";
                refuse(
                    "values_json",
                    vec![Violation::new("", "type_mismatch", message)],
                );
            }
        }
    }
    let mut texts: Vec<String> = request
        .texts
        .iter()
        .map(|(key, text)| format!("{key}={text}"))
        .collect();
    texts.sort();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    match parse(declared, &texts) {
        Ok(values) => {
            for (key, value) in values {
                if written.insert(key.clone(), value).is_some() {
                    let message = "is given in `values_json` too; remove one";
                    let place = format!("/{key}");
                    refuse("texts", vec![Violation::new(place, "repeated", message)]);
                }
            }
        }
        Err(violations) => refuse("texts", violations),
    }
    failure.refuse_if_any()?;
    Ok(written)
}

fn etag_of(plugin: &ActivePlugin, values: &OptionValues) -> String {
    values.digest(&plugin.plugin.manifest.options)
}

fn option_to_proto(option: &OptionDeclaration, values: &OptionValues) -> PluginOption {
    let value = values.shown(option);
    let state = values.state(option);
    PluginOption {
        key: option.key.clone(),
        r#type: option.kind.as_str().to_owned(),
        display_name: option.display_name.clone(),
        description: option.description.clone(),
        declaration_json: declaration(option).to_string(),
        value_json: value.map(Value::to_string).unwrap_or_default(),
        is_set: state == OptionState::Set,
        is_missing: state == OptionState::Missing,
    }
}

/// Returns the bounds and choices of an option, as its manifest spells them.
fn declaration(option: &OptionDeclaration) -> Value {
    let bounds = match &option.kind {
        OptionKind::Line(bounds) | OptionKind::Text(bounds) => json!({
            "minLength": bounds.min_length,
            "maxLength": bounds.max_length,
            "pattern": bounds.pattern,
        }),
        OptionKind::Integer { minimum, maximum } => json!({"minimum": minimum, "maximum": maximum}),
        OptionKind::Number { minimum, maximum } => json!({"minimum": minimum, "maximum": maximum}),
        OptionKind::Enum { choices } => {
            let choices = choices.iter();
            let choices = choices.map(|it| json!({"value": it.value, "label": it.label}));
            json!({"options": choices.collect::<Vec<_>>()})
        }
        OptionKind::List(bounds) => {
            json!({"minItems": bounds.min_items, "maxItems": bounds.max_items})
        }
        OptionKind::Json { schema } => json!({"schema": schema}),
        OptionKind::Boolean | OptionKind::Secret { .. } => json!({}),
    };
    let mut declaration = json!({
        "required": option.required,
        "default": option.default,
        "order": option.order,
        "group": option.group,
        "deprecated": option.deprecated.as_deref().map(|reason| match reason {
            "" => Value::Bool(true),
            reason => reason.into(),
        }),
    });
    if let (Some(all), Value::Object(bounds)) = (declaration.as_object_mut(), bounds) {
        all.extend(bounds);
        all.retain(|_, value| !value.is_null() && value != "");
    }
    declaration
}

fn status_of(error: ChangeError) -> Status {
    match error {
        ChangeError::EtagMismatch { stored } => Failure::etag_mismatch(stored).into_status(),
        ChangeError::Store(error) => store_failure(&error).into_status(),
        error => Status::internal(error.to_string()),
    }
}
