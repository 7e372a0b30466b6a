//! The customer that stored values belong to.

/// The customer that stored values belong to. An installation has one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Tenant(());

impl Tenant {
    /// The only one.
    pub const DEFAULT: Self = Self(());

    /// Returns its name in keys.
    pub const fn as_str(self) -> &'static str {
        "default"
    }
}
