//! Lines about what a run waits for.

use contracts::tavern::common::v1::{ApprovalEnded, NodeWoken, Wait, WaitKind, WakeCause};

/// Returns what a node waits for.
pub(super) fn waiting(wait: &Wait) -> String {
    let due = wait.due.as_ref().map(ToString::to_string);
    let what = match wait.kind() {
        WaitKind::Signal => format!("for the signal {}", wait.name),
        WaitKind::HumanInput => format!("for an answer: {}", wait.name),
        WaitKind::Retry => "for another attempt".to_owned(),
        WaitKind::Timer | WaitKind::Unspecified => String::new(),
    };
    let parts = [Some(what), due.map(|due| format!("until {due}"))];
    let parts: Vec<String> = parts
        .into_iter()
        .flatten()
        .filter(|part| !part.is_empty())
        .collect();
    format!("{} {}", wait.node_id, parts.join(", "))
}

/// Returns what woke a node.
pub(super) fn woken(woken: &NodeWoken) -> String {
    let cause = match woken.cause() {
        WakeCause::Signal => format!("by a signal: {}", woken.payload_json),
        WakeCause::Answer if woken.answered_by.is_empty() => {
            format!("by an answer: {}", woken.payload_json)
        }
        WakeCause::Answer => format!("by {}: {}", woken.answered_by, woken.payload_json),
        WakeCause::Due | WakeCause::Unspecified => "because its time came".to_owned(),
    };
    format!("{} {cause}", woken.node_id)
}

/// Returns what became of an approval.
pub(super) fn approval(ended: &ApprovalEnded) -> String {
    let by = match ended.approvers.is_empty() {
        true => "without a decision".to_owned(),
        false => format!("by {}", ended.approvers.join(", ")),
    };
    let verdict = match ended.approved {
        true => "approved",
        false => "not approved",
    };
    let reason = match ended.reason.as_str() {
        "" => String::new(),
        reason => format!(": {reason}"),
    };
    format!("{} {verdict} {by}{reason}", ended.approval_id)
}
