//! Plans by the bundle that they were compiled from.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use workflow_domain::bundle::Bundle;
use workflow_domain::plan::Plan;

/// The most plans that are kept; the least recently used goes first.
const MAX_PLANS: usize = 256;

/// The most bytes of the texts of all kept plans together.
const MAX_BYTES: usize = 32 * 1024 * 1024;

/// Plans that were compiled before.
#[derive(Debug, Default)]
pub(super) struct Plans {
    /// Locked for a lookup or an insertion, never during a compilation.
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    plans: HashMap<Bundle, (Arc<Plan>, u64)>,
    bytes: usize,
    uses: u64,
}

impl Plans {
    pub(super) fn get(&self, bundle: &Bundle) -> Option<Arc<Plan>> {
        let mut kept = self.lock();
        kept.uses += 1;
        let now = kept.uses;
        let (plan, used) = kept.plans.get_mut(bundle)?;
        *used = now;
        Some(Arc::clone(plan))
    }

    pub(super) fn insert(&self, bundle: Bundle, plan: Plan) -> Arc<Plan> {
        let plan = Arc::new(plan);
        let mut kept = self.lock();
        kept.uses += 1;
        let now = kept.uses;
        let bytes = bundle.bytes();
        if kept
            .plans
            .insert(bundle, (Arc::clone(&plan), now))
            .is_none()
        {
            kept.bytes += bytes;
        }
        while kept.plans.len() > MAX_PLANS || kept.bytes > MAX_BYTES && kept.plans.len() > 1 {
            let oldest = kept
                .plans
                .iter()
                .min_by_key(|(_, (_, used))| *used)
                .map(|(bundle, _)| bundle.clone());
            let Some(oldest) = oldest else { break };
            kept.plans.remove(&oldest);
            kept.bytes -= oldest.bytes();
        }
        plan
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use workflow_domain::compile::compile_text;

    #[test]
    fn the_plan_that_was_not_used_for_longest_goes_first() {
        let plans = Plans::default();
        let text = |number: usize| Bundle::of(format!("{{\"nodes\":[],\"name\":\"{number}\"}}"));
        for number in 0..MAX_PLANS {
            plans.insert(
                text(number),
                compile_text(&text(number).root, &workflow_nodes::builtin()).unwrap(),
            );
        }
        assert!(plans.get(&text(0)).is_some());
        plans.insert(
            text(MAX_PLANS),
            compile_text(&text(MAX_PLANS).root, &workflow_nodes::builtin()).unwrap(),
        );
        assert!(plans.get(&text(0)).is_some());
        assert!(plans.get(&text(1)).is_none());
    }
}
