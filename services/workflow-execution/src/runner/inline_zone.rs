//! Goes through the iterations of a zone whose nodes have no effects, beside the other tasks of the
//! process.

use std::sync::Arc;

use call_outcome::{Category, Failure};
use run_events::RunControl;
use run_log::AppendError;
use serde_json::Value;

use crate::domain::node_type::Settled;
use crate::domain::plan::PlanNode;
use crate::domain::zone::run::ZoneRun;

/// How many steps are done before other tasks get their turn.
const STEPS_PER_TURN: usize = 64;

/// Runs a zone to its end. A cancel of the run ends it.
pub(super) fn execute(
    planned: &PlanNode,
    seed: u64,
    inputs: &Vec<Option<Arc<Value>>>,
    control: RunControl,
) -> impl Future<Output = Result<Result<Settled, Failure>, AppendError>> + Send + use<> {
    let begun = ZoneRun::begin(planned, seed, inputs);
    async move {
        let mut zone = match begun {
            Ok(zone) => zone,
            Err(failure) => return Ok(Err(failure)),
        };
        while !control.is_cancelled() {
            if let Some(ended) = zone.advance(STEPS_PER_TURN) {
                return Ok(ended.map(Settled::Zone));
            }
            tokio::task::yield_now().await;
        }
        let message = "the run was cancelled before the zone had ended";
        Ok(Err(Failure::new(Category::Cancelled, "cancelled", message)))
    }
}
