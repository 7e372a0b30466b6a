//! The hooks before and after a call (rules R203 and R205).

use std::sync::Arc;

use call_outcome::{CallOutcome, Category, Failure, sentences};
use contracts::tavern::common::v1::{CallResult, CallStatus, HookApplied};
use core_types::EffectId;
use grpc_kit::CallContext;
use hook_chain::{ActiveHook, Applied, Subject, Verdict};
use run_log::RunWriter;
use serde_json::{Map, Value, json};
use tonic::Status;
use tool_domain::{approval::Approval, hook_point::HookPoint, tool::Tool};

use super::{Call, Inner, ending::Ending, prepare::Ready};
use crate::{
    dispatch::ResolvedCall,
    hooks::{Act, PointChain, events_of},
    in_flight::InFlightCall,
    ledger::Entry,
    tools::Missing,
};

/// The most warnings of a result.
const MAX_WARNINGS: usize = 64;

/// The longest warning, in characters.
const MAX_WARNING_CHARS: usize = 2_000;

/// The most bytes of all warnings of a result, which settle its call together with the output.
const MAX_WARNING_BYTES: usize = 16 << 10;

/// The longest result that hooks see, in bytes of JSON: with the arguments it fits into one input of a script, and into
/// one read of the ledger.
const MAX_SEEN_BYTES: usize = 1_536 << 10;

/// The effect of the hooks before a call.
#[derive(Clone, Default)]
pub(super) struct Before {
    /// The arguments in the place of the call's own; none if no hook changed them.
    pub(super) arguments: Option<Value>,
    /// The hook that answers in the tool's place, and its output.
    pub(super) answer: Option<(String, Value)>,
    /// The applications.
    pub(super) applied: Vec<HookApplied>,
}

/// An outcome after its hooks.
pub(super) struct After {
    pub(super) outcome: CallOutcome,
    pub(super) warnings: Vec<String>,
}

impl Ready {
    /// Returns the call with the answer and the applications of its hooks.
    pub(super) fn hooked(self, before: Before) -> Self {
        Self {
            answer: before.answer,
            applied: before.applied,
            ..self
        }
    }
}

impl Inner {
    /// Passes a call that was checked through the hooks before it.
    ///
    /// # Errors
    /// A hook refuses the call.
    pub(super) async fn before_call(
        &self,
        call: &Call,
        ready: &Ready,
        in_flight: &InFlightCall,
        context: &CallContext,
    ) -> Result<Before, Failure> {
        let point = HookPoint::ToolBeforeCall;
        let chain = self.hooks.at(point, context).await;
        let chain = chain.map_err(|error| Missing::from(error).into_failure(&call.tool))?;
        let Some(chain) = chain.filter(|_| !call.is_hooked) else {
            return Ok(Before::default());
        };
        let effect_id = call.effect_id.as_ref().map_or("", EffectId::as_str);
        let tool = &ready.tool;
        let act = Act {
            members: Map::from_iter([("call".to_owned(), describe(tool, &ready.arguments))]),
            ..act_of(in_flight)
        };
        let mut passed = chain.apply(act, &BeforeCall { tool }).await;
        let applied = events_of(point, effect_id, &passed.applications);
        in_flight.hooks_applied(&applied);
        let is_changed = passed.is_changed();
        let arguments = is_changed.then(|| passed.payload["call"]["arguments"].take());
        let answer = match passed.verdict {
            Verdict::Continue => None,
            Verdict::Answer { hook, output } => Some((hook, output)),
            Verdict::Deny { hook, code, reason } => {
                let message = format!("{} was not called: {reason}", tool.id());
                let failure = Failure::new(Category::Policy, code, message);
                return Err(failure.detail("hook", hook));
            }
        };
        Ok(Before {
            arguments,
            answer,
            applied,
        })
    }

    /// Returns the hooks after a call for its caller.
    async fn chain_after(&self, context: &CallContext) -> Result<Option<PointChain>, Status> {
        // The time of the call may be over when its result is there.
        let context = context.clone().without_deadline();
        let chain = self.hooks.at(HookPoint::ToolAfterCall, &context).await;
        chain.map_err(|error| run_events::store_failure(&error).into_status())
    }

    /// Returns the hooks that may apply to the result of a call, none without any, and holds its output back for them.
    pub(super) async fn hold_back(
        &self,
        resolved: &ResolvedCall,
    ) -> Result<Option<PointChain>, Status> {
        let Some(chain) = self.chain_after(&resolved.context).await? else {
            return Ok(None);
        };
        let call = describe(&resolved.tool, &resolved.arguments);
        let chain = Some(chain).filter(|chain| chain.may_apply(&[("call", &call)]));
        if chain.is_some() {
            resolved.in_flight.hold_back();
        }
        Ok(chain)
    }

    /// Passes the outcome of a call through the hooks after it. It is in the ledger's entry before they are asked.
    ///
    /// # Errors
    /// The outcome cannot be recorded.
    pub(super) async fn after_call(
        &self,
        resolved: &ResolvedCall,
        outcome: CallOutcome,
        (entry, ending): (Option<&RunWriter>, &Ending),
    ) -> Result<After, Status> {
        let untouched = |outcome| After {
            outcome,
            warnings: Vec::new(),
        };
        let in_flight = &resolved.in_flight;
        let has_ended = !matches!(
            outcome,
            CallOutcome::Rejected(_) | CallOutcome::Cancelled(_)
        );
        let Some(chain) = ending.after.as_ref().filter(|_| has_ended) else {
            show(in_flight, &outcome);
            return Ok(untouched(outcome));
        };
        let raw = self.result(resolved, &outcome, ending);
        let call = describe(&resolved.tool, &resolved.arguments);
        let result = describe_result(&raw, &outcome);
        if !chain.may_apply(&[("call", &call), ("result", &result)]) {
            show(in_flight, &outcome);
            return Ok(untouched(outcome));
        }
        let is_unseen = matches!(outcome, CallOutcome::SucceededLong(_))
            || raw.output_json.len() > MAX_SEEN_BYTES;
        // A long output stands in the entry already, and nothing may come between it and the end of the call.
        let entry = entry.filter(|_| !is_unseen);
        if let Some(entry) = entry.filter(|_| !ending.is_recorded) {
            self.ledger.returned(entry, &raw, ending.in_batch).await?;
        }
        let applied = match is_unseen {
            true => chain.cannot_see(json!({"call": call, "result": result})),
            false => {
                let members = [("call".to_owned(), call), ("result".to_owned(), result)];
                let act = Act {
                    members: Map::from_iter(members),
                    ..act_of(in_flight)
                };
                let subject = AfterCall {
                    has_succeeded: matches!(outcome, CallOutcome::Succeeded(_)),
                };
                chain.apply(act, &subject).await
            }
        };
        let after = concluded(resolved.tool.id(), outcome, &applied);
        let effect_id = in_flight.effect_id();
        let events = events_of(HookPoint::ToolAfterCall, effect_id, &applied.applications);
        if let Some(entry) = entry {
            self.ledger.hooks_applied(entry, &events).await;
        }
        match applied.is_changed() || applied.verdict != Verdict::Continue {
            true => in_flight.discard(),
            false => show(in_flight, &after.outcome),
        }
        in_flight.hooks_applied(&events);
        Ok(after)
    }

    /// Returns the outcome of a call that a crash cut off behind its tool, and whose tool is gone: its hooks, which know
    /// the call by the tool, fail.
    ///
    /// # Errors
    /// The hooks cannot be looked up.
    pub(super) async fn after_lost_tool(
        &self,
        open: &Entry,
        returned: &CallResult,
        context: &CallContext,
    ) -> Result<After, Status> {
        let outcome = call_wire::outcome_from_proto(returned);
        let Some(chain) = self.chain_after(context).await? else {
            return Ok(After {
                outcome,
                warnings: Vec::new(),
            });
        };
        let tool_id = &open.record.tool_id;
        let arguments: Value = serde_json::from_str(&open.arguments_json).unwrap_or_default();
        let call = json!({"tool_id": tool_id, "arguments": arguments});
        let result = describe_result(returned, &outcome);
        let applied = chain.cannot_see(json!({"call": call, "result": result}));
        Ok(concluded(tool_id, outcome, &applied))
    }

    /// Shows a call that waits for people to the hooks that observe approvals.
    pub(super) fn show_approval(&self, approval: &Approval, context: &CallContext) {
        let act = || {
            let arguments: Value = serde_json::from_str(&approval.arguments).unwrap_or_default();
            let rules = approval.reasons.iter().map(|reason| &reason.rule_id);
            let approval = json!({
                "approval_id": approval.id,
                "tool_id": approval.tool_id,
                "arguments": arguments,
                "rule_ids": rules.collect::<Vec<_>>(),
            });
            Act {
                members: Map::from_iter([("approval".to_owned(), approval)]),
                ..Act::default()
            }
        };
        self.hooks
            .observe(HookPoint::ApprovalRequested, context, act);
    }

    /// Shows the end of a call to the hooks that observe it.
    pub(super) fn show_end(&self, resolved: &ResolvedCall, result: &CallResult) {
        let act = || {
            let call = describe(&resolved.tool, &resolved.arguments);
            let output = serde_json::from_str(&result.output_json).unwrap_or_default();
            let result = result_value(result, output);
            Act {
                members: Map::from_iter([("call".to_owned(), call), ("result".to_owned(), result)]),
                ..act_of(&resolved.in_flight)
            }
        };
        self.hooks
            .observe(HookPoint::ToolAfter, &resolved.context, act);
    }
}

/// Shows output that was held back for hooks that left a success as it is. That of a failure, which hooks cannot change,
/// stays away.
fn show(in_flight: &InFlightCall, outcome: &CallOutcome) {
    match outcome {
        CallOutcome::Succeeded(_) | CallOutcome::SucceededLong(_) => in_flight.release(),
        _ => in_flight.discard(),
    }
}

/// Returns the outcome that follows from the decisions of hooks.
fn concluded(tool: &str, outcome: CallOutcome, applied: &Applied) -> After {
    let result = &applied.payload["result"];
    let warnings = result["warnings"].as_array().into_iter().flatten();
    let warnings = warnings.filter_map(|warning| warning.as_str().map(str::to_owned));
    let outcome = match (outcome, &applied.verdict) {
        (
            CallOutcome::Succeeded(_) | CallOutcome::SucceededLong(_),
            Verdict::Deny { hook, code, reason },
        ) => {
            let message = format!("{tool} was called, and its result is withheld: {reason}");
            let failure = Failure::new(Category::Policy, code.clone(), message);
            CallOutcome::Failed(failure.detail("hook", hook.clone()))
        }
        (CallOutcome::Succeeded(_), _) => CallOutcome::Succeeded(result["output"].clone()),
        // A failure stays a failure, and a doubt a doubt.
        (outcome, _) => outcome,
    };
    After {
        outcome,
        warnings: warnings.collect(),
    }
}

/// Describes a call for hooks.
fn describe(tool: &Tool, arguments: &Value) -> Value {
    let flags = tool.flags();
    json!({
        "tool_id": tool.id(),
        "tool_digest": tool.etag(),
        "arguments": arguments,
        "effects": {
            "read_only": flags.read_only,
            "idempotent": flags.idempotent,
            "destructive": flags.destructive,
        },
    })
}

/// Describes a result for hooks, with the whole output where it is at hand.
fn describe_result(raw: &CallResult, outcome: &CallOutcome) -> Value {
    let output = match outcome {
        CallOutcome::Succeeded(output) => output.clone(),
        _ => Value::Null,
    };
    result_value(raw, output)
}

fn result_value(result: &CallResult, output: Value) -> Value {
    let duration = result.duration.map_or(0, |duration| {
        duration.seconds * 1_000_000 + i64::from(duration.nanos) / 1_000
    });
    let error = result.error.as_ref().map(|error| {
        json!({
            "category": call_wire::category_name(error.category()),
            "code": error.code,
            "message": error.message,
            "retryable": error.retryable,
        })
    });
    json!({
        "status": status_name(result.status()),
        "output": output,
        "warnings": result.warnings,
        "error": error,
        "duration_us": duration,
    })
}

fn status_name(status: CallStatus) -> String {
    let name = status.as_str_name().trim_start_matches("CALL_STATUS_");
    name.to_ascii_lowercase()
}

fn act_of(in_flight: &InFlightCall) -> Act {
    Act {
        run_id: in_flight.path().steps().last().cloned().unwrap_or_default(),
        effect_id: in_flight.effect_id().to_owned(),
        ..Act::default()
    }
}

/// A call that is about to leave.
struct BeforeCall<'a> {
    tool: &'a Arc<Tool>,
}

impl Subject for BeforeCall<'_> {
    fn check(&self, _: &ActiveHook, _: &Value, changed: &mut Value) -> Result<(), String> {
        let checked = self.tool.check(&changed["call"]["arguments"]);
        checked.map(drop).map_err(|violations| {
            let reasons = sentences(&violations);
            format!("made the arguments unfit for {}: {reasons}", self.tool.id())
        })
    }
}

/// A call that has ended.
struct AfterCall {
    has_succeeded: bool,
}

impl Subject for AfterCall {
    fn check(&self, _: &ActiveHook, before: &Value, changed: &mut Value) -> Result<(), String> {
        let output = |payload: &Value| payload["result"].get("output").cloned();
        if output(changed).is_none() {
            return Err("must leave the result an output".to_owned());
        }
        if !self.has_succeeded && output(before) != output(changed) {
            return Err("must not give an output to a call that did not succeed".to_owned());
        }
        let warnings = changed["result"]["warnings"].as_array();
        let is_fit = |warning: &Value| {
            let text = warning.as_str();
            text.is_some_and(|text| text.chars().count() <= MAX_WARNING_CHARS)
        };
        let bytes = |all: &[Value]| {
            all.iter()
                .filter_map(Value::as_str)
                .map(str::len)
                .sum::<usize>()
        };
        let fit = warnings.is_some_and(|all| {
            let few = all.len() <= MAX_WARNINGS && bytes(all) <= MAX_WARNING_BYTES;
            few && all.iter().all(is_fit)
        });
        match fit {
            true => Ok(()),
            false => Err(format!(
                "must add warnings that are texts of at most {MAX_WARNING_CHARS} characters, at most {MAX_WARNINGS} with {MAX_WARNING_BYTES} bytes"
            )),
        }
    }
}
