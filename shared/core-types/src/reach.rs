//! The objects that a call can see.

use serde::{Deserialize, Serialize};

/// The objects that a call can see, among runs, calls, conversations and everything else with an owner.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Reach {
    /// The objects of its principal.
    Own,
    /// The objects of the tenant of its principal.
    #[default]
    Tenant,
    /// The objects of every tenant: for a program's own work, and for methods about the installation.
    Installation,
}

impl Reach {
    /// Returns the name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Own => "own",
            Self::Tenant => "tenant",
            Self::Installation => "installation",
        }
    }

    /// Returns the reach with a name.
    pub fn of_name(name: &str) -> Option<Self> {
        let mut all = [Self::Own, Self::Tenant, Self::Installation].into_iter();
        all.find(|reach| reach.name() == name)
    }

    /// Whether it is [`Reach::Tenant`], which records leave out.
    pub fn is_tenant(&self) -> bool {
        *self == Self::Tenant
    }
}
