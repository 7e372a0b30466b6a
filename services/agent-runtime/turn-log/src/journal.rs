//! The conversion between events of the contract and of the turn, in one place.

use agent_domain::{
    budgets::Budget,
    compaction::Compaction,
    message::ChatMessage,
    turn::{CallStatus, ReadCall, TurnEvent},
};
use contracts::{
    tavern::common::v1::{self as common, run_event::Kind},
    watch::voids_answer,
};

use crate::{replay::timestamp, wire};

/// The meaning of an event of a turn's own log.
pub(crate) enum Meaning {
    /// It changes the turn.
    Change(TurnEvent),
    /// The turn wrote it, and its next step is the same.
    Remark,
    /// The run or a call wrote it, or the turn begins with it: nothing happened in the turn.
    Outside,
}

/// Returns the meaning of an event of a turn's own log.
pub(crate) fn read(kind: &Kind) -> Meaning {
    let change = match kind {
        Kind::IterationStarted(_) => Some(TurnEvent::IterationStarted),
        Kind::ModelRequested(_) => Some(TurnEvent::ModelRequested),
        Kind::Text(text) => Some(TurnEvent::Said(text.text.clone())),
        Kind::Thinking(thought) => (!thought.text.is_empty()).then_some(TurnEvent::Thought),
        Kind::OutputReset(reset) => voids_answer(reset).then_some(TurnEvent::AnswerVoided),
        Kind::ModelAnswered(answered) => Some(TurnEvent::ModelAnswered {
            text: answered.text.clone(),
            reasoning: call_wire::reasoning_from_proto(&answered.reasoning_json),
        }),
        Kind::ToolSelected(selected) => {
            let call = selected.call.as_ref();
            call.map(|call| TurnEvent::CallRead(read_call(call)))
        }
        Kind::CallDispatched(dispatched) => Some(TurnEvent::CallDispatched {
            index: dispatched.index,
            effect_id: dispatched.effect_id.clone(),
        }),
        Kind::CallSettled(settled) => {
            let result = settled.result.as_ref();
            result.map(|result| TurnEvent::CallSettled {
                index: result.index,
                status: status(result.status()),
                below: result.calls_below,
            })
        }
        Kind::BudgetReached(reached) => {
            let budget = wire::budget_from_proto(reached).filter(|_| reached.spent);
            budget.map(TurnEvent::BudgetSpent)
        }
        Kind::Steered(steered) => Some(TurnEvent::Steered(steered.message.clone())),
        Kind::UsageReported(reported) => Some(TurnEvent::CalledBelow(reported.calls)),
        Kind::BudgetsEdited(edited) => {
            let budgets = wire::edited_budgets(edited);
            Some(TurnEvent::BudgetsEdited(budgets))
        }
        Kind::Observation(observation) => Some(TurnEvent::Observed {
            index: observation.index,
            text: observation.text.clone(),
        }),
        Kind::SteeringAccepted(_) | Kind::Diagnosed(_) | Kind::ConversationCompacted(_) => None,
        Kind::RunStarted(_)
        | Kind::OutputChunk(_)
        | Kind::NodeStarted(_)
        | Kind::NodeFinished(_)
        | Kind::RunFinished(_)
        | Kind::CancelRequested(_)
        | Kind::MessageGiven(_)
        | Kind::RunPaused(_)
        | Kind::RunResumed(_)
        | Kind::RunQueued(_)
        | Kind::RunDequeued(_)
        | Kind::Checkpoint(_)
        | Kind::ProgressReported(_)
        | Kind::NodeRetrying(_)
        | Kind::IterationFinished(_)
        | Kind::NodeWaiting(_)
        | Kind::NodeWoken(_)
        | Kind::SignalReceived(_)
        | Kind::ApprovalRequested(_)
        | Kind::ApprovalEnded(_)
        | Kind::CallInDoubt(_)
        | Kind::CallDecided(_)
        | Kind::EventPublished(_)
        | Kind::EventDropped(_)
        | Kind::EventsTaken(_)
        | Kind::EventsHandled(_)
        | Kind::SceneWorkflowStarted(_)
        | Kind::SceneWorkflowEnded(_)
        | Kind::SceneEnding(_)
        | Kind::InstanceSlept(_)
        | Kind::InstanceWoke(_)
        | Kind::TurnForked(_)
        | Kind::HookApplied(_)
        | Kind::ResultTaken(_) => return Meaning::Outside,
    };
    change.map_or(Meaning::Remark, Meaning::Change)
}

fn read_call(call: &common::ToolCall) -> ReadCall {
    ReadCall {
        index: call.index,
        tool_id: call.tool_id.clone(),
        arguments_json: call.arguments_json.clone(),
        native: call.dialect() == common::Dialect::Native,
        needs_confirmation: call.needs_confirmation,
        continue_on_error: call.continue_on_error,
        retries: call.control.as_ref().map_or(0, |control| control.retries),
        parallel_safe: call.parallel_safe,
        no_reply: call
            .control
            .as_ref()
            .is_some_and(|control| control.no_reply),
        problems: call
            .problems
            .iter()
            .map(|violation| violation.message.clone())
            .collect(),
    }
}

fn status(status: common::CallStatus) -> CallStatus {
    match status {
        common::CallStatus::Succeeded => CallStatus::Succeeded,
        common::CallStatus::Failed
        | common::CallStatus::Rejected
        | common::CallStatus::Cancelled => CallStatus::Failed,
        common::CallStatus::Skipped => CallStatus::Skipped,
        // A result that does not state how its call ended leaves it undecided.
        common::CallStatus::InDoubt | common::CallStatus::Unspecified => CallStatus::InDoubt,
    }
}

/// Writes a message from before the turn.
pub fn message_given(message: &ChatMessage) -> Kind {
    Kind::MessageGiven(common::MessageGiven {
        message: Some(wire::message_to_proto(message)),
    })
}

/// Reads a message from before the turn; none if the event is another.
pub fn given_message(kind: &Kind) -> Option<ChatMessage> {
    match kind {
        Kind::MessageGiven(given) => wire::message_from_proto(given.message.clone()?).ok(),
        _ => None,
    }
}

/// Returns what earlier turns are replaced by; none if an event is another.
pub(crate) fn compaction(kind: &Kind) -> Option<Compaction> {
    match kind {
        Kind::ConversationCompacted(compacted) => Some(Compaction {
            until: compacted.until.as_ref().and_then(timestamp)?,
            summary: compacted.summary.clone(),
            turns: compacted.turns,
        }),
        _ => None,
    }
}

/// Returns whether an event gave the model a handle by which it may read on.
pub(crate) fn gives_handle(kind: &Kind) -> bool {
    match kind {
        Kind::CallSettled(settled) => settled.result.as_ref().is_some_and(call_wire::gives_handle),
        // A call that is not waited for is known by its handle alone.
        Kind::ToolSelected(selected) => {
            let control = selected
                .call
                .as_ref()
                .and_then(|call| call.control.as_ref());
            control.is_some_and(|control| control.no_reply)
        }
        _ => false,
    }
}

/// Writes a remark of the parser.
pub fn diagnosed(diagnostic: &call_catalogue::Diagnostic) -> Kind {
    Kind::Diagnosed(common::Diagnosed {
        diagnostic: Some(call_wire::diagnostic_to_proto(diagnostic)),
    })
}

/// Writes the reading of a call.
pub fn tool_selected(call: &ReadCall, written: &call_text::Call) -> Kind {
    let mut selected = call_wire::call_to_proto(call.index, written);
    selected.parallel_safe = call.parallel_safe;
    if call.native {
        // A structured call was never text.
        selected.span = None;
    }
    Kind::ToolSelected(common::ToolSelected {
        call: Some(selected),
    })
}

/// Writes that a budget is nearly used up, or used up.
pub fn budget_reached(budget: Budget, used: u64, spent: bool) -> Kind {
    Kind::BudgetReached(common::BudgetReached {
        unit: wire::budget_unit(budget).into(),
        limit: budget.limit(),
        used,
        spent,
    })
}

/// Writes an observation for the model.
pub fn observation(index: Option<u32>, text: String) -> Kind {
    Kind::Observation(common::Observation { text, index })
}
