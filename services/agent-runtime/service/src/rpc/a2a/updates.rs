//! A task as a stream: its present state, then the changes.

use std::time::Duration;

use async_stream::try_stream;
use contracts::{
    lf::a2a::v1::{
        StreamResponse, TaskArtifactUpdateEvent, TaskState, TaskStatus, TaskStatusUpdateEvent,
        stream_response::Payload,
    },
    tavern::common::v1::Run,
};
use futures::stream::BoxStream;
use grpc_kit::CallContext;
use prost::Message;
use tokio::time::{Instant, timeout_at};
use tonic::Status;

use super::{
    follow::Followed,
    progress::Progress,
    task::{self, View},
};

/// The time without changes after which a stream repeats the state, as servers end silent streams.
const HEARTBEAT: Duration = Duration::from_secs(60);

/// Follows a task until it ends, or needs input. With `is_done` the stream has only its present
/// state.
pub(super) fn of(
    context: CallContext,
    mut followed: Followed,
    view: View,
    mut is_done: bool,
) -> BoxStream<'static, Result<StreamResponse, Status>> {
    Box::pin(try_stream! {
        let mut shown = ShownToClient::of(&followed.progress);
        let mut news = vec![Payload::Task(followed.task(view))];
        followed.progress.forget_history();
        loop {
            for payload in news {
                let response = StreamResponse { payload: Some(payload) };
                context.admit_message(response.encoded_len()).await;
                yield response;
            }
            if is_done {
                return;
            }
            let due = Instant::now() + HEARTBEAT;
            (news, is_done) = shown.next(&mut followed, due).await?;
        }
    })
}

/// Whether a change is the last of its stream.
fn is_last(change: &Payload) -> bool {
    let Payload::StatusUpdate(update) = change else {
        return false;
    };
    let state = update.status.as_ref().map(TaskStatus::state);
    !matches!(state, Some(TaskState::Working | TaskState::Submitted))
}

/// The state and the text that a client has received.
#[derive(Debug)]
pub(super) struct ShownToClient {
    state: TaskState,
    /// The id of the message with the required input.
    required: Option<String>,
    /// The length of the sent text of the model, in bytes, and the generation of that text.
    text: usize,
    generation: u64,
    /// Whether a piece of the answer was shown.
    has_answer: bool,
}

impl ShownToClient {
    /// Marks a progress as shown.
    pub(super) fn of(progress: &Progress) -> Self {
        Self {
            state: progress.state(),
            required: required(progress),
            text: progress.answer.len(),
            generation: progress.generation,
            has_answer: !progress.answer.is_empty(),
        }
    }

    /// Waits until the task changes, or the state is due to be repeated. Returns whether the stream
    /// ends then.
    pub(super) async fn next(
        &mut self,
        followed: &mut Followed,
        due: Instant,
    ) -> Result<(Vec<Payload>, bool), Status> {
        while let Ok(stepped) = timeout_at(due, followed.step()).await {
            if !stepped? {
                return Ok((Vec::new(), true));
            }
            let news = self.changes(&followed.run, &followed.progress);
            if !news.is_empty() {
                let is_done = news.iter().any(is_last);
                return Ok((news, is_done));
            }
        }
        Ok((vec![status(&followed.run, &followed.progress)], false))
    }

    /// Returns the changes since the last ones.
    pub(super) fn changes(&mut self, run: &Run, progress: &Progress) -> Vec<Payload> {
        let mut changes = Vec::new();
        let has_ended = progress.outcome.is_some();
        let before = match progress.generation == self.generation {
            true => Some(self.text),
            // The shown text stays until another replaces it.
            false => (has_ended || !progress.answer.is_empty()).then_some(0),
        };
        if let Some(before) = before {
            let piece = self.piece(run, progress, before);
            self.has_answer |= piece.is_some();
            changes.extend(piece);
            (self.text, self.generation) = (progress.answer.len(), progress.generation);
        }
        let (state, required) = (progress.state(), required(progress));
        if (state, &required) != (self.state, &self.required) {
            (self.state, self.required) = (state, required);
            changes.push(status(run, progress));
        }
        changes
    }

    /// Returns the next piece of the answer; the client has the first `before` bytes of the model's
    /// text.
    fn piece(&self, run: &Run, progress: &Progress, before: usize) -> Option<Payload> {
        let last_chunk = progress.outcome.is_some();
        let answer = task::answer(progress);
        // The result of a turn may differ from its model's last text.
        let (append, text) = match answer.strip_prefix(&progress.answer[..before]) {
            Some(rest) => (before > 0, rest),
            None => (false, &*answer),
        };
        let is_new = !text.is_empty() || (last_chunk && self.has_answer);
        is_new.then(|| {
            Payload::ArtifactUpdate(TaskArtifactUpdateEvent {
                task_id: run.run_id.clone(),
                context_id: run.conversation_id.clone(),
                artifact: Some(task::artifact(text)),
                append,
                last_chunk,
                metadata: None,
            })
        })
    }
}

fn required(progress: &Progress) -> Option<String> {
    task::required_input(progress).map(|message| message.message_id)
}

fn status(run: &Run, progress: &Progress) -> Payload {
    Payload::StatusUpdate(TaskStatusUpdateEvent {
        task_id: run.run_id.clone(),
        context_id: run.conversation_id.clone(),
        status: Some(task::status(run, progress)),
        metadata: None,
    })
}
