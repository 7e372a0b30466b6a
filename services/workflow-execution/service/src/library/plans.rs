//! Plans by the bundle that they were compiled from, and its tenant: the time of a compilation must not show that
//! another tenant has the same definition.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use core_types::Tenant;
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
    plans: HashMap<(Tenant, Bundle), (Arc<Plan>, u64)>,
    bytes: usize,
    uses: u64,
}

impl Plans {
    pub(super) fn get(&self, of: &(Tenant, Bundle)) -> Option<Arc<Plan>> {
        let mut kept = self.lock();
        kept.uses += 1;
        let now = kept.uses;
        let (plan, used) = kept.plans.get_mut(of)?;
        *used = now;
        Some(Arc::clone(plan))
    }

    pub(super) fn insert(&self, of: (Tenant, Bundle), plan: Plan) -> Arc<Plan> {
        let plan = Arc::new(plan);
        let mut kept = self.lock();
        kept.uses += 1;
        let now = kept.uses;
        let bytes = of.1.bytes();
        if kept.plans.insert(of, (Arc::clone(&plan), now)).is_none() {
            kept.bytes += bytes;
        }
        while kept.plans.len() > MAX_PLANS || kept.bytes > MAX_BYTES && kept.plans.len() > 1 {
            let oldest = kept
                .plans
                .iter()
                .min_by_key(|(_, (_, used))| *used)
                .map(|(of, _)| of.clone());
            let Some(oldest) = oldest else { break };
            kept.plans.remove(&oldest);
            kept.bytes -= oldest.1.bytes();
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
    fn the_plan_that_was_not_used_for_longest_goes_first_and_is_of_one_tenant() {
        let plans = Plans::default();
        let of = |number: usize| {
            let bundle = Bundle::of(format!("{{\"nodes\":[],\"name\":\"{number}\"}}"));
            (Tenant::DEFAULT, bundle)
        };
        let insert = |number: usize| {
            let (tenant, bundle) = of(number);
            let plan = compile_text(&bundle.root, &workflow_nodes::builtin()).unwrap();
            plans.insert((tenant, bundle), plan);
        };
        (0..MAX_PLANS).for_each(insert);
        assert!(plans.get(&of(0)).is_some());
        assert!(plans.get(&(Tenant::SYSTEM, of(0).1)).is_none());
        insert(MAX_PLANS);
        assert!(plans.get(&of(0)).is_some());
        assert!(plans.get(&of(1)).is_none());
    }
}
