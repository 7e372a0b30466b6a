//! The orders to a session.

use std::{sync::Arc, time::Duration};

use tokio::sync::oneshot;
use tracing::Span;

use super::{CellEvent, CellRequest};
use crate::{domain::session::EndReason, runner::streaming::output_queue::OutputQueue};

/// An order to a session, and the sender of its answer. No answer: the session has ended.
#[derive(Debug)]
pub(crate) struct SessionOrder {
    pub(super) command: Command,
    pub(super) answer: oneshot::Sender<bool>,
}

/// A command to a session.
#[derive(Debug)]
pub(crate) enum Command {
    /// Run a cell; the answer reports whether it runs.
    Run {
        request: CellRequest,
        queue: Arc<OutputQueue<CellEvent>>,
        gone: oneshot::Receiver<()>,
        /// The span of the call.
        span: Span,
    },
    /// Interrupt the running cell; the answer comes at its end and reports whether one ran.
    Interrupt {
        /// The longest time that it may take.
        grace: Duration,
    },
    /// End, unless a cell runs.
    Evict,
    /// End.
    End(EndReason),
}

/// The reason for ending a session.
#[derive(Debug)]
pub(super) struct Stop {
    pub(super) reason: EndReason,
    pub(super) detail: String,
}

impl Stop {
    pub(super) fn because(reason: EndReason) -> Self {
        Self::of(reason, "")
    }

    pub(super) fn of(reason: EndReason, detail: impl Into<String>) -> Self {
        let detail = detail.into();
        Self { reason, detail }
    }
}
