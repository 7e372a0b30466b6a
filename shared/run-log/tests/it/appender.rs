//! A process that appends and reports acknowledged events, to be killed by its parent.
//!
//! It is this test binary, started again for the one test at the end of this file.

use std::{
    collections::HashMap,
    env,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
};

use core_types::RunId;
use run_log::{AppendError, NewEvent, NewRun, RunLogs, RunWriter, Verification};
use uuid::Uuid;

use crate::fixture::{at, sqlite_at, start};

pub(crate) const FILE: &str = "RUN_LOG_APPENDER_FILE";
const RUNS: usize = 8;
/// The refused appends after which the process ends.
const FAILURES: usize = 40;

pub(crate) struct Appender {
    process: Child,
    output: BufReader<ChildStdout>,
}

/// The report of an appender: the hash of each acknowledged event.
#[derive(Default)]
pub(crate) struct Report {
    pub(crate) acknowledged: HashMap<(RunId, u64), String>,
    pub(crate) failures: usize,
    /// The number of runs that it began to delete.
    pub(crate) deleted: usize,
}

/// Starts an appender, by way of a shell if there is something to do first.
pub(crate) fn spawn(file: &Path, shell: Option<&str>) -> Appender {
    spawn_test("appender::appends_for_its_parent", file, shell)
}

/// Starts one test of this binary, which finds the file by [`FILE`].
pub(crate) fn spawn_test(test: &str, file: &Path, shell: Option<&str>) -> Appender {
    let binary = env::current_exe().unwrap();
    let mut command = match shell {
        Some(script) => {
            let mut command = Command::new("sh");
            command.args(["-c", script, "sh"]).arg(binary);
            command
        }
        None => Command::new(binary),
    };
    command.args(["--exact", test, "--nocapture", "--quiet"]);
    let mut process = command
        .env(FILE, file)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let output = BufReader::new(process.stdout.take().unwrap());
    Appender { process, output }
}

impl Appender {
    /// Reads until `count` lines are in, then kills the process and reads its remaining lines.
    pub(crate) fn kill_after(&mut self, count: usize) -> Report {
        let mut report = Report::default();
        for _ in 0..count {
            self.read_line(&mut report);
        }
        self.process.kill().unwrap();
        while self.read_line(&mut report) {}
        self.process.wait().unwrap();
        report
    }

    pub(crate) fn read_to_end(&mut self) -> Report {
        let mut report = Report::default();
        while self.read_line(&mut report) {}
        let status = self.process.wait().unwrap();
        assert!(status.success(), "{status}");
        report
    }

    fn read_line(&mut self, report: &mut Report) -> bool {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        // A line that the kill cut off does not count.
        let words: Vec<&str> = line.strip_suffix('\n').unwrap_or("").split(' ').collect();
        match words[..] {
            ["stored", run, sequence, hash] => {
                let key = (run.parse().unwrap(), sequence.parse().unwrap());
                report.acknowledged.insert(key, hash.to_owned());
            }
            ["refused"] => report.failures += 1,
            ["deletes"] => report.deleted += 1,
            _ => {}
        }
        !line.is_empty()
    }
}

impl Report {
    /// Checks that every acknowledged event is there as it was, and that every chain holds.
    pub(crate) async fn assert_all_in(&self, log: &RunLogs) {
        let mut runs: HashMap<RunId, Vec<run_log::Event>> = HashMap::new();
        for (run, _) in self.acknowledged.keys() {
            if !runs.contains_key(run) {
                let verified = log.verify(*run).await.unwrap();
                assert!(
                    matches!(verified, Verification::Intact { .. }),
                    "{run}: {verified:?}"
                );
                let mut all: Vec<run_log::Event> = Vec::new();
                loop {
                    let page = log.read(*run, all.len() as u64, 1000).await.unwrap();
                    if page.is_empty() {
                        break;
                    }
                    all.extend(page);
                }
                runs.insert(*run, all);
            }
        }
        for ((run, sequence), hash) in &self.acknowledged {
            let index = usize::try_from(*sequence).unwrap() - 1;
            let stored = runs[run].get(index).map(|event| event.hash.to_string());
            assert_eq!(stored.as_ref(), Some(hash), "{run}, sequence {sequence}");
        }
    }
}

pub(crate) fn say(line: &str) {
    // One write per line: the pipe keeps the lines written before a kill.
    std::io::stdout()
        .lock()
        .write_all(format!("{line}\n").as_bytes())
        .unwrap();
}

/// Does nothing as a test of its own; with a file named by its parent it appends without end, or
/// until enough refusals.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn appends_for_its_parent() {
    let Some(file) = env::var_os(FILE) else {
        return;
    };
    let log = sqlite_at(Path::new(&file)).await;
    // Runs that the last process left open are taken up first, as a service does.
    let mut writers: Vec<RunWriter> = Vec::new();
    for run in log.open_runs(None, RUNS).await.unwrap().runs {
        writers.push(log.reopen(run.id).await.unwrap());
    }
    while writers.len() < RUNS {
        let id = RunId::new(core_types::RunOwner::Workflow, Uuid::now_v7());
        writers.push(start(&log, NewRun::new(id, "flow", at(1))).await);
    }
    let log = std::sync::Arc::new(log);
    let mut tasks = tokio::task::JoinSet::new();
    for (number, writer) in writers.into_iter().enumerate() {
        let log = std::sync::Arc::clone(&log);
        tasks.spawn(async move { append_until_refused(&log, writer, number).await });
    }
    tasks.join_all().await;
}

async fn append_until_refused(log: &RunLogs, writer: RunWriter, number: usize) {
    let run = writer.run();
    let mut refused = 0;
    for count in 0.. {
        let payload = vec![u8::try_from(number).unwrap(); 100 + (count % 7) * 300];
        let event = NewEvent::new(at(i64::try_from(count).unwrap()), 1, payload);
        let outcome = match count % 5 {
            0 => writer.submit(event).await.map(|_| None),
            1 => writer.append(vec![event; 3]).await.map(Some),
            _ => writer.append(vec![event]).await.map(Some),
        };
        match outcome {
            Ok(Some(sequence)) => {
                let stored = log.read(run, sequence - 1, 1).await.unwrap();
                say(&format!("stored {run} {sequence} {}", stored[0].hash));
            }
            Ok(None) => {}
            Err(AppendError::Storage(_)) => {
                refused += 1;
                say("refused");
                if refused == FAILURES {
                    return;
                }
            }
            Err(error) => panic!("{error:?}"),
        }
    }
}
