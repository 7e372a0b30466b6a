//! `ExecuteStream`: messages in both directions.

use std::{
    pin::Pin,
    time::{Duration, Instant},
};

use contracts::tavern::sandbox::v1::{
    self as wire, ExecuteStreamRequest, ExecuteStreamResponse, execute_stream_request::Message,
    execute_stream_response::Event,
};
use futures::{Stream, StreamExt as _};
use grpc_kit::CallContext;
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinSet,
};
use tonic::{Request, Response, Status, Streaming};

use super::{Rpc, below, in_time, invalid, inward, outward, refused, wrong};
use crate::runner::streaming::{Input, StdinState, StreamEvent, StreamHandle, output_queue::Item};

/// The answers of a stream.
pub(super) type ResponseStream<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// The time of silence after which a stream reports that the script still runs.
pub(super) const ALIVE: Duration = Duration::from_secs(15);

/// Starts the script that the first message describes.
pub(super) async fn execute(
    rpc: &Rpc,
    request: Request<Streaming<ExecuteStreamRequest>>,
) -> Result<Response<ResponseStream<ExecuteStreamResponse>>, Status> {
    let deadline = super::deadline_of(&request, rpc.sandbox.longest_request());
    let context = CallContext::of(&request);
    let mut messages = request.into_inner();
    let first = in_time(messages.message()).await?;
    let start = match first.and_then(|first| first.message) {
        Some(Message::Start(start)) => start,
        Some(_) | None => return Err(wrong("start", "must be the first message")),
    };
    let limits = rpc.sandbox.streamed_limits();
    let script = inward::script(&rpc.sandbox, context.principal(), start, limits);
    let script = script.map_err(|problems| invalid(below("start", problems)))?;
    // A buffer of one message is enough: the queue behind it is bounded.
    let (say, input) = mpsc::channel(1);
    let stream = rpc
        .sandbox
        .execute_stream(script, input, deadline)
        .await
        .map_err(refused)?;
    let (fail, fault) = oneshot::channel();
    let mut pump = JoinSet::new();
    pump.spawn(async move {
        if let Err(status) = hand_on(&mut messages, &say).await {
            // The caller may have gone.
            let _ = fail.send(status);
        }
    });
    Ok(Response::new(answers(stream, pump, fault)))
}

/// Forwards the caller's messages until the end of its stream.
async fn hand_on(
    messages: &mut Streaming<ExecuteStreamRequest>,
    say: &mpsc::Sender<Input>,
) -> Result<(), Status> {
    let mut ended = false;
    while let Some(message) = messages.message().await? {
        let input = read(message, &mut ended)?;
        if say.send(input).await.is_err() {
            // The script has ended; its answers report that.
            return Ok(());
        }
    }
    Ok(())
}

fn read(message: ExecuteStreamRequest, ended: &mut bool) -> Result<Input, Status> {
    match message.message {
        Some(Message::Start(_)) => Err(wrong("start", "must come once, as the first message")),
        Some(Message::Stdin(_)) if *ended => Err(wrong("stdin", "must not follow `stdin_end`")),
        Some(Message::Stdin(chunk)) => Ok(Input::Stdin(chunk.data)),
        Some(Message::StdinEnd(_)) if *ended => Err(wrong("stdin_end", "must come only once")),
        Some(Message::StdinEnd(_)) => {
            *ended = true;
            Ok(Input::End)
        }
        Some(Message::Signal(signal)) => Ok(Input::Signal(inward::signal(signal.signal()))),
        None => Err(wrong("message", "must be set")),
    }
}

/// The source of the responses.
struct Responses {
    stream: StreamHandle<StreamEvent>,
    fault: oneshot::Receiver<Status>,
    sequence: u64,
    started: Option<Instant>,
    over: bool,
    /// Forwards the caller's messages; ends with the answers.
    _pump: JoinSet<()>,
}

fn answers(
    stream: StreamHandle<StreamEvent>,
    pump: JoinSet<()>,
    fault: oneshot::Receiver<Status>,
) -> ResponseStream<ExecuteStreamResponse> {
    let responses = Responses {
        stream,
        fault,
        sequence: 0,
        started: None,
        over: false,
        _pump: pump,
    };
    futures::stream::unfold(responses, |mut responses| async move {
        let answer = responses.next().await?;
        Some((answer, responses))
    })
    .boxed()
}

impl Responses {
    async fn next(&mut self) -> Option<Result<ExecuteStreamResponse, Status>> {
        if self.over {
            return None;
        }
        let event = loop {
            let next = tokio::select! {
                biased;
                Ok(status) = &mut self.fault, if !self.fault.is_terminated() => {
                    self.over = true;
                    return Some(Err(status));
                }
                next = self.stream.next(ALIVE) => next,
            };
            match next {
                Ok(Some(item)) => break self.event(item),
                Err(_) => {
                    if let Some(started) = self.started {
                        let wall_time = Some(outward::duration(started.elapsed()));
                        break Event::Alive(wire::ExecutionAlive { wall_time });
                    }
                }
                Ok(None) => return None,
            }
        };
        self.sequence += 1;
        Some(Ok(ExecuteStreamResponse {
            sequence: self.sequence,
            event: Some(event),
        }))
    }

    fn event(&mut self, item: Item<StreamEvent>) -> Event {
        match item {
            Item::Output(chunk) => Event::Output(outward::chunk(chunk)),
            Item::Event(StreamEvent::Started(started)) => {
                self.started = Some(Instant::now());
                Event::Started(outward::started(&started))
            }
            Item::Event(StreamEvent::Stdin(progress)) => Event::Stdin(wire::StdinProgress {
                written_bytes: progress.written,
                state: match progress.state {
                    StdinState::Open => wire::StdinState::Open,
                    StdinState::Ended => wire::StdinState::Ended,
                    StdinState::ClosedByScript => wire::StdinState::ClosedByScript,
                }
                .into(),
                dropped_bytes: progress.dropped,
            }),
            Item::Event(StreamEvent::Progress(progress)) => Event::Progress(wire::ScriptProgress {
                fraction: progress.fraction,
                message: progress.message,
            }),
            Item::Event(StreamEvent::Ended(outcome)) => {
                self.over = true;
                Event::Ended(outward::response(&outcome))
            }
        }
    }
}
