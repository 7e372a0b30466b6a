//! What can go wrong with a model.

use std::time::Duration;

/// Why a model gave no whole answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModelError {
    /// The endpoint cannot be reached.
    #[error(
        "the endpoint {endpoint} cannot be reached ({detail}); check that it runs and that `base_url` is right"
    )]
    Unreachable {
        /// The address that was tried.
        endpoint: String,
        /// What the connection said.
        detail: String,
    },
    /// The endpoint answered with an error.
    #[error("the endpoint answered {status}: {message}")]
    Refused {
        /// The HTTP status.
        status: u16,
        /// What the vendor says, cut.
        message: String,
        /// When the vendor wants to be asked again.
        retry_after: Option<Duration>,
    },
    /// The endpoint reported an error in the middle of its answer.
    #[error("the endpoint broke its answer off after {released} bytes: {message}")]
    Vendor {
        /// What the vendor says, cut.
        message: String,
        /// How much of the answer had arrived.
        released: usize,
    },
    /// The connection ended before the answer did.
    #[error(
        "the answer was cut off after {released} bytes ({detail}); it is not asked for again by itself"
    )]
    Cut {
        /// How much of the answer had arrived.
        released: usize,
        /// What the connection said.
        detail: String,
    },
    /// Something that is no answer arrived.
    #[error("the endpoint sent something that is no answer: {0}")]
    Malformed(String),
    /// The endpoint took too long.
    #[error("the endpoint took longer than {limit:?} {what}")]
    TimedOut {
        /// What it took too long for.
        what: &'static str,
        /// How long it had.
        limit: Duration,
    },
    /// The answer is larger than anything that is accepted.
    #[error("the answer has {what} of more than {limit} bytes")]
    TooLarge {
        /// What of it.
        what: &'static str,
        /// How much is accepted.
        limit: usize,
    },
    /// The script does not fit what it was asked.
    #[error("{0}")]
    Script(String),
}

impl ModelError {
    /// Returns a stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unreachable { .. } => "model_unreachable",
            Self::Refused { status: 429, .. } => "model_rate_limited",
            Self::Refused { .. } => "model_refused",
            Self::Vendor { .. } => "model_broke_off",
            Self::Cut { .. } => "model_stream_cut",
            Self::Malformed(_) => "model_malformed",
            Self::TimedOut { .. } => "model_timeout",
            Self::TooLarge { .. } => "model_answer_too_large",
            Self::Script(_) => "script_mismatch",
        }
    }

    /// Returns whether the same request may succeed later.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Unreachable { .. }
            | Self::Cut { .. }
            | Self::TimedOut { .. }
            | Self::Vendor { .. } => true,
            Self::Refused { status, .. } => matches!(status, 408 | 429 | 500 | 502 | 503 | 504),
            Self::Malformed(_) | Self::TooLarge { .. } | Self::Script(_) => false,
        }
    }

    /// Returns the HTTP status, if the endpoint gave one.
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Refused { status, .. } => Some(*status),
            _ => None,
        }
    }

    /// Returns when the vendor wants to be asked again.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Refused { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}
