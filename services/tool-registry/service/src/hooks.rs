//! Hooks of plugins at the points of the server (rules R201 to R206).
//!
//! - [`Hooks`]: passes acts through the chains of their points.
//! - `asker`: handlers, which are programs of plugins or registered gRPC servers.
//! - `peers`: the acts of other services.
//! - `changes`: the point `plugin:changed`.

mod asker;
mod changes;
mod peers;

use std::sync::Arc;

use contracts::tavern::common::v1::{HookAction, HookApplied};
use core_types::Principal;
use grpc_kit::CallContext;
use hook_chain::{Action, ActiveHook, Application, Applied, HookFailure, Subject};
use serde_json::{Map, Value, json};
use tokio::sync::Semaphore;
use tool_domain::{hook_point::HookPoint, manifest::HookHandler};

use crate::{
    dispatch::{Dispatcher, backend::Backends, script::Scripts},
    store::StoreError,
    tools::{Revision, Tools},
};
use asker::Asker;
pub use peers::Unapplied;

/// The most observers that are asked at once; others wait for their turn.
const MAX_OBSERVING: usize = 16;

/// The most observers that wait; later ones are passed over, which is logged.
const MAX_WAITING: usize = 128;

/// The hooks of an installation. Clone, cheap.
#[derive(Clone, Debug)]
pub struct Hooks {
    tools: Tools,
    scripts: Scripts,
    backends: Backends,
    observing: Arc<Semaphore>,
    waiting: Arc<Semaphore>,
}

/// The hooks of a point for a caller.
pub struct PointChain {
    hooks: Vec<Arc<ActiveHook>>,
    asker: Asker,
}

impl Hooks {
    /// Takes the tools, whose plugins bring hooks, and the runners of handlers.
    pub(crate) fn new(tools: Tools, runners: &Dispatcher) -> Self {
        Self {
            tools,
            scripts: runners.scripts.clone(),
            backends: runners.backends.clone(),
            observing: Arc::new(Semaphore::new(MAX_OBSERVING)),
            waiting: Arc::new(Semaphore::new(MAX_WAITING)),
        }
    }

    /// Returns the hooks of a point that run for a caller; `None` without any. Reads one number where no plugin has a
    /// hook there.
    ///
    /// # Errors
    /// The choices of the tenant cannot be read.
    pub async fn at(
        &self,
        point: HookPoint,
        context: &CallContext,
    ) -> Result<Option<PointChain>, StoreError> {
        if !self.tools.has_hooks(point) {
            return Ok(None);
        }
        let view = self.tools.view(context.tenant()).await?;
        let (revision, choices) = (Arc::clone(&view.revision), Arc::clone(&view.choices));
        let mut hooks = Vec::new();
        for hook in revision.hooks.at(point) {
            if !choices.is_off(&hook.plugin)
                && !self.is_of(hook, &revision, context.principal()).await?
            {
                hooks.push(Arc::clone(hook));
            }
        }
        if hooks.is_empty() {
            return Ok(None);
        }
        let asker = Asker::new(
            (self.scripts.clone(), self.backends.clone()),
            context.clone(),
            (revision, choices),
        );
        Ok(Some(PointChain { hooks, asker }))
    }

    /// Whether a call is made with its own key by the backend of a hook, or of an override of its plugin: such calls do
    /// not run that hook.
    async fn is_of(
        &self,
        hook: &ActiveHook,
        revision: &Revision,
        principal: &Principal,
    ) -> Result<bool, StoreError> {
        let overrides = revision.overrides.all();
        let own = overrides.filter(|each| each.plugin.name() == hook.plugin);
        let of_hook = match &hook.hook.handler {
            HookHandler::Backend(name) => Some(name),
            HookHandler::Script(_) => None,
        };
        for name in own.map(|each| &each.stand_in.backend).chain(of_hook) {
            let backend = self.backends.of_installation(name).await?;
            if backend.is_some_and(|backend| backend.principal == principal.as_str()) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Shows an act to the hooks that observe a point, behind the act: nothing waits for them.
    pub fn observe(&self, point: HookPoint, context: &CallContext, act: impl FnOnce() -> Act) {
        if !self.tools.has_hooks(point) {
            return;
        }
        let Ok(place) = Arc::clone(&self.waiting).try_acquire_owned() else {
            tracing::warn!(%point, "an act is not shown to hooks, as too many acts wait");
            return;
        };
        let (this, context, act) = (self.clone(), context.clone().without_deadline(), act());
        tokio::spawn(async move {
            let _place = place;
            match this.at(point, &context).await {
                Ok(Some(chain)) => chain.observe(&this.observing, act).await,
                Ok(None) => {}
                Err(error) => tracing::warn!(%error, %point, "an act is not shown to hooks"),
            }
        });
    }
}

/// The parts of a payload that every point has, and the act.
#[derive(Clone, Debug, Default)]
pub struct Act {
    /// The member that the point names, with its value; for results `call` as well.
    pub members: Map<String, Value>,
    /// The run that the act belongs to; empty for none.
    pub run_id: String,
    /// The id of the effect; empty for none.
    pub effect_id: String,
}

impl PointChain {
    /// Passes an act through the chain.
    pub async fn apply(&self, act: Act, subject: &impl Subject) -> Applied {
        let payload = self.asker.payload(act);
        let deadline = self.asker.context.deadline();
        hook_chain::apply(&self.hooks, payload, subject, &self.asker, deadline).await
    }

    /// Whether a hook may apply to an act of which some members are not known yet.
    pub fn may_apply(&self, known: &[(&'static str, &Value)]) -> bool {
        let mut hooks = self.hooks.iter();
        hooks.any(|hook| hook.may_apply(known))
    }

    /// Returns the effect of hooks on a result whose output none of them can see, as it is too long: each fails.
    pub fn cannot_see(&self, payload: Value) -> Applied {
        hook_chain::fail(&self.hooks, payload, || {
            let message = "cannot see this output: it is longer than 1.5 MiB, longer than 960 KiB and streamed, or of a \
                           tool that is gone; ask for less at once";
            HookFailure::new("hook_output_too_large", message).unasked()
        })
    }

    async fn observe(&self, observing: &Semaphore, act: Act) {
        let payload = self.asker.payload(act);
        for hook in &self.hooks {
            let Ok(_turn) = observing.acquire().await else {
                return;
            };
            let applied = hook_chain::observe(hook, &payload, &self.asker).await;
            if let Some(Application {
                hook, code, reason, ..
            }) = applied.filter(|applied| applied.action != Action::Continue)
            {
                tracing::warn!(hook, code, reason, "a hook that observes failed");
            }
        }
    }
}

/// Returns the events of applications at a point.
pub fn events_of(
    point: HookPoint,
    effect_id: &str,
    applications: &[Application],
) -> Vec<HookApplied> {
    let events = applications.iter().map(|application| {
        let (before, after) = application.digests.clone().unwrap_or_default();
        HookApplied {
            hook: application.hook.clone(),
            point: point.to_string(),
            action: action_of(application.action).into(),
            pointers: application.pointers.clone(),
            before,
            after,
            duration: prost_types::Duration::try_from(application.duration).ok(),
            code: application.code.clone(),
            reason: application.reason.clone(),
            effect_id: effect_id.to_owned(),
        }
    });
    events.collect()
}

fn action_of(action: Action) -> HookAction {
    match action {
        Action::Continue => HookAction::Continue,
        Action::Replace => HookAction::Replace,
        Action::Deny => HookAction::Deny,
        Action::Answer => HookAction::Answer,
        Action::Skip => HookAction::Skip,
        Action::Fail => HookAction::Fail,
    }
}

/// Describes the principal for which an act happens.
fn actor_of(context: &CallContext) -> Value {
    json!({"principal": context.principal().as_str()})
}
