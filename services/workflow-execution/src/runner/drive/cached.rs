//! Nodes whose results are reused: what the cache is asked before they run, and given after.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use contracts::tavern::common::v1 as common;
use futures::future::{BoxFuture, FutureExt};
use futures::stream::{FuturesUnordered, StreamExt};

use crate::domain::cache::{CacheMode, CacheScope, CacheSettings};
use crate::domain::cache_key::{KeyParts, node_name};
use crate::domain::engine::{Command, Status};
use crate::domain::evaluate;
use crate::domain::gather::Outputs;
use crate::domain::node_definition::Reuse;
use crate::domain::node_type::{Effect, Step};
use crate::domain::plan::NodeIndex;
use crate::wire;

use super::super::OWN_CONVERSATION;
use super::super::describe_tools::etags_if_read_only;
use super::super::result_cache::{Flight, Found, Hit, Miss, Wanted};
use super::Drive;

/// What the cache has for the nodes of a run, or of an iteration in it.
#[derive(Default)]
pub(super) struct NodeCaches {
    lookups: FuturesUnordered<BoxFuture<'static, (NodeIndex, Looked)>>,
    /// What was found for each node that has not ended.
    looked: HashMap<NodeIndex, Known>,
}

/// What a look into the cache came to.
pub(super) enum Looked {
    /// A tool of the node is not read-only.
    NotReadOnly,
    Found(Wanted, Found),
}

/// What is known of a node that has not ended.
struct Known {
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
    pub(super) async fn next(&mut self) -> Option<(NodeIndex, Looked)> {
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
        let Ok(inputs) = self.engine.inputs_of(node) else {
            return false;
        };
        let reads = planned.definition().reuse == Reuse::Reads;
        let tools = match reads.then(|| evaluate::execute(&self.engine, node)) {
            None => Vec::new(),
            Some(Ok(Step::Effect(effect))) => tools_of(&effect),
            Some(_) => return false,
        };
        let conversation = match reads && !self.conversation_id.starts_with(OWN_CONVERSATION) {
            true => self.conversation_id.as_str(),
            false => "",
        };
        let mut parts = KeyParts::of(planned, &inputs, conversation);
        let scope = self.scope(settings.scope);
        let name = node_name(
            &format!("{scope} {}", self.workflow_id),
            &self.path_of(node),
        );
        let (runner, now) = (Arc::clone(&self.runner), self.recorder.now());
        let look = async move {
            if !tools.is_empty() {
                let Some(etags) = etags_if_read_only(&runner.peers, tools).await else {
                    return (node, Looked::NotReadOnly);
                };
                for (tool_id, etag) in etags {
                    parts.add_tool(&tool_id, &etag);
                }
            }
            let wanted = Wanted {
                node: name,
                key: parts.key(&scope),
                parts,
            };
            let found = match settings.mode {
                CacheMode::Refresh => Found::Miss(Miss::Refreshed, None),
                _ => runner.cache.find(&wanted, settings.ttl, now).await,
            };
            (node, Looked::Found(wanted, found))
        };
        self.caches.lookups.push(look.boxed());
        true
    }

    /// Returns the name of a scope, which is a part of every key in it.
    fn scope(&self, scope: CacheScope) -> String {
        match scope {
            CacheScope::Tenant => "tenant".to_owned(),
            CacheScope::Workflow if !self.workflow_id.is_empty() => {
                format!("workflow {}", self.workflow_id)
            }
            // A definition that is not stored has no other runs.
            CacheScope::Workflow | CacheScope::Run => format!("run {}", self.recorder.run_id()),
        }
    }

    /// Ends a node whose result is reused, or lets it run.
    pub(super) fn looked_up(&mut self, node: NodeIndex, looked: Looked) {
        let (known, gave) = match looked {
            Looked::NotReadOnly => {
                let miss = common::CacheMiss::NotReadOnly;
                (missed(None, miss, Vec::new(), None), None)
            }
            Looked::Found(wanted, Found::Hit(hit)) => {
                let own_shape = &self.engine.node(node).own_shape;
                match wire::values_from_json(&own_shape.outputs, &hit.outputs) {
                    Ok(values) => (self.reused(&wanted, &hit), Some(values)),
                    // What was kept under this name is none of its results.
                    Err(_) => {
                        let miss = common::CacheMiss::Evicted;
                        (missed(Some(wanted), miss, Vec::new(), None), None)
                    }
                }
            }
            Looked::Found(wanted, Found::Miss(miss, flight)) => {
                let (miss, changed) = match miss {
                    Miss::First => (common::CacheMiss::First, Vec::new()),
                    Miss::Changed(changed) => (common::CacheMiss::Changed, changed),
                    Miss::Expired => (common::CacheMiss::Expired, Vec::new()),
                    Miss::Evicted => (common::CacheMiss::Evicted, Vec::new()),
                    Miss::Refreshed => (common::CacheMiss::Refreshed, Vec::new()),
                };
                (missed(Some(wanted), miss, changed, flight), None)
            }
        };
        let known = match self.cache_settings(node) {
            // Its result is not kept, so others do not wait for it.
            Some(settings) if settings.mode == CacheMode::Read => Known {
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
    pub(super) fn keep_result(&mut self, node: NodeIndex, outputs: &Outputs) {
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

    fn reused(&self, wanted: &Wanted, hit: &Hit) -> Known {
        let age = self.recorder.now().since(hit.at);
        Known {
            note: common::NodeCache {
                key: hex::encode(wanted.key.0),
                source_run_id: hit.run_id.to_string(),
                age: prost_types::Duration::try_from(age).ok(),
                ..common::NodeCache::default()
            },
            keeps: None,
            _flight: None,
        }
    }
}

fn missed(
    wanted: Option<Wanted>,
    miss: common::CacheMiss,
    changed: Vec<String>,
    flight: Option<Flight>,
) -> Known {
    let key = wanted.as_ref().map(|wanted| hex::encode(wanted.key.0));
    Known {
        note: common::NodeCache {
            key: key.unwrap_or_default(),
            miss: miss.into(),
            changed,
            ..common::NodeCache::default()
        },
        keeps: wanted,
        _flight: flight,
    }
}

/// Returns the tools that an effect calls, each once.
fn tools_of(effect: &Effect) -> Vec<String> {
    let mut tools = match effect {
        Effect::CallTool { tool_id, .. } => vec![tool_id.clone()],
        Effect::CallTools(requests) => {
            let ids = requests.iter().map(|request| request.tool_id.clone());
            ids.collect()
        }
        _ => Vec::new(),
    };
    tools.sort_unstable();
    tools.dedup();
    tools
}
