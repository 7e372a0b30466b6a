//! Questions that a backend brings to people in the place of the platform (rule R207).

use std::future;
use std::time::Duration;

use call_outcome::{Category, Failure};
use contracts::tavern::common::v1::{Wait, WaitKind};
use contracts::tavern::plugin::v1::{AskRequest, AskResponse, WithdrawRequest, WithdrawResponse};
use contracts::tavern::run::v1::AnswerWaitRequest;
use grpc_kit::CallContext;
use plugin_client::{OverrideClient, Service};
use run_events::{BegunWait, RunControl, Waits, Woken, timestamp_to_proto};

/// The pause before a backend is asked again about a question of an earlier process.
const PAUSE: Duration = Duration::from_secs(30);

/// A question of a node that waits for a person.
pub(super) struct Question {
    client: OverrideClient,
    waits: Waits,
    control: RunControl,
    run_id: String,
    wait: Wait,
    /// Whether the wait has just begun.
    is_new: bool,
}

/// Withdraws a question that is dropped before its end, because its run is cancelled.
struct Open<'a> {
    question: &'a Question,
    is_over: bool,
}

impl Question {
    /// Takes the question of a wait; `None` for a wait for anything else than a person.
    pub(super) fn of(
        client: OverrideClient,
        (run_id, wait): (String, Wait),
        (waits, begun): (Waits, &BegunWait),
        control: RunControl,
    ) -> Option<Self> {
        let is_question = wait.kind() == WaitKind::HumanInput;
        (is_question && client.may_override(Service::Interaction)).then(|| Self {
            client,
            waits,
            control,
            run_id,
            wait: Wait {
                due: begun.due().map(timestamp_to_proto),
                ..wait
            },
            is_new: begun.is_new(),
        })
    }

    /// Waits for the end of the wait while the backend asks. A backend that does not take a new question ends it; one of
    /// an earlier process, which the backend may have taken, stays open.
    pub(super) async fn until<E>(
        self,
        woken: impl Future<Output = Result<Woken, E>>,
    ) -> Result<Result<Woken, Failure>, E> {
        let mut open = Open {
            question: &self,
            is_over: false,
        };
        let asking = async {
            loop {
                match self.ask().await {
                    Ok(()) => return future::pending().await,
                    Err(failure) if self.is_new => return failure,
                    Err(failure) => {
                        tracing::warn!(wait = self.wait.wait_id, %failure, "a question is asked again later");
                        tokio::time::sleep(PAUSE).await;
                    }
                }
            }
        };
        let ended = tokio::select! {
            biased;
            woken = woken => woken.map(Ok),
            failure = asking => Ok(Err(failure)),
        };
        open.is_over = true;
        if let Ok(Ok(_)) = &ended {
            self.withdraw();
        }
        ended
    }

    async fn ask(&self) -> Result<(), Failure> {
        let wait = &self.wait;
        let request = || AskRequest {
            run_id: self.run_id.clone(),
            wait_id: wait.wait_id.clone(),
            title: wait.name.clone(),
            schema_json: wait.schema_json.clone(),
            choices: wait.choices.clone(),
            assignees: wait.assignees.clone(),
            context_json: wait.context_json.clone(),
            due: wait.due,
        };
        let context = self.control.call_context();
        let method = (Service::Interaction, "Ask");
        let asked = self
            .client
            .call::<_, AskResponse>(&context, method, request);
        let answer = match asked.await {
            Ok(None) => return Ok(()),
            Ok(Some(Ok(answer))) => answer,
            Ok(Some(Err(refusal))) => {
                let message = format!("the question was refused: {}", refusal.message);
                return Err(Failure::new(Category::Domain, "question_refused", message));
            }
            Err(failure) => {
                let message = failure.into_status().message().to_owned();
                let failure = Failure::new(Category::Dependency, "override_failed", message);
                return Err(failure.retryable());
            }
        };
        if answer.answer_json.is_empty() {
            return Ok(());
        }
        let answer = AnswerWaitRequest {
            run_id: self.run_id.clone(),
            wait_id: wait.wait_id.clone(),
            answer_json: answer.answer_json,
            answered_by: answer.answered_by,
            ..AnswerWaitRequest::default()
        };
        let context = CallContext::of_tenant(context.tenant());
        let answered = self.waits.answer(&context, answer).await;
        answered.map(drop).map_err(|failure| {
            let message = format!(
                "the backend that overrides interaction gave an answer that cannot be taken: {}",
                failure.into_status().message()
            );
            Failure::new(Category::Dependency, "override_failed", message)
        })
    }

    /// Withdraws the question, behind the caller.
    fn withdraw(&self) {
        let request = WithdrawRequest {
            run_id: self.run_id.clone(),
            wait_id: self.wait.wait_id.clone(),
        };
        let context = self.control.call_context().without_deadline();
        let (client, method) = (self.client.clone(), (Service::Interaction, "Withdraw"));
        tokio::spawn(async move {
            let withdrawn = client.call::<_, WithdrawResponse>(&context, method, || request);
            if let Err(failure) = withdrawn.await {
                let status = failure.into_status();
                tracing::warn!(%status, "a question is not withdrawn");
            }
        });
    }
}

impl Drop for Open<'_> {
    /// A run that only leaves memory keeps its questions.
    fn drop(&mut self) {
        if !self.is_over && self.question.control.is_cancelled() {
            self.question.withdraw();
        }
    }
}
