//! Nodes whose results are reused: the requests to the cache before they run, and the results kept after.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use contracts::tavern::common::v1::NodeCache;
use futures::future::FutureExt;

use crate::wire;
use workflow_domain::cache::{CacheMode, CacheSettings};
use workflow_domain::data_flow::Values;
use workflow_domain::plan::NodeIndex;

use super::super::result_cache::asked::{KeyInputs, RunContext, note_of_hit, note_of_miss};
use super::super::result_cache::{CacheLookup, Flight, Miss, Wanted};
use super::super::run_loop::{Happening, NodeEnd};
use super::{Drive, Requested};

/// The results that are to be kept of nodes that have not ended. A flight ends with its node: others wait
/// for the result.
#[derive(Default)]
pub(super) struct KeptResults {
    by_node: HashMap<NodeIndex, (Wanted, Option<Flight>)>,
}

/// The answer to a request to the cache.
pub(super) enum NodeLookup {
    /// The inputs of the node are none that a result is known by.
    NoKey,
    /// A tool of the node is not read-only.
    NotReadOnly,
    Found(Box<(Wanted, CacheLookup)>),
}

impl Drive {
    /// Asks the cache for a result of a node.
    pub(super) fn look_up(&mut self, node: NodeIndex) {
        let of_run = RunContext {
            tenant: self.of_run.tenant(),
            run_id: self.recorder().run_id().to_string(),
            workflow_id: self.of_run.workflow_id.clone(),
            conversation_id: self.of_run.conversation_id.clone(),
        };
        let path = self.nodes.state().path_of(node);
        let asked = KeyInputs::of(self.engine(), node, &path, &of_run);
        let (Some(asked), Some(settings)) = (asked, self.cache_settings(node)) else {
            return self.looked_up(node, NodeLookup::NoKey);
        };
        let (runner, now) = (Arc::clone(&self.of_run.runner), self.now());
        let peers = runner.peers(&self.control.call_context());
        let look = async move {
            let Some(wanted) = asked.wanted(&peers).await else {
                return (node, Requested::LookedUp(NodeLookup::NotReadOnly));
            };
            let found = match settings.mode {
                CacheMode::Refresh => CacheLookup::Miss(Miss::Refreshed, None),
                _ => runner.cache.find(&wanted, settings.ttl, now).await,
            };
            let found = NodeLookup::Found(Box::new((wanted, found)));
            (node, Requested::LookedUp(found))
        };
        self.requests.push(look.boxed());
    }

    /// Ends a node whose result is reused, or lets it run.
    pub(super) fn looked_up(&mut self, node: NodeIndex, looked: NodeLookup) {
        let (note, gave) = match looked {
            NodeLookup::NoKey => (None, None),
            NodeLookup::NotReadOnly => (Some(note_of_miss(None, Miss::NotReadOnly)), None),
            NodeLookup::Found(found) => {
                let (note, gave) = self.found(node, *found);
                (Some(note), gave)
            }
        };
        self.take_after(node, Happening::LookedUp(note, gave), Duration::ZERO);
    }

    /// Returns the note of a look-up, and the outputs that are reused; without them the node's own are kept later.
    fn found(
        &mut self,
        node: NodeIndex,
        found: (Wanted, CacheLookup),
    ) -> (NodeCache, Option<Values>) {
        let (wanted, found) = found;
        let (miss, flight) = match found {
            CacheLookup::Hit(hit) => {
                let own_shape = &self.engine().node(node).own_shape;
                if let Ok(values) = wire::values_from_json(&own_shape.outputs, &hit.outputs) {
                    return (note_of_hit(&wanted, &hit, self.now()), Some(values));
                }
                // The stored value under this name is not a result of the node.
                (Miss::Evicted, None)
            }
            CacheLookup::Miss(miss, flight) => (miss, flight),
        };
        let note = note_of_miss(Some(&wanted), miss);
        self.keep_later(node, wanted, flight);
        (note, None)
    }

    /// Keeps the result of a node that gave its outputs, and lets others look who waited for it.
    pub(super) fn keep_result(&mut self, node: NodeIndex, end: NodeEnd) {
        let Some((wanted, _flight)) = self.kept.by_node.remove(&node) else {
            return;
        };
        if let Some(outputs) = end.outputs {
            let own_shape = &self.engine().node(node).own_shape;
            let kept = wire::values_to_json(&own_shape.outputs, &outputs);
            let (run_id, now) = (self.recorder().run_id().to_string(), self.now());
            let cache = &self.of_run.runner.cache;
            cache.keep(wanted, kept.into(), &run_id, now);
        }
    }

    fn keep_later(&mut self, node: NodeIndex, wanted: Wanted, flight: Option<Flight>) {
        let settings = self.cache_settings(node);
        // A result that is only read is not kept, so others do not wait for it.
        if settings.is_none_or(|settings| settings.mode != CacheMode::Read) {
            self.kept.by_node.insert(node, (wanted, flight));
        }
    }

    fn cache_settings(&self, node: NodeIndex) -> Option<CacheSettings> {
        self.engine().node(node).execution.as_ref()?.cache
    }
}
