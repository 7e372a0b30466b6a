//! Questions that a backend brings to people in the place of the platform (rule R207).

use std::future;
use std::time::Duration;

use call_outcome::{Category, Failure};
use contracts::tavern::common::v1::{ErrorReason, Wait, WaitKind};
use contracts::tavern::plugin::v1::{AskRequest, AskResponse, WithdrawRequest, WithdrawResponse};
use contracts::tavern::run::v1::AnswerWaitRequest;
use core_types::RunId;
use grpc_kit::CallContext;
use plugin_client::{OverrideClient, Service};
use run_events::{BegunWait, RunControl, Waits, Woken, timestamp_to_proto};

use super::super::activity::Activity;

/// The pause before a question that was not taken is asked again.
const PAUSE: Duration = Duration::from_secs(5);

/// The longest answer, and the longest name of a person, in bytes: those of `AnswerWaitRequest`.
const MAX_ANSWER_BYTES: usize = 256 << 10;
const MAX_NAME_BYTES: usize = 256;

/// A question of a node that waits for a person.
pub(super) struct Question {
    client: OverrideClient,
    waits: Waits,
    control: RunControl,
    run_id: String,
    wait: Wait,
    /// Whether the wait has just begun.
    is_new: bool,
    /// Keeps the run in memory until the question is taken.
    asking: Activity,
}

/// The reason for which a question was not taken.
enum Untaken {
    /// The registry, which knows the backends, cannot be reached: nothing was asked.
    Unasked,
    /// The backend fails or refuses.
    Failed(Failure),
}

impl Question {
    /// Takes the question of a wait; `None` for a wait for anything else than a person.
    pub(super) fn of(
        client: OverrideClient,
        (run_id, wait): (String, Wait),
        (waits, begun): (Waits, &BegunWait),
        (control, asking): (RunControl, Activity),
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
            asking,
        })
    }

    /// Waits for the end of the wait while the backend asks. A backend that does not take a new question ends it; one of
    /// an earlier process, which the backend may have taken, stays open, as one does that nothing was asked about.
    pub(super) async fn until<E>(
        self,
        woken: impl Future<Output = Result<Woken, E>>,
    ) -> Result<Result<Woken, Failure>, E> {
        let asking = async {
            let taken = self.asking.begin();
            loop {
                match self.ask().await {
                    Ok(()) => break,
                    Err(Untaken::Failed(failure)) if self.is_new => return failure,
                    Err(_) => tokio::time::sleep(PAUSE).await,
                }
            }
            drop(taken);
            future::pending().await
        };
        let ended = tokio::select! {
            biased;
            woken = woken => woken.map(Ok),
            failure = asking => Ok(Err(failure)),
        };
        if ended.is_ok() {
            let context = self.control.call_context();
            withdraw(&self.client, &context, self.run_id, self.wait.wait_id);
        }
        ended
    }

    async fn ask(&self) -> Result<(), Untaken> {
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
                let failure = Failure::new(Category::Domain, "question_refused", message);
                return Err(Untaken::Failed(failure));
            }
            Err(failure) if failure.reason() == ErrorReason::OverrideFailed => {
                let message = failure.into_status().message().to_owned();
                let failure = Failure::new(Category::Dependency, "override_failed", message);
                return Err(Untaken::Failed(failure.retryable()));
            }
            Err(_) => return Err(Untaken::Unasked),
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
        let (answer_bytes, name_bytes) = (answer.answer_json.len(), answer.answered_by.len());
        if answer_bytes > MAX_ANSWER_BYTES || name_bytes > MAX_NAME_BYTES {
            return Err(Untaken::Failed(unusable("it is too long")));
        }
        let context = CallContext::of_tenant(context.tenant());
        match self.waits.answer(&context, answer).await {
            Ok(_) => Ok(()),
            // Another answer, or the time, came first.
            Err(failure) if failure.reason() == ErrorReason::NotWaiting => Ok(()),
            Err(failure) => {
                let status = failure.into_status();
                Err(Untaken::Failed(unusable(status.message())))
            }
        }
    }
}

/// Returns the failure of a node whose backend gave a wrong answer.
fn unusable(problem: &str) -> Failure {
    let message = format!(
        "the backend that overrides interaction gave an answer that cannot be taken: {problem}"
    );
    Failure::new(Category::Dependency, "override_failed", message)
}

/// Withdraws the questions of a run that ends.
pub(super) async fn withdraw_open(
    client: &OverrideClient,
    context: &CallContext,
    run_id: RunId,
    waits: &Waits,
) {
    if client.may_override(Service::Interaction) {
        for wait in waits.open_questions().await {
            withdraw(client, context, run_id.to_string(), wait.wait_id);
        }
    }
}

/// Withdraws a question, behind the caller.
fn withdraw(client: &OverrideClient, context: &CallContext, run_id: String, wait_id: String) {
    let (client, context) = (client.clone(), context.clone().without_deadline());
    tokio::spawn(async move {
        let method = (Service::Interaction, "Withdraw");
        let request = || WithdrawRequest { run_id, wait_id };
        let withdrawn = client.call::<_, WithdrawResponse>(&context, method, request);
        if let Err(failure) = withdrawn.await {
            let status = failure.into_status();
            tracing::warn!(%status, "a question is not withdrawn");
        }
    });
}
