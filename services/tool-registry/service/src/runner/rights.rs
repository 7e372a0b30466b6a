//! Whether a principal may call a tool (rule S606), for calls and for their explanation.
//!
//! The decision is about the present rights: a call looks them up each time it is about to leave.

use call_outcome::{Category, Failure};
use contracts::tavern::access::v1::Permission;
use core_types::Principal;
use tool_domain::{
    availability::{Layer, LayerVerdict},
    identity::ToolVerdict,
    tool::Tool,
};

use crate::identities::{Identities, Rights};

/// The reason for which a principal may not call a tool.
enum Bar {
    /// No principal has the name, or its keys were revoked.
    Unknown,
    /// No role has the permission `invoke`.
    Permission,
    /// This pattern denies the tool.
    Denied(String),
    /// No pattern allows the tool.
    NotListed,
}

/// Checks whether a principal may call a tool now.
///
/// # Errors
/// The reason for rejecting the call.
pub fn check(identities: &Identities, principal: &Principal, tool: &Tool) -> Result<(), Failure> {
    let rights = identities.rights(principal);
    let Err(bar) = judge(&rights, tool) else {
        return Ok(());
    };
    let (name, id) = (rights.principal().unwrap_or(principal), tool.id());
    let because = match &bar {
        Bar::Unknown => format!("'{name}' is no principal, or its keys were revoked"),
        Bar::Permission => format!("the principal '{name}' does not have the permission invoke"),
        Bar::Denied(pattern) => {
            format!("the pattern '{pattern}' denies it to the principal '{name}'")
        }
        Bar::NotListed => format!("no pattern allows it to the principal '{name}'"),
    };
    let message = format!("{id} was not called: {because}; an administrator decides about that");
    let failure = Failure::new(Category::Policy, "principal_not_allowed", message);
    let failure = failure
        .detail("principal", name.as_str())
        .detail("tool_id", id);
    Err(match bar {
        Bar::Permission => failure.detail("permission", Permission::Invoke.name()),
        Bar::Denied(pattern) => failure.detail("pattern", pattern),
        Bar::Unknown | Bar::NotListed => failure,
    })
}

/// Whether the principal with `rights` may call a tool now.
pub fn may_call(rights: &Rights, tool: &Tool) -> bool {
    judge(rights, tool).is_ok()
}

/// Explains whether a principal may call a tool now.
pub fn explain(rights: &Rights, principal: &Principal, tool: &Tool) -> LayerVerdict {
    if rights.is_open() {
        let document = "no key exists, so every caller may call every tool";
        return LayerVerdict::passed(Layer::Caller, document);
    }
    let (name, id) = (rights.principal().unwrap_or(principal), tool.id());
    let roles = match rights.roles() {
        [] => "no role".to_owned(),
        [role] => format!("the role {role}"),
        roles => format!("the roles {}", roles.join(", ")),
    };
    let bar = match judge(rights, tool) {
        Ok(None) => {
            return LayerVerdict::passed(Layer::Caller, format!("principal {name}, {roles}"));
        }
        Ok(Some(pattern)) => {
            let document = format!("principal {name}, {roles}, /allowed_tools: {pattern}");
            return LayerVerdict::passed(Layer::Caller, document);
        }
        Err(bar) => bar,
    };
    let (document, remedy) = match bar {
        Bar::Unknown => (
            format!("no principal with a key that is not revoked has the name {name}"),
            format!("Create a key for {name}, with a role that has the permission invoke."),
        ),
        Bar::Permission => (
            format!("principal {name}, {roles}: without the permission invoke"),
            format!("Give {name} a role with the permission invoke."),
        ),
        Bar::Denied(pattern) => (
            format!("principal {name}, /denied_tools: {pattern}"),
            format!(
                "Remove {pattern} from denied_tools of the principal {name}, so that it may call {id}."
            ),
        ),
        Bar::NotListed => (
            format!("principal {name}, /allowed_tools"),
            format!("Add {id} to allowed_tools of the principal {name}."),
        ),
    };
    LayerVerdict {
        layer: Layer::Caller,
        passes: false,
        document,
        remedy,
    }
}

/// Returns the pattern that allows a tool; `None` where no pattern bounds the principal.
fn judge(rights: &Rights, tool: &Tool) -> Result<Option<String>, Bar> {
    if rights.principal().is_none() {
        return Err(Bar::Unknown);
    }
    if !rights.permits(Permission::Invoke) {
        return Err(Bar::Permission);
    }
    match rights.judge(tool) {
        ToolVerdict::Allowed(pattern) => Ok(pattern),
        ToolVerdict::Denied(pattern) => Err(Bar::Denied(pattern)),
        ToolVerdict::NotListed => Err(Bar::NotListed),
    }
}
