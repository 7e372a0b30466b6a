//! Hooks in force, and their applications.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use serde_json::Value;
use tool_domain::manifest::Hook;

use crate::Health;

/// A hook in force.
#[derive(Debug)]
pub struct ActiveHook {
    /// The plugin that brings it.
    pub plugin: String,
    /// The hook as its manifest declares it.
    pub hook: Hook,
    /// Locked to read or to change it, never across an await.
    health: Mutex<Health>,
}

impl ActiveHook {
    /// Takes a hook of a plugin.
    pub fn new(plugin: impl Into<String>, hook: Hook) -> Self {
        Self {
            plugin: plugin.into(),
            hook,
            health: Mutex::default(),
        }
    }

    /// Returns its name, `<plugin>/<id>`.
    pub fn name(&self) -> String {
        format!("{}/{}", self.plugin, self.hook.id)
    }

    /// Whether it may apply to an act of which these members are known: its condition holds, or cannot be evaluated yet.
    pub fn may_apply(&self, known: &[(&'static str, &Value)]) -> bool {
        self.holds(known) != Ok(false)
    }

    /// Whether its condition holds for an act.
    pub(crate) fn holds(&self, act: &[(&'static str, &Value)]) -> Result<bool, String> {
        let condition = self.hook.when.as_ref();
        condition.map_or(Ok(true), |condition| cel_guard::holds(condition, act))
    }

    /// Returns its health, to read or to change it.
    pub fn health(&self) -> MutexGuard<'_, Health> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The longest message of a failure, in characters.
const MAX_MESSAGE: usize = 500;

/// The reason for which a hook has no decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookFailure {
    /// A stable code, such as `hook_timeout`.
    pub code: &'static str,
    /// The problem and the remedy, as the end of a sentence that names the hook.
    pub message: String,
    /// Whether it counts towards the suspension of the hook: it was asked.
    pub counts: bool,
}

impl HookFailure {
    /// Makes a failure of the hook itself. A long message is cut.
    pub fn new(code: &'static str, message: impl Into<String>) -> Self {
        let message = message.into();
        Self {
            code,
            message: message.chars().take(MAX_MESSAGE).collect(),
            counts: true,
        }
    }

    /// Returns the same failure where the hook was not asked.
    #[must_use]
    pub fn unasked(self) -> Self {
        Self {
            counts: false,
            ..self
        }
    }

    /// Makes the failure of a wrong answer.
    pub(crate) fn wrong(message: impl Into<String>) -> Self {
        Self::new("hook_answer_invalid", message)
    }
}

/// The effect of one application of a hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// It changed nothing.
    Continue,
    /// It changed the payload.
    Replace,
    /// It refused the act.
    Deny,
    /// It answered in the place of the act.
    Answer,
    /// It failed and was passed over.
    Skip,
    /// It failed, and the act is refused for it.
    Fail,
}

/// One application of a hook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Application {
    /// The name of the hook, `<plugin>/<id>`.
    pub hook: String,
    /// The effect.
    pub action: Action,
    /// The first places that it changed, as JSON pointers into the payload.
    pub pointers: Vec<String>,
    /// The SHA-256 of the part that hooks may change, before and after the change; empty without one.
    pub digests: Option<(String, String)>,
    /// The time that it took.
    pub duration: Duration,
    /// The code of a refusal or a failure; empty without one.
    pub code: String,
    /// The reason in the words of the hook, or the failure; may be empty.
    pub reason: String,
}
