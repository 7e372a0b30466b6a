//! Nodes whose results are reused: what the cache is asked before they run, and given after.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use contracts::tavern::common::v1 as common;
use core_types::Timestamp;
use futures::future::{BoxFuture, FutureExt};
use futures::stream::{FuturesUnordered, StreamExt};

use crate::wire;
use workflow_domain::cache::{CacheMode, CacheSettings};
use workflow_domain::data_flow::Values;
use workflow_domain::engine::{Command, Status};
use workflow_domain::plan::NodeIndex;

use super::super::result_cache::asked::{KeyInputs, RunContext, note_of_hit, note_of_miss};
use super::super::result_cache::{CacheLookup, Flight, Hit, Miss, Wanted};
use super::Drive;

/// What the cache has for the nodes of a run, or of an iteration in it.
#[derive(Default)]
pub(super) struct NodeCaches {
    lookups: FuturesUnordered<BoxFuture<'static, (NodeIndex, NodeLookup)>>,
    /// What was found for each node that has not ended.
    looked: HashMap<NodeIndex, CachedNode>,
}

/// The result of a lookup in the cache.
pub(super) enum NodeLookup {
    /// A tool of the node is not read-only.
    NotReadOnly,
    Found(Wanted, CacheLookup),
}

/// What is known of a node that has not ended.
struct CachedNode {
    note: common::NodeCache,
    /// What its result is to be kept as; nothing if it is not.
    keeps: Option<Wanted>,
    /// Ends with the node: others wait for its result.
    _flight: Option<Flight>,
}

impl NodeCaches {
    /// Whether nothing is looked for.
    pub(super) fn is_idle(&self) -> bool {
        self.lookups.is_empty()
    }

    /// Returns the next node for which something was found or not; nothing if none is looked for.
    pub(super) async fn next(&mut self) -> Option<(NodeIndex, NodeLookup)> {
        self.lookups.next().await
    }

    /// Returns how a node ended that gave its outputs.
    pub(super) fn state_of(&self, node: NodeIndex) -> common::NodeState {
        let known = self.looked.get(&node);
        match known.is_some_and(|known| !known.note.source_run_id.is_empty()) {
            true => common::NodeState::Cached,
            false => common::NodeState::Succeeded,
        }
    }

    /// Returns what is recorded of a node that ended, and forgets the node.
    pub(super) fn take_note(&mut self, node: NodeIndex) -> Option<common::NodeCache> {
        self.looked.remove(&node).map(|known| known.note)
    }
}

impl Drive {
    /// Begins to look for a result of a node that may reuse one, and returns whether it did.
    pub(super) fn look_up(&mut self, node: NodeIndex) -> bool {
        let planned = self.engine.node(node);
        let settings = planned.execution.as_ref().and_then(|given| given.cache);
        let Some(settings) = settings.filter(|_| !planned.bypassed) else {
            return false;
        };
        // A node that has begun is not looked for: its effect may have left.
        if self.engine.status(node) != Status::Ready || self.caches.looked.contains_key(&node) {
            return false;
        }
        let of_run = RunContext {
            run_id: self.recorder.run_id().to_string(),
            workflow_id: self.workflow_id.clone(),
            conversation_id: self.conversation_id.clone(),
        };
        let Some(asked) = KeyInputs::of(&self.engine, node, &self.path_of(node), &of_run) else {
            return false;
        };
        let (runner, now) = (Arc::clone(&self.runner), self.recorder.now());
        let peers = runner.peers(&self.control.call_context());
        let look = async move {
            let Some(wanted) = asked.wanted(&peers).await else {
                return (node, NodeLookup::NotReadOnly);
            };
            let found = match settings.mode {
                CacheMode::Refresh => CacheLookup::Miss(Miss::Refreshed, None),
                _ => runner.cache.find(&wanted, settings.ttl, now).await,
            };
            (node, NodeLookup::Found(wanted, found))
        };
        self.caches.lookups.push(look.boxed());
        true
    }

    /// Ends a node whose result is reused, or lets it run.
    pub(super) fn looked_up(&mut self, node: NodeIndex, looked: NodeLookup) {
        let (known, gave) = match looked {
            NodeLookup::NotReadOnly => (CachedNode::not_read_only(), None),
            NodeLookup::Found(wanted, CacheLookup::Hit(hit)) => {
                let own_shape = &self.engine.node(node).own_shape;
                match wire::values_from_json(&own_shape.outputs, &hit.outputs) {
                    Ok(values) => (
                        CachedNode::reused(&wanted, &hit, self.recorder.now()),
                        Some(values),
                    ),
                    // What was kept under this name is none of its results.
                    Err(_) => (CachedNode::missed(wanted, Miss::Evicted, None), None),
                }
            }
            NodeLookup::Found(wanted, CacheLookup::Miss(miss, flight)) => {
                (CachedNode::missed(wanted, miss, flight), None)
            }
        };
        let known = match self.cache_settings(node) {
            // Its result is not kept, so others do not wait for it.
            Some(settings) if settings.mode == CacheMode::Read => CachedNode {
                keeps: None,
                _flight: None,
                ..known
            },
            _ => known,
        };
        self.caches.looked.insert(node, known);
        match gave {
            Some(values) => self.finish(node, Ok(values), Duration::ZERO),
            None => self.commands.push_front(Command::Execute(node)),
        }
    }

    /// Keeps the result of a node that gave its outputs.
    pub(super) fn keep_result(&mut self, node: NodeIndex, outputs: &Values) {
        let known = self.caches.looked.get_mut(&node);
        let Some(wanted) = known.and_then(|known| known.keeps.take()) else {
            return;
        };
        let own_shape = &self.engine.node(node).own_shape;
        let kept = wire::values_to_json(&own_shape.outputs, outputs);
        let (run_id, now) = (self.recorder.run_id().to_string(), self.recorder.now());
        self.runner.cache.keep(wanted, kept.into(), &run_id, now);
    }

    fn cache_settings(&self, node: NodeIndex) -> Option<CacheSettings> {
        self.engine.node(node).execution.as_ref()?.cache
    }
}

impl CachedNode {
    fn reused(wanted: &Wanted, hit: &Hit, now: Timestamp) -> Self {
        Self {
            note: note_of_hit(wanted, hit, now),
            keeps: None,
            _flight: None,
        }
    }

    fn missed(wanted: Wanted, miss: Miss, flight: Option<Flight>) -> Self {
        Self {
            note: note_of_miss(Some(&wanted), miss),
            keeps: Some(wanted),
            _flight: flight,
        }
    }

    fn not_read_only() -> Self {
        Self {
            note: note_of_miss(None, Miss::NotReadOnly),
            keeps: None,
            _flight: None,
        }
    }
}
