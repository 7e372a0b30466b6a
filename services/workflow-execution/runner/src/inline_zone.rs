//! Runs the iterations of a zone whose nodes have no effects, alongside the other tasks of the
//! process.

use std::sync::Arc;
use std::time::Duration;

use call_outcome::{Category, Failure};
use run_events::RunControl;
use serde_json::Value;

use workflow_domain::data_flow::Values;
use workflow_domain::plan::PlanNode;
use workflow_domain::zone::run::{HandledInside, ZoneRun};

use super::overdue;

/// The number of steps before other tasks have their turn.
const STEPS_PER_TURN: usize = 64;

/// The end of such a zone.
#[derive(Debug)]
pub struct InlineEnd {
    /// The outputs of the zone, or its failure.
    pub(super) gave: Result<Vec<Arc<Value>>, Failure>,
    /// The handled failures inside it.
    pub(super) handled: Vec<HandledInside>,
}

/// Runs a zone to its end. A cancel of the run ends it, and so does its time limit.
pub(super) fn execute(
    planned: &PlanNode,
    seed: u64,
    inputs: &Values,
    control: RunControl,
    timeout: Option<Duration>,
) -> impl Future<Output = InlineEnd> + Send + use<> {
    let begun = ZoneRun::begin(planned, seed, inputs);
    async move {
        let mut zone = match begun {
            Ok(zone) => zone,
            Err(failure) => return InlineEnd::failed(failure),
        };
        let gave = match timeout {
            None => advance(&mut zone, &control).await,
            Some(timeout) => tokio::time::timeout(timeout, advance(&mut zone, &control))
                .await
                .unwrap_or_else(|_| Err(overdue(timeout))),
        };
        let handled = zone.into_handled();
        InlineEnd { gave, handled }
    }
}

async fn advance(zone: &mut ZoneRun, control: &RunControl) -> Result<Vec<Arc<Value>>, Failure> {
    while !control.is_cancelled() {
        if let Some(ended) = zone.advance(STEPS_PER_TURN) {
            return ended;
        }
        tokio::task::yield_now().await;
    }
    let message = "the run was cancelled before the zone had ended";
    Err(Failure::new(Category::Cancelled, "cancelled", message))
}

impl InlineEnd {
    fn failed(failure: Failure) -> Self {
        Self {
            gave: Err(failure),
            handled: Vec::new(),
        }
    }
}
