//! The results that a run would reuse, as far as they are known before it runs (rule W49).

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use contracts::tavern::common::v1::NodeCache;
use core_types::Timestamp;
use grpc_kit::CallContext;

use crate::wire;
use workflow_domain::cache::{CacheMode, CacheSettings};
use workflow_domain::engine::{Command, Engine, Event};
use workflow_domain::evaluate;
use workflow_domain::interface::RunInputs;
use workflow_domain::node_type::Step;
use workflow_domain::plan::{NodeIndex, Plan};

use super::result_cache::Miss;
use super::result_cache::asked::{KeyInputs, RunContext, note_of_hit, note_of_miss};
use super::{Clients, Runner};

/// The time limit of all nodes that only compute.
const LONGEST: Duration = Duration::from_secs(2);

impl Runner {
    /// Returns the findings of the cache for the nodes of a run with these inputs, by their ids.
    /// Nodes that only compute are computed, and the outputs of found results are passed on; nodes
    /// that depend on nodes of another kind are left out.
    pub async fn predict(
        &self,
        context: &CallContext,
        plan: Arc<Plan>,
        inputs: RunInputs,
        workflow_id: &str,
        now: Timestamp,
    ) -> HashMap<String, NodeCache> {
        let of_run = RunContext {
            tenant: context.tenant(),
            run_id: String::new(),
            workflow_id: workflow_id.to_owned(),
            conversation_id: String::new(),
        };
        let peers = self.peers(context);
        let (mut commands, mut found) = (Vec::new(), HashMap::new());
        let mut engine = Engine::start(plan, inputs, &mut commands);
        let begun = tokio::time::Instant::now();
        while let Some(command) = commands.pop().filter(|_| begun.elapsed() < LONGEST) {
            let ended = match command {
                Command::Skip { node, .. } => Some(Event::Skipped(node)),
                Command::Execute(node) => {
                    let known = self.look_for(&peers, &engine, node, &of_run, now, &mut found);
                    match known.await {
                        Some(ended) => Some(ended),
                        None => computed(&engine, node),
                    }
                }
            };
            if let Some(ended) = ended {
                let applied = engine.apply(ended, &mut commands);
                applied.expect("every event answers a command of the engine");
            }
            tokio::task::consume_budget().await;
        }
        found
    }

    /// Looks up the result of a node that may reuse one; returns the node's end with it.
    async fn look_for(
        &self,
        peers: &Clients,
        engine: &Engine,
        node: NodeIndex,
        of_run: &RunContext,
        now: Timestamp,
        found: &mut HashMap<String, NodeCache>,
    ) -> Option<Event> {
        let planned = engine.node(node);
        let settings = planned.execution.as_ref()?.cache;
        let settings = settings.filter(|_| !planned.bypassed)?;
        let id = planned.id.to_string();
        let asked = KeyInputs::of(engine, node, &id, of_run)?;
        let (note, gave) = self.answer(peers, asked, settings, now).await;
        found.insert(id, note);
        let slots = &engine.node(node).own_shape.outputs;
        let values = wire::values_from_json(slots, &gave?).ok()?;
        Some(evaluate::finished(engine, node, Ok(values)))
    }

    async fn answer(
        &self,
        peers: &Clients,
        asked: KeyInputs,
        settings: CacheSettings,
        now: Timestamp,
    ) -> (NodeCache, Option<Arc<str>>) {
        let Some(wanted) = asked.wanted(peers).await else {
            return (note_of_miss(None, Miss::NotReadOnly), None);
        };
        let looked = match settings.mode {
            CacheMode::Refresh => Err(Miss::Refreshed),
            _ => self.cache.look(&wanted, settings.ttl, now).await,
        };
        match looked {
            Ok(hit) => (note_of_hit(&wanted, &hit, now), Some(hit.outputs)),
            Err(miss) => (note_of_miss(Some(&wanted), miss), None),
        }
    }
}

/// Returns the end of a node that only computes; none for any other.
fn computed(engine: &Engine, node: NodeIndex) -> Option<Event> {
    let gave = match evaluate::execute(engine, node) {
        Ok(Step::Done(outputs)) => Ok(evaluate::all_present(outputs)),
        Ok(Step::Branch(outputs)) => Ok(outputs),
        Ok(Step::Effect(_) | Step::Wait(_)) => return None,
        Err(failure) => Err(failure),
    };
    Some(evaluate::finished(engine, node, gave))
}
