//! The subject and the names of a request, and the keys of an answer, by their descriptors.

use contracts::tavern::registry::v1::AuditValues;
use core_types::Tenant;
use prost_reflect::{DynamicMessage, MessageDescriptor, MethodDescriptor, Value};

use super::super::identities::FIRST;
use crate::audit::{Hmacs, Subject};

/// The fields whose values are names, which records have.
const VALUES: [&str; 6] = [
    "roles",
    "system_roles",
    "groups",
    "scopes",
    "allowed_tools",
    "denied_tools",
];

/// The most values of a field that a record has.
const MAX_VALUES: usize = 64;
/// The most principals that a record names.
const MAX_NAMES: usize = 256;

/// A request that was read.
pub(super) struct Read {
    pub(super) subject: Subject,
    message: DynamicMessage,
}

impl Read {
    /// Reads the request of a caller of a tenant. One that cannot be read has no subject, and is refused by its
    /// service.
    pub(super) fn of(method: &MethodDescriptor, message: &[u8], own: Tenant) -> Self {
        let message = decode(method.input(), message);
        let subject = subject(method, &message, own);
        Self { subject, message }
    }

    /// Whether the request only validates.
    pub(super) fn changes_nothing(&self) -> bool {
        let only_validates = self.message.get_field_by_name("validate_only");
        only_validates.and_then(|value| value.as_bool()) == Some(true)
    }

    /// Returns the names that the request has beside its subject.
    pub(super) fn values(&self, hmacs: &Hmacs) -> Vec<AuditValues> {
        let principal = message_in(&self.message, "principal");
        let all = [Some(&self.message), principal.as_ref()];
        let values = all.into_iter().flatten().flat_map(|message| {
            VALUES.into_iter().map(|field| {
                let values = texts_in(message, field);
                let values = values.iter().take(MAX_VALUES);
                AuditValues {
                    field: field.to_owned(),
                    values: values.map(|value| hmacs.name(value)).collect(),
                }
            })
        });
        values.filter(|values| !values.values.is_empty()).collect()
    }
}

/// Returns the ids of keys in an answer.
pub(super) fn key_ids(method: &MethodDescriptor, message: &[u8]) -> Vec<String> {
    let message = decode(method.output(), message);
    let mut keys: Vec<DynamicMessage> = ["key", "replaced"]
        .iter()
        .filter_map(|field| message_in(&message, field))
        .collect();
    keys.extend(messages_in(&message, "keys"));
    let ids = keys.iter().map(|key| text_in(key, "key_id"));
    ids.filter(|id| !id.is_empty()).collect()
}

fn subject(method: &MethodDescriptor, message: &DynamicMessage, own: Tenant) -> Subject {
    let service = method.parent_service();
    match (service.name(), method.name()) {
        ("TenantService", _) => Subject::Tenant(text_in(message, "name")),
        ("IdentityService", "Bootstrap") => Subject::Principals {
            tenant: Tenant::DEFAULT,
            names: vec![
                non_empty(text_in(message, "principal")).unwrap_or_else(|| FIRST.to_owned()),
            ],
            key_ids: Vec::new(),
        },
        (
            "IdentityService",
            "CreateKey" | "RotateKey" | "RevokeKeys" | "PutPrincipal" | "ImportApprovers"
            | "BlockPrincipal" | "UnblockPrincipal",
        ) => {
            let (tenant, names, key_ids) = named(message, own);
            Subject::Principals {
                tenant,
                names,
                key_ids,
            }
        }
        ("ToolRegistryService", "PutTool") => {
            let definition = text_in(message, "definition_json");
            let definition = serde_json::from_str::<serde_json::Value>(&definition);
            let definition = definition.unwrap_or_default();
            Subject::Tool {
                tenant: own,
                id: definition["id"].as_str().unwrap_or_default().to_owned(),
            }
        }
        ("ToolRegistryService", "DeleteTool") | ("PluginService", "SetToolState") => {
            Subject::Tool {
                tenant: own,
                id: text_in(message, "tool_id"),
            }
        }
        ("PluginService", _) => Subject::Other {
            tenant: own,
            names: ["name", "plan_digest"]
                .into_iter()
                .filter_map(|field| non_empty(text_in(message, field)))
                .collect(),
        },
        ("ToolRegistryService", "PutBackend" | "DeleteBackend") => Subject::Backend {
            tenant: own,
            name: text_in(message, "name"),
        },
        _ => {
            let (tenant, mut names, key_ids) = named(message, own);
            names.extend(key_ids);
            Subject::Other { tenant, names }
        }
    }
}

/// Returns the tenant, the names of principals and the ids of keys that a request has.
fn named(message: &DynamicMessage, own: Tenant) -> (Tenant, Vec<String>, Vec<String>) {
    let principal = message_in(message, "principal");
    let tenant = principal.as_ref().map(|it| text_in(it, "tenant"));
    let tenant = tenant.unwrap_or_else(|| text_in(message, "tenant"));
    let of_message =
        principal.map_or_else(|| text_in(message, "principal"), |it| text_in(&it, "name"));
    let approvers = messages_in(message, "approvers");
    let approvers = approvers.iter().map(|it| text_in(it, "name"));
    let names = [of_message].into_iter().chain(approvers);
    (
        // A name of no tenant is refused.
        Tenant::new(&tenant).unwrap_or(own),
        names.filter_map(non_empty).take(MAX_NAMES).collect(),
        non_empty(text_in(message, "key_id")).into_iter().collect(),
    )
}

fn decode(descriptor: MessageDescriptor, message: &[u8]) -> DynamicMessage {
    let decoded = DynamicMessage::decode(descriptor.clone(), message);
    decoded.unwrap_or_else(|_| DynamicMessage::new(descriptor))
}

fn non_empty(text: String) -> Option<String> {
    Some(text).filter(|text| !text.is_empty())
}

/// Returns the text in a field; empty where it has none.
fn text_in(message: &DynamicMessage, field: &str) -> String {
    let value = message.get_field_by_name(field);
    let text = value.as_deref().and_then(Value::as_str);
    text.unwrap_or_default().to_owned()
}

fn texts_in(message: &DynamicMessage, field: &str) -> Vec<String> {
    let value = message.get_field_by_name(field);
    let list = value
        .as_deref()
        .and_then(Value::as_list)
        .unwrap_or_default();
    list.iter()
        .filter_map(|value| value.as_str().map(str::to_owned))
        .collect()
}

fn message_in(message: &DynamicMessage, field: &str) -> Option<DynamicMessage> {
    message.has_field_by_name(field).then_some(())?;
    message.get_field_by_name(field)?.as_message().cloned()
}

fn messages_in(message: &DynamicMessage, field: &str) -> Vec<DynamicMessage> {
    let value = message.get_field_by_name(field);
    let list = value
        .as_deref()
        .and_then(Value::as_list)
        .unwrap_or_default();
    list.iter()
        .filter_map(|value| value.as_message().cloned())
        .collect()
}
