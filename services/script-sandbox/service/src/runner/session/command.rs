//! What a session can be ordered to do.

use std::{sync::Arc, time::Duration};

use tokio::sync::oneshot;
use tracing::Span;

use super::{CellEvent, CellRequest};
use crate::{domain::session::EndReason, runner::streaming::output_queue::OutputQueue};

/// Something that a session is to do, and where the answer goes. No answer: it has ended.
#[derive(Debug)]
pub(crate) struct SessionOrder {
    pub(super) command: Command,
    pub(super) answer: oneshot::Sender<bool>,
}

/// Something that a session is to do.
#[derive(Debug)]
pub(crate) enum Command {
    /// Run a cell; the answer says whether it does.
    Run {
        request: CellRequest,
        queue: Arc<OutputQueue<CellEvent>>,
        gone: oneshot::Receiver<()>,
        /// The span of the call.
        span: Span,
    },
    /// Interrupt the cell that runs; the answer comes when it has ended and says whether one ran.
    Interrupt {
        /// How long it may take.
        grace: Duration,
    },
    /// End, unless a cell runs.
    Evict,
    /// End.
    End(EndReason),
}

/// Why a session is to end.
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
