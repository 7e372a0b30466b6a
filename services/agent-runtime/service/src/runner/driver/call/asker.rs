//! The calls of a turn that ask a person (rule G808).

use agent_domain::{
    plan::Interaction,
    spelling::{self, QUESTION},
    turn::ReadCall,
};
use agent_store::{
    questions::{self, Questions},
    store::OpenQuestion,
};
use contracts::tavern::common::v1 as common;
use core_types::{Principal, Reach};
use run_events::outcome;

use crate::runner::driver::stop::TurnStop;

/// The questions of one turn. Clone, cheap.
#[derive(Clone)]
pub(in crate::runner::driver) struct Asker {
    pub(in crate::runner::driver) questions: Questions,
    /// The principal of the turn, for which the turn of an answer acts too.
    pub(in crate::runner::driver) principal: Principal,
    /// The objects that the calls of the turn can see.
    pub(in crate::runner::driver) reach: Reach,
    pub(in crate::runner::driver) conversation_id: String,
    pub(in crate::runner::driver) profile_id: String,
    pub(in crate::runner::driver) interaction: Interaction,
    /// Whether the conversation ends with the turn.
    pub(in crate::runner::driver) is_ephemeral: bool,
}

impl Asker {
    /// Returns the arguments of a call as they are sent.
    pub(in crate::runner::driver) fn arguments(&self, call: &ReadCall) -> String {
        let continues = self.interaction == Interaction::Continue && !self.is_ephemeral;
        let left_open = (continues && is_question(call))
            .then(|| questions::without_wait(&call.arguments_json))
            .flatten();
        left_open.unwrap_or_else(|| call.arguments_json.clone())
    }

    /// Stores a question that the turn does not wait for, until its answer opens another turn.
    pub(in crate::runner::driver) async fn keep(
        &self,
        call: &ReadCall,
        result: &common::CallResult,
    ) -> Result<(), TurnStop> {
        let pending = is_question(call).then(|| questions::pending(result));
        let Some(run_id) = pending.flatten().filter(|_| !self.is_ephemeral) else {
            return Ok(());
        };
        let question = OpenQuestion {
            tenant: self.principal.tenant(),
            asker: Some((self.principal.clone(), self.reach)),
            run_id,
            conversation_id: self.conversation_id.clone(),
            profile_id: self.profile_id.clone(),
            prompt: questions::prompt(&call.arguments_json),
        };
        self.questions.keep(question).await.map_err(|error| {
            let category = common::ErrorCategory::Internal;
            let message = format!("a question cannot be kept: {error}");
            TurnStop::Failed(Box::new(outcome::error(
                category,
                "question_not_kept",
                message,
            )))
        })
    }
}

fn is_question(call: &ReadCall) -> bool {
    spelling::tool_id(&call.tool_id) == QUESTION
}
