//! One cell, from its order to its end.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::{mpsc, oneshot},
    task::JoinHandle,
    time::Instant,
};

use super::{
    CellEnd, CellEvent, CellWish,
    frames::{Done, FromDriver, ToDriver},
    ward::{Broken, Ward},
};
use crate::{
    audit::Record,
    domain::{
        outcome::{Captured, Outcome},
        session::{CellOutcome, EndReason, Interruption, SessionEnd, cell_outcome},
        verdict::class::Reached,
    },
    session::command::{Command, Order, Stop},
    stream::{input, left, outbox::Outbox, tap::Moved},
};

/// After what time an interruption is repeated, and then after twice as long each time: one that comes
/// before the code has begun says nothing to the driver, but one that comes just as the code ends can
/// end the interpreter, and on a busy machine the end takes its time.
const AGAIN: Duration = Duration::from_secs(1);

/// A cell that runs.
#[derive(Debug)]
pub(super) struct Cell {
    number: u64,
    /// The most bytes of a value's text, and again of an error's.
    limit: usize,
    /// How much it may write, on each stream.
    output: usize,
    record: Record,
    outbox: Arc<Outbox<CellEvent>>,
    gone: oneshot::Receiver<()>,
    left: bool,
    began: Instant,
    wall_end: Instant,
    deadline: Instant,
    interrupted: Option<Interrupted>,
    /// Who waits for the end of an interrupted cell.
    waiting: Vec<oneshot::Sender<bool>>,
}

#[derive(Clone, Copy, Debug)]
struct Interrupted {
    why: Interruption,
    again: Instant,
    pause: Duration,
    until: Instant,
}

/// How a cell ended.
pub(super) enum Ended {
    /// Its driver says so.
    Done(Box<Done>),
    /// The session is to end.
    Stop(Stop),
    /// The interpreter has ended.
    Run(Option<Box<Outcome>>),
    /// The driver has closed its channel, or is gone.
    Closed,
    /// The driver's channel is of no more use.
    Broken(String),
}

/// One thing that happens while a cell runs.
enum Happened {
    Message(Result<FromDriver, Broken>),
    Moved(Moved),
    Ordered(Option<Order>),
    RunOver(Option<Box<Outcome>>),
    Time,
    CallerLeft,
}

impl Cell {
    /// Hands the code to the driver.
    pub(super) fn begin(
        number: u64,
        wish: CellWish,
        limit: usize,
        outbox: Arc<Outbox<CellEvent>>,
        gone: oneshot::Receiver<()>,
        ward: &mut Ward,
        record: Record,
    ) -> Self {
        let CellWish {
            source,
            wall_time,
            output,
            deadline,
        } = wish;
        let message = ToDriver {
            cell: number,
            source: &source,
            limit,
        };
        if let Err(error) = ward.channel.say(&message) {
            tracing::error!(%error, "a cell could not be written down");
        }
        ward.stdout.renew(output);
        ward.stderr.renew(output);
        outbox.put(CellEvent::Started {
            cell: number,
            wall_time,
            output,
        });
        let began = Instant::now();
        Self {
            number,
            limit,
            output,
            record,
            outbox,
            gone,
            left: false,
            began,
            wall_end: began + wall_time,
            deadline,
            interrupted: None,
            waiting: Vec::new(),
        }
    }

    /// Attends the cell until it has ended, or the session has to.
    pub(super) async fn attend(
        &mut self,
        ward: &mut Ward,
        orders: &mut mpsc::Receiver<Order>,
        run: &mut JoinHandle<Outcome>,
        grace: Duration,
    ) -> Ended {
        loop {
            match self.next(ward, orders, run).await {
                Happened::Message(Ok(FromDriver::Done(done))) if done.cell == self.number => {
                    return Ended::Done(Box::new(done));
                }
                Happened::Message(Ok(_)) => {
                    return Ended::Broken("a message that is of no running cell".to_owned());
                }
                Happened::Message(Err(Broken::Closed)) => return Ended::Closed,
                Happened::Message(Err(broken)) => return Ended::Broken(broken.to_string()),
                Happened::Moved(Moved::Over) => {
                    self.interrupt(Interruption::Output, grace, ward).await;
                }
                Happened::Moved(Moved::Some | Moved::End) => {}
                Happened::CallerLeft => {
                    self.left = true;
                    self.interrupt(Interruption::Asked, grace, ward).await;
                }
                Happened::Time => match self.interrupted {
                    None => self.interrupt(Interruption::Wall, grace, ward).await,
                    Some(Interrupted { until, .. }) if Instant::now() >= until => {
                        return Ended::Stop(Stop::because(EndReason::NotInterrupted));
                    }
                    Some(_) => self.signal(ward).await,
                },
                Happened::RunOver(outcome) => return Ended::Run(outcome),
                Happened::Ordered(None) => {
                    return Ended::Stop(Stop::because(EndReason::Shutdown));
                }
                Happened::Ordered(Some(Order { command, answer })) => match command {
                    Command::Run { .. } => drop(answer.send(false)),
                    Command::End(reason) => return Ended::Stop(Stop::because(reason)),
                    Command::Interrupt { grace } => {
                        self.interrupt(Interruption::Asked, grace, ward).await;
                        self.waiting.push(answer);
                    }
                },
            }
        }
    }

    async fn next(
        &mut self,
        ward: &mut Ward,
        orders: &mut mpsc::Receiver<Order>,
        run: &mut JoinHandle<Outcome>,
    ) -> Happened {
        let Ward {
            stdout,
            stderr,
            channel,
            ..
        } = ward;
        let due = match self.interrupted {
            None => self.wall_end,
            Some(Interrupted { again, until, .. }) => again.min(until),
        };
        tokio::select! {
            message = channel.next() => Happened::Message(message),
            moved = stdout.step(&self.outbox), if !stdout.has_ended() => Happened::Moved(moved),
            moved = stderr.step(&self.outbox), if !stderr.has_ended() => Happened::Moved(moved),
            order = orders.recv() => Happened::Ordered(order),
            outcome = run => Happened::RunOver(outcome.ok().map(Box::new)),
            () = tokio::time::sleep_until(due) => Happened::Time,
            () = left(&mut self.gone, self.deadline), if !self.left => Happened::CallerLeft,
        }
    }

    /// Interrupts the code. The first reason is the one that is told, the shortest grace counts.
    async fn interrupt(&mut self, why: Interruption, grace: Duration, ward: &mut Ward) {
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
                self.signal(ward).await;
            }
        }
    }

    async fn signal(&mut self, ward: &mut Ward) {
        // A launcher that is gone is told by the run.
        let _ = input::signal(&mut ward.files, libc::SIGINT).await;
        if let Some(interrupted) = &mut self.interrupted {
            interrupted.again = Instant::now() + interrupted.pause;
            interrupted.pause = interrupted.pause.saturating_mul(2);
        }
    }

    /// Tells how the cell ended.
    pub(super) fn done(self, done: Done, ward: &mut Ward) {
        // The driver has flushed before it spoke, so what belongs to the cell is in the pipes.
        ward.stdout.drain(&self.outbox);
        ward.stderr.drain(&self.outbox);
        let done = done.bounded(self.limit);
        if let Some(value) = done.value {
            self.outbox.put(CellEvent::Value(value));
        }
        if let Some(error) = done.error {
            self.outbox.put(CellEvent::Error(error));
        }
        let why = self.interrupted.map(|interrupted| interrupted.why);
        self.end(cell_outcome(done.outcome, why), None, ward);
    }

    /// Tells that the session ended first; nobody of it is left.
    pub(super) fn cut_off(self, ward: &mut Ward, end: SessionEnd) {
        ward.stdout.drain(&self.outbox);
        ward.stderr.drain(&self.outbox);
        self.end(CellOutcome::SessionEnded, Some(end), ward);
    }

    fn end(mut self, outcome: CellOutcome, session_end: Option<SessionEnd>, ward: &Ward) {
        let figures = |captured: Captured| (captured.sent, captured.truncated);
        let wall_time = self.began.elapsed();
        let (stdout, stderr) = (ward.stdout.captured(), ward.stderr.captured());
        let reached = match outcome {
            CellOutcome::WallExceeded => Some(Reached::time(self.wall_end - self.began, wall_time)),
            CellOutcome::OutputExceeded => {
                let most = stdout.read().max(stderr.read());
                Some(Reached::bytes(self.output as u64, most))
            }
            _ => None,
        };
        self.record.cell_ended(outcome, reached, wall_time);
        self.outbox.put(CellEvent::Ended(Box::new(CellEnd {
            outcome,
            session_end,
            wall_time,
            stdout: figures(stdout),
            stderr: figures(stderr),
        })));
        self.outbox.close();
        for answer in self.waiting {
            // Whoever asked may have gone.
            let _ = answer.send(true);
        }
    }
}
