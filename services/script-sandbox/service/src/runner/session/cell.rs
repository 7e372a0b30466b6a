//! One cell, from its order to its end.

use std::{
    sync::{Arc, PoisonError},
    time::Duration,
};

use sandbox_engine::domain::{
    limits::Limits, outcome::Outcome, stream::Stream, verdict::class::Reached,
    workspace::WorkspaceChanges,
};
use tokio::{
    sync::{
        mpsc,
        oneshot::{self, error::TryRecvError},
    },
    task::JoinHandle,
    time::Instant,
};

use super::{
    CellEnd, CellEvent, CellFiles, CellRequest, SharedFiles,
    channels::SessionChannels,
    frames::{Broken, Done, FromDriver, MAX_MESSAGE_BYTES, ShownResult, ToDriver},
    results::{ResultStore, Results},
};
use crate::{
    audit::Record,
    domain::session::{CellOutcome, EndReason, Interruption, SessionEnd, cell_outcome},
    runner::{
        session::command::{Command, SessionOrder, Stop},
        streaming::{
            input, left,
            output_queue::OutputQueue,
            output_reader::{Moved, OutputReader},
        },
    },
};

/// The pause before an interruption is repeated, doubled each time. A signal before the code has
/// begun does not reach the cell, so it must be repeated; but a signal just as the code ends can
/// end the interpreter, and on a busy machine the end takes its time.
const AGAIN: Duration = Duration::from_secs(1);

/// The longest time that a cell may take to end after one of its limits, or the loss of its caller,
/// has interrupted it. Then the session ends.
const INTERRUPT_GRACE: Duration = Duration::from_secs(2);

/// The most bytes that the driver may write for a cell: all results of the largest size. Code that writes more in its
/// place is interrupted, as for a flood of output.
const MAX_CHANNEL_BYTES: u64 = 32 * MAX_MESSAGE_BYTES as u64;

/// A running cell.
#[derive(Debug)]
pub(super) struct Cell {
    number: u64,
    limits: Limits,
    record: Record,
    queue: Arc<OutputQueue<CellEvent>>,
    results: Results,
    /// The bytes that the driver had written before.
    received: u64,
    gone: oneshot::Receiver<()>,
    left: bool,
    files: Option<Box<CellFiles>>,
    began: Instant,
    wall_end: Instant,
    deadline: Instant,
    interrupted: Option<Interrupted>,
    /// The answers to the callers that wait for the end of an interrupted cell.
    waiting: Vec<oneshot::Sender<bool>>,
}

#[derive(Clone, Copy, Debug)]
struct Interrupted {
    why: Interruption,
    again: Instant,
    pause: Duration,
    until: Instant,
}

/// The exit from a running cell.
pub(super) enum CellExit {
    /// Its driver reports its end.
    Done(Box<Done>),
    /// The session has to end.
    Stop(Stop),
    /// The interpreter has ended.
    Run(Option<Box<Outcome>>),
    /// The driver has closed its channel, or has died.
    Closed,
    /// The driver's channel is unusable.
    Broken(String),
}

/// One input of a running cell.
enum CellInput {
    Message(Result<FromDriver, Broken>),
    Moved(Moved),
    Ordered(Option<SessionOrder>),
    RunOver(Option<Box<Outcome>>),
    Time,
    CallerLeft,
}

impl Cell {
    /// Sends the code to the driver.
    pub(super) fn begin(
        number: u64,
        request: CellRequest,
        queue: Arc<OutputQueue<CellEvent>>,
        gone: oneshot::Receiver<()>,
        channels: &mut SessionChannels,
        record: Record,
        store: ResultStore,
    ) -> Self {
        let limits = request.limits;
        let message = ToDriver {
            cell: number,
            source: &request.source,
            limit: limits.result,
        };
        if let Err(error) = channels.channel.say(&message) {
            tracing::error!(%error, "failed to audit a cell");
        }
        channels.stdout.renew(&limits);
        channels.stderr.renew(&limits);
        queue.put(CellEvent::Started {
            cell: number,
            wall_time: limits.wall_time,
            output: limits.output,
        });
        let began = Instant::now();
        Self {
            number,
            limits,
            record,
            queue,
            results: Results::new(store),
            received: channels.channel.received(),
            gone,
            left: false,
            files: request.workspace,
            began,
            wall_end: began + limits.wall_time,
            deadline: request.deadline,
            interrupted: None,
            waiting: Vec::new(),
        }
    }

    /// Makes the working directory the same as the workspace. The time of the cell counts from then on.
    ///
    /// # Errors
    /// The reason for which the session has to end.
    pub(super) async fn place_files(
        &mut self,
        files: &SharedFiles,
        channels: &mut SessionChannels,
    ) -> Result<(), String> {
        if let Some(own) = &mut self.files {
            own.place(files, channels).await?;
            self.began = Instant::now();
            self.wall_end = self.began + self.limits.wall_time;
        }
        Ok(())
    }

    /// Takes the changes of the cell to the files. Without a caller to report them to, they are changes of the next
    /// cell.
    pub(super) async fn take_changes(
        &mut self,
        files: &SharedFiles,
        channels: &SessionChannels,
    ) -> Option<WorkspaceChanges> {
        let own = self.files.take()?;
        let changes = own.changes(files, channels.work.clone()).await?;
        let mut files = files.lock().unwrap_or_else(PoisonError::into_inner);
        match self.has_lost_caller() {
            true => files.forget_taken(&changes),
            false => files.report(self.number, &changes),
        }
        drop(files);
        Some(changes)
    }

    /// Whether the caller has gone.
    fn has_lost_caller(&mut self) -> bool {
        let is_there = matches!(self.gone.try_recv(), Err(TryRecvError::Empty));
        self.left || !is_there || Instant::now() >= self.deadline
    }

    /// The time since it began.
    pub(super) fn age(&self) -> Duration {
        self.began.elapsed()
    }

    /// Runs the cell until it has ended, or the session has to.
    pub(super) async fn run_to_end(
        &mut self,
        channels: &mut SessionChannels,
        orders: &mut mpsc::Receiver<SessionOrder>,
        run: &mut JoinHandle<Outcome>,
    ) -> CellExit {
        let grace = INTERRUPT_GRACE;
        loop {
            match self.next(channels, orders, run).await {
                CellInput::Message(Ok(FromDriver::Done(done))) if done.cell == self.number => {
                    return CellExit::Done(Box::new(done));
                }
                CellInput::Message(Ok(FromDriver::Result(shown))) => {
                    self.show(shown).await;
                    self.hold_back(channels).await;
                }
                CellInput::Message(Ok(FromDriver::Lost)) => {
                    self.results.drop_results(1);
                    self.hold_back(channels).await;
                }
                CellInput::Message(Ok(_)) => {
                    return CellExit::Broken("a message that is of no running cell".to_owned());
                }
                CellInput::Message(Err(Broken::Closed)) => return CellExit::Closed,
                CellInput::Message(Err(broken)) => return CellExit::Broken(broken.to_string()),
                CellInput::Moved(Moved::Flood) => {
                    self.interrupt(Interruption::Output, grace, channels).await;
                }
                CellInput::Moved(Moved::Some | Moved::End) => {}
                CellInput::CallerLeft => {
                    self.left = true;
                    self.interrupt(Interruption::Asked, grace, channels).await;
                }
                CellInput::Time => match self.interrupted {
                    None => self.interrupt(Interruption::Wall, grace, channels).await,
                    Some(Interrupted { why, until, .. }) if Instant::now() >= until => {
                        let detail = why.sentence(&self.limits);
                        return CellExit::Stop(Stop::of(EndReason::NotInterrupted, detail));
                    }
                    Some(_) => self.signal(channels).await,
                },
                CellInput::RunOver(outcome) => return CellExit::Run(outcome),
                CellInput::Ordered(None) => {
                    return CellExit::Stop(Stop::because(EndReason::Shutdown));
                }
                CellInput::Ordered(Some(SessionOrder { command, answer })) => match command {
                    Command::Run { .. } | Command::Evict => drop(answer.send(false)),
                    Command::End(reason) => return CellExit::Stop(Stop::because(reason)),
                    Command::Interrupt { grace } => {
                        self.interrupt(Interruption::Asked, grace, channels).await;
                        self.waiting.push(answer);
                    }
                },
            }
        }
    }

    async fn next(
        &mut self,
        channels: &mut SessionChannels,
        orders: &mut mpsc::Receiver<SessionOrder>,
        run: &mut JoinHandle<Outcome>,
    ) -> CellInput {
        loop {
            if let Some(message) = channels.channel.take().transpose() {
                return CellInput::Message(message);
            }
            let (stdout, stderr) = (&mut channels.stdout, &mut channels.stderr);
            let due = match self.interrupted {
                None => self.wall_end,
                Some(Interrupted { again, until, .. }) => again.min(until),
            };
            let written = tokio::select! {
                written = channels.channel.written() => written,
                moved = stdout.step(&self.queue), if !stdout.has_ended() => return CellInput::Moved(moved),
                moved = stderr.step(&self.queue), if !stderr.has_ended() => return CellInput::Moved(moved),
                order = orders.recv() => return CellInput::Ordered(order),
                outcome = &mut *run => return CellInput::RunOver(outcome.ok().map(Box::new)),
                () = tokio::time::sleep_until(due) => return CellInput::Time,
                () = left(&mut self.gone, self.deadline), if !self.left => return CellInput::CallerLeft,
            };
            let read = match written {
                Ok(()) => self.read(channels).await,
                Err(broken) => Err(broken),
            };
            if let Err(broken) = read {
                return CellInput::Message(Err(broken));
            }
        }
    }

    /// Interrupts the code. The first reason is reported, the shortest grace counts.
    async fn interrupt(
        &mut self,
        why: Interruption,
        grace: Duration,
        channels: &mut SessionChannels,
    ) {
        let until = Instant::now() + grace;
        match &mut self.interrupted {
            Some(interrupted) => interrupted.until = interrupted.until.min(until),
            None => {
                self.interrupted = Some(Interrupted {
                    why,
                    again: Instant::now(),
                    pause: AGAIN,
                    until,
                });
                self.signal(channels).await;
            }
        }
    }

    async fn signal(&mut self, channels: &mut SessionChannels) {
        // If the launcher has exited, the run reports it.
        let _ = input::signal(&mut channels.files, libc::SIGINT).await;
        if let Some(interrupted) = &mut self.interrupted {
            interrupted.again = Instant::now() + interrupted.pause;
            interrupted.pause = interrupted.pause.saturating_mul(2);
        }
    }

    /// Reads from the driver's channel, after the output that came before: the driver flushes before it reports a
    /// result, and waits for its reader before it writes more.
    async fn read(&mut self, channels: &mut SessionChannels) -> Result<(), Broken> {
        let outputs = [&mut channels.stdout, &mut channels.stderr];
        let mut flooded = false;
        let read = channels.channel.read(|| {
            let moved = outputs.map(|it| it.drain(&self.queue));
            flooded = moved.contains(&Moved::Flood);
        });
        if flooded {
            self.interrupt(Interruption::Output, INTERRUPT_GRACE, channels)
                .await;
        }
        read
    }

    /// Reports a result.
    async fn show(&mut self, shown: ShownResult) {
        let Some(taken) = self.results.take(self.number, shown) else {
            return;
        };
        if let Some(result) = self.results.keep(taken).await {
            self.queue.put(CellEvent::Result(Box::new(result)));
        }
    }

    /// Interrupts code that writes very much to the driver's channel.
    async fn hold_back(&mut self, channels: &mut SessionChannels) {
        if channels.channel.received() - self.received > MAX_CHANNEL_BYTES {
            self.interrupt(Interruption::Output, INTERRUPT_GRACE, channels)
                .await;
        }
    }

    /// Reports the end of the cell.
    pub(super) fn done(
        mut self,
        done: Done,
        channels: &mut SessionChannels,
        changes: Option<WorkspaceChanges>,
    ) {
        self.results.drop_results(done.dropped);
        // The driver has flushed before its report, so the output of the cell is in the pipes.
        channels.stdout.drain(&self.queue);
        channels.stderr.drain(&self.queue);
        let done = done.bounded(self.limits.result);
        if let Some(value) = done.value {
            self.queue.put(CellEvent::Value(value));
        }
        if let Some(error) = done.error {
            self.queue.put(CellEvent::Error(error));
        }
        let outcome = cell_outcome(done.outcome, self.interruption());
        self.end(outcome, (None, changes), channels);
    }

    fn interruption(&self) -> Option<Interruption> {
        self.interrupted.map(|interrupted| interrupted.why)
    }

    /// Reports that the session ended first; no process of it is left.
    pub(super) fn cut_off(
        self,
        channels: &mut SessionChannels,
        end: SessionEnd,
        changes: Option<WorkspaceChanges>,
    ) {
        channels.stdout.drain(&self.queue);
        channels.stderr.drain(&self.queue);
        self.end(CellOutcome::SessionEnded, (Some(end), changes), channels);
    }

    fn end(
        mut self,
        outcome: CellOutcome,
        (session_end, workspace): (Option<SessionEnd>, Option<WorkspaceChanges>),
        channels: &mut SessionChannels,
    ) {
        let wall_time = self.began.elapsed();
        let [stdout, stderr] =
            [&mut channels.stdout, &mut channels.stderr].map(OutputReader::take_captured);
        let reached = match outcome {
            CellOutcome::WallExceeded => Some(Reached::time(self.limits.wall_time, wall_time)),
            CellOutcome::OutputExceeded => {
                let most = stdout.read().max(stderr.read());
                Some(Reached::bytes(self.limits.flood(Stream::Stdout), most))
            }
            _ => None,
        };
        self.record.cell_ended(outcome, reached, wall_time);
        self.queue.put(CellEvent::Ended(Box::new(CellEnd {
            outcome,
            interruption: self.interruption(),
            session_end,
            wall_time,
            stdout,
            stderr,
            workspace,
            dropped_results: self.results.dropped(),
        })));
        self.queue.close();
        for answer in self.waiting {
            // The caller may have gone.
            let _ = answer.send(true);
        }
    }
}
