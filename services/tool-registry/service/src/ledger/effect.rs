//! The name of an effect.

use core_types::{EffectId, Principal, Tenant};
use std::fmt;

/// An effect of a tenant. Equal ids of two tenants are two effects.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Effect {
    tenant: Tenant,
    id: EffectId,
}

impl Effect {
    /// Names an effect of the tenant of a principal.
    pub fn of(principal: &Principal, id: EffectId) -> Self {
        let tenant = principal.tenant();
        Self { tenant, id }
    }

    /// Returns the tenant.
    pub fn tenant(&self) -> Tenant {
        self.tenant
    }

    /// Returns the id within the tenant.
    pub fn id(&self) -> &EffectId {
        &self.id
    }

    /// Returns the id within the tenant, as a text.
    pub fn as_str(&self) -> &str {
        self.id.as_str()
    }
}

/// Shows the id within the tenant.
impl fmt::Display for Effect {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.id.fmt(formatter)
    }
}
