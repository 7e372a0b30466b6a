//! The people who decide: principals with the permission `approve`, or the approvers of the file while no key
//! exists.

use approval_rules::Ask;
use contracts::tavern::access::v1::Permission;
use core_types::{Principal, Reach};
use grpc_kit::CallContext;

use super::{Approvals, Inner};

/// A person who may decide.
#[derive(Clone, Debug)]
pub struct Decider {
    /// The name that is recorded.
    pub name: String,
    /// The roles that rules name: the groups of a principal.
    pub roles: Vec<String>,
}

/// The reason for which a caller may not decide.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotDecider {
    /// No approver of the file has the key, or there is none.
    #[error("send the key of an approver as `authorization: Bearer KEY`")]
    NoKey,
    /// The key is that of an approver of the file, and keys of principals exist.
    #[error(
        "the approver `{0}` of the approvals file is no longer accepted, as keys of principals exist; `tavern keys \
         import-approvers` makes principals of the approvers of the file, with the keys that they have"
    )]
    OfFile(String),
    /// The call has no principal of its own, and keys of principals exist.
    #[error(
        "only a principal with the permission approve decides; the approvers of the approvals file are no longer \
         accepted, and `tavern keys import-approvers` makes principals of them"
    )]
    NoPrincipal,
    /// The principal does not have the permission.
    #[error("the principal `{0}` does not have the permission approve")]
    NotPermitted(Principal),
}

impl Approvals {
    /// Whether the file has approvers, who are refused because keys of principals exist.
    pub fn refuses_file(&self) -> bool {
        self.inner.policy.has_approvers() && !self.inner.identities.is_open()
    }

    /// Returns the principal to whose approvals a caller is confined; `None` for one that reaches the tenant, or has
    /// the permission `approve`.
    pub fn only_of(&self, context: &CallContext) -> Option<Principal> {
        let approves = || {
            let identities = &self.inner.identities;
            let caller = identities.resolve_principal(context.principal(), context.key_id());
            caller.is_ok_and(|caller| caller.rights.permits(Permission::Approve))
        };
        let is_confined = context.reach() == Reach::Own && !approves();
        is_confined.then(|| context.principal().clone())
    }

    /// Returns the person who calls: by the principal, or by the key of an approver of the file while no key of a
    /// principal exists.
    ///
    /// # Errors
    /// [`NotDecider`].
    pub fn decider(&self, principal: &Principal, key: &str) -> Result<Decider, NotDecider> {
        let of_file = self.inner.policy.approver(key).filter(|_| !key.is_empty());
        let rights = self.inner.identities.rights(principal);
        if rights.is_open() {
            let approver = of_file.ok_or(NotDecider::NoKey)?;
            return Ok(Decider {
                name: approver.name.clone(),
                roles: approver.roles.clone(),
            });
        }
        if let Some(approver) = of_file {
            return Err(NotDecider::OfFile(approver.name.clone()));
        }
        // The work of the program itself is not a person.
        if principal.is_nameless() {
            return Err(NotDecider::NoPrincipal);
        }
        if !rights.permits(Permission::Approve) {
            return Err(NotDecider::NotPermitted(principal.clone()));
        }
        Ok(Decider {
            name: principal.to_string(),
            roles: rights.groups().to_vec(),
        })
    }
}

impl Inner {
    /// Returns the lack of people who could decide about a call of a principal; `None` if there are enough.
    pub(super) fn lacking_approvers(&self, ask: &Ask, starter: &Principal) -> Option<String> {
        let rights = self.identities.rights(starter);
        if rights.is_open() {
            let lacking =
                "too few approvers are configured; the operator names them in the approvals file";
            let could = self.policy.could_decide(&ask.role, ask.needed);
            return (!could).then(|| lacking.to_owned());
        }
        let starter = rights.principal().unwrap_or(starter);
        let approvers = self.identities.approvers(starter.tenant(), &ask.role);
        let others = approvers.iter().filter(|approver| *approver != starter);
        let group = match ask.role.as_str() {
            "" => String::new(),
            role => format!(" in the group '{role}'"),
        };
        (others.count() < ask.needed as usize).then(|| {
            format!(
                "fewer than {} principals besides '{starter}' have a key with the permission approve{group}; an \
                 administrator makes them",
                ask.needed
            )
        })
    }

    /// Whether a call acts for the approver itself.
    pub(super) fn is_own(&self, starter: &Principal, approver: &str) -> bool {
        let rights = self.identities.rights(starter);
        let starter = rights.principal().unwrap_or(starter);
        !rights.is_open() && starter.as_str() == approver
    }
}
