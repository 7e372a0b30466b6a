//! The limits of an effect's permits: its key, its run, its type and its depth (rule W50).

use std::collections::BTreeMap;
use std::convert::Infallible;

use core_types::{MAX_CALL_DEPTH, Tenant};
use run_events::Recorder;

use super::permits::{Admission, Bound, Limit, Permits, QueuePlace};

/// The most effects at once.
#[derive(Clone, Debug)]
pub struct Concurrency {
    /// The effects of one run.
    pub per_run: usize,
    /// The effects of all runs at the same depth of nesting: a run that waits for a run below it
    /// must not keep that run from its permit.
    pub per_depth: usize,
    /// The effects of nodes of a type, in all runs at the same depth.
    pub per_type: BTreeMap<String, usize>,
}

/// The permits of all effects.
#[derive(Debug)]
pub(super) struct EffectPermits {
    permits: Permits,
    bounds: Concurrency,
}

/// The key of a node, and the most holders of it.
pub(super) type Key = (String, usize);

impl EffectPermits {
    pub(super) fn new(bounds: Concurrency) -> Self {
        Self {
            permits: Permits::default(),
            bounds,
        }
    }

    pub(super) fn per_run(&self) -> usize {
        self.bounds.per_run
    }

    /// Acquires the permits of a node's effect, or a turn in the queue for them.
    pub(super) fn ask(
        &self,
        recorder: &Recorder,
        full_type: &str,
        key: Option<Key>,
        place: QueuePlace,
    ) -> Admission {
        let depth = recorder.path().len().min(MAX_CALL_DEPTH);
        let mut bounds = Vec::with_capacity(5);
        if let Some(key) = key {
            bounds.extend(self.key(recorder, place.tenant, key));
        }
        bounds.push((Limit::EffectsOfRun(recorder.run_id()), self.bounds.per_run));
        if let Some(most) = self.bounds.per_type.get(full_type) {
            bounds.push((Limit::NodeType(depth, full_type.to_owned()), *most));
        }
        bounds.push((Limit::Effects(depth), self.bounds.per_depth));
        // Each run bounds the number of its nodes that wait.
        let Ok(admission) = self.permits.ask(bounds, place, |_| Ok::<_, Infallible>(()));
        admission
    }

    /// A run below the holder of a key is part of it.
    fn key(&self, recorder: &Recorder, tenant: Tenant, (key, most): Key) -> Vec<Bound> {
        let of_run = |run: &String| Limit::KeyOfRun(run.clone(), key.clone());
        let mut above = recorder.path().iter().map(of_run);
        if above.any(|limit| self.permits.is_held(&limit)) {
            return Vec::new();
        }
        let own = of_run(&recorder.run_id().to_string());
        vec![(Limit::Key(tenant, key), most), (own, usize::MAX)]
    }
}
