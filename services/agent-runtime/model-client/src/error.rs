//! The failures of requests to models.

use std::time::Duration;

use tenancy::LimitReached;

/// The reason for which a model returned no whole answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModelError {
    /// The endpoint cannot be reached.
    #[error(
        "the endpoint {endpoint} cannot be reached ({detail}); check that it runs and that `base_url` is right"
    )]
    Unreachable {
        /// The address that was tried.
        endpoint: String,
        /// The error of the connection.
        detail: String,
    },
    /// The endpoint answered with an error.
    #[error("the endpoint answered {}: {}", .0.status, .0.message)]
    Refused(Refusal),
    /// The address belongs to a web page.
    #[error(
        "the endpoint answered with a web page; check that `base_url` is the address of a model API"
    )]
    NotAnApi,
    /// More requests wait for the model than may.
    #[error("limit reached: {limit} requests are already waiting for the model")]
    Busy {
        /// The most requests that may wait.
        limit: usize,
    },
    /// The key cannot be read.
    #[error("the key of the model cannot be read: {0}")]
    Key(String),
    /// The endpoint reported an error in the middle of its answer.
    #[error("the endpoint ended its answer with an error after {released} bytes: {}", refusal.message)]
    Vendor {
        /// The error, with the status that it would have had before the answer.
        refusal: Refusal,
        /// The bytes of the answer that had arrived.
        released: usize,
    },
    /// The model stopped before its answer was whole.
    #[error("the answer ended after {released} bytes and is not whole: {why}")]
    Unfinished {
        /// The reason, in words.
        why: String,
        /// The bytes of the answer that had arrived.
        released: usize,
    },
    /// The connection ended before the answer did.
    #[error("the answer was cut off after {released} bytes ({detail})")]
    Cut {
        /// The bytes of the answer that had arrived.
        released: usize,
        /// The error of the connection.
        detail: String,
    },
    /// The endpoint sent data that is not an answer.
    #[error("the endpoint sent an invalid response: {0}")]
    Malformed(String),
    /// The endpoint took too long.
    #[error("the endpoint took longer than {limit:?} {what}")]
    TimedOut {
        /// The step that it took too long for.
        what: &'static str,
        /// The time limit.
        limit: Duration,
    },
    /// The answer is larger than the limit.
    #[error("{what} in the response exceeds {limit} bytes")]
    TooLarge {
        /// The part that is too large.
        what: &'static str,
        /// The limit.
        limit: usize,
    },
    /// The script does not match the request.
    #[error("{0}")]
    Script(String),
    /// The tenant has used as much of models in the present day as it may.
    #[error(transparent)]
    TenantLimit(#[from] LimitReached),
}

/// An endpoint's refusal of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refusal {
    /// The HTTP status.
    pub status: u16,
    /// The message of the vendor, cut.
    pub message: String,
    /// The time to wait before a retry, as the vendor requests it.
    pub retry_after: Option<Duration>,
    /// Whether the vendor allows a retry; missing if it does not state it.
    pub should_retry: Option<bool>,
    /// Whether the quota of the account is used up.
    pub quota_exhausted: bool,
    /// Whether the request is too long for the model's context.
    pub context_exceeded: bool,
}

impl Refusal {
    fn is_retryable(&self) -> bool {
        let by_status = matches!(self.status, 408 | 409 | 429 | 500 | 502..=504 | 520..=524 | 529);
        let for_good = self.quota_exhausted || self.context_exceeded;
        !for_good && self.should_retry.unwrap_or(by_status)
    }
}

impl ModelError {
    /// Returns a stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unreachable { .. } => "model_unreachable",
            Self::Refused(refusal) if refusal.quota_exhausted => "model_quota_exhausted",
            Self::Refused(refusal) if refusal.context_exceeded => "model_context_exceeded",
            Self::Refused(Refusal { status: 429, .. }) => "model_rate_limited",
            Self::Refused(_) => "model_refused",
            Self::NotAnApi => "model_not_an_api",
            Self::Busy { .. } => "model_busy",
            Self::Key(_) => "model_key_unreadable",
            Self::Vendor { .. } => "model_broke_off",
            Self::Unfinished { .. } => "model_unfinished",
            Self::Cut { .. } => "model_stream_cut",
            Self::Malformed(_) => "model_malformed",
            Self::TimedOut { .. } => "model_timeout",
            Self::TooLarge { .. } => "model_answer_too_large",
            Self::Script(_) => "script_mismatch",
            Self::TenantLimit(_) => "tenant_limit",
        }
    }

    /// Returns whether the same request may succeed later.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Unreachable { .. }
            | Self::Cut { .. }
            | Self::TimedOut { .. }
            | Self::Unfinished { .. }
            | Self::Busy { .. }
            | Self::TenantLimit(_) => true,
            Self::Refused(refusal) | Self::Vendor { refusal, .. } => refusal.is_retryable(),
            Self::NotAnApi
            | Self::Key(_)
            | Self::Malformed(_)
            | Self::TooLarge { .. }
            | Self::Script(_) => false,
        }
    }

    /// Returns whether the request is retried automatically while no part of an answer is released:
    /// the endpoint was not reached or refused, or its answer ended before it was whole.
    pub(crate) fn is_resent(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Cut { .. } | Self::Unfinished { .. } => true,
            Self::Refused(refusal) | Self::Vendor { refusal, .. } => refusal.is_retryable(),
            _ => false,
        }
    }

    /// Returns the error of an answer of which this many bytes were shown.
    pub(crate) fn after(mut self, shown: usize) -> Self {
        if let Self::Cut { released, .. }
        | Self::Unfinished { released, .. }
        | Self::Vendor { released, .. } = &mut self
        {
            *released = shown;
        }
        self
    }

    /// Returns whether an answer of which a part is released ended before it was whole, and might
    /// be whole after a retry.
    pub fn is_cut_off(&self) -> bool {
        match self {
            Self::Cut { released, .. } | Self::Unfinished { released, .. } => *released > 0,
            Self::Vendor { refusal, released } => *released > 0 && refusal.is_retryable(),
            _ => false,
        }
    }

    /// Returns whether the request is too long for the model's context.
    pub fn is_context_exceeded(&self) -> bool {
        matches!(self, Self::Refused(refusal) if refusal.context_exceeded)
    }

    /// Returns the HTTP status, if the endpoint returned one.
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Refused(refusal) => Some(refusal.status),
            _ => None,
        }
    }

    /// Returns the time to wait before a retry, as the vendor requests it.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Refused(refusal) => refusal.retry_after,
            _ => None,
        }
    }
}
