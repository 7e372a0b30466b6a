//! Follows a launched script until no process of it is left.

use std::time::{Duration, Instant};

use sandbox_launcher::processes::end_leftovers;
use sandbox_protocol::report::{Failure, Layer, Report};
use tokio::{
    io::{AsyncWriteExt, BufReader, Lines},
    net::unix::{OwnedReadHalf, OwnedWriteHalf},
    sync::{mpsc, oneshot, watch},
    task::{JoinError, JoinHandle},
    time::MissedTickBehavior,
};

use crate::{
    domain::{
        isolation::{MemoryEnforcement, MissingLayer},
        limits::Limits,
        outcome::Captured,
        stream::Stream,
        verdict::{Facts, Stopped},
    },
    input_files::InputFiles,
    pool::Assignment,
    run::{
        Job,
        io_handler::{IoHandler, Progress, RunContext, Stage},
        usage_monitor::UsageMonitor,
    },
    slot::{NotStarted, SandboxedProcess, Slot},
};

/// The interval between the starts of two measurements of a script, unless the last is still
/// running.
const SAMPLE: Duration = Duration::from_millis(50);

/// The longest time of the set-up before it counts as failed.
const SET_UP: Duration = Duration::from_secs(60);

/// The longest time that the launcher may take to end every process before it is killed, upon which
/// the kernel kills its init. Longer than the launcher's own bound.
const END: Duration = Duration::from_secs(35);

/// The longest time for which pipes may stay open after the end of every process. Only a survivor
/// could hold them.
const DRAIN: Duration = Duration::from_secs(10);

/// The observations of a run.
pub(super) struct Seen {
    pub(super) facts: Facts,
    /// The content of standard output, standard error and the result channel.
    pub(super) outputs: [Captured; 3],
    pub(super) started: bool,
    pub(super) missing: Vec<MissingLayer>,
    pub(super) enforcement: MemoryEnforcement,
    /// Whether no process of the script lives, as the launcher has verified.
    pub(super) all_gone: bool,
}

impl Seen {
    /// The observations of a script that did not start.
    pub(super) fn nothing(not_started: NotStarted, limits: Limits) -> Self {
        let mut facts = Facts::new(limits);
        facts.failure = Some(not_started.failure);
        Self {
            facts,
            outputs: Default::default(),
            started: false,
            missing: not_started.missing,
            enforcement: MemoryEnforcement::Sampled,
            all_gone: true,
        }
    }
}

/// Feeds and follows a script, until no process is left in its slot. The second value returned
/// blocks when it is dropped, while the cgroup and the files of the script are removed.
pub(super) async fn watch(
    (process, assignment): (SandboxedProcess, Option<Assignment>),
    job: &Job,
    delivery: InputFiles,
    handler: Box<dyn IoHandler>,
    cancel: oneshot::Receiver<()>,
) -> (Seen, (Option<UsageMonitor>, Slot)) {
    let SandboxedProcess { launched, mut slot } = process;
    let supervisor = launched.supervisor;
    let facts = Facts::new(job.script.limits);
    let used = (assignment.as_ref()).map_or(Duration::ZERO, |it| it.used);
    let monitor = UsageMonitor::new(&mut slot, supervisor.id(), launched.work.clone(), used);
    let (overflow, overflows) = mpsc::channel(3);
    let context = RunContext {
        delivery,
        script: job.script.clone(),
        missing: slot.missing.clone(),
        enforcement: slot.enforcement,
        overflow,
        work: launched.work,
    };
    let tasks = handler.handle(launched.io, context);
    let mut watch = Watch {
        facts,
        monitor: Some(monitor),
        launched: Instant::now(),
        started: None,
        ended: None,
        over: None,
        missing: std::mem::take(&mut slot.missing),
        gone: false,
        survivors: 0,
        sampling: None,
        progress: tasks.progress,
        assignment,
        used: Duration::ZERO,
    };
    let (reports, say) = (launched.reports, launched.say);
    watch.follow(reports, say, overflows, cancel).await;
    drop((tasks.helpers, supervisor));
    let now = Instant::now();
    watch.finish().await;
    let [stdout, stderr, result] = tasks.outputs.map(drain);
    let outputs = [stdout.await, stderr.await, result.await];
    drain(tasks.progress_reader).await;
    watch.conclude(job.accepted, now, &outputs).await;
    let seen = Seen {
        facts: watch.facts,
        outputs,
        started: watch.started.is_some(),
        missing: watch.missing,
        enforcement: slot.enforcement,
        all_gone: watch.gone && watch.survivors == 0,
    };
    (seen, (watch.monitor, slot))
}

struct Watch {
    facts: Facts,
    monitor: Option<UsageMonitor>,
    launched: Instant,
    started: Option<Instant>,
    ended: Option<Instant>,
    /// The time when the script ended or was ordered to end.
    over: Option<Instant>,
    missing: Vec<MissingLayer>,
    survivors: u32,
    gone: bool,
    /// A measurement in progress, which returns the passed limit, if there is one.
    sampling: Option<JoinHandle<(UsageMonitor, Option<Stopped>)>>,
    progress: watch::Sender<Progress>,
    /// The assignment, to be sent once the files are in place.
    assignment: Option<Assignment>,
    /// Processor time that is not the script's.
    used: Duration,
}

impl Watch {
    /// Handles every event, until the last report or the deadline of the last phase.
    async fn follow(
        &mut self,
        mut reports: Lines<BufReader<OwnedReadHalf>>,
        say: OwnedWriteHalf,
        mut overflows: mpsc::Receiver<Stopped>,
        mut cancel: oneshot::Receiver<()>,
    ) {
        let mut say = Some(say);
        let mut ticks = tokio::time::interval(SAMPLE);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while !self.gone {
            if self.over.is_some()
                && let Some(mut say) = say.take()
            {
                // Shutting down is the order to end every process; an error means that it was given
                // already.
                let _ = say.shutdown().await;
            }
            let running = self.over.is_none();
            tokio::select! {
                line = reports.next_line() => match line {
                    Ok(Some(line)) => self.note(&line),
                    Ok(None) | Err(_) => return,
                },
                () = tokio::time::sleep_until(self.deadline().into()) => {
                    if !running {
                        return;
                    }
                    if self.started.is_none() {
                        self.fail("the set-up took too long");
                    }
                    self.stop(Stopped::Wall);
                }
                Some(passed) = overflows.recv(), if running => self.stop(passed),
                _ = &mut cancel, if running => self.stop(Stopped::Cancelled),
                _ = ticks.tick(), if self.started.is_some() && self.ended.is_none() => {
                    self.sample();
                }
                sampled = finished(&mut self.sampling) => self.take_sample(sampled),
            }
        }
    }

    /// Deadline of the current phase.
    fn deadline(&self) -> Instant {
        match (self.over, self.started) {
            (Some(over), _) => over + END,
            (None, Some(started)) => started + self.facts.limits.wall_time,
            (None, None) => self.launched + SET_UP,
        }
    }

    fn stop(&mut self, reason: Stopped) {
        // Once the script has ended by itself, only its last report is still to come.
        if self.over.is_none() {
            self.facts.stopped = Some(reason);
            self.over = Some(Instant::now());
        }
    }

    fn fail(&mut self, message: &str) {
        let failure = Failure::new(Layer::Launch, message, 0);
        self.facts.failure.get_or_insert(failure);
    }

    fn note(&mut self, line: &str) {
        match serde_json::from_str(line) {
            Ok(Report::Started { missing }) => self.start(missing),
            Ok(Report::Placed { refused }) => {
                if let Some(assignment) = self.assignment.take() {
                    self.assign(assignment);
                }
                self.progress.send_modify(|progress| {
                    progress.stage = Stage::Placed;
                    progress.placed += 1;
                    progress.refused = refused;
                });
            }
            Ok(Report::Failed(failure)) => {
                self.facts.failure = Some(failure);
                self.over = self.over.or(Some(Instant::now()));
            }
            Ok(Report::NetworkAttempted { attempts }) => self.stop(Stopped::Network { attempts }),
            Ok(Report::Ended { end }) => {
                if self.assignment.is_some() {
                    self.fail("the interpreter ended before it was given its script");
                }
                self.ended = Some(Instant::now());
                self.over = self.over.or(self.ended);
                self.facts.end = Some(end);
            }
            Ok(Report::Gone {
                cpu_micros,
                max_process_bytes,
                survivors,
            }) => {
                self.facts.usage.cpu_time = Duration::from_micros(cpu_micros);
                self.facts.usage.max_memory = max_process_bytes;
                self.survivors = survivors;
                self.gone = true;
            }
            Err(error) => self.fail(&format!("the launcher spoke unclearly: {error}")),
        }
    }

    fn start(&mut self, missing: Vec<Layer>) {
        self.started = Some(Instant::now());
        self.progress.send_replace(Progress {
            stage: Stage::Started,
            started: true,
            missing: missing.clone(),
            ..Progress::default()
        });
        let missing = missing.into_iter().map(MissingLayer::reported);
        self.missing.extend(missing);
    }

    /// Sends a waiting interpreter its assignment; the script starts here.
    fn assign(&mut self, assignment: Assignment) {
        let Assignment { mut job, text, .. } = assignment;
        self.used = assignment.used;
        self.facts.usage.warm_start = true;
        self.start(assignment.missing);
        match job.try_write(&text) {
            // The end of the text is the end of the channel.
            Ok(written) if written == text.len() => {}
            written => {
                let written = written.unwrap_or(0);
                tokio::spawn(async move {
                    // An interpreter that does not read it has ended, and the launcher reports
                    // that.
                    let _ = job.write_all(text.get(written..).unwrap_or_default()).await;
                });
            }
        }
    }

    fn reach(&self, stage: Stage) {
        self.progress.send_modify(|progress| progress.stage = stage);
    }

    /// Measures on a thread that may block, one measurement at a time.
    fn sample(&mut self) {
        if let Some(mut monitor) = self.monitor.take() {
            let limits = self.facts.limits;
            self.sampling = Some(tokio::task::spawn_blocking(move || {
                let stopped = monitor.sample(&limits);
                (monitor, stopped)
            }));
        }
    }

    fn take_sample(&mut self, sampled: Result<(UsageMonitor, Option<Stopped>), JoinError>) {
        self.sampling = None;
        match sampled {
            Ok((monitor, stopped)) => {
                self.monitor = Some(monitor);
                if let Some(reason) = stopped {
                    self.stop(reason);
                }
            }
            // A script that is not measured must not continue.
            Err(error) => {
                self.fail(&format!("measuring failed: {error}"));
                self.over = self.over.or(Some(Instant::now()));
            }
        }
    }

    /// Waits for the last measurement, and ends the leftovers of a launcher without a last report.
    async fn finish(&mut self) {
        if self.sampling.is_some() {
            let sampled = finished(&mut self.sampling).await;
            self.take_sample(sampled);
        }
        let survivors = self.survivors;
        if survivors > 0 {
            tracing::error!(survivors, "processes of a script could not be killed");
        }
        if !self.gone {
            tracing::error!("a launcher ended without its last report");
            self.blocking(|monitor, _| {
                monitor.kill_all();
                end_leftovers();
            })
            .await;
        }
        self.reach(Stage::Gone);
    }

    /// Runs work on the monitor that may block.
    async fn blocking(
        &mut self,
        work: impl FnOnce(&mut UsageMonitor, &mut Facts) + Send + 'static,
    ) {
        let Some(mut monitor) = self.monitor.take() else {
            return;
        };
        let mut facts = self.facts.clone();
        let done = tokio::task::spawn_blocking(move || {
            work(&mut monitor, &mut facts);
            (monitor, facts)
        });
        if let Ok((monitor, facts)) = done.await {
            (self.monitor, self.facts) = (Some(monitor), facts);
        }
    }

    /// Adds up the usage.
    async fn conclude(&mut self, accepted: Instant, now: Instant, outputs: &[Captured; 3]) {
        let streams = [Stream::Stdout, Stream::Stderr, Stream::Result];
        // A script that ends by itself right after its last byte may still have passed the limit.
        let limits = &self.facts.limits;
        let mut loud = streams.into_iter().zip(outputs);
        let loud = loud.find(|(stream, captured)| captured.read() > limits.flood(*stream));
        let loud = loud.map(|(stream, captured)| Stopped::Output {
            stream,
            observed: captured.read(),
        });
        self.facts.stopped = self.facts.stopped.or(loud);
        let usage = &mut self.facts.usage;
        usage.cpu_time = usage.cpu_time.saturating_sub(self.used);
        if let Some(started) = self.started {
            let until = self.ended.unwrap_or(now);
            usage.wall_time = until.saturating_duration_since(started);
            usage.setup_time = started.saturating_duration_since(accepted);
            // It may have ended before it was measured.
            usage.max_processes = 1;
        }
        self.blocking(UsageMonitor::conclude).await;
    }
}

/// Waits for the result of a measurement; pends forever if there is none.
async fn finished<T>(sampling: &mut Option<JoinHandle<T>>) -> Result<T, JoinError> {
    match sampling {
        Some(sampling) => sampling.await,
        None => std::future::pending().await,
    }
}

/// The content of a stream. It ends with the last process that could write to it.
async fn drain<T: Default>(mut stream: JoinHandle<T>) -> T {
    match tokio::time::timeout(DRAIN, &mut stream).await {
        Ok(captured) => captured.unwrap_or_default(),
        Err(_) => {
            stream.abort();
            T::default()
        }
    }
}
