//! Agents that sleep, and the events that wake them (rule G410).

use agent_domain::{
    event::{Priority, Source},
    sleep::WakeCause,
};
use contracts::tavern::common::v1::{InstanceSlept, run_event::Kind};
use documents::change::request_id_reused;
use grpc_kit::Failure;
use serde_json::json;

use super::actor::{Actor, SceneStop};
use crate::{
    running_scenes::{Asleep, Draft, Slept},
    wire,
};

/// The type of the event at the end of an agent's sleep.
const WOKE: &str = "instance.woke";

impl Actor {
    /// Puts an agent to sleep, once for a named request.
    pub(super) async fn let_sleep(
        &mut self,
        asleep: Asleep,
    ) -> Result<Result<Slept, Failure>, SceneStop> {
        let Asleep {
            instance_id,
            sleep,
            request_id,
            principal,
        } = asleep;
        let principal = principal.recorded().to_owned();
        if let Some(known) = self.state.sleep_requests.get(&instance_id)
            && !request_id.is_empty()
            && known.id == request_id
        {
            if known.principal != principal {
                return Ok(Err(request_id_reused(&request_id)));
            }
            return Ok(Ok(Slept {
                until: known.until,
                replayed: true,
            }));
        }
        let slept = InstanceSlept {
            request_id,
            principal,
            ..wire::slept_to_proto(&instance_id, &sleep)
        };
        self.record(vec![Kind::InstanceSlept(slept)]).await?;
        Ok(Ok(Slept {
            until: sleep.until,
            replayed: false,
        }))
    }

    /// Wakes an agent. Returns whether it slept.
    pub(super) async fn wake(&mut self, id: &str, cause: &WakeCause) -> Result<bool, SceneStop> {
        let mut members = self.state.channel.members().iter();
        if !members.any(|member| member.instance_id == id && member.sleep().is_some()) {
            return Ok(false);
        }
        let woke = wire::woke_to_proto(id, cause);
        self.record(vec![Kind::InstanceWoke(woke)]).await?;
        Ok(true)
    }

    /// Wakes every agent with a waiting event that wakes it.
    pub(super) async fn wake_sleepers(&mut self) -> Result<(), SceneStop> {
        let now = self.shared.clock.now();
        for (instance_id, cause) in self.state.channel.waking(now) {
            if cause == WakeCause::Timer {
                self.publish_wake(&instance_id).await?;
            }
            self.wake(&instance_id, &cause).await?;
        }
        Ok(())
    }

    /// Publishes the end of an agent's sleep, once for each sleep, so that a turn begins with it.
    async fn publish_wake(&mut self, instance_id: &str) -> Result<(), SceneStop> {
        let mut members = self.state.channel.members().iter();
        let member = members.find(|member| member.instance_id == instance_id);
        let until = member.and_then(|member| member.sleep()?.until);
        let draft = Draft {
            targets: vec![instance_id.to_owned()],
            priority: Priority::High,
            request_id: format!(
                "{}/wake/{instance_id}/{}",
                self.recorder.run_id(),
                until.unwrap_or_default().unix_nanos()
            ),
            ..Draft::of(WOKE, json!({}), Source::scene(&self.scene.id))
        };
        self.publish_own(draft).await
    }
}
