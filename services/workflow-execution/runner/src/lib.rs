//! Executes runs of workflows: carries out the commands of the engine of [`workflow_domain`], and
//! records the events.
//!
//! Pure nodes run inline and their outcomes are collected. Before a node with an effect starts, all
//! collected outcomes, the node's start and the dispatch of its call are made durable together;
//! after it, the settled call and the outcome are. So a chain of n such nodes costs n + 1 commits,
//! no node ever starts before its inputs are safe, and a crash leaves at most calls that are known
//! to be unsettled.
//!
//! - [`run_state`]: the state of a run, the fold of its events; [`needed`]: which of them are needed to
//!   continue it; `checkpoints`: noting them.
//! - [`run_loop`], [`zone_loop`]: the loops of the nodes of a run and of the iterations of a zone, without
//!   I/O; `drive`, `zone`: the I/O for their actions.
//! - `tool_call`, `tool_batch`, `describe_tools`, `script_call`, `model_call`, `history_call`: the kinds of
//!   effects; `node_output`: the text of a script or model; [`effect_end`], [`settle`]: their results.
//! - `slot_stream`: the streaming outputs of a node; `interface_stream`: those of a run; `tool_text`: the text
//!   of tools; `yielded`: the values that a script yields.
//! - `peers`: the services that nodes need.
//! - `permits`: concurrency limits; `effect_permits`: of effects; `run_place`, `run_keys`: of runs.
//! - [`forked`]: the parts that a run takes over from another.
//! - `handled`: the failures that the outcome of a run lists.
//! - `result_cache`: results that other nodes reuse; `predict`: those that a run would reuse.
//! - [`allowance`]: the budget of a run that works for an agent.
//! - `activity`: whether something of a run is under way that is no wait.
//! - `inline_zone`: the iterations of zones whose nodes have no effects.
//! - [`wire`]: values and outputs of nodes as JSON text.
//!
//! It names no node type and no table: it executes any plan, and stores results through a
//! [`ResultStore`].

mod activity;
pub mod allowance;
pub mod checkpoints;
mod describe_tools;
mod drive;
pub mod effect_end;
mod effect_permits;
pub mod forked;
mod handled;
mod history_call;
mod inline_zone;
mod interface_stream;
mod model_call;
pub mod needed;
mod node_output;
mod peers;
mod permits;
mod predict;
mod repeatable;
mod result_cache;
pub mod run_keys;
pub mod run_loop;
mod run_place;
pub mod run_state;
mod script_call;
pub mod settle;
mod slot_stream;
mod tool_batch;
mod tool_call;
mod tool_text;
pub mod wire;
mod yielded;
mod zone;
pub mod zone_loop;

use std::sync::Arc;
use std::time::Duration;

use call_outcome::{Category, Failure};
use contracts::tavern::registry::v1::identity_service_client::IdentityServiceClient;
use core_types::Tenant;
use grpc_kit::{CallContext, Outbound};
use plugin_client::OverrideClient;
use run_client::CallClient;
use run_events::{End, Recorder, RunControl, Waits};
use run_log::AppendError;
use tenancy::Tenants;
use tonic::Status;

use allowance::Allowance;
use checkpoints::Checkpoints;
use effect_permits::EffectPermits;
use repeatable::RepeatableTools;
use run_state::RunState;
use workflow_domain::node_type::Settled;

pub use effect_permits::Concurrency;
pub use peers::{Clients, Peers};
pub use result_cache::{LastResult, ResultCache, ResultChange, ResultRow, ResultStore, TenantKey};
pub use run_place::{RunBounds, RunEntry, RunPlace, RunPlaces};

/// Executes runs.
#[derive(Debug)]
pub struct Runner {
    peers: Peers,
    cache: Arc<ResultCache>,
    permits: EffectPermits,
    /// The weights of tenants, by which effects have their turns.
    tenants: Tenants,
    repeatable: RepeatableTools,
    /// The time for which a run that only waits stays in memory.
    rest_after: Duration,
}

/// A run at some point of its progress.
#[derive(Debug)]
pub struct Prepared {
    /// The state of the run.
    pub state: RunState,
    /// The grant and the usage of the run.
    pub allowance: Arc<Allowance>,
    /// The conversation whose workspace tools use.
    pub conversation_id: String,
    /// The id of the workflow; empty for a definition that is not stored.
    pub workflow_id: String,
}

impl Runner {
    /// Uses the services, the results that may be reused, the bounds and the weights of tenants, and the time for which
    /// a run that only waits stays in memory.
    pub fn new(
        peers: Peers,
        cache: Arc<ResultCache>,
        (concurrency, tenants): (Concurrency, Tenants),
        rest_after: Duration,
    ) -> Self {
        Self {
            peers,
            cache,
            permits: EffectPermits::new(concurrency),
            tenants,
            repeatable: RepeatableTools::default(),
            rest_after,
        }
    }

    /// Executes a run to its end.
    pub async fn run(
        self: Arc<Self>,
        prepared: Prepared,
        waits: (Waits, Checkpoints),
        place: RunPlace,
        recorder: Recorder,
        control: RunControl,
    ) -> End {
        drive::run(self, prepared, waits, place, recorder, control).await
    }

    /// Waits until all data that outlives the process is written.
    pub async fn flush(&self) {
        self.cache.flush().await;
    }

    /// Forgets the results of a tenant whose rows are to be removed from the store.
    pub async fn forget_tenant(&self, tenant: Tenant) {
        self.cache.forget_tenant(tenant).await;
    }

    /// Whether each of these tools is read-only or idempotent.
    async fn may_repeat(&self, peers: &Clients, tool_ids: &[String]) -> bool {
        self.repeatable.all(peers, tool_ids).await
    }

    /// Returns the client of calls.
    pub fn calls(&self) -> &CallClient {
        &self.peers.calls
    }

    /// Returns the client of services that backends of plugins stand in for.
    fn overrides(&self) -> OverrideClient {
        self.peers.hooks.overrides()
    }

    /// Returns the services for the calls of `context`.
    pub fn peers(&self, context: &CallContext) -> Clients {
        self.peers.with(context)
    }

    /// Returns the registry's knowledge of principals, for the service's own questions about them.
    pub fn identities(&self) -> IdentityServiceClient<Outbound> {
        self.peers.identities()
    }
}

/// Waits for work that is dropped, and so ended, after its time limit.
///
/// # Errors
/// The run's log rejects events, so the run cannot continue now.
async fn within(
    timeout: Option<Duration>,
    work: impl Future<Output = Result<Result<Settled, Failure>, AppendError>>,
) -> Result<Result<Settled, Failure>, AppendError> {
    let Some(timeout) = timeout else {
        return work.await;
    };
    let ended = tokio::time::timeout(timeout, work).await;
    ended.unwrap_or_else(|_| Ok(Err(overdue(timeout))))
}

/// Makes the failure of a node that exceeded its time limit.
fn overdue(timeout: Duration) -> Failure {
    let message = format!("the node had not ended after {timeout:?}");
    Failure::new(Category::Timeout, "node_timeout", message)
}

/// Returns the stable code of a failure from its status.
fn code_of(status: &Status, otherwise: &str) -> String {
    let name = grpc_kit::reason(status).map(grpc_kit::failure::reason_name);
    name.map_or_else(|| otherwise.to_owned(), str::to_lowercase)
}
