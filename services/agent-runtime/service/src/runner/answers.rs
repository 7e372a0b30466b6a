//! From the answer of a question to the turn that it opens.

use std::{sync::Arc, time::Duration};

use agent_domain::{
    budgets::Limits,
    event::{Priority, Source, SourceKind},
    plan::{Opening, Sampling, TurnInput},
    scene::conversation::scene_of,
};
use agent_store::store::{OpenQuestion, QuestionStore};
use contracts::tavern::common::v1::ErrorReason;
use core_types::{CallPath, Principal, Reach};
use grpc_kit::{Backoff, CallContext, FailureClass};
use run_client::ChildRun;
use run_events::Runs;
use run_log::Hash;
use serde_json::{Value, json};
use tokio::{
    sync::{Semaphore, mpsc, oneshot},
    task::JoinSet,
};
use tonic::Status;

use crate::{
    peers::Peers,
    runner::turns::{NewTurn, Turns},
    running_scenes::{Draft, Request, RunningScenes, SceneInstance},
};

/// The type of the event of an answer.
const ANSWERED: &str = "interaction.answered";
/// The scope of the request ids of these turns.
const SCOPE: &str = "tavern.agent.v1/answer";
/// The most questions that are followed at once; the others are followed after them.
const FOLLOWED: usize = 1_000;
/// A time beyond the longest wait of a question.
const LONGEST: Duration = Duration::from_secs(31 * 24 * 60 * 60);

/// Follows questions, and opens the turns of their answers. Clone, cheap.
#[derive(Clone, Debug)]
pub(crate) struct Answers {
    pub(crate) store: Arc<dyn QuestionStore>,
    pub(crate) runs: Runs,
    pub(crate) peers: Peers,
    pub(crate) running_scenes: RunningScenes,
    pub(crate) turns: Turns,
}

impl Answers {
    /// Follows the stored questions and new ones, for as long as it is polled.
    pub(crate) async fn run(self, mut opened: mpsc::UnboundedReceiver<OpenQuestion>) {
        let room = Arc::new(Semaphore::new(FOLLOWED));
        let follow = |question: OpenQuestion| {
            let (answers, room) = (self.clone(), Arc::clone(&room));
            async move {
                if let Ok(_room) = room.acquire().await {
                    answers.follow(question).await;
                }
            }
        };
        let mut following = JoinSet::new();
        match self.store.open_questions().await {
            Ok(questions) => {
                for question in questions {
                    following.spawn(follow(question));
                }
            }
            Err(error) => {
                tracing::error!(%error, "open questions wait for the next start, as they cannot be read");
            }
        }
        loop {
            tokio::select! {
                question = opened.recv() => match question {
                    Some(question) => {
                        following.spawn(follow(question));
                    }
                    None => return,
                },
                Some(followed) = following.join_next() => {
                    if let Err(error) = followed {
                        tracing::error!(%error, "a question is not followed until the service restarts");
                    }
                }
            }
        }
    }

    /// Waits for an answer and opens its turn.
    async fn follow(&self, question: OpenQuestion) {
        // The service itself follows the question; the turn of the answer acts for the question's principal.
        let context = CallContext::of_tenant(question.tenant);
        let run = ChildRun::of(&self.peers.workflow, &context, &question.run_id);
        let run = run.end_at_last(LONGEST).await;
        // A question that was cancelled or deleted has no answer.
        let answer = run.as_ref().and_then(call_wire::question_ended);
        if let Some((mut answer, run)) = answer.zip(run) {
            answer["prompt"] = question.prompt.clone().into();
            let asker = match question.asker.clone() {
                Some(asker) => Ok(asker),
                // Its turn is from before runs had a reach.
                None => Principal::new(&run.principal).map(|asker| (asker, Reach::default())),
            };
            match asker {
                Ok((principal, reach)) => {
                    let context = CallContext::new(principal, CallPath::default()).reaching(reach);
                    self.deliver(&question, &answer, &context).await;
                }
                Err(error) => {
                    let (run, principal) = (question.run_id.as_str(), run.principal.as_str());
                    tracing::error!(run, principal, %error, "an answer opens no turn: its principal is unknown");
                }
            }
        }
        if let Err(error) = self
            .store
            .close_question(question.tenant, &question.run_id)
            .await
        {
            tracing::error!(%error, "an answered question is looked at again at the next start");
        }
    }

    /// Delivers an answer, as soon as it can be accepted; a rejected answer is lost.
    async fn deliver(&self, question: &OpenQuestion, answer: &Value, context: &CallContext) {
        let mut backoff = Backoff::default();
        loop {
            let delivered = match scene_of(&question.conversation_id) {
                Some(scene_run) => self.publish(scene_run, question, answer, context).await,
                None => self.open_turn(question, answer, context).await,
            };
            let Err(status) = delivered else { return };
            // Too many turns wait.
            let is_busy = grpc_kit::reason(&status) == Some(ErrorReason::ConversationBusy);
            if !is_busy && FailureClass::of(&status) != FailureClass::Transient {
                let (run, error) = (question.run_id.as_str(), status.message());
                tracing::warn!(run, error, "an answer opens no turn");
                return;
            }
            tokio::time::sleep(backoff.after(&status)).await;
        }
    }

    /// Returns the agent of a scene that asked; none if the scene has ended.
    ///
    /// # Errors
    /// UNAVAILABLE while the scene has not resumed, or a storage that does not work.
    async fn instance(
        &self,
        scene_run: &str,
        question: &OpenQuestion,
    ) -> Result<Option<SceneInstance>, Status> {
        let own = CallContext::of_tenant(question.tenant);
        let scenes = &self.running_scenes;
        let known = scenes.instance(&own, &question.conversation_id);
        match self.runs.get(&own, scene_run).await {
            Ok(run) if known.is_none() && run.outcome.is_none() => Err(not_resumed()),
            Err(status) if grpc_kit::reason(&status) == Some(ErrorReason::RunNotFound) => Ok(None),
            found => found.map(|_| known),
        }
    }

    /// Publishes an answer to the agent of a scene that asked; it has no reader if the scene has
    /// ended.
    async fn publish(
        &self,
        scene_run: &str,
        question: &OpenQuestion,
        answer: &Value,
        context: &CallContext,
    ) -> Result<(), Status> {
        let Some(known) = self.instance(scene_run, question).await? else {
            return Ok(());
        };
        let draft = Draft {
            event_type: ANSWERED.to_owned(),
            payload: answer.clone(),
            source: source(question),
            targets: vec![known.instance.id.clone()],
            priority: Priority::High,
            ttl: None,
            delay: Duration::ZERO,
            chain: Vec::new(),
            correlation_id: question.run_id.clone(),
            request_id: question.run_id.clone(),
            principal: context.principal().clone(),
        };
        let (reply, published) = oneshot::channel();
        let request = Request::Publish(Box::new(draft), reply);
        if !known.running.ask(request).await {
            return Err(not_resumed());
        }
        // A scene that stops before it answers may have published it; its request id prevents a
        // second time.
        published.await.map_err(|_| not_resumed())??;
        Ok(())
    }

    /// Starts a turn with an answer for the principal that had asked, after the turn in progress.
    async fn open_turn(
        &self,
        question: &OpenQuestion,
        answer: &Value,
        context: &CallContext,
    ) -> Result<(), Status> {
        let source = source(question);
        let event = json!({
            "type": ANSWERED,
            "payload": answer,
            "source": {"kind": source.kind.as_str(), "id": source.id, "run_id": source.run_id},
        });
        let turn = NewTurn {
            profile_id: question.profile_id.clone(),
            input: TurnInput {
                history: Vec::new(),
                opening: Opening::Events(vec![event]),
            },
            conversation_id: question.conversation_id.clone(),
            ephemeral: false,
            budgets: Limits::default(),
            compact: false,
            granted: Limits::default(),
            sampling: Sampling::default(),
            dialect: None,
            request_id: question.run_id.clone(),
            scope: SCOPE,
            body_hash: Hash::of(question.run_id.as_bytes()),
            options: None,
            refuse_if_busy: false,
            scene: None,
        };
        self.turns.start(context, turn).await?;
        Ok(())
    }
}

/// Reports that a scene cannot accept an answer now. After a start it may not have resumed yet.
fn not_resumed() -> Status {
    Status::unavailable("the scene of the question does not run now")
}

fn source(question: &OpenQuestion) -> Source {
    Source {
        kind: SourceKind::Caller,
        id: "person".to_owned(),
        run_id: question.run_id.clone(),
    }
}
