//! Executing calls, by type of implementation.
//!
//! - [`builtin`]: methods of the platform, one file per family.
//! - [`backend`]: methods of registered gRPC servers.
//! - [`script`]: programs of plugins, in the sandbox.
//! - [`runs`]: workflows, single nodes, questions and agents, as runs of the services that own them.
//! - [`sandbox`]: the client that scripts and the code interpreter share.

pub mod backend;
pub mod builtin;
pub mod runs;
pub mod sandbox;
pub mod script;
mod terms;

use call_outcome::{CallOutcome, Category, Failure};
use std::{sync::Arc, time::Duration};

use contracts::tavern::common::v1::CallGrant;
use core_types::{ConversationId, Durability, EffectId};
use data_home::DataHome;
use futures::FutureExt;
use grpc_kit::CallContext;
use run_log::Hash;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tool_domain::{definition::Implementation, tool::Tool};

use crate::{arguments::Arguments, in_flight::InFlightCall, ledger::MAX_INLINE_BYTES};
use backend::Backends;
use builtin::Builtins;
use runs::ChildRuns;
use script::Scripts;
pub use terms::ScriptTerms;

/// One call that is to be executed: checked, completed and journalled.
#[derive(Clone, Debug)]
pub struct ResolvedCall {
    /// The tool.
    pub tool: Arc<Tool>,
    /// The arguments, defaults filled in.
    pub arguments: Arguments,
    /// The terms of the plugin that brings the tool.
    pub terms: ScriptTerms,
    /// The id of the effect; none for a call that is never repeated.
    pub effect_id: Option<EffectId>,
    /// The conversation whose workspace file tools use; none for a workspace of this call alone.
    pub conversation: Option<ConversationId>,
    /// The time at which the call is ended if it is still running.
    pub deadline: Instant,
    /// The timeout of the call as a whole; `None` leaves it to its run. It stays the same when the
    /// call is dispatched again, as part of the request by which a run is found again.
    pub timeout: Option<Duration>,
    /// The durability of the run below.
    pub durability: Durability,
    /// Which attempt at the effect this is, from 1.
    pub attempt: u32,
    /// The grant for the run below.
    pub grant: Option<CallGrant>,
    /// The state of the call that its followers see.
    pub in_flight: Arc<InFlightCall>,
    /// The context of the call's requests to other services: the runs above it and its deadline.
    pub context: CallContext,
}

impl ResolvedCall {
    /// Returns the time that is left.
    pub fn remaining(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// Returns the id by which a neighbour recognises a repeated request of this call; empty without an effect id.
    /// An effect id that a client chose is hashed, as the client may use the same text for requests of its own.
    pub fn request_id(&self) -> String {
        let is_of_client = self.context.path().steps().is_empty();
        match &self.effect_id {
            None => String::new(),
            Some(effect) if is_of_client => {
                format!("call#{}", Hash::of(effect.as_str().as_bytes()))
            }
            Some(effect) => effect.to_string(),
        }
    }
}

/// The executors of calls, by implementation.
#[derive(Clone, Debug)]
pub struct Dispatcher {
    /// The home whose lease allows effects.
    pub home: DataHome,
    /// Methods of the platform.
    pub builtins: Builtins,
    /// Registered gRPC servers.
    pub backends: Backends,
    /// Programs of plugins.
    pub scripts: Scripts,
    /// Workflows and nodes.
    pub runs: ChildRuns,
}

impl Dispatcher {
    /// Executes one call, until it ends, is cancelled or its time is over.
    pub async fn execute(
        &self,
        resolved: &ResolvedCall,
        cancel: &CancellationToken,
    ) -> CallOutcome {
        if resolved.tool.implementation().is_run() {
            // A run continues by itself, so it must be sent the cancel and the deadline.
            return self.runs.execute(resolved, cancel).boxed().await;
        }
        let work = self.start(resolved);
        let overdue = async {
            match resolved.tool.implementation() {
                // The code that calls a server ends by itself: only it knows whether the request has left.
                Implementation::Backend { .. } => std::future::pending().await,
                _ => tokio::time::sleep_until(resolved.deadline).await,
            }
        };
        tokio::select! {
            outcome = work => outcome,
            () = cancel.cancelled() => {
                CallOutcome::cancelled_after_start(resolved.tool.id(), &resolved.in_flight.cancel_reason())
            }
            () = overdue => out_of_time(resolved),
        }
    }

    /// Boxed, so that a call is as large as its executor, not as the largest of all.
    async fn start(&self, resolved: &ResolvedCall) -> CallOutcome {
        match resolved.tool.implementation() {
            Implementation::Builtin(method) => self.builtins.execute(method, resolved).await,
            Implementation::Backend { service, method } => {
                let execution = self.backends.execute(service, method, resolved);
                execution.boxed().await
            }
            Implementation::Script(program) => {
                self.scripts.execute(program, resolved).boxed().await
            }
            // Runs were handled before; their futures must not be dropped like the others.
            Implementation::Workflow { .. }
            | Implementation::Node { .. }
            | Implementation::Agent { .. }
            | Implementation::Question => {
                let never = CancellationToken::new();
                self.runs.execute(resolved, &never).boxed().await
            }
        }
    }
}

/// Returns the outcome of a call that has not ended in time. A program of the sandbox is ended with
/// it; a file tool on its thread may still complete.
fn out_of_time(resolved: &ResolvedCall) -> CallOutcome {
    match resolved.tool.implementation() {
        Implementation::Builtin(_) if !resolved.tool.may_repeat() => {
            CallOutcome::InDoubt(timeout(resolved))
        }
        _ => CallOutcome::Failed(timeout(resolved)),
    }
}

/// Makes the failure of a call whose time is over.
fn timeout(resolved: &ResolvedCall) -> Failure {
    let within = match resolved.timeout {
        Some(timeout) => format!("within its {} ms", timeout.as_millis()),
        None => "before the deadline of its caller".to_owned(),
    };
    let message = format!(
        "{} did not end {within}; ask for less at once, or give it a longer timeout",
        resolved.tool.id(),
    );
    Failure::new(Category::Timeout, "deadline_exceeded", message)
}

/// Makes the failure of a call whose output is too long for a result, and which has no effect id by
/// which the output could be read.
pub(crate) fn without_handle(tool: &str, bytes: usize) -> Failure {
    let message = format!(
        "{tool} did what it was asked, but its output of {bytes} bytes is larger than {MAX_INLINE_BYTES}, and \
         the call has no effect id by which the output could be read; call it with one, or ask for less \
         at once"
    );
    Failure::new(Category::Limit, "output_too_large", message).detail("bytes", bytes)
}
