//! Follows a launched script until no process of it is left.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use sandbox_launcher::{
    processes::end_leftovers,
    report::{End, Failure, Layer, Report},
};
use tokio::{
    io::{AsyncWriteExt, BufReader, Lines},
    net::unix::{OwnedReadHalf, OwnedWriteHalf},
    sync::{mpsc, oneshot, watch},
    task::{JoinError, JoinHandle},
    time::MissedTickBehavior,
};

use crate::{
    domain::{
        limits::Limits,
        outcome::Captured,
        script::Script,
        usage::Usage,
        verdict::{Evidence, Facts, Stopped, Stream},
    },
    input_files::InputFiles,
    launcher::Supervisor,
    pool::Assignment,
    run::{
        capture::Overflow,
        io_handler::{IoHandler, IoTasks, Progress, ScriptIo, Stage},
        usage_monitor::{Scratch, UsageMonitor},
    },
    slot::{SandboxedProcess, Slot},
};

/// How often a measurement of a script begins, unless the one before still continues.
const SAMPLE: Duration = Duration::from_millis(50);

/// How long the set-up may take before it counts as failed.
const SET_UP: Duration = Duration::from_secs(60);

/// How long the launcher may take to end everybody before it is killed itself, which the kernel
/// answers by killing its init. Longer than the launcher tries.
const END: Duration = Duration::from_secs(35);

/// How long pipes may stay open when everybody is gone. Only a survivor could hold them.
const DRAIN: Duration = Duration::from_secs(10);

/// What was seen of a script.
pub(super) struct Watched {
    pub(super) facts: Facts,
    pub(super) stdout: Captured,
    pub(super) stderr: Captured,
    pub(super) result: Captured,
    pub(super) started: bool,
    pub(super) missing: Vec<Layer>,
    /// Whether no process of the script lives, which the launcher has made sure of.
    pub(super) all_gone: bool,
    /// Holds the cgroup, whose removal blocks.
    pub(super) monitor: Option<UsageMonitor>,
}

/// What a started interpreter is to do.
pub(super) struct RunRequest {
    /// The files that it needs.
    pub(super) delivery: InputFiles,
    /// The script.
    pub(super) script: Arc<Script>,
    /// When it was accepted.
    pub(super) accepted: Instant,
    /// What gives the script to an interpreter that waits for it.
    pub(super) assignment: Option<Assignment>,
}

/// Feeds and follows a script. The slot comes back when no process is left in it.
pub(super) async fn watch(
    process: SandboxedProcess,
    request: RunRequest,
    handler: Box<dyn IoHandler>,
    cancel: oneshot::Receiver<()>,
) -> (Watched, Slot) {
    let SandboxedProcess {
        supervisor,
        reports,
        say,
        files,
        work,
        stdin,
        stdout,
        stderr,
        result,
        progress: progress_pipe,
        job,
        mut slot,
    } = process;
    let RunRequest {
        delivery,
        script,
        accepted,
        assignment,
    } = request;
    let limits = script.limits;
    let monitor = UsageMonitor::new(
        slot.cgroup.take(),
        supervisor.id(),
        Scratch::of(&slot.place, work),
        assignment.as_ref().map_or(Duration::ZERO, |it| it.used),
    );
    let (overflow, overflows) = mpsc::channel(3);
    let IoTasks {
        outputs,
        progress_reader,
        helpers,
        progress,
    } = handler.handle(ScriptIo {
        files,
        stdin,
        stdout,
        stderr,
        result,
        progress: progress_pipe,
        job,
        delivery,
        script,
        missing: slot.missing.clone(),
        enforcement: slot.enforcement,
        overflow,
    });
    let mut watch = Watch::new(limits, monitor, accepted, progress);
    watch.assignment = assignment;
    watch.follow(reports, say, overflows, cancel).await;
    drop(helpers);
    (
        watch.conclude(supervisor, outputs, progress_reader).await,
        slot,
    )
}

struct Watch {
    limits: Limits,
    monitor: Option<UsageMonitor>,
    accepted: Instant,
    launched: Instant,
    started: Option<Instant>,
    ended: Option<Instant>,
    stopped: Option<Stopped>,
    /// Since when the script is no longer left to itself: it has ended, or has to.
    over: Option<Instant>,
    failure: Option<Failure>,
    end: Option<End>,
    missing: Vec<Layer>,
    cpu: Duration,
    max_process: u64,
    survivors: u32,
    gone: bool,
    sampling: Option<JoinHandle<Sampled>>,
    progress: watch::Sender<Progress>,
    /// What is still to be handed over, once the files are in place.
    assignment: Option<Assignment>,
    /// Processor time that is not the script's.
    used: Duration,
    warm: bool,
}

impl Watch {
    fn new(
        limits: Limits,
        monitor: UsageMonitor,
        accepted: Instant,
        progress: watch::Sender<Progress>,
    ) -> Self {
        Self {
            limits,
            monitor: Some(monitor),
            accepted,
            launched: Instant::now(),
            started: None,
            ended: None,
            stopped: None,
            over: None,
            failure: None,
            end: None,
            missing: Vec::new(),
            cpu: Duration::ZERO,
            max_process: 0,
            survivors: 0,
            gone: false,
            sampling: None,
            progress,
            assignment: None,
            used: Duration::ZERO,
            warm: false,
        }
    }

    /// Waits for everything that can happen, until the last report or the end of all patience.
    async fn follow(
        &mut self,
        mut reports: Lines<BufReader<OwnedReadHalf>>,
        say: OwnedWriteHalf,
        mut overflows: mpsc::Receiver<Overflow>,
        mut cancel: oneshot::Receiver<()>,
    ) {
        let mut say = Some(say);
        let mut ticks = tokio::time::interval(SAMPLE);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            if self.over.is_some()
                && let Some(mut say) = say.take()
            {
                // Shutting down is the order to end everybody; an error means that it has happened.
                let _ = say.shutdown().await;
            }
            let running = self.over.is_none();
            tokio::select! {
                line = reports.next_line() => match line {
                    Ok(Some(line)) => {
                        self.note(&line);
                        if self.gone {
                            return;
                        }
                    }
                    Ok(None) | Err(_) => return,
                },
                () = tokio::time::sleep_until(self.patience().into()) => {
                    if !running {
                        return;
                    }
                    if self.started.is_none() {
                        self.fail("the set-up took too long");
                    }
                    self.stop(Stopped::Wall);
                }
                Some(Overflow { stream, observed }) = overflows.recv(), if running => {
                    self.stop(Stopped::Output { stream, observed });
                }
                _ = &mut cancel, if running => self.stop(Stopped::Cancelled),
                _ = ticks.tick(), if self.started.is_some() && self.ended.is_none() => {
                    self.sample();
                }
                sampled = finished(&mut self.sampling) => self.take_sample(sampled),
            }
        }
    }

    /// When to wait no longer for the present state to change.
    fn patience(&self) -> Instant {
        match (self.over, self.started) {
            (Some(over), _) => over + END,
            (None, Some(started)) => started + self.limits.wall_time,
            (None, None) => self.launched + SET_UP,
        }
    }

    fn stop(&mut self, reason: Stopped) {
        // Once the script has ended by itself, what is left to wait for is only its last report.
        if self.over.is_none() {
            self.stopped = Some(reason);
            self.over = Some(Instant::now());
        }
    }

    fn fail(&mut self, message: &str) {
        let failure = Failure {
            layer: Layer::Launch,
            message: message.to_owned(),
            errno: 0,
        };
        self.failure.get_or_insert(failure);
    }

    fn note(&mut self, line: &str) {
        match serde_json::from_str(line) {
            Ok(Report::Started { missing }) => self.start(missing),
            Ok(Report::Placed) => {
                if let Some(assignment) = self.assignment.take() {
                    self.assignment(assignment);
                }
                self.reach(Stage::Placed);
            }
            Ok(Report::Failed(failure)) => {
                self.failure = Some(failure);
                self.over = self.over.or(Some(Instant::now()));
            }
            Ok(Report::NetworkAttempted { attempts }) => self.stop(Stopped::Network { attempts }),
            Ok(Report::Ended { end }) => {
                if self.assignment.is_some() {
                    self.fail("the interpreter ended before it was given its script");
                }
                self.ended = Some(Instant::now());
                self.over = self.over.or(self.ended);
                self.end = Some(end);
            }
            Ok(Report::Gone {
                cpu_micros,
                max_process_bytes,
                survivors,
            }) => {
                self.cpu = Duration::from_micros(cpu_micros);
                self.max_process = max_process_bytes;
                self.survivors = survivors;
                self.gone = true;
            }
            Err(error) => self.fail(&format!("the launcher spoke unclearly: {error}")),
        }
    }

    fn start(&mut self, missing: Vec<Layer>) {
        self.started = Some(Instant::now());
        self.missing.clone_from(&missing);
        self.progress.send_replace(Progress {
            stage: Stage::Started,
            started: true,
            missing,
        });
    }

    /// Gives a waiting interpreter its script, which starts here.
    fn assignment(&mut self, assignment: Assignment) {
        let Assignment {
            job,
            text,
            used,
            missing,
        } = assignment;
        self.used = used;
        self.warm = true;
        self.start(missing);
        match job.try_write(&text) {
            // The end of the text is the end of the channel.
            Ok(written) if written == text.len() => {}
            written => {
                let written = written.unwrap_or(0);
                tokio::spawn(async move {
                    let mut job = job;
                    // An interpreter that does not read it has ended, which is reported.
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
            let limits = self.limits;
            self.sampling = Some(tokio::task::spawn_blocking(move || {
                let stopped = monitor.sample(&limits);
                (monitor, stopped)
            }));
        }
    }

    fn take_sample(&mut self, sampled: Result<Sampled, JoinError>) {
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

    /// What was used, as far as the launcher reports.
    fn usage(&self, now: Instant) -> Usage {
        let until = self.ended.unwrap_or(now);
        Usage {
            wall_time: self.started.map_or(Duration::ZERO, |started| {
                until.saturating_duration_since(started)
            }),
            cpu_time: self.cpu.saturating_sub(self.used),
            max_memory: self.max_process,
            // It may have ended before it was looked at.
            max_processes: u32::from(self.started.is_some()),
            max_disk: 0,
            max_disk_files: 0,
            setup_time: self.started.map_or(Duration::ZERO, |started| {
                started.saturating_duration_since(self.accepted)
            }),
            warm_start: self.warm,
        }
    }

    async fn conclude(
        mut self,
        supervisor: Supervisor,
        streams: [JoinHandle<Captured>; 3],
        progress_reader: JoinHandle<()>,
    ) -> Watched {
        let now = Instant::now();
        let orphaned = !self.gone;
        if orphaned {
            tracing::error!("a launcher ended without its last report");
        }
        if self.survivors > 0 {
            tracing::error!(
                survivors = self.survivors,
                "processes of a script could not be killed"
            );
        }
        drop(supervisor);
        if self.sampling.is_some() {
            let sampled = finished(&mut self.sampling).await;
            self.take_sample(sampled);
        }
        if orphaned && let Some(monitor) = self.monitor.take() {
            let killed = tokio::task::spawn_blocking(move || {
                monitor.kill_all();
                end_leftovers();
                monitor
            });
            self.monitor = killed.await.ok();
        }
        self.reach(Stage::Gone);
        let [stdout, stderr, result] = streams.map(drain);
        let (stdout, stderr, result) = (stdout.await, stderr.await, result.await);
        drain(progress_reader).await;

        let loud = too_loud([
            (Stream::Stdout, &stdout),
            (Stream::Stderr, &stderr),
            (Stream::Result, &result),
        ]);
        let mut usage = self.usage(now);
        let mut facts = Facts {
            limits: self.limits,
            usage,
            stopped: self.stopped.or(loud),
            failure: self.failure,
            end: self.end,
            evidence: Evidence::default(),
        };
        let mut measured = None;
        if let Some(monitor) = self.monitor {
            // The last figures are read where blocking does not matter.
            let lengths = self.end == Some(End::Signalled(libc::SIGXFSZ));
            let limits = self.limits;
            let last = tokio::task::spawn_blocking(move || {
                let mut monitor = monitor;
                monitor.last(lengths);
                monitor.enter(&mut usage, &limits);
                (usage, monitor.evidence(), monitor)
            });
            if let Ok((usage, evidence, monitor)) = last.await {
                facts.usage = usage;
                facts.evidence = evidence;
                measured = Some(monitor);
            }
        }
        Watched {
            facts,
            stdout,
            stderr,
            result,
            started: self.started.is_some(),
            missing: self.missing,
            all_gone: self.gone && self.survivors == 0,
            monitor: measured,
        }
    }
}

/// A monitor that has measured, and which limit is passed, if one is.
type Sampled = (UsageMonitor, Option<Stopped>);

/// What a measurement has found; nothing comes where there is none.
async fn finished(sampling: &mut Option<JoinHandle<Sampled>>) -> Result<Sampled, JoinError> {
    match sampling {
        Some(sampling) => sampling.await,
        None => std::future::pending().await,
    }
}

/// A script that ends by itself right behind its last byte was still too loud.
fn too_loud(streams: [(Stream, &Captured); 3]) -> Option<Stopped> {
    let (stream, captured) = streams
        .into_iter()
        .find(|(_, captured)| captured.truncated > 0)?;
    Some(Stopped::Output {
        stream,
        observed: captured.read(),
    })
}

/// What a stream held. It ends with the last process that could write to it.
async fn drain<T: Default>(mut stream: JoinHandle<T>) -> T {
    match tokio::time::timeout(DRAIN, &mut stream).await {
        Ok(captured) => captured.unwrap_or_default(),
        Err(_) => {
            stream.abort();
            T::default()
        }
    }
}
