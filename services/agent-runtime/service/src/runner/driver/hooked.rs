//! The hooks before requests to the model.

use agent_domain::{message::ChatMessage, prompt::Prompt};
use contracts::tavern::common::v1::{self as common, run_event::Kind};
use run_events::outcome;

use super::{Driver, stop::TurnStop};
use crate::runner::hooked::before_request;

impl Driver {
    /// Returns the messages that hooks add to a prompt. A deliberation workflow asks its models itself, with hooks of
    /// their own.
    pub(super) async fn messages_of_hooks(
        &mut self,
        model: &str,
        prompt: &Prompt,
    ) -> Result<Vec<ChatMessage>, TurnStop> {
        match self.plan.deliberation {
            Some(_) => Ok(Vec::new()),
            None => self.added_by_hooks(model, &prompt.messages).await,
        }
    }

    /// Returns the messages that hooks add to a request. Their texts are not trusted.
    pub(super) async fn added_by_hooks(
        &mut self,
        model: &str,
        messages: &[ChatMessage],
    ) -> Result<Vec<ChatMessage>, TurnStop> {
        let place = (model, self.meta.subject.as_str());
        let hooks = &self.shared.peers.hooks;
        let context = self.control.call_context();
        let hooked = before_request(hooks, &context, place, messages).await;
        let hooked = hooked.map_err(|failure| {
            let status = failure.into_status();
            let category = common::ErrorCategory::Dependency;
            let mut error = outcome::error(category, "hooks_unavailable", status.message());
            error.retryable = true;
            TurnStop::Failed(Box::new(error))
        })?;
        for applied in hooked.applied {
            self.log.note(Kind::HookApplied(applied))?;
        }
        if let Some(denial) = hooked.denial {
            let message = format!("the model was not asked: {}", denial.reason);
            let category = common::ErrorCategory::Policy;
            let error = outcome::error(category, &denial.code, message);
            return Err(TurnStop::Failed(Box::new(error)));
        }
        let texts = hooked.messages.iter().map(|message| message.text.clone());
        self.untrusted.add_before(texts);
        Ok(hooked.messages)
    }
}
