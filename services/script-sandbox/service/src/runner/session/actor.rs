//! The life of one session.

use std::time::Duration;

use core_types::{Clock as _, SystemClock};
use sandbox_engine::{
    domain::{isolation::MissingLayer, outcome::Outcome, usage::Usage, verdict::Verdict},
    run::io_handler::{IoHandler, Progress, Stage},
};
use tokio::{
    sync::{mpsc, oneshot, watch},
    task::JoinHandle,
};

use super::{
    SharedFiles,
    cell::{Cell, CellExit},
    channels::{SessionChannels, SessionIo},
    command::{Command, SessionOrder, Stop},
    frames::{Broken, FromDriver},
    results::ResultStore,
};
use crate::{
    audit::Record,
    domain::session::{EndReason, SessionEnd, SessionInfo, SessionState},
    runner::shares::Share,
};

/// The longest time that a driver may take to become ready once its interpreter runs.
const READY: Duration = Duration::from_secs(30);

/// The longest wait for the end of an interpreter whose channel has closed.
const CLOSED: Duration = Duration::from_secs(10);

/// The I/O handler of a session, and the receiver of its channels.
pub(crate) fn session_io() -> (Box<dyn IoHandler>, oneshot::Receiver<SessionChannels>) {
    let (task, channels) = oneshot::channel();
    (Box::new(SessionIo { task }), channels)
}

/// One session.
#[derive(Debug)]
pub(crate) struct Actor {
    pub(crate) view: watch::Sender<SessionInfo>,
    pub(crate) orders: mpsc::Receiver<SessionOrder>,
    pub(crate) run: JoinHandle<Outcome>,
    /// Dropped to end the run.
    pub(crate) cancel: oneshot::Sender<()>,
    pub(crate) channels: oneshot::Receiver<SessionChannels>,
    /// The outcome of the run, once it has ended; `Some(None)` if its task was lost.
    pub(crate) outcome: Option<Option<Outcome>>,
    pub(crate) record: Record,
    pub(crate) share: Share,
    pub(crate) files: SharedFiles,
    /// The place of large results.
    pub(crate) store: ResultStore,
}

impl Actor {
    /// Runs until the session has ended and all its processes are gone.
    pub(crate) async fn live(mut self) {
        let mut unfinished = None;
        let stop = match self.begin().await {
            Ok(mut channels) => {
                let (stop, cell) = self.serve(&mut channels).await;
                unfinished = cell.map(|cell| (*cell, channels));
                stop
            }
            Err(stop) => stop,
        };
        drop(self.cancel);
        let outcome = match self.outcome {
            Some(outcome) => outcome,
            None => self.run.await.ok(),
        };
        let end = conclude(stop, outcome);
        tracing::info!(reason = ?end.reason, "a session has ended");
        self.record.session_ended(&self.view.borrow(), &end);
        drop(self.share);
        let ended = SessionState::Ended(Box::new(end.clone()));
        self.view.send_modify(|view| view.state = ended);
        if let Some((mut cell, mut channels)) = unfinished {
            // No process is left, so the files stay as they are.
            let changes = cell.take_changes(&self.files, &channels).await;
            cell.cut_off(&mut channels, end, changes);
        }
        // A caller that still waits for an answer reads the end from the view.
        drop(self.orders);
    }

    /// Waits until the driver is ready.
    async fn begin(&mut self) -> Result<SessionChannels, Stop> {
        let mut channels = tokio::select! {
            channels = &mut self.channels => match channels {
                Ok(channels) => channels,
                Err(_) => return Err(self.not_ready().await),
            },
            stop = refuse(&mut self.orders) => return Err(stop),
        };
        let ready = async {
            // If the launcher has exited, the run reports it.
            let _ = channels.delivery.send(&mut channels.files).await;
            let placed = |progress: &Progress| progress.stage >= Stage::Placed;
            let progress = channels.progress.wait_for(placed).await;
            let missing = progress.map(|progress| progress.missing.clone());
            let message = channels.channel.next().await;
            (missing.unwrap_or_default(), message)
        };
        let (missing, message) = tokio::select! {
            ready = tokio::time::timeout(READY, ready) => match ready {
                Ok(ready) => ready,
                Err(_) => return Err(Stop::of(EndReason::NotReady, "its driver was silent")),
            },
            outcome = &mut self.run => {
                self.outcome = Some(outcome.ok());
                return Err(self.not_ready().await);
            }
            stop = refuse(&mut self.orders) => return Err(stop),
        };
        if !matches!(message, Ok(FromDriver::Ready {})) {
            return Err(self.not_ready().await);
        }
        let missing = missing.into_iter().map(MissingLayer::reported);
        let missing: Vec<MissingLayer> = channels.missing.iter().cloned().chain(missing).collect();
        self.view.send_modify(|view| {
            view.missing = missing;
            view.enforcement = channels.enforcement;
            self.record.opened(view);
            idle(view);
        });
        Ok(channels)
    }

    /// Stops a run that has ended, or is about to end, before it became ready.
    async fn not_ready(&mut self) -> Stop {
        self.await_outcome(CLOSED).await;
        let detail = match &self.outcome {
            Some(Some(Outcome {
                verdict: Verdict::LauncherFailure(failure),
                ..
            })) => failure.to_string(),
            Some(Some(outcome)) => format!("it ended with {:?}", outcome.verdict),
            Some(None) | None => "its driver spoke unclearly".to_owned(),
        };
        Stop::of(EndReason::NotReady, detail)
    }

    async fn await_outcome(&mut self, patience: Duration) {
        if self.outcome.is_none()
            && let Ok(outcome) = tokio::time::timeout(patience, &mut self.run).await
        {
            self.outcome = Some(outcome.ok());
        }
    }

    /// Runs cells until there is a reason to end, which may come in the middle of one.
    async fn serve(&mut self, channels: &mut SessionChannels) -> (Stop, Option<Box<Cell>>) {
        loop {
            let idle_time = self.view.borrow().idle_time;
            let order = tokio::select! {
                order = self.orders.recv() => order,
                outcome = &mut self.run => {
                    self.outcome = Some(outcome.ok());
                    return (Stop::because(EndReason::Interpreter), None);
                }
                () = tokio::time::sleep(idle_time) => {
                    return (Stop::because(EndReason::Idle), None);
                }
            };
            let Some(SessionOrder { command, answer }) = order else {
                return (Stop::because(EndReason::Shutdown), None);
            };
            match command {
                Command::End(reason) => return (Stop::because(reason), None),
                Command::Evict => return (Stop::because(EndReason::Evicted), None),
                Command::Interrupt { .. } => drop(answer.send(false)),
                Command::Run {
                    request,
                    queue,
                    gone,
                    span,
                } => {
                    let number = self.view.borrow().cells + 1;
                    self.view.send_modify(|view| {
                        view.cells = number;
                        view.state = SessionState::Running;
                    });
                    let record =
                        Record::of_cell(&self.view.borrow(), number, &request.source, span);
                    let store = self.store.clone();
                    let cell = Cell::begin(number, request, queue, gone, channels, record, store);
                    // The cell notices a caller that has gone meanwhile.
                    let _ = answer.send(true);
                    if let Some((stop, cell)) = self.carry_out(cell, channels).await {
                        return (stop, Some(cell));
                    }
                }
            }
        }
    }

    /// Carries out a cell. Returns the reason to end the session in the middle of it, and the cell.
    async fn carry_out(
        &mut self,
        mut cell: Cell,
        channels: &mut SessionChannels,
    ) -> Option<(Stop, Box<Cell>)> {
        let ended = match cell.place_files(&self.files, channels).await {
            Ok(()) => {
                let ended = cell.run_to_end(channels, &mut self.orders, &mut self.run);
                ended.await
            }
            Err(detail) => CellExit::Broken(detail),
        };
        self.share.spend(cell.age());
        let stop = match ended {
            CellExit::Done(done) => {
                let changes = cell.take_changes(&self.files, channels).await;
                self.view.send_modify(idle);
                cell.done(*done, channels, changes);
                return None;
            }
            CellExit::Stop(stop) => stop,
            CellExit::Run(outcome) => {
                self.outcome = Some(outcome.map(|outcome| *outcome));
                Stop::because(EndReason::Interpreter)
            }
            CellExit::Closed => {
                // An interpreter that has just ended has closed its channel as well.
                self.await_outcome(CLOSED).await;
                let reason = match self.outcome {
                    Some(_) => EndReason::Interpreter,
                    None => EndReason::ChannelBroken,
                };
                Stop::of(reason, Broken::Closed.to_string())
            }
            CellExit::Broken(detail) => Stop::of(EndReason::ChannelBroken, detail),
        };
        Some((stop, Box::new(cell)))
    }
}

/// Records that a session waits for a cell.
fn idle(view: &mut SessionInfo) {
    view.state = SessionState::Idle;
    view.idle_since = SystemClock.now().unix_nanos();
}

/// Refuses orders until an order ends the session.
async fn refuse(orders: &mut mpsc::Receiver<SessionOrder>) -> Stop {
    loop {
        match orders.recv().await {
            None => return Stop::because(EndReason::Shutdown),
            Some(SessionOrder {
                command: Command::End(reason),
                ..
            }) => return Stop::because(reason),
            Some(SessionOrder { answer, .. }) => drop(answer.send(false)),
        }
    }
}

fn conclude(stop: Stop, outcome: Option<Outcome>) -> SessionEnd {
    let after = Duration::ZERO;
    let lost = (Verdict::Cancelled { after }, Usage::default());
    let (verdict, usage) = outcome.map_or(lost, |outcome| (outcome.verdict, outcome.usage));
    let reason = match (stop.reason, &verdict) {
        (EndReason::Interpreter, Verdict::Wall { .. }) => EndReason::Lifetime,
        (reason, _) => reason,
    };
    let detail = match reason {
        EndReason::Interpreter => String::new(),
        _ => stop.detail,
    };
    SessionEnd {
        reason,
        verdict,
        usage,
        detail,
        at: SystemClock.now().unix_nanos(),
    }
}
