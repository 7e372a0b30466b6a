//! Publishing events (rules G403, G405 and G407).

use std::time::Duration;

use agent_domain::event::{Event, Priority, Source, SourceKind};
use contracts::tavern::common::v1::{ErrorReason, EventPublished, run_event::Kind};
use core_types::Principal;
use documents::change::request_id_reused;
use grpc_kit::Failure;
use tonic::Code;

use super::{
    actor::{Actor, SceneStop},
    throttle::PER_SECOND,
};
use crate::{
    running_scenes::{Draft, Published},
    wire,
};

/// The delay for a publisher whose event was rejected.
const RETRY_AFTER: Duration = Duration::from_secs(1);

impl Actor {
    /// Publishes an event for a caller or an agent: once per named request, within the throttle.
    pub(super) async fn publish_for(
        &mut self,
        draft: Draft,
    ) -> Result<Result<Published, Failure>, SceneStop> {
        let by = draft.principal.clone();
        let (event, request_id) = self.event(draft);
        if let Some(seen) = self.state.request(&request_id) {
            return Ok(match seen.is_of(by.recorded(), &event) {
                true => Ok(seen.answer.clone()),
                false => Err(request_id_reused(&request_id)),
            });
        }
        if self.state.is_ending {
            let message = "the scene ends and takes no more events";
            return Ok(Err(not_running(message)));
        }
        let unknown = event.targets.iter().enumerate();
        let unknown = unknown.filter(|(_, id)| self.scene.instance(id).is_none());
        let unknown: Vec<usize> = unknown.map(|(index, _)| index).collect();
        if !unknown.is_empty() {
            let mut failure = Failure::invalid_fields();
            for index in unknown {
                let problem = "is not an agent of the scene";
                failure.add_violation(format!("target_instance_ids[{index}]"), problem);
            }
            return Ok(Err(failure));
        }
        if !self.throttle.admits(&event.source, event.published) {
            let message = format!(
                "{} publishes more than {PER_SECOND} events a second; wait",
                event.source.id
            );
            return Ok(Err(throttled(message)));
        }
        self.publish(event, request_id, by.recorded()).await
    }

    /// Publishes an event for the principal `by`, as it is recorded: the event is durable before it is taken.
    pub(super) async fn publish(
        &mut self,
        event: Event,
        request_id: String,
        by: &str,
    ) -> Result<Result<Published, Failure>, SceneStop> {
        let routed = match self.state.channel.route(&event) {
            Ok(routed) => routed,
            Err(full) => return Ok(Err(throttled(full.to_string()))),
        };
        let published = Published {
            event_id: event.id.clone(),
            delivered_to: routed.delivered_to.clone(),
            replayed: false,
        };
        let dropped = routed.dropped.iter().map(wire::dropped_to_proto);
        let mut kinds: Vec<Kind> = dropped.map(Kind::EventDropped).collect();
        kinds.push(Kind::EventPublished(EventPublished {
            event: Some(wire::event_to_proto(&event)),
            delivered_to: routed.delivered_to,
            request_id,
            principal: by.to_owned(),
        }));
        self.record(kinds).await?;
        Ok(Ok(published))
    }

    /// Publishes an event of the scene itself, which is not throttled.
    pub(super) async fn publish_own(&mut self, draft: Draft) -> Result<(), SceneStop> {
        let (event, request_id) = self.event(draft);
        if self.state.request(&request_id).is_some() {
            return Ok(());
        }
        if let Err(failure) = self.publish(event, request_id, "").await? {
            let status = failure.into_status();
            tracing::warn!(error = status.message(), "an event of a scene is lost");
        }
        Ok(())
    }

    /// Publishes the events of the timers that are due (rule G408).
    pub(super) async fn fire_timers(&mut self) -> Result<(), SceneStop> {
        if self.state.is_ending {
            return Ok(());
        }
        let now = self.shared.clock.now();
        for task in &std::sync::Arc::clone(&self.scene).tasks {
            let fired = self.state.fired.get(&task.id).copied();
            let due = task.due(self.state.started, fired);
            if due.is_none_or(|due| due > now) {
                continue;
            }
            let source = Source {
                kind: SourceKind::Task,
                id: task.id.clone(),
                run_id: String::new(),
            };
            let draft = Draft::of(&task.event_type, task.payload.clone(), source);
            self.publish_own(draft).await?;
        }
        Ok(())
    }

    /// Makes an event of a draft, and returns it with the name of the request.
    fn event(&self, draft: Draft) -> (Event, String) {
        let now = self.shared.clock.now();
        let ttl = Duration::from_secs(self.scene.ttl_seconds.into());
        let ready = now.plus(draft.delay);
        let event = Event {
            id: format!("evt_{}", self.shared.ids.next_uuid().simple()),
            qualified_type: self.scene.qualified(&draft.event_type),
            event_type: draft.event_type,
            payload: draft.payload,
            source: draft.source,
            targets: draft.targets,
            priority: draft.priority,
            published: now,
            ready,
            expires: ready.plus(draft.ttl.unwrap_or(ttl)),
            chain: draft.chain,
            correlation_id: draft.correlation_id,
        };
        (event, draft.request_id)
    }
}

impl Draft {
    /// Makes a plain event.
    pub(crate) fn of(event_type: &str, payload: serde_json::Value, source: Source) -> Self {
        Self {
            event_type: event_type.to_owned(),
            payload,
            source,
            targets: Vec::new(),
            priority: Priority::Normal,
            ttl: None,
            delay: Duration::ZERO,
            chain: Vec::new(),
            correlation_id: String::new(),
            request_id: String::new(),
            principal: Principal::LOCAL,
        }
    }
}

fn throttled(message: String) -> Failure {
    let reason = ErrorReason::EventsThrottled;
    Failure::new(Code::ResourceExhausted, reason, message).retry_after(RETRY_AFTER)
}

/// Reports that a scene is not running.
pub(crate) fn not_running(message: &str) -> Failure {
    Failure::new(
        Code::FailedPrecondition,
        ErrorReason::SceneNotRunning,
        message,
    )
}
