//! The acts of other services: workflows, turns of agents, requests to models.

use contracts::tavern::registry::v1::{ApplyHooksResponse, HookDenial};
use grpc_kit::CallContext;
use hook_chain::{ActiveHook, Subject, Verdict};
use serde_json::{Map, Value};
use tool_domain::hook_point::HookPoint;

use super::{Act, Hooks, events_of};
use crate::store::StoreError;

/// The points at which other services ask.
const POINTS: [HookPoint; 5] = [
    HookPoint::WorkflowBeforeExecute,
    HookPoint::WorkflowAfterExecute,
    HookPoint::TurnBefore,
    HookPoint::TurnAfter,
    HookPoint::ModelBeforeRequest,
];

/// The longest text of a message that a hook adds to a request, in bytes.
const MAX_MESSAGE_BYTES: usize = 64 << 10;

/// The most messages that hooks add to a request.
const MAX_ADDED: usize = 16;

/// The reason for which an act was not passed through hooks.
#[derive(Debug, thiserror::Error)]
pub enum Unapplied {
    /// The point is not one at which other services ask.
    #[error("is not a point at which services ask; use one of {0}")]
    Point(String),
    /// The act is not an object with the member of its point.
    #[error("must be an object with the member '{0}'")]
    Act(&'static str),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Hooks {
    /// Passes an act of another service through the hooks of its point. Those that observe are asked behind the answer.
    ///
    /// # Errors
    /// [`Unapplied`] is the reason.
    pub async fn pass(
        &self,
        context: &CallContext,
        point: &str,
        act: &str,
    ) -> Result<ApplyHooksResponse, Unapplied> {
        let point = HookPoint::parse(point).filter(|point| POINTS.contains(point));
        let names = || POINTS.map(HookPoint::as_str).join(", ");
        let point = point.ok_or_else(|| Unapplied::Point(names()))?;
        let member = point.variables()[0];
        let read: Option<Map<String, Value>> = serde_json::from_str(act).ok();
        let act = read.filter(|act| act.get(member).is_some_and(Value::is_object));
        let members = act.ok_or(Unapplied::Act(member))?;
        let run_id = context.path().steps().last().cloned().unwrap_or_default();
        let act = Act {
            members,
            run_id,
            effect_id: String::new(),
        };
        if point.is_observer() {
            self.observe(point, context, || act);
            return Ok(ApplyHooksResponse::default());
        }
        let Some(chain) = self.at(point, context).await? else {
            return Ok(ApplyHooksResponse::default());
        };
        let applied = chain.apply(act, &PeerAct { point }).await;
        let payload_json = match applied.is_changed() {
            true => only(member, &applied.payload).to_string(),
            false => String::new(),
        };
        let denial = match &applied.verdict {
            Verdict::Continue | Verdict::Answer { .. } => None,
            Verdict::Deny { hook, code, reason } => Some(HookDenial {
                hook: hook.clone(),
                code: code.clone(),
                reason: reason.clone(),
            }),
        };
        Ok(ApplyHooksResponse {
            payload_json,
            denial,
            applied: events_of(point, "", &applied.applications),
        })
    }
}

/// Returns a payload with one member only.
fn only(member: &str, payload: &Value) -> Value {
    let mut only = Map::new();
    only.insert(member.to_owned(), payload[member].clone());
    Value::Object(only)
}

/// An act of another service.
struct PeerAct {
    point: HookPoint,
}

impl Subject for PeerAct {
    fn check(&self, hook: &ActiveHook, before: &Value, changed: &mut Value) -> Result<(), String> {
        match self.point {
            HookPoint::WorkflowBeforeExecute if !changed["run"]["inputs"].is_object() => {
                Err("must leave the inputs an object".to_owned())
            }
            HookPoint::TurnBefore => match changed["turn"]["user_text"].as_str() {
                Some(text) if !text.trim().is_empty() => Ok(()),
                _ => Err("must leave the user a text".to_owned()),
            },
            HookPoint::ModelBeforeRequest => check_messages(hook, before, changed),
            _ => Ok(()),
        }
    }
}

/// Checks the messages that a hook added to a request, and marks them with its plugin.
fn check_messages(hook: &ActiveHook, before: &Value, changed: &mut Value) -> Result<(), String> {
    let count = |payload: &Value| {
        payload["request"]["messages"]
            .as_array()
            .map_or(0, Vec::len)
    };
    let present = count(before);
    let Some(messages) = changed["request"]["messages"].as_array_mut() else {
        return Err("must leave the messages a list".to_owned());
    };
    let mut added = 0;
    for (index, message) in messages.iter_mut().enumerate() {
        if index < present {
            added += usize::from(message.get("plugin").is_some());
            continue;
        }
        let role = message["role"].as_str();
        let text = message["content"].as_str().unwrap_or_default();
        if !role.is_some_and(|role| ["system", "user"].contains(&role)) || text.is_empty() {
            return Err(
                "must add messages with a 'role', system or user, and a 'content'".to_owned(),
            );
        }
        if text.len() > MAX_MESSAGE_BYTES {
            return Err(format!(
                "must add messages of at most {MAX_MESSAGE_BYTES} bytes"
            ));
        }
        let (role, text) = (role.map(str::to_owned), text.to_owned());
        *message = serde_json::json!({"role": role, "content": text, "plugin": hook.plugin});
        added += 1;
    }
    match added {
        0..=MAX_ADDED => Ok(()),
        _ => Err(format!(
            "must not bring the added messages to more than {MAX_ADDED}"
        )),
    }
}
