//! Carrying calls out, by type of implementation.
//!
//! - [`builtin`]: methods of the platform, one file per family.
//! - [`backend`]: methods of registered gRPC servers.
//! - [`script`]: programs of plugins, in the sandbox.
//! - [`runs`]: workflows and single nodes, as runs of the workflow service.
//! - [`sandbox`]: the client that scripts and the code interpreter share.

pub mod backend;
pub mod builtin;
pub(crate) mod retry;
pub mod runs;
pub mod sandbox;
pub mod script;

use std::{sync::Arc, time::Duration};

use core_types::{ConversationId, Durability, EffectId};
use serde_json::Value;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{
    domain::{
        definition::Implementation,
        ending::{Category, Ending, Failure},
        tool::Tool,
    },
    flight::Flight,
};
use backend::Backends;
use builtin::Builtins;
use runs::WorkflowRuns;
use script::Scripts;

/// One call that is to be carried out: checked, completed and journalled.
#[derive(Clone, Debug)]
pub struct Order {
    /// The tool.
    pub tool: Arc<Tool>,
    /// The arguments, defaults filled in.
    pub arguments: Value,
    /// The id of the effect; none for a call that is never repeated.
    pub effect_id: Option<EffectId>,
    /// The conversation whose workspace file tools use; none for a workspace of this call alone.
    pub conversation: Option<ConversationId>,
    /// When the call is ended if it has not ended by itself.
    pub deadline: Instant,
    /// How long the call may take in all. It stays the same when the call is dispatched again, as
    /// part of the request by which the workflow service finds a run.
    pub timeout: Duration,
    /// The durability of what runs below.
    pub durability: Durability,
    /// Which attempt at the effect this is, from 1.
    pub attempt: u32,
    /// Where others see how the call goes.
    pub flight: Arc<Flight>,
}

impl Order {
    /// Returns the time that is left.
    pub fn remaining(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }
}

/// Everything that can carry calls out.
#[derive(Clone, Debug)]
pub struct Dispatcher {
    /// Methods of the platform.
    pub builtins: Builtins,
    /// Registered gRPC servers.
    pub backends: Backends,
    /// Programs of plugins.
    pub scripts: Scripts,
    /// Workflows and nodes.
    pub runs: WorkflowRuns,
}

impl Dispatcher {
    /// Carries one call out, until it ends, is cancelled or its time is over.
    pub async fn carry_out(&self, order: &Order, cancel: &CancellationToken) -> Ending {
        if order.tool.implementation().is_run() {
            // A run continues by itself, so cancel and deadline must be told to it.
            return self.runs.carry_out(order, cancel).await;
        }
        let work = self.start(order);
        tokio::select! {
            ending = work => ending,
            () = cancel.cancelled() => {
                Ending::cancelled_after_start(order.tool.id(), &order.flight.cancel_reason())
            }
            () = tokio::time::sleep_until(order.deadline) => out_of_time(order),
        }
    }

    async fn start(&self, order: &Order) -> Ending {
        match order.tool.implementation() {
            Implementation::Builtin(method) => self.builtins.carry_out(method, order).await,
            Implementation::Backend { service, method } => {
                self.backends.carry_out(service, method, order).await
            }
            Implementation::Script(program) => self.scripts.carry_out(program, order).await,
            // Runs were handled before; their futures must not be dropped like the others.
            Implementation::Workflow { .. } | Implementation::Node { .. } => {
                self.runs.carry_out(order, &CancellationToken::new()).await
            }
        }
    }
}

/// Returns how a call ends that has not ended in time. A program of the sandbox is ended with it; a
/// server, or a file tool on its thread, may still do what it was asked.
fn out_of_time(order: &Order) -> Ending {
    match order.tool.implementation() {
        Implementation::Backend { service, .. } => backend::without_answer(
            service,
            order,
            Category::Timeout,
            "deadline_exceeded",
            "did not answer in time",
        ),
        Implementation::Builtin(_) if !order.tool.may_repeat() => Ending::InDoubt(timeout(order)),
        _ => Ending::Failed(timeout(order)),
    }
}

/// Makes the failure of a call whose time is over.
fn timeout(order: &Order) -> Failure {
    let message = format!(
        "{} did not end within its {} ms; ask for less at once, or give it a longer timeout",
        order.tool.id(),
        order.timeout.as_millis()
    );
    Failure::new(Category::Timeout, "deadline_exceeded", message)
}
