//! Streams the output of a script, and feeds it the input from its caller.

use std::sync::Arc;

use sandbox_engine::{
    domain::{
        isolation::{IsolationLevel, MissingLayer},
        outcome::Captured,
        stream::Stream,
        verdict::Stopped,
    },
    launcher::ScriptIo,
    run::{
        capture::capture,
        io_handler::{IoHandler, IoTasks, Progress, RunContext, Stage},
        progress::follow,
    },
};
use tokio::{
    net::unix::pipe,
    sync::{mpsc, watch},
    task::JoinSet,
};

use super::{
    Started, StreamEvent,
    input::{Input, feed},
    output_reader::{Moved, OutputReader},
};
use crate::runner::streaming::output_queue::OutputQueue;

/// Streams a script's output as it arrives, and feeds the script its caller's input.
#[derive(Debug)]
pub(crate) struct StreamIo {
    /// The runtime's own name.
    pub(crate) runtime: String,
    /// The level.
    pub(crate) isolation: IsolationLevel,
    /// The queue that receives everything.
    pub(crate) queue: Arc<OutputQueue<StreamEvent>>,
    /// The caller's input.
    pub(crate) input: mpsc::Receiver<Input>,
}

impl IoHandler for StreamIo {
    fn handle(self: Box<Self>, io: ScriptIo, context: RunContext) -> IoTasks {
        let RunContext {
            delivery, script, ..
        } = context;
        let (queue, input, overflow) = (self.queue, self.input, context.overflow);
        let (mut files, limits) = (io.files, script.limits);
        let started = Started {
            runtime: self.runtime,
            isolation: self.isolation,
            missing: context.missing,
            enforcement: context.enforcement,
            limits,
        };
        let progress = watch::Sender::default();
        let announced = watch::Sender::new(false);
        let mut heard = announced.subscribe();

        let relayed = |stream, pipe| {
            let (queue, overflow) = (queue.clone(), overflow.clone());
            let mut heard = announced.subscribe();
            let reader = OutputReader::new(stream, pipe, &limits);
            tokio::spawn(async move {
                // The start comes before everything else. If it is never announced, the script never starts.
                let _ = heard.wait_for(|announced| *announced).await;
                relay(stream, reader, queue, overflow).await
            })
        };
        let outputs = [
            relayed(Stream::Stdout, io.stdout),
            relayed(Stream::Stderr, io.stderr),
            tokio::spawn(capture(Stream::Result, io.result, limits, overflow.clone())),
        ];
        let reports = report(io.progress, announced.subscribe(), queue.clone());
        let progress_reader = tokio::spawn(reports);
        let (seen, events) = (progress.subscribe(), queue.clone());
        tokio::spawn(announce(seen, started, events, announced));
        let mut helpers = JoinSet::new();
        helpers.spawn(async move {
            let ready = async move {
                // If it fails, the launcher's reports give the reason.
                let _ = delivery.send(&mut files).await;
                let _ = heard.wait_for(|announced| *announced).await;
                files
            };
            feed(io.stdin, input, queue, script.stdin.clone(), ready).await;
        });
        IoTasks {
            outputs,
            progress_reader,
            helpers,
            progress,
        }
    }
}

/// Announces the start, and lifts the bounds once no process is left.
async fn announce(
    mut progress: watch::Receiver<Progress>,
    mut started: Started,
    queue: Arc<OutputQueue<StreamEvent>>,
    announced: watch::Sender<bool>,
) {
    let reached = |stage| move |progress: &Progress| progress.stage >= stage;
    // The sender is dropped only if the run has ended, and then no task waits either.
    if let Ok(seen) = progress.wait_for(reached(Stage::Started)).await
        && seen.started
    {
        let more = seen.missing.iter().copied().map(MissingLayer::reported);
        started.missing.extend(more);
        queue.put(StreamEvent::Started(started));
    }
    announced.send_replace(true);
    let _ = progress.wait_for(reached(Stage::Gone)).await;
    queue.lift();
}

/// Puts the script's reports of progress into the queue, after its start.
async fn report(
    pipe: pipe::Receiver,
    mut announced: watch::Receiver<bool>,
    queue: Arc<OutputQueue<StreamEvent>>,
) {
    let _ = announced.wait_for(|announced| *announced).await;
    let show = |progress| {
        let is_progress = |event: &StreamEvent| matches!(event, StreamEvent::Progress(_));
        queue.put_latest(StreamEvent::Progress(progress), is_progress);
    };
    follow(pipe, show).await;
}

/// Moves a stream to its end.
async fn relay(
    stream: Stream,
    mut reader: OutputReader,
    queue: Arc<OutputQueue<StreamEvent>>,
    overflow: mpsc::Sender<Stopped>,
) -> Captured {
    loop {
        match reader.step(&queue).await {
            Moved::Some => {}
            Moved::Flood => {
                let observed = reader.read();
                // The channel has a slot for one message of each stream.
                let _ = overflow.try_send(Stopped::Output { stream, observed });
            }
            Moved::End => return reader.take_captured(),
        }
    }
}
