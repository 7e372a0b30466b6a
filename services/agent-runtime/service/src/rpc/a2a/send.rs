//! A message on its way to the agent.

use contracts::{
    lf::a2a::v1::{Message, Role, SendMessageRequest},
    tavern::{
        agent::v1::{StartTurnRequest, SteerTurnRequest, start_turn_request::Input},
        common::v1::ErrorReason,
        run::v1::{AnswerWaitRequest, run_service_client::RunServiceClient},
    },
};
use core_types::{ConversationId, RequestId};
use grpc_kit::{CallContext, Failure, reason, violations};
use tonic::{Code, Status};

use super::{
    A2aRpc, TaskReader,
    failure::{no_push, unsupported},
    follow::Followed,
    parts::{self, MessageContent},
    progress::Question,
    tenant_of,
};

/// The longest message for a running turn, in bytes, as in `SteerTurnRequest`.
const MAX_STEERING_BYTES: usize = 64 << 10;

impl A2aRpc {
    /// Delivers a message, and follows its task from then on. A repeat is not delivered again.
    pub(super) async fn deliver(
        &self,
        request: SendMessageRequest,
        caller: &TaskReader,
    ) -> Result<Followed, Status> {
        let configuration = request.configuration.unwrap_or_default();
        if configuration.task_push_notification_config.is_some() {
            return Err(no_push());
        }
        let tenant = tenant_of(&request.tenant)?;
        let message = request.message.unwrap_or_default();
        check(&message)?;
        let said = parts::read(&message.parts)?;
        if message.task_id.is_empty() {
            let turn = StartTurnRequest {
                request_id: message.message_id,
                profile_id: tenant.to_owned(),
                conversation_id: message.context_id,
                input: Some(Input::UserMessage(said.text)),
                ..StartTurnRequest::default()
            };
            let started = self.agent.start(&caller.context, turn).await;
            let started = started.map_err(of_message)?;
            let run = started.run.unwrap_or_default();
            return Followed::open(&self.runs, run, caller.clone()).await;
        }
        let run = self.run(&caller.context, tenant, &message.task_id).await?;
        if !message.context_id.is_empty() && message.context_id != run.conversation_id {
            let problem = "is not the context of the task; leave it out";
            let failure = Failure::invalid_fields().violation("message.context_id", problem);
            return Err(failure.into());
        }
        let mut followed = Followed::open(&self.runs, run, caller.clone()).await?;
        if followed.progress.has(&message.message_id) {
            return Ok(followed);
        }
        if followed.progress.outcome.is_some() {
            return Err(unsupported(
                "the task has ended; send the message without task_id, with its context_id",
            ));
        }
        match followed.progress.question().cloned() {
            Some(question) => {
                let run = (&caller.context, &question);
                self.answer(run, message.message_id, &said).await?;
                followed.progress.close_question(&question.wait.wait_id);
            }
            None => {
                self.steer(
                    &caller.context,
                    &followed.run.run_id,
                    message.message_id,
                    said,
                )
                .await?;
            }
        }
        Ok(followed)
    }

    async fn answer(
        &self,
        (context, question): (&CallContext, &Question),
        request_id: String,
        said: &MessageContent,
    ) -> Result<(), Status> {
        let request = AnswerWaitRequest {
            run_id: question.run_id.clone(),
            wait_id: question.wait.wait_id.clone(),
            answer_json: said.answer_json(),
            answered_by: match context.principal().is_local() {
                true => "a2a".to_owned(),
                false => String::new(),
            },
            request_id,
        };
        let mut questions = RunServiceClient::new(self.peers.workflow.with(context));
        let answered = questions.answer_wait(request).await;
        match answered.map_err(of_message) {
            Ok(_) => Ok(()),
            Err(status) => match reason(&status) {
                // The run of the question has recorded the answer before the turn has.
                Some(ErrorReason::NotWaiting | ErrorReason::RunFinished) => Err(Failure::new(
                    Code::Unavailable,
                    ErrorReason::NotWaiting,
                    "the question has just ended; send the message again",
                )
                .into()),
                _ => Err(status),
            },
        }
    }

    async fn steer(
        &self,
        context: &CallContext,
        run_id: &str,
        request_id: String,
        said: MessageContent,
    ) -> Result<(), Status> {
        if said.text.len() > MAX_STEERING_BYTES {
            let problem = format!(
                "exceed {MAX_STEERING_BYTES} bytes, the most for a task that is worked on; \
                 shorten them"
            );
            return Err(at("message.parts", problem));
        }
        let request = SteerTurnRequest {
            run_id: run_id.to_owned(),
            request_id,
            message: said.text,
            interrupt: false,
        };
        self.agent
            .steer(context, request)
            .await
            .map(drop)
            .map_err(of_message)
    }
}

/// Checks a message apart from its parts; reports every violation.
fn check(message: &Message) -> Result<(), Status> {
    let mut failure = Failure::invalid_fields();
    if let Err(error) = RequestId::new(message.message_id.as_str()) {
        failure.add_violation("message.message_id", error.to_string());
    }
    if message.role() != Role::User {
        failure.add_violation("message.role", "is not ROLE_USER");
    }
    if !message.context_id.is_empty()
        && let Err(error) = ConversationId::new(message.context_id.as_str())
    {
        failure.add_violation("message.context_id", error.to_string());
    }
    failure.refuse_if_any()
}

/// Replaces the fields of the resulting request by the fields of the message in a refusal.
pub(super) fn of_message(status: impl Into<Status>) -> Status {
    let status: Status = status.into();
    let mut failure = Failure::invalid_fields();
    for (field, problem) in violations(&status) {
        let field = match field.as_str() {
            "user_message" | "message" | "answer_json" => "message.parts",
            "conversation_id" => "message.context_id",
            "profile_id" => "tenant",
            other => other,
        };
        failure.add_violation(field, problem);
    }
    match failure.is_empty() {
        true => status,
        false => failure.into(),
    }
}

fn at(field: &str, problem: String) -> Status {
    Failure::invalid_fields().violation(field, problem).into()
}
