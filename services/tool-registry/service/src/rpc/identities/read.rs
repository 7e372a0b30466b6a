//! Requests as values, every violation at once.

use std::collections::HashMap;

use contracts::{
    access::Role,
    tavern::{
        access::v1::Permission,
        registry::v1::{BootstrapRequest, CreateKeyRequest, ImportedApprover, Principal},
    },
};
use core_types::{Principal as Name, Tenant, Timestamp, principal::MAX_PRINCIPAL_BYTES};
use grpc_kit::Failure;
use json_schema::nearest_names;
use tonic::Status;
use tool_domain::{
    catalogue::{Catalogue, Reading},
    identity::{Account, ToolRights, accounts::Chosen, tool_rights::fault_of_pattern},
    naming::DERIVED_PREFIXES,
};

use crate::identities::Imported;

/// The keys that a request names.
pub(super) enum Keys {
    /// The key with an id, of a tenant.
    Key(String, Tenant),
    /// The keys of a principal.
    Of(Name),
}

impl Keys {
    pub(super) fn as_domain(&self) -> Chosen<'_> {
        match self {
            Self::Key(id, tenant) => Chosen::Key(id, *tenant),
            Self::Of(name) => Chosen::Of(name),
        }
    }
}

/// Reads the name of the first principal and the life of its key in days.
pub(super) fn first(
    request: &BootstrapRequest,
    first: &str,
    days: u32,
) -> Result<(Name, u32), Status> {
    let mut failure = Failure::invalid_fields();
    let written = match request.principal.as_str() {
        "" => first,
        written => written,
    };
    let name = name(&mut failure, "principal", (Tenant::DEFAULT, written));
    failure.refuse_if_any()?;
    Ok((name, days_or(request.days, days)))
}

/// Reads the name of the principal of a new key and the life of the key in days.
pub(super) fn new_key(
    request: &CreateKeyRequest,
    tenant: Tenant,
    days: u32,
) -> Result<(Name, u32), Status> {
    let mut failure = Failure::invalid_fields();
    let name = name(&mut failure, "principal", (tenant, &request.principal));
    roles(&mut failure, "roles", &request.roles);
    let known = Permission::OF_CLIENTS.map(Permission::name);
    known_names(
        &mut failure,
        "scopes",
        ("permission", &known),
        &request.scopes,
    );
    failure.refuse_if_any()?;
    Ok((name, days_or(request.days, days)))
}

/// Reads the keys that a request names by the id of a key or by a principal.
pub(super) fn chosen(key_id: &str, principal: &str, tenant: Tenant) -> Result<Keys, Status> {
    let mut failure = Failure::invalid_fields();
    let chosen = match (key_id, principal) {
        ("", "") => {
            failure.add_violation("key_id", "is empty; give it, or `principal`");
            None
        }
        ("", principal) => {
            let name = name(&mut failure, "principal", (tenant, principal));
            Some(Keys::Of(name))
        }
        (key_id, "") => Some(Keys::Key(key_id.to_owned(), tenant)),
        _ => {
            failure.add_violation(
                "principal",
                "is given together with `key_id`; give one of them",
            );
            None
        }
    };
    match chosen.filter(|_| failure.is_empty()) {
        Some(chosen) => Ok(chosen),
        None => Err(failure.into_status()),
    }
}

/// Reads the name of an issued principal.
pub(super) fn issued(written: &str, tenant: Tenant) -> Result<Name, Status> {
    let fault = match Name::of(tenant, written) {
        Ok(name) if name.issuer_and_subject().is_some() => return Ok(name),
        Ok(_) => {
            "is not an issued principal, such as `company:ada`; RevokeKeys ends the keys of another"
                .to_owned()
        }
        Err(error) => error.to_string(),
    };
    let failure = Failure::invalid_fields().violation("principal", fault);
    Err(failure.into_status())
}

/// Reads a principal to set.
pub(super) fn principal(
    principal: Principal,
    tenant: Tenant,
    catalogue: &Catalogue,
    now: Timestamp,
) -> Result<Account, Status> {
    let mut failure = Failure::invalid_fields();
    let name = name(&mut failure, "principal.name", (tenant, &principal.name));
    roles(&mut failure, "principal.roles", &principal.roles);
    roles(
        &mut failure,
        "principal.system_roles",
        &principal.system_roles,
    );
    groups(&mut failure, "principal.groups", &principal.groups);
    for (field, patterns) in [
        ("principal.allowed_tools", &principal.allowed_tools),
        ("principal.denied_tools", &principal.denied_tools),
    ] {
        for (place, pattern) in patterns.iter().enumerate() {
            let fault = fault_of_pattern(pattern);
            if let Some(fault) = fault.or_else(|| missing_tool(pattern, catalogue)) {
                failure.add_violation(format!("{field}[{place}]"), fault);
            }
        }
    }
    failure.refuse_if_any()?;
    Ok(Account {
        roles: unique(principal.roles),
        system_roles: unique(principal.system_roles),
        groups: unique(principal.groups),
        tools: ToolRights {
            allowed: unique(principal.allowed_tools),
            denied: unique(principal.denied_tools),
        },
        ..Account::new(name, now)
    })
}

/// Reads the approvers of a file.
pub(super) fn approvers(
    written: Vec<ImportedApprover>,
    tenant: Tenant,
) -> Result<Vec<Imported>, Status> {
    let mut failure = Failure::invalid_fields();
    let (mut names, mut keys) = (HashMap::new(), HashMap::new());
    let mut approvers = Vec::with_capacity(written.len());
    for (place, approver) in written.into_iter().enumerate() {
        let field = |name: &str| format!("approvers[{place}].{name}");
        let name = name(
            &mut failure,
            &field("name"),
            (tenant, &name_of_approver(&approver.name)),
        );
        if let Some(earlier) = names.insert(name.clone(), place) {
            let same = format!("makes the name `{name}`, as approvers[{earlier}] does");
            failure.add_violation(field("name"), same);
        }
        groups(&mut failure, &field("roles"), &approver.roles);
        let sha256 = approver.key_sha256.to_ascii_lowercase();
        if hex::decode(&sha256).is_err() {
            failure.add_violation(field("key_sha256"), "must be 64 hexadecimal digits");
        }
        if let Some(earlier) = keys.insert(sha256.clone(), place) {
            let same = format!("is the key of approvers[{earlier}] too");
            failure.add_violation(field("key_sha256"), same);
        }
        approvers.push(Imported {
            name,
            groups: unique(approver.roles),
            sha256,
        });
    }
    failure.refuse_if_any()?;
    Ok(approvers)
}

/// Returns the values, each once, in their order.
pub(super) fn unique(mut values: Vec<String>) -> Vec<String> {
    let mut seen = std::collections::HashSet::new();
    values.retain(|value| seen.insert(value.clone()));
    values
}

/// Makes the name of a principal of an approver's: in lower case, with `-` for other characters.
fn name_of_approver(written: &str) -> String {
    let plain = |character: char| match character.to_ascii_lowercase() {
        plain @ ('a'..='z' | '0'..='9' | '.' | '_' | '-') => plain,
        _ => '-',
    };
    let name: String = written
        .chars()
        .map(plain)
        .take(MAX_PRINCIPAL_BYTES)
        .collect();
    name.trim_start_matches(['.', '_', '-']).to_owned()
}

/// Reads the name of a principal of a tenant; a wrong one is a violation, and stands for any.
fn name(failure: &mut Failure, field: &str, (tenant, written): (Tenant, &str)) -> Name {
    match Name::of(tenant, written) {
        Ok(issued) if issued.issuer_and_subject().is_some() => {
            let keyless = "is an issued principal, which has no keys and the roles of its tokens; BlockPrincipal and \
                           `tavern keys block` end its access";
            failure.add_violation(field, keyless);
            Name::LOCAL
        }
        Ok(name) if !name.is_nameless() => name,
        Ok(local) => {
            let reserved = "is the name of callers without a key; give another";
            failure.add_violation(field, reserved);
            local
        }
        Err(error) => {
            failure.add_violation(field, error.to_string());
            Name::LOCAL
        }
    }
}

fn roles(failure: &mut Failure, field: &str, written: &[String]) {
    known_names(
        failure,
        field,
        ("role", &Role::ALL.map(Role::name)),
        written,
    );
}

fn groups(failure: &mut Failure, field: &str, written: &[String]) {
    for (place, group) in written.iter().enumerate() {
        if group.is_empty() || group.chars().any(char::is_control) {
            let wrong = "must have visible characters only, and one at least";
            failure.add_violation(format!("{field}[{place}]"), wrong);
        }
    }
}

/// Adds a violation for each name that is not known, with the near ones.
fn known_names(
    failure: &mut Failure,
    field: &str,
    (kind, known): (&str, &[&str]),
    written: &[String],
) {
    for (place, name) in written.iter().enumerate() {
        if known.contains(&name.as_str()) {
            continue;
        }
        let all = known.join(", ");
        let hint = match nearest_names(name, known.iter().copied()).as_slice() {
            [] => String::new(),
            near => format!(" Did you mean `{}`?", near.join("`, `")),
        };
        let unknown = format!("is no {kind}; there are {all}.{hint}");
        failure.add_violation(format!("{field}[{place}]"), unknown);
    }
}

/// Returns the fault of a pattern that is a whole id and names no tool: it would have no effect.
fn missing_tool(pattern: &str, catalogue: &Catalogue) -> Option<String> {
    if pattern.ends_with('*') {
        return None;
    }
    match catalogue.read(pattern) {
        Reading::Tool(tool) if tool.id() == pattern => None,
        Reading::Tool(tool) => Some(format!("is not an id; write `{}`", tool.id())),
        Reading::Derived(_)
            if DERIVED_PREFIXES
                .iter()
                .any(|prefix| pattern.starts_with(prefix)) =>
        {
            None
        }
        Reading::Derived(_) => {
            let near = nearest_names(pattern, catalogue.tools().map(|tool| tool.id()));
            Some(match near.as_slice() {
                [] => "is the id of no tool".to_owned(),
                near => format!(
                    "is the id of no tool; did you mean `{}`?",
                    near.join("`, `")
                ),
            })
        }
    }
}

fn days_or(days: u32, otherwise: u32) -> u32 {
    match days {
        0 => otherwise,
        days => days,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_approver_gets_the_name_of_a_principal() {
        let long = "a".repeat(300);
        for (written, name) in [
            ("Mara", "mara"),
            ("Ada Lovelace", "ada-lovelace"),
            ("-Zoë", "zo-"),
            ("ops@example.com", "ops-example.com"),
            ("é", ""),
            (&long, &long[..64]),
        ] {
            assert_eq!(name_of_approver(written), name, "{written}");
        }
    }
}
