//! Decides about calls in doubt while a set is killed and restarted.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use contracts::tavern::registry::v1::{
    Call, CallDecision, CallState, ListCallsRequest, ResolveCallRequest,
};
use serde_json::json;
use testkit::Stack;
use tokio::task::JoinHandle;

/// Returns decisions at random.
pub(crate) fn at_random(seed: u64) -> impl FnMut(&Call) -> CallDecision + Send + 'static {
    let mut random = fastrand::Rng::with_seed(seed);
    move |_| {
        let all = [
            CallDecision::TookEffect,
            CallDecision::DidNot,
            CallDecision::Repeat,
        ];
        all[random.usize(0..all.len())]
    }
}

/// Decides about each call in doubt, until it is dropped.
pub(crate) struct Decider {
    task: JoinHandle<()>,
    /// The decisions about each effect.
    decided: Arc<Mutex<HashMap<String, Vec<CallDecision>>>>,
}

impl Decider {
    /// Begins to decide about the calls of a set, which may be restarted meanwhile.
    pub(crate) fn start(
        stack: &Stack,
        mut decision_about: impl FnMut(&Call) -> CallDecision + Send + 'static,
    ) -> Self {
        let decided = Arc::<Mutex<HashMap<String, Vec<CallDecision>>>>::default();
        let (kept, calls) = (Arc::clone(&decided), stack.calls());
        let task = tokio::spawn(async move {
            let mut calls = calls;
            loop {
                let request = ListCallsRequest {
                    state: CallState::InDoubt.into(),
                    ..ListCallsRequest::default()
                };
                // The set may be away.
                let listed = calls.list_calls(request).await;
                for call in listed.map_or_else(|_| Vec::new(), |listed| listed.into_inner().calls) {
                    let decision = decision_about(&call);
                    let request = ResolveCallRequest {
                        effect_id: call.effect_id.clone(),
                        decision: decision.into(),
                        output_json: output_of(&call, decision),
                        ..ResolveCallRequest::default()
                    };
                    // Noted first, as a kill may swallow the answer to a decision that counts.
                    kept.lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .entry(call.effect_id.clone())
                        .or_default()
                        .push(decision);
                    let _ = calls.resolve_call(request).await;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        });
        Self { task, decided }
    }

    /// Returns the times that an effect may have happened: once, and once more for each decision
    /// that lets it happen again.
    pub(crate) fn allowed(&self, effect_id: &str) -> usize {
        let decided = self.decided.lock().unwrap_or_else(PoisonError::into_inner);
        let again = decided.get(effect_id).map_or(0, |decisions| {
            let again = decisions
                .iter()
                .filter(|decision| **decision != CallDecision::TookEffect);
            again.count()
        });
        1 + again
    }

    /// Whether something was decided about an effect.
    pub(crate) fn decided(&self, effect_id: &str) -> bool {
        let decided = self.decided.lock().unwrap_or_else(PoisonError::into_inner);
        decided.contains_key(effect_id)
    }

    /// Returns the number of effects that were decided about.
    pub(crate) fn count(&self) -> usize {
        let decided = self.decided.lock().unwrap_or_else(PoisonError::into_inner);
        decided.len()
    }
}

/// Returns the answer of the ledger where the node of a plugin needs one.
fn output_of(call: &Call, decision: CallDecision) -> String {
    let is_known = decision == CallDecision::TookEffect && call.tool_id.starts_with("node:");
    match is_known {
        true => json!({"index": 0, "effectId": call.effect_id, "appended": true}).to_string(),
        false => String::new(),
    }
}

impl Drop for Decider {
    fn drop(&mut self) {
        self.task.abort();
    }
}
