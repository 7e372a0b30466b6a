//! The lookups of nodes in the cache, and the notes of their results.

use contracts::tavern::common::v1 as common;
use core_types::{CONVERSATION_OF_WORKFLOW, Tenant, Timestamp};

use workflow_domain::cache::CacheScope;
use workflow_domain::cache_key::{KeyParts, node_name};
use workflow_domain::engine::Engine;
use workflow_domain::evaluate;
use workflow_domain::node_definition::Reuse;
use workflow_domain::node_type::{Effect, Step};
use workflow_domain::plan::NodeIndex;

use super::super::Clients;
use super::super::describe_tools::etags_if_read_only;
use super::{Hit, Miss, Wanted};

/// The dependencies of a run's results apart from their nodes.
pub(crate) struct RunContext {
    /// The tenant of the run, which every scope is within.
    pub(crate) tenant: Tenant,
    /// The id of the run; empty before it begins.
    pub(crate) run_id: String,
    /// The id of the workflow; empty for a definition that is not stored.
    pub(crate) workflow_id: String,
    /// The conversation whose workspace tools use.
    pub(crate) conversation_id: String,
}

/// The dependencies of a node's result, without the definitions of its tools.
pub(crate) struct KeyInputs {
    tenant: Tenant,
    node: workflow_domain::cache_key::CacheKey,
    scope: String,
    parts: KeyParts,
    tools: Vec<String>,
}

impl KeyInputs {
    /// Collects the dependencies of a node with a cache; none if it has no cache or its inputs
    /// cannot be used.
    pub(crate) fn of(
        engine: &Engine,
        node: NodeIndex,
        path: &str,
        of_run: &RunContext,
    ) -> Option<Self> {
        let planned = engine.node(node);
        let settings = planned.execution.as_ref()?.cache?;
        let inputs = engine.inputs_of(node).ok()?;
        let reads = planned.definition().reuse == Reuse::Reads;
        let tools = match reads.then(|| evaluate::execute(engine, node)) {
            None => Vec::new(),
            Some(Ok(Step::Effect(effect))) => tools_of(&effect),
            Some(_) => return None,
        };
        let conversation =
            match reads && !of_run.conversation_id.starts_with(CONVERSATION_OF_WORKFLOW) {
                true => of_run.conversation_id.as_str(),
                false => "",
            };
        let scope = of_run.scope(settings.scope);
        Some(Self {
            tenant: of_run.tenant,
            node: node_name(&format!("{scope} {}", of_run.workflow_id), path),
            parts: KeyParts::of(planned, &inputs, conversation),
            scope,
            tools,
        })
    }

    /// Adds the definitions of the tools; none if one of them is not read-only.
    pub(crate) async fn wanted(mut self, peers: &Clients) -> Option<Wanted> {
        if !self.tools.is_empty() {
            for (tool_id, etag) in etags_if_read_only(peers, self.tools).await? {
                self.parts.add_tool(&tool_id, &etag);
            }
        }
        Some(Wanted {
            tenant: self.tenant,
            node: self.node,
            key: self.parts.key(&self.scope),
            parts: self.parts,
        })
    }
}

impl RunContext {
    /// Returns the name of a scope, which is part of every key in it.
    fn scope(&self, scope: CacheScope) -> String {
        match scope {
            CacheScope::Tenant => "tenant".to_owned(),
            CacheScope::Workflow if !self.workflow_id.is_empty() => {
                format!("workflow {}", self.workflow_id)
            }
            // A definition that is not stored has no other runs.
            CacheScope::Workflow | CacheScope::Run => format!("run {}", self.run_id),
        }
    }
}

/// Notes that a result is reused.
pub(crate) fn note_of_hit(wanted: &Wanted, hit: &Hit, now: Timestamp) -> common::NodeCache {
    common::NodeCache {
        key: hex::encode(wanted.key.0),
        source_run_id: hit.run_id.to_string(),
        age: prost_types::Duration::try_from(now.since(hit.at)).ok(),
        ..common::NodeCache::default()
    }
}

/// Notes that no result is reused.
pub(crate) fn note_of_miss(wanted: Option<&Wanted>, miss: Miss) -> common::NodeCache {
    let (miss, changed) = match miss {
        Miss::First => (common::CacheMiss::First, Vec::new()),
        Miss::Changed(changed) => {
            let changed = changed.iter().map(|name| part_to_proto(name)).collect();
            (common::CacheMiss::Changed, changed)
        }
        Miss::Expired => (common::CacheMiss::Expired, Vec::new()),
        Miss::Evicted => (common::CacheMiss::Evicted, Vec::new()),
        Miss::Refreshed => (common::CacheMiss::Refreshed, Vec::new()),
        Miss::NotReadOnly => (common::CacheMiss::NotReadOnly, Vec::new()),
    };
    let key = wanted.map(|wanted| hex::encode(wanted.key.0));
    common::NodeCache {
        key: key.unwrap_or_default(),
        miss: miss.into(),
        changed,
        ..common::NodeCache::default()
    }
}

/// Writes one of the parts that [`KeyParts`] names.
fn part_to_proto(name: &str) -> common::ResultPart {
    use common::ResultPartKind as Kind;
    let (kind, name) = match name.split_once('.') {
        Some(("tool", id)) => (Kind::Tool, id),
        Some(("inputs", slot)) => (Kind::Input, slot),
        _ if name == "config" => (Kind::Config, ""),
        _ if name == "conversation" => (Kind::Conversation, ""),
        _ => (Kind::Type, ""),
    };
    common::ResultPart {
        kind: kind.into(),
        name: name.to_owned(),
    }
}

/// Returns the tools of an effect, each once.
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
