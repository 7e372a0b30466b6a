//! The customer that stored values belong to.

/// The customer that stored values belong to. An installation has one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Tenant(());

impl Tenant {
    /// The only tenant.
    pub const DEFAULT: Self = Self(());

    /// Returns the name of the tenant in keys.
    pub const fn as_str(self) -> &'static str {
        "default"
    }
}
