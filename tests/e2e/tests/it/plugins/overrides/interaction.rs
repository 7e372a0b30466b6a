//! Questions that a backend brings to people.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, ensure};
use contracts::tavern::common::v1::{CallResult, CallStatus, run_event::Kind};
use contracts::tavern::plugin::v1::{
    AskRequest, AskResponse, WithdrawRequest, WithdrawResponse,
    interaction_service_server::{InteractionService, InteractionServiceServer},
};
use contracts::tavern::registry::v1::CancelCallRequest;
use contracts::tavern::run::v1::{AnswerWaitRequest, CancelRunRequest};
use serde_json::{Value, json};
use testkit::{Stack, eventually, serve_backend};
use tonic::{Request, Response, Status};

use super::plugin;
use crate::plugins::{call, code_of, install, register};

/// The tool that asks.
const TOOL: &str = "RequestUserInteractionTool";

type Answer = Result<AskResponse, Status>;

/// A backend that remembers its questions, and answers each in the same way.
#[derive(Clone)]
struct People {
    answer: Arc<dyn Fn() -> Answer + Send + Sync>,
    /// The time that it takes for each question.
    takes: Duration,
    asked: Arc<Mutex<Vec<AskRequest>>>,
    withdrawn: Arc<Mutex<Vec<String>>>,
}

impl People {
    /// Starts a stack whose questions it brings to people.
    async fn start(
        stack: &Stack,
        answer: impl Fn() -> Answer + Send + Sync + 'static,
    ) -> anyhow::Result<Self> {
        Self::start_slow(stack, Duration::ZERO, answer).await
    }

    /// Does the same with people who take some time.
    async fn start_slow(
        stack: &Stack,
        takes: Duration,
        answer: impl Fn() -> Answer + Send + Sync + 'static,
    ) -> anyhow::Result<Self> {
        let people = Self {
            answer: Arc::new(answer),
            takes,
            asked: Arc::default(),
            withdrawn: Arc::default(),
        };
        let endpoint = serve_backend(InteractionServiceServer::new(people.clone())).await?;
        register(stack, "people", endpoint).await?;
        install(stack, &plugin("people", "interaction")?).await?;
        Ok(people)
    }

    async fn question(&self) -> anyhow::Result<AskRequest> {
        eventually("a question", || async { all(&self.asked).pop() }).await
    }

    async fn withdrawn(&self) -> anyhow::Result<String> {
        eventually("a withdrawal", || async { all(&self.withdrawn).pop() }).await
    }
}

fn all<T: Clone>(shared: &Mutex<Vec<T>>) -> Vec<T> {
    shared
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clone()
}

#[tonic::async_trait]
impl InteractionService for People {
    async fn ask(&self, request: Request<AskRequest>) -> Result<Response<AskResponse>, Status> {
        {
            let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
            asked.push(request.into_inner());
        }
        tokio::time::sleep(self.takes).await;
        (self.answer)().map(Response::new)
    }

    async fn withdraw(
        &self,
        request: Request<WithdrawRequest>,
    ) -> Result<Response<WithdrawResponse>, Status> {
        let mut withdrawn = self
            .withdrawn
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        withdrawn.push(request.into_inner().wait_id);
        Ok(Response::new(WithdrawResponse {}))
    }
}

fn later() -> Answer {
    Ok(AskResponse::default())
}

fn answered(answer: &Value) -> Answer {
    Ok(AskResponse {
        answer_json: answer.to_string(),
        answered_by: "mara".to_owned(),
    })
}

fn herb() -> Value {
    json!({"prompt": "Which herb?", "options": ["sage", "moss"], "expires_seconds": 3600})
}

fn output(result: &CallResult) -> anyhow::Result<Value> {
    ensure!(result.status() == CallStatus::Succeeded, "{result:?}");
    Ok(serde_json::from_str(&result.output_json)?)
}

#[tokio::test(flavor = "multi_thread")]
async fn r207_a_backend_that_knows_the_answer_returns_it_at_once() -> anyhow::Result<()> {
    let stack = Stack::all_in_one().await?;
    let people = People::start(&stack, || answered(&json!("sage"))).await?;
    let result = call(&stack, (TOOL, ""), herb()).await?;
    ensure!(output(&result)?["answer"] == "sage", "{result:?}");
    let question = people.question().await?;
    ensure!(question.title == "Which herb?" && question.due.is_some());
    let choices: Vec<&str> = question.choices.iter().map(|each| &*each.value).collect();
    ensure!(choices == ["sage", "moss"]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn r207_a_run_stays_in_memory_while_the_backend_takes_its_time() -> anyhow::Result<()> {
    let stack = Stack::all_in_one().await?;
    // A run that only waits leaves memory after a second.
    let takes = Duration::from_secs(3);
    let people = People::start_slow(&stack, takes, || answered(&json!("sage"))).await?;
    let result = call(&stack, (TOOL, ""), herb()).await?;
    ensure!(output(&result)?["answer"] == "sage", "{result:?}");
    ensure!(all(&people.asked).len() == 1, "it is asked once");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn r207_the_question_of_a_run_out_of_memory_is_withdrawn_when_it_is_cancelled()
-> anyhow::Result<()> {
    let stack = Stack::all_in_one().await?;
    let people = People::start(&stack, later).await?;
    let mut asked = herb();
    asked["wait"] = json!(false);
    output(&call(&stack, (TOOL, ""), asked).await?)?;
    let question = people.question().await?;
    // Long enough for the run to leave memory.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let cancel = CancelRunRequest {
        run_id: question.run_id,
        ..CancelRunRequest::default()
    };
    stack.runs().cancel_run(cancel).await?;
    ensure!(people.withdrawn().await? == question.wait_id);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn r207_an_answer_that_comes_later_wakes_the_run_over_a_kill() -> anyhow::Result<()> {
    let mut stack = Stack::all_in_one().await?;
    let people = People::start(&stack, later).await?;
    let mut asked = herb();
    asked["wait"] = json!(false);
    let pending = output(&call(&stack, (TOOL, ""), asked).await?)?;
    let question = people.question().await?;
    ensure!(
        pending["interaction_id"] == json!(question.run_id),
        "{pending}"
    );
    stack.kill()?;
    stack.restart().await?;
    let answer = AnswerWaitRequest {
        run_id: question.run_id.clone(),
        wait_id: question.wait_id.clone(),
        answer_json: json!("moss").to_string(),
        answered_by: "mara".to_owned(),
        request_id: "of the backend".to_owned(),
    };
    stack.runs().answer_wait(answer).await?;
    let ended = testkit::collect(&stack.runs(), &question.run_id, 0).await?;
    let woken = ended.events.iter().find_map(|event| match &event.kind {
        Some(Kind::NodeWoken(woken)) => Some(woken.payload_json.as_str()),
        _ => None,
    });
    ensure!(woken == Some("\"moss\""), "{woken:?}");
    let ids = all(&people.asked).into_iter().map(|each| each.wait_id);
    ensure!(
        ids.into_iter().all(|id| id == question.wait_id),
        "one question"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn r207_a_question_whose_time_is_over_is_withdrawn() -> anyhow::Result<()> {
    let stack = Stack::all_in_one().await?;
    let people = People::start(&stack, later).await?;
    let mut asked = herb();
    asked["expires_seconds"] = json!(1);
    asked["default_answer"] = json!("sage");
    let result = call(&stack, (TOOL, ""), asked).await?;
    ensure!(output(&result)?["answer"] == "sage", "{result:?}");
    ensure!(people.withdrawn().await? == people.question().await?.wait_id);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn r207_a_question_of_a_cancelled_call_is_withdrawn() -> anyhow::Result<()> {
    use contracts::tavern::registry::v1::StartCallRequest;
    let stack = Stack::all_in_one().await?;
    let people = People::start(&stack, later).await?;
    let start = StartCallRequest {
        tool_id: TOOL.to_owned(),
        arguments_json: herb().to_string(),
        effect_id: "asks".to_owned(),
        ..StartCallRequest::default()
    };
    stack.calls().start_call(start).await?;
    let question = people.question().await?;
    let cancel = CancelCallRequest {
        effect_id: "asks".to_owned(),
        ..CancelCallRequest::default()
    };
    stack.calls().cancel_call(cancel).await?;
    ensure!(people.withdrawn().await? == question.wait_id);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn r208_a_backend_that_fails_fails_the_question_as_a_dependency() -> anyhow::Result<()> {
    for (answer, code) in [
        (Err(Status::unimplemented("")), "override_failed"),
        (Err(Status::internal("broken")), "override_failed"),
        (
            Err(Status::invalid_argument("too rude")),
            "question_refused",
        ),
        (answered(&json!("belladonna")), "override_failed"),
        (
            Ok(AskResponse {
                answer_json: "{".to_owned(),
                ..AskResponse::default()
            }),
            "override_failed",
        ),
    ] {
        let stack = Stack::all_in_one().await?;
        let shown = format!("{answer:?}");
        let _people = People::start(&stack, move || answer.clone()).await?;
        let result = call(&stack, (TOOL, ""), herb()).await?;
        ensure!(result.status() == CallStatus::Failed, "{shown}: {result:?}");
        ensure!(code_of(&result) == code, "{shown}: {result:?}");
        let error = result.error.context("an error")?;
        ensure!(!error.message.is_empty());
    }
    Ok(())
}
