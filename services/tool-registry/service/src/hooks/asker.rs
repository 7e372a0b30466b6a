//! Handlers of hooks: programs of plugins, and registered gRPC servers.

use std::{sync::Arc, time::Duration};

use contracts::tavern::plugin::v1::ApplyRequest;
use grpc_kit::CallContext;
use hook_chain::{ActiveHook, Ask, HookFailure};
use serde_json::{Map, Value};
use tokio::time::Instant;
use tool_domain::manifest::HookHandler;

use super::{Act, actor_of};
use crate::{
    dispatch::{backend::Backends, script::Scripts},
    tools::{ActivePlugin, PluginChoices, Revision},
};

/// Asks the handlers of hooks for one caller, with the plugins of one revision.
pub(super) struct Asker {
    scripts: Scripts,
    backends: Backends,
    pub(super) context: CallContext,
    revision: Arc<Revision>,
    choices: Arc<PluginChoices>,
}

impl Asker {
    pub(super) fn new(
        (scripts, backends): (Scripts, Backends),
        context: CallContext,
        (revision, choices): (Arc<Revision>, Arc<PluginChoices>),
    ) -> Self {
        Self {
            scripts,
            backends,
            context,
            revision,
            choices,
        }
    }

    /// Returns the payload of an act, which all hooks of the chain see.
    pub(super) fn payload(&self, act: Act) -> Value {
        let mut payload = Map::new();
        payload.insert("actor".to_owned(), actor_of(&self.context));
        payload.insert("tenant".to_owned(), self.context.tenant().as_str().into());
        payload.insert("revision".to_owned(), self.revision.number.into());
        for (key, id) in [("run_id", act.run_id), ("effect_id", act.effect_id)] {
            if !id.is_empty() {
                payload.insert(key.to_owned(), id.into());
            }
        }
        payload.extend(act.members);
        Value::Object(payload)
    }

    /// Returns the payload with the members of one hook.
    fn request(&self, hook: &ActiveHook, payload: &Value, options: Option<&str>) -> Value {
        let mut request = Map::new();
        request.insert("hook_id".to_owned(), hook.name().into());
        request.insert("point".to_owned(), hook.hook.point.as_str().into());
        let options = options.and_then(|options| serde_json::from_str(options).ok());
        if let Some(options) = options {
            request.insert("options".to_owned(), options);
        }
        if let Value::Object(payload) = payload {
            request.extend(payload.clone());
        }
        Value::Object(request)
    }

    fn plugin(&self, hook: &ActiveHook) -> Result<&Arc<ActivePlugin>, HookFailure> {
        let plugin = self.revision.plugins.get(&hook.plugin);
        let gone = || HookFailure::new("plugin_missing", "has no plugin any more").unasked();
        let plugin = plugin.ok_or_else(gone)?;
        let missing = plugin.missing(self.choices.values(&hook.plugin));
        if missing.is_empty() {
            return Ok(plugin);
        }
        let message = format!(
            "waits for the options {} of its plugin; set them, or switch the plugin off",
            missing.join(", ")
        );
        Err(HookFailure::new("plugin_not_configured", message).unasked())
    }
}

impl Ask for Asker {
    async fn ask(
        &self,
        hook: &ActiveHook,
        payload: &Value,
        limit: Duration,
    ) -> Result<Value, HookFailure> {
        let plugin = self.plugin(hook)?;
        let terms = plugin.terms(self.choices.values(&hook.plugin));
        let request = self.request(hook, payload, terms.options.as_deref());
        let context = self.context.clone().with_deadline(Instant::now() + limit);
        match &hook.hook.handler {
            HookHandler::Script(program) => {
                let package = plugin.files.package();
                let asked =
                    self.scripts
                        .ask(program, (package, &terms), request.to_string(), &context);
                asked.await.map_err(|failure| {
                    // The output of the script may have words of the act, which the event has not.
                    let (hook, reason) = (hook.name(), &failure.message);
                    tracing::warn!(hook, reason, "the script of a hook failed");
                    let message =
                        format!("failed with {}; the server's log has more", failure.code);
                    HookFailure::new("hook_failed", message)
                })
            }
            HookHandler::Backend(name) => {
                let request = ApplyRequest {
                    hook_id: hook.name(),
                    point: hook.hook.point.to_string(),
                    payload_json: request.to_string(),
                    options_json: terms.options.as_deref().unwrap_or_default().to_owned(),
                };
                let answer = self
                    .backends
                    .apply_hook(name, request, &context, limit)
                    .await?;
                json_schema::parse_json_strict(&answer).map_err(|error| {
                    HookFailure::new(
                        "hook_answer_invalid",
                        format!("answered with no JSON: {error}"),
                    )
                })
            }
        }
    }
}
