//! The identity that a call acts for.

/// The identity that a call acts for. An installation has one until callers prove who they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Principal(());

impl Principal {
    /// The principal of every caller that needs no credential: it may do everything.
    pub const LOCAL: Self = Self(());

    /// Returns its name in records.
    pub const fn as_str(self) -> &'static str {
        "local"
    }
}
