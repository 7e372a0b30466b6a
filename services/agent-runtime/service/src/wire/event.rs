//! Events of scenes as messages of the contract, and back.

use agent_domain::{
    channel::{DropReason, Dropped},
    event::{Event, Hop, Priority, Source, SourceKind},
    sleep::{Sleep, WakeCause},
};
use contracts::tavern::common::v1::{self as common, event_dropped::Reason, event_source::Kind};
use core_types::Timestamp;
use grpc_kit::run_list::timestamp_from_proto;
use run_events::timestamp_to_proto;
use serde_json::Value;

/// Writes an event.
pub(crate) fn event_to_proto(event: &Event) -> common::SceneEvent {
    let hop = |hop: &Hop| common::EventHop {
        instance_id: hop.instance_id.clone(),
        r#type: hop.event_type.clone(),
    };
    common::SceneEvent {
        event_id: event.id.clone(),
        r#type: event.event_type.clone(),
        qualified_type: event.qualified_type.clone(),
        payload_json: event.payload.to_string(),
        source: Some(source_to_proto(&event.source)),
        target_instance_ids: event.targets.clone(),
        priority: priority_to_proto(event.priority).into(),
        publish_time: Some(timestamp_to_proto(event.published)),
        deliver_time: Some(timestamp_to_proto(event.ready)),
        expire_time: Some(timestamp_to_proto(event.expires)),
        chain: event.chain.iter().map(hop).collect(),
        correlation_id: event.correlation_id.clone(),
    }
}

/// Reads an event; none if this program could not have written it.
pub(crate) fn event_from_proto(event: &common::SceneEvent) -> Option<Event> {
    let time = |time: &Option<prost_types::Timestamp>| -> Option<Timestamp> {
        timestamp_from_proto((*time)?)
    };
    let hop = |hop: &common::EventHop| Hop {
        instance_id: hop.instance_id.clone(),
        event_type: hop.r#type.clone(),
    };
    let payload: Value = serde_json::from_str(&event.payload_json).ok()?;
    Some(Event {
        id: event.event_id.clone(),
        event_type: event.r#type.clone(),
        qualified_type: event.qualified_type.clone(),
        payload,
        source: source_from_proto(event.source.as_ref()?)?,
        targets: event.target_instance_ids.clone(),
        priority: priority_from_proto(event.priority()),
        published: time(&event.publish_time)?,
        ready: time(&event.deliver_time)?,
        expires: time(&event.expire_time)?,
        chain: event.chain.iter().map(hop).collect(),
        correlation_id: event.correlation_id.clone(),
    })
}

fn source_to_proto(source: &Source) -> common::EventSource {
    let kind = match source.kind {
        SourceKind::Instance => Kind::Instance,
        SourceKind::Caller => Kind::Caller,
        SourceKind::Task => Kind::Task,
        SourceKind::Workflow => Kind::Workflow,
        SourceKind::Scene => Kind::Scene,
    };
    common::EventSource {
        kind: kind.into(),
        id: source.id.clone(),
        run_id: source.run_id.clone(),
    }
}

fn source_from_proto(source: &common::EventSource) -> Option<Source> {
    let kind = match source.kind() {
        Kind::Instance => SourceKind::Instance,
        Kind::Caller => SourceKind::Caller,
        Kind::Task => SourceKind::Task,
        Kind::Workflow => SourceKind::Workflow,
        Kind::Scene => SourceKind::Scene,
        Kind::Unspecified => return None,
    };
    Some(Source {
        kind,
        id: source.id.clone(),
        run_id: source.run_id.clone(),
    })
}

/// Writes the urgency of an event.
pub(crate) fn priority_to_proto(priority: Priority) -> common::EventPriority {
    match priority {
        Priority::Low => common::EventPriority::Low,
        Priority::Normal => common::EventPriority::Normal,
        Priority::High => common::EventPriority::High,
        Priority::Critical => common::EventPriority::Critical,
    }
}

/// Reads the urgency of an event.
pub(crate) fn priority_from_proto(priority: common::EventPriority) -> Priority {
    match priority {
        common::EventPriority::Low => Priority::Low,
        common::EventPriority::Unspecified | common::EventPriority::Normal => Priority::Normal,
        common::EventPriority::High => Priority::High,
        common::EventPriority::Critical => Priority::Critical,
    }
}

/// Writes that an instance sleeps.
pub(crate) fn slept_to_proto(instance_id: &str, sleep: &Sleep) -> common::InstanceSlept {
    common::InstanceSlept {
        instance_id: instance_id.to_owned(),
        wake_time: sleep.until.map(timestamp_to_proto),
        wake_on: sleep.wake_on.clone(),
        wake_priority: priority_to_proto(sleep.priority).into(),
        ..common::InstanceSlept::default()
    }
}

/// Reads the sleep of an instance.
pub(crate) fn sleep_from_proto(slept: &common::InstanceSlept) -> Sleep {
    Sleep {
        until: slept.wake_time.and_then(timestamp_from_proto),
        wake_on: slept.wake_on.clone(),
        priority: priority_from_proto(slept.wake_priority()),
    }
}

/// Writes that an instance is awake.
pub(crate) fn woke_to_proto(instance_id: &str, cause: &WakeCause) -> common::InstanceWoke {
    use common::instance_woke::Cause;
    let (cause, event_id) = match cause {
        WakeCause::Timer => (Cause::Timer, ""),
        WakeCause::Event(event_id) => (Cause::Event, event_id.as_str()),
        WakeCause::Message => (Cause::Message, ""),
        WakeCause::Caller => (Cause::Caller, ""),
    };
    common::InstanceWoke {
        instance_id: instance_id.to_owned(),
        cause: cause.into(),
        event_id: event_id.to_owned(),
    }
}

/// Writes that an event is dropped for an instance.
pub(crate) fn dropped_to_proto(dropped: &Dropped) -> common::EventDropped {
    let reason = match dropped.reason {
        DropReason::Loop => Reason::Loop,
        DropReason::Expired => Reason::Expired,
        DropReason::QueueFull => Reason::QueueFull,
        DropReason::Superseded => Reason::Superseded,
        DropReason::SceneEnded => Reason::SceneEnded,
    };
    common::EventDropped {
        event_id: dropped.event_id.clone(),
        instance_id: dropped.instance_id.clone(),
        reason: reason.into(),
        detail: dropped.detail.clone(),
    }
}
