//! The kinds of failure.

/// The kind of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Category {
    /// The call or its arguments are wrong.
    Validation,
    /// The tool refused, in its own terms.
    Domain,
    /// A policy forbids it.
    Policy,
    /// The tool's program failed.
    Runtime,
    /// Another service or backend failed.
    Dependency,
    /// Time ran out.
    Timeout,
    /// The call was cancelled.
    Cancelled,
    /// A limit on size, count or memory was exceeded.
    Limit,
    /// A failure of the platform itself.
    Internal,
}

impl Category {
    /// Every category.
    pub const ALL: [Self; 9] = [
        Self::Validation,
        Self::Domain,
        Self::Policy,
        Self::Runtime,
        Self::Dependency,
        Self::Timeout,
        Self::Cancelled,
        Self::Limit,
        Self::Internal,
    ];

    /// Returns the word for observations and span attributes.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Validation => "validation",
            Self::Domain => "domain",
            Self::Policy => "policy",
            Self::Runtime => "runtime",
            Self::Dependency => "dependency",
            Self::Timeout => "timeout",
            Self::Cancelled => "cancelled",
            Self::Limit => "limit",
            Self::Internal => "internal",
        }
    }
}
