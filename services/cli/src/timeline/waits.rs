//! Lines about the waits of a run.

use std::borrow::Cow;

use contracts::tavern::common::v1::{
    ApprovalEnded, CallDecided, CallInDoubt, CallStatus, HookAction, HookApplied, NodeWoken, Wait,
    WaitKind, WakeCause,
};

use crate::program;

/// Returns the text for a node's wait.
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

/// Returns the text for the cause that woke a node.
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

/// Returns the text for the end of an approval.
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

/// Returns the text for a hook that was applied.
pub(super) fn hook(applied: &HookApplied) -> String {
    let effect = match applied.action() {
        HookAction::Continue => "continue".to_owned(),
        HookAction::Replace => format!("replace {}", applied.pointers.join(", ")),
        HookAction::Deny => "deny".to_owned(),
        HookAction::Answer => "answer".to_owned(),
        HookAction::Skip => "failed, passed over".to_owned(),
        HookAction::Fail => "failed, refused".to_owned(),
        HookAction::Unspecified => String::new(),
    };
    let reason = match applied.reason.as_str() {
        "" => String::new(),
        reason => format!(": {reason}"),
    };
    format!("{} at {} {effect}{reason}", applied.hook, applied.point)
}

/// Returns the text for a call in doubt: the cause, and the command that decides.
pub(super) fn in_doubt(call: &CallInDoubt) -> String {
    let error = call.error.clone().unwrap_or_default();
    let (tool, attempt) = (&call.tool_id, call.attempt);
    let command = decide_by(&call.effect_id, false);
    format!(
        "{tool}, attempt {attempt}: {} ({})\ndecide by: {command}",
        error.message, error.code
    )
}

/// Returns the line for a decision about a call in doubt.
pub(super) fn decided(decided: &CallDecided) -> String {
    let decision = match decided.status() {
        CallStatus::Succeeded => "took effect",
        CallStatus::Unspecified => "is repeated",
        _ => "took no effect",
    };
    let reason = match decided.reason.as_str() {
        "" => String::new(),
        reason => format!(": {reason}"),
    };
    format!("{decision}{reason} ({})", decided.effect_id)
}

/// Returns the command that decides about an effect in doubt, with its alternatives. A call whose
/// run `has_ended` is not repeated.
pub(crate) fn decide_by(effect_id: &str, has_ended: bool) -> String {
    let others = match has_ended {
        true => "--did-not",
        false => "--did-not, --repeat",
    };
    let effect_id = word_of_shell(effect_id);
    let program = program::name();
    format!("{program} calls resolve {effect_id} --took-effect (or {others})")
}

/// Returns a text as one word of a shell, without any expansion.
fn word_of_shell(text: &str) -> Cow<'_, str> {
    let plain = |character: char| character.is_ascii_alphanumeric() || "_-./:@".contains(character);
    match text.chars().all(plain) {
        true => Cow::Borrowed(text),
        false => Cow::Owned(format!("'{}'", text.replace('\'', r"'\''"))),
    }
}

#[cfg(test)]
mod tests {
    use contracts::tavern::common::v1::CallError;

    use super::*;

    #[test]
    fn a_call_in_doubt_is_shown_with_the_command_that_decides_and_then_with_the_decision() {
        let call = CallInDoubt {
            effect_id: "e1".to_owned(),
            tool_id: "charge".to_owned(),
            attempt: 2,
            error: Some(CallError {
                code: "backend_lost".to_owned(),
                message: "the connection broke".to_owned(),
                ..CallError::default()
            }),
        };
        assert_eq!(
            in_doubt(&call),
            "charge, attempt 2: the connection broke (backend_lost)\n\
             decide by: tavern calls resolve e1 --took-effect (or --did-not, --repeat)"
        );
        for (status, reason, expected) in [
            (
                CallStatus::Succeeded,
                "it is there",
                "took effect: it is there (e1)",
            ),
            (CallStatus::Failed, "", "took no effect (e1)"),
            (CallStatus::Unspecified, "", "is repeated (e1)"),
        ] {
            let event = CallDecided {
                effect_id: "e1".to_owned(),
                attempt: 2,
                status: status.into(),
                reason: reason.to_owned(),
            };
            assert_eq!(decided(&event), expected);
        }
    }

    #[test]
    fn an_effect_id_is_one_word_of_the_command_that_is_shown() {
        for (effect_id, expected) in [
            ("call_0190/2/0", "call_0190/2/0"),
            ("gift 1", "'gift 1'"),
            ("$(reboot)", "'$(reboot)'"),
            ("it's; x", r"'it'\''s; x'"),
        ] {
            let command = format!("tavern calls resolve {expected} --took-effect (or --did-not)");
            assert_eq!(decide_by(effect_id, true), command);
        }
    }
}
