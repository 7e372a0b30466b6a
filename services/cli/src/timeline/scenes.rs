//! Lines about the events of scenes and conversations.

use contracts::tavern::common::v1::{EventSource, SceneEvent, run_event::Kind};

/// Returns the word and the text of the line of an event; none if it has no line.
pub(super) fn line(kind: &Kind) -> Option<(&'static str, String)> {
    Some(match kind {
        Kind::EventPublished(published) => {
            let event = published.event.as_ref()?;
            let to = match published.delivered_to.as_slice() {
                [] => "for no agent".to_owned(),
                instances => format!("for {}", instances.join(", ")),
            };
            ("event", format!("{} {to}", worded(event)))
        }
        Kind::EventDropped(dropped) => (
            "dropped",
            format!("for {}: {}", dropped.instance_id, dropped.detail),
        ),
        Kind::EventsTaken(taken) => (
            "takes",
            format!(
                "{} takes {} event(s)",
                taken.instance_id,
                taken.event_ids.len()
            ),
        ),
        Kind::EventsHandled(handled) if !handled.error.is_empty() => (
            "failed",
            format!("{}: {}", handled.instance_id, handled.error),
        ),
        Kind::SceneWorkflowEnded(ended) if !ended.error.is_empty() => {
            ("failed", format!("{}: {}", ended.moment, ended.error))
        }
        Kind::SceneWorkflowStarted(started) => (
            "workflow",
            format!("{} runs {}", started.moment, started.workflow_id),
        ),
        Kind::ConversationCompacted(compacted) => (
            "summary",
            format!("{} earlier turn(s): {}", compacted.turns, compacted.summary),
        ),
        Kind::InstanceSlept(slept) => ("sleeps", format!("{} sleeps", slept.instance_id)),
        Kind::InstanceWoke(woke) => ("wakes", format!("{} is awake", woke.instance_id)),
        Kind::TurnForked(forked) => (
            "fork",
            format!("continues {} from event {}", forked.run_id, forked.sequence),
        ),
        Kind::SceneEnding(ending) => ("ending", ending.reason.clone()),
        _ => return None,
    })
}

fn worded(event: &SceneEvent) -> String {
    let source = event
        .source
        .as_ref()
        .map(|source: &EventSource| source.id.as_str());
    let source = source.unwrap_or_default();
    format!("{} from {source} {}", event.r#type, event.payload_json)
}
