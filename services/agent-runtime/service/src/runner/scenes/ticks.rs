//! Ticks: an agent thinks from time to time if its view changed since it thought last (rule G409).

use agent_domain::{
    event::{Priority, Source, SourceKind},
    scene::Instance,
    scene::conversation::conversation_of,
};
use agent_store::store::StateOwner;
use core_types::Tenant;
use grpc_kit::Failure;
use serde_json::json;

use super::{
    actor::{Actor, SceneStop},
    tickers::{Seen, TICK, Ticker},
};
use crate::running_scenes::Draft;

impl Actor {
    /// Publishes a tick for each agent whose tick is due and whose view changed, unless a tick
    /// waits for it.
    pub(super) async fn tick(&mut self) -> Result<(), SceneStop> {
        if self.state.is_ending || self.control.is_paused() {
            return Ok(());
        }
        let now = self.shared.clock.now();
        for instance in &std::sync::Arc::clone(&self.scene).instances {
            let Some(interval) = instance.tick_interval() else {
                continue;
            };
            let last = self.state.fired.get(&source(instance).id).copied();
            let first = last.unwrap_or(self.state.started).plus(interval);
            let tickers = &mut self.ticks.by_instance;
            let ticker = tickers.entry(instance.id.clone()).or_insert(Ticker {
                due: first,
                seen: None,
            });
            if ticker.due > now {
                continue;
            }
            ticker.due = now.plus(interval);
            let mut members = self.state.channel.members().iter();
            let member = members.find(|member| member.instance_id == instance.id);
            let is_free = member.is_some_and(|member| {
                member.sleep().is_none() && !member.is_busy() && !member.has_waiting(TICK)
            });
            if !is_free || !self.has_changed(instance).await {
                continue;
            }
            let draft = Draft {
                targets: vec![instance.id.clone()],
                priority: Priority::Low,
                ..Draft::of(TICK, json!({}), source(instance))
            };
            self.publish_own(draft).await?;
        }
        Ok(())
    }

    /// Notes the view of an agent whose turn has ended.
    pub(super) async fn note_seen(&mut self, instance_id: &str) {
        let scene = std::sync::Arc::clone(&self.scene);
        let Some(instance) = scene.instance(instance_id) else {
            return;
        };
        if instance.tick_interval().is_some() {
            let seen = self.look(instance).await;
            if let Some(ticker) = self.ticks.by_instance.get_mut(instance_id) {
                ticker.seen = Some(seen);
            }
        }
    }

    /// Whether an agent's view changed since it thought last, or its ticks do not require that.
    async fn has_changed(&mut self, instance: &Instance) -> bool {
        let settings = self.shared.states.settings_of(self.tenant(), instance);
        let settings = settings.await;
        let settings = settings.unwrap_or_else(|_| instance.tavern.clone());
        let now = self.look(instance).await;
        let Some(ticker) = self.ticks.by_instance.get_mut(&instance.id) else {
            return false;
        };
        ticker.take(now) || settings.tick_when_idle.unwrap_or_default()
    }

    fn tenant(&self) -> Tenant {
        self.control.call_context().tenant()
    }

    async fn look(&self, instance: &Instance) -> Seen {
        let versions = self.versions(instance).await.inspect_err(|failure| {
            let agent = &instance.id;
            tracing::warn!(agent, ?failure, "what an agent thinks about cannot be read");
        });
        Seen {
            versions: versions.ok(),
            published: self.state.published,
        }
    }

    async fn versions(&self, instance: &Instance) -> Result<(u64, u64), Failure> {
        let conversation = conversation_of(&self.recorder.run_id().to_string(), &instance.id);
        let states = &self.shared.states;
        let version = |owner| async move {
            let found = states.versions(&owner, None, 1).await?;
            Ok::<_, Failure>(found.first().map_or(0, |row| row.version))
        };
        let tenant = self.tenant();
        let own = StateOwner::agent(tenant, &conversation, &instance.profile_id);
        let goals = StateOwner::goals(tenant, &conversation, &instance.profile_id);
        Ok((version(own).await?, version(goals).await?))
    }
}

fn source(instance: &Instance) -> Source {
    Source {
        kind: SourceKind::Task,
        id: format!("tick/{}", instance.id),
        run_id: String::new(),
    }
}
