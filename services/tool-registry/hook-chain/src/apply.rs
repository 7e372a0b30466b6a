//! One pass through a chain.

use std::{sync::Arc, time::Duration};

use serde_json::Value;
use sha2::{Digest, Sha256};
use tokio::time::Instant;
use tool_domain::manifest::OnFailure;

use crate::{Action, ActiveHook, Application, Decision, HookFailure, patch};

/// The longest time that all hooks of a chain have together.
pub(crate) const POINT_LIMIT: Duration = Duration::from_secs(2);

/// The part of its time that a hook may lack without an excuse for being late.
const SLACK: Duration = Duration::from_millis(50);

/// The way in which handlers are asked.
pub trait Ask: Sync {
    /// Asks the handler of a hook, which has at most `limit`.
    ///
    /// # Errors
    /// There is no answer.
    fn ask(
        &self,
        hook: &ActiveHook,
        payload: &Value,
        limit: Duration,
    ) -> impl Future<Output = Result<Value, HookFailure>> + Send;
}

/// The act that hooks decide about.
pub trait Subject: Sync {
    /// Checks a payload that a hook changed, and completes it.
    ///
    /// # Errors
    /// The problem, as the end of a sentence that names the hook.
    fn check(&self, hook: &ActiveHook, before: &Value, changed: &mut Value) -> Result<(), String>;
}

/// The decision of a chain.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// The act is carried out with the payload.
    Continue,
    /// The act is refused.
    Deny {
        /// The hook that refuses it.
        hook: String,
        /// The code of the refusal.
        code: String,
        /// The reason as a sentence.
        reason: String,
    },
    /// The act is not carried out.
    Answer {
        /// The hook that answers.
        hook: String,
        /// The output.
        output: Value,
    },
}

/// A chain that was passed.
#[derive(Clone, Debug, PartialEq)]
pub struct Applied {
    /// The payload with all changes.
    pub payload: Value,
    /// The decision.
    pub verdict: Verdict,
    /// The applications, in order.
    pub applications: Vec<Application>,
}

impl Applied {
    /// Whether a hook changed the payload.
    pub fn is_changed(&self) -> bool {
        let mut applications = self.applications.iter();
        applications.any(|application| application.action == Action::Replace)
    }
}

/// Passes a payload through a chain, in its order. Has at most [`POINT_LIMIT`], and less until the deadline.
pub async fn apply(
    chain: &[Arc<ActiveHook>],
    payload: Value,
    subject: &impl Subject,
    asker: &impl Ask,
    deadline: Option<Instant>,
) -> Applied {
    let limit = Instant::now() + POINT_LIMIT;
    let deadline = deadline.map_or(limit, |deadline| deadline.min(limit));
    let mut applied = Applied {
        payload,
        verdict: Verdict::Continue,
        applications: Vec::new(),
    };
    for hook in chain {
        let begun = Instant::now();
        let decided = decide(hook, &applied.payload, asker, deadline).await;
        let decided = decided.and_then(|decision| match decision {
            Some(decision) => taken(hook, decision, &applied.payload, subject).map(Some),
            None => Ok(None),
        });
        let Some(step) = settle(hook, decided, begun) else {
            continue;
        };
        applied.applications.push(step.application);
        if let Some(payload) = step.payload {
            applied.payload = payload;
        }
        if step.verdict != Verdict::Continue {
            applied.verdict = step.verdict;
            return applied;
        }
    }
    applied
}

/// Returns the effect of a chain none of whose hooks can be asked: each whose condition may hold fails.
pub fn fail(
    chain: &[Arc<ActiveHook>],
    payload: Value,
    failure: impl Fn() -> HookFailure,
) -> Applied {
    let mut applied = Applied {
        payload,
        verdict: Verdict::Continue,
        applications: Vec::new(),
    };
    let applies = |hook: &&Arc<ActiveHook>| hook.may_apply(&variables(hook, &applied.payload));
    let failed: Vec<Step> = chain
        .iter()
        .filter(applies)
        .filter_map(|hook| settle(hook, Err(failure()), Instant::now()))
        .collect();
    for step in failed {
        applied.applications.push(step.application);
        if step.verdict != Verdict::Continue {
            applied.verdict = step.verdict;
            break;
        }
    }
    applied
}

/// Returns the members of a payload that conditions see.
fn variables<'a>(hook: &ActiveHook, payload: &'a Value) -> Vec<(&'static str, &'a Value)> {
    let names = hook.hook.point.variables().iter();
    names.map(|name| (*name, &payload[*name])).collect()
}

/// Shows a payload to a hook that only sees it. Returns its failure, if it failed.
pub async fn observe(hook: &ActiveHook, payload: &Value, asker: &impl Ask) -> Option<Application> {
    let begun = Instant::now();
    let decided = decide(hook, payload, asker, begun + POINT_LIMIT).await;
    let decided = decided.map(|decision| decision.map(|_| Step::of(hook, begun, Action::Continue)));
    settle(hook, decided, begun).map(|step| step.application)
}

/// One step of a chain.
struct Step {
    application: Application,
    payload: Option<Value>,
    verdict: Verdict,
}

impl Step {
    fn of(hook: &ActiveHook, begun: Instant, action: Action) -> Self {
        Self {
            application: Application {
                hook: hook.name(),
                action,
                pointers: Vec::new(),
                digests: None,
                duration: begun.elapsed(),
                code: String::new(),
                reason: String::new(),
            },
            payload: None,
            verdict: Verdict::Continue,
        }
    }
}

/// Returns the decision of a hook; `None` if its condition does not hold.
async fn decide(
    hook: &ActiveHook,
    payload: &Value,
    asker: &impl Ask,
    deadline: Instant,
) -> Result<Option<Decision>, HookFailure> {
    let point = hook.hook.point;
    match hook.holds(&variables(hook, payload)) {
        Ok(true) => {}
        Ok(false) => return Ok(None),
        Err(problem) => {
            let message = format!(
                "has a condition that cannot be evaluated: {problem}; guard fields that may be missing with has()"
            );
            return Err(HookFailure::new("hook_condition_failed", message).unasked());
        }
    }
    let now = Instant::now();
    let own = hook.hook.timeout.min(POINT_LIMIT);
    let limit = own.min(deadline.saturating_duration_since(now));
    if limit.is_zero() {
        let message = "was not asked, as the hooks before it took all of the time";
        return Err(HookFailure::new("hook_timeout", message).unasked());
    }
    if !hook.health().admits(now) {
        let message = format!(
            "is suspended, as it failed again and again: {}",
            hook.health().last_failure()
        );
        return Err(HookFailure::new("hook_suspended", message).unasked());
    }
    let asked = tokio::time::timeout(limit, asker.ask(hook, payload, limit)).await;
    let answer = asked.unwrap_or_else(|_| {
        let message = format!("did not answer within its {} ms", limit.as_millis());
        let failure = HookFailure::new("hook_timeout", message);
        // Other hooks, or the caller, took a part of its time.
        Err(match limit + SLACK < own {
            true => failure.unasked(),
            false => failure,
        })
    })?;
    Decision::read(point, answer).map(Some)
}

/// Carries out a decision.
fn taken(
    hook: &ActiveHook,
    decision: Decision,
    payload: &Value,
    subject: &impl Subject,
) -> Result<Step, HookFailure> {
    let begun = Instant::now();
    let step = |action| Step::of(hook, begun, action);
    match decision {
        Decision::Continue => Ok(step(Action::Continue)),
        Decision::Replace { patch, reason } => {
            let (mut changed, pointers) = patch::apply(hook.hook.point, payload, &patch)?;
            if pointers.is_empty() {
                return Ok(step(Action::Continue));
            }
            let checked = subject.check(hook, payload, &mut changed);
            checked.map_err(HookFailure::wrong)?;
            let digest = |payload| digest_of(hook, payload);
            let mut step = step(Action::Replace);
            step.application.digests = Some((digest(payload), digest(&changed)));
            step.application.pointers = pointers;
            step.application.reason = reason;
            step.payload = Some(changed);
            Ok(step)
        }
        Decision::Deny { code, reason } => {
            let name = hook.name();
            let mut step = step(Action::Deny);
            step.application.code.clone_from(&code);
            step.application.reason.clone_from(&reason);
            let reason = match &*reason {
                "" => format!("the hook {name} refuses it"),
                reason => format!("the hook {name} refuses it: {reason}"),
            };
            step.verdict = Verdict::Deny {
                hook: name,
                code,
                reason,
            };
            Ok(step)
        }
        Decision::Answer { output, reason } => {
            let mut step = step(Action::Answer);
            step.application.reason = reason;
            step.verdict = Verdict::Answer {
                hook: hook.name(),
                output,
            };
            Ok(step)
        }
    }
}

/// Records the health of a hook, and turns a failure into the effect that the hook declares. Returns nothing for a hook
/// that was not applied.
fn settle(
    hook: &ActiveHook,
    decided: Result<Option<Step>, HookFailure>,
    begun: Instant,
) -> Option<Step> {
    let failure = match decided {
        Ok(None) => return None,
        Ok(Some(mut step)) => {
            hook.health().decided();
            step.application.duration = begun.elapsed();
            return Some(step);
        }
        Err(failure) => failure,
    };
    if failure.counts {
        hook.health().failed(failure.code, Instant::now());
    }
    let denies = hook.hook.on_failure == OnFailure::Deny && !hook.hook.point.is_observer();
    let mut step = Step::of(
        hook,
        begun,
        if denies { Action::Fail } else { Action::Skip },
    );
    step.application.code = failure.code.to_owned();
    step.application.reason.clone_from(&failure.message);
    if denies {
        let name = hook.name();
        step.verdict = Verdict::Deny {
            code: failure.code.to_owned(),
            reason: format!("the hook {name} {}", failure.message),
            hook: name,
        };
    }
    Some(step)
}

/// Returns the digest of the part of a payload that hooks may change.
fn digest_of(hook: &ActiveHook, payload: &Value) -> String {
    let mut hash = Sha256::new();
    for part in hook.hook.point.mutable() {
        let part = part.strip_suffix("/-").unwrap_or(part);
        let value = payload.pointer(part).unwrap_or(&Value::Null);
        hash.update(canonical_json::to_string(value));
        hash.update([0]);
    }
    format!("sha256:{}", hex::encode(hash.finalize()))
}
