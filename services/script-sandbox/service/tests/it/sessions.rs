//! Sessions: interpreters that run one cell after the other.

use std::time::Duration;

use contracts::tavern::sandbox::v1::{
    CellEnded, CellError, CellInterruption, CellOutcome, CellResult, CreateSessionRequest,
    DeleteSessionRequest, GetSessionRequest, InputFile, InterruptCellRequest,
    InterruptCellResponse, Limits, ListRuntimesRequest, ListSessionsRequest, ListSessionsResponse,
    OutputStream, RunCellRequest, RunCellResponse, Session, SessionEndReason, SessionState,
    run_cell_response::Event, verdict::Kind,
};
use script_sandbox::{SandboxSettings, settings::SessionSettings};
use tonic::{Code, Status, Streaming};

use crate::{
    audit::{the_only, traced},
    lifecycle::nothing_is_left,
    oracle::own_launchers,
    rounds::{as_every_user, everywhere},
    support::{Host, PATIENCE, eventually, marker, processes_with, seconds},
};

mod ends;
mod node;
mod python;
mod quotas;
mod results;
mod workspace;

/// A cell that has run, with its whole output.
#[derive(Debug)]
struct Ran {
    stdout: String,
    stderr: String,
    value: Option<String>,
    error: Option<CellError>,
    results: Vec<CellResult>,
    ended: CellEnded,
}

impl Ran {
    #[track_caller]
    fn gives(&self, outcome: CellOutcome, stdout: &str, value: Option<&str>) {
        assert_eq!(self.ended.outcome(), outcome, "{self:?}");
        assert_eq!(
            (self.stdout.as_str(), self.value.as_deref()),
            (stdout, value)
        );
    }

    #[track_caller]
    fn session_end(&self) -> (SessionEndReason, Kind) {
        let end = self.ended.session_end.clone();
        let end = end.expect("the session has ended");
        assert_eq!(self.ended.outcome(), CellOutcome::SessionEnded);
        (end.reason(), end.verdict.unwrap().kind.unwrap())
    }
}

impl Host {
    async fn session(&self, runtime: &str) -> Session {
        self.session_with(wish(runtime)).await
    }

    async fn session_with(&self, wish: CreateSessionRequest) -> Session {
        let answer = self.sessions.clone().create_session(wish).await;
        answer.unwrap().into_inner().session.unwrap()
    }

    async fn begin(&self, session: &Session, source: &str) -> Streaming<RunCellResponse> {
        let begun = self.try_begin(cell(session, source)).await;
        begun.unwrap()
    }

    async fn try_begin(&self, wish: RunCellRequest) -> Result<Streaming<RunCellResponse>, Status> {
        Ok(self.sessions.clone().run_cell(wish).await?.into_inner())
    }

    async fn cell(&self, session: &Session, source: &str) -> Ran {
        let (answers, trace) = traced(self.begin(session, source)).await;
        let ran = follow(answers).await;
        let record = the_only(&trace);
        let outcome = ran.ended.outcome().as_str_name().to_lowercase();
        assert_eq!(format!("cell_outcome_{}", record["verdict"]), outcome, "O7");
        ran
    }

    async fn look(&self, session: &Session) -> Result<Session, Status> {
        let wish = GetSessionRequest {
            session_id: session.session_id.clone(),
            caller_id: session.caller_id.clone(),
        };
        let answer = self.sessions.clone().get_session(wish).await?;
        Ok(answer.into_inner().session.unwrap())
    }

    async fn interrupt(&self, session: &Session, grace: f64) -> InterruptCellResponse {
        let wish = InterruptCellRequest {
            session_id: session.session_id.clone(),
            caller_id: session.caller_id.clone(),
            grace: seconds(grace),
        };
        self.sessions
            .clone()
            .interrupt_cell(wish)
            .await
            .unwrap()
            .into_inner()
    }

    async fn delete(&self, session: &Session) -> Session {
        let wish = DeleteSessionRequest {
            session_id: session.session_id.clone(),
            caller_id: session.caller_id.clone(),
        };
        let answer = self.sessions.clone().delete_session(wish).await;
        answer.unwrap().into_inner().session.unwrap()
    }
}

fn wish(runtime: &str) -> CreateSessionRequest {
    CreateSessionRequest {
        runtime: runtime.to_owned(),
        ..CreateSessionRequest::default()
    }
}

fn cell(session: &Session, source: &str) -> RunCellRequest {
    RunCellRequest {
        session_id: session.session_id.clone(),
        caller_id: session.caller_id.clone(),
        source_text: source.to_owned(),
        ..RunCellRequest::default()
    }
}

/// Follows a cell to its end and checks the order of the events.
async fn follow(answers: Streaming<RunCellResponse>) -> Ran {
    follow_with(answers, async || ()).await
}

/// Follows a cell, and runs `at_first_output` when its first output has arrived.
async fn follow_with(
    mut answers: Streaming<RunCellResponse>,
    at_first_output: impl AsyncFnOnce(),
) -> Ran {
    let mut at_first_output = Some(at_first_output);
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let (mut value, mut error, mut results) = (None, None, Vec::new());
    let mut sequence = 0;
    loop {
        let answer = answers.message().await.unwrap().unwrap();
        sequence += 1;
        assert_eq!(answer.sequence, sequence);
        match answer.event.unwrap() {
            Event::Started(_) => assert_eq!(sequence, 1),
            Event::Output(chunk) => {
                let kept = match chunk.stream() {
                    OutputStream::Stdout => &mut stdout,
                    _ => &mut stderr,
                };
                assert_eq!(chunk.offset, kept.len() as u64);
                kept.extend_from_slice(&chunk.data);
                if let Some(act) = at_first_output.take() {
                    act().await;
                }
            }
            Event::Alive(_) => {}
            Event::Value(given) => value = Some(given.text),
            Event::Error(given) => error = Some(given),
            Event::Result(result) => {
                assert_eq!(result.index as usize, results.len());
                results.push(result);
            }
            Event::Ended(ended) => {
                assert!(answers.message().await.unwrap().is_none());
                assert_eq!(ended.stdout_bytes, stdout.len() as u64);
                assert_eq!(ended.stderr_bytes, stderr.len() as u64);
                let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
                return Ran {
                    stdout: text(stdout),
                    stderr: text(stderr),
                    value,
                    error,
                    results,
                    ended,
                };
            }
        }
    }
}

/// Waits until a condition of a session holds.
async fn until(host: &Host, session: &Session, holds: impl Fn(&Session) -> bool) -> Session {
    let deadline = std::time::Instant::now() + PATIENCE;
    loop {
        let now = host.look(session).await.unwrap();
        if holds(&now) {
            return now;
        }
        assert!(std::time::Instant::now() < deadline, "{now:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn sessions(sessions: SessionSettings) -> SandboxSettings {
    SandboxSettings {
        sessions,
        ..SandboxSettings::default()
    }
}

#[test]
fn python_keeps_its_variables_and_shows_values() {
    everywhere(async |host| {
        let name = host.kind;
        use CellOutcome::Succeeded;
        let session = host.session("python").await;
        assert_eq!(
            (session.state(), session.runtime.as_str()),
            (SessionState::Idle, "python3")
        );
        host.cell(&session, "import math\nx = 20\nprint('set')")
            .await
            .gives(Succeeded, "set\n", None);
        host.cell(&session, "x + 1")
            .await
            .gives(Succeeded, "", Some("21"));
        host.cell(&session, "def f(): return x * 2\nprint(_)\nf()")
            .await
            .gives(Succeeded, "21\n", Some("40"));
        host.cell(&session, "x += 1; math.floor(f() + 0.5)")
            .await
            .gives(Succeeded, "", Some("42"));
        host.cell(&session, "open('kept', 'w').write('file')")
            .await
            .gives(Succeeded, "", Some("4"));
        host.cell(&session, "open('kept').read()")
            .await
            .gives(Succeeded, "", Some("'file'"));
        let now = host.look(&session).await.unwrap();
        assert_eq!((now.cells, now.state()), (6, SessionState::Idle), "{name}");
        assert_eq!(
            host.delete(&session).await.end.unwrap().reason(),
            SessionEndReason::Deleted
        );
        assert_eq!(
            host.look(&session).await.unwrap_err().code(),
            Code::NotFound
        );
        nothing_is_left(&host).await;
    });
}

#[test]
fn an_error_says_what_and_where() {
    as_every_user(async || {
        let host = Host::full().await;
        let file = InputFile {
            path: "helper.py".to_owned(),
            content: b"def divide(a, b):\n    # not here\n    return a / b\n".to_vec(),
            ..InputFile::default()
        };
        let session = host
            .session_with(CreateSessionRequest {
                files: vec![file],
                environment: [("COLOUR".to_owned(), "blue".to_owned())].into(),
                ..wish("python3")
            })
            .await;
        let ran = host
            .cell(
                &session,
                "import os, helper\nos.environ['COLOUR'], os.getcwd().split('/')[-1]",
            )
            .await;
        ran.gives(CellOutcome::Succeeded, "", Some("('blue', 'work')"));
        let ran = host
            .cell(
                &session,
                "def f():\n    print('before')\n    return helper.divide(1, 0)\n\nf()",
            )
            .await;
        ran.gives(CellOutcome::Raised, "before\n", None);
        let error = ran.error.unwrap();
        assert_eq!(
            (error.r#type.as_str(), error.message.as_str()),
            ("ZeroDivisionError", "division by zero")
        );
        let frames: Vec<(&str, u64, u32, &str, &str)> = error
            .frames
            .iter()
            .map(|frame| {
                let file = frame.file.rsplit('/').next().unwrap();
                (
                    file,
                    frame.cell,
                    frame.line,
                    frame.function.as_str(),
                    frame.source_line.as_str(),
                )
            })
            .collect();
        let expected = [
            ("<cell 2>", 2, 5, "", "f()"),
            ("<cell 2>", 2, 3, "f", "return helper.divide(1, 0)"),
            ("helper.py", 0, 3, "divide", "return a / b"),
        ];
        assert_eq!(frames, expected);
        assert!(
            error
                .traceback_text
                .ends_with("ZeroDivisionError: division by zero\n")
        );
        assert!(
            !error.traceback_text.contains("<string>"),
            "{}",
            error.traceback_text
        );
    });
}

#[test]
fn every_kind_of_error_has_its_line() {
    as_every_user(async || {
        let host = Host::full().await;
        let session = host.session("python3").await;
        for (source, kind, line) in [
            ("x = 1\nif x\n  pass", "SyntaxError", 2),
            ("raise SystemExit(3)", "SystemExit", 1),
            ("\n\nundefined", "NameError", 3),
            ("input()", "EOFError", 1),
            ("raise KeyboardInterrupt", "KeyboardInterrupt", 1),
            (
                "class Mute(Exception):\n  def __str__(self): raise self\nraise Mute",
                "Mute",
                3,
            ),
        ] {
            let ran = host.cell(&session, source).await;
            assert_eq!(ran.ended.outcome(), CellOutcome::Raised, "{source}");
            let error = ran.error.unwrap();
            let last = error.frames.last().unwrap();
            assert_eq!((error.r#type.as_str(), last.line), (kind, line));
            assert!(last.file.starts_with("<cell "), "{last:?}");
        }
        let deep = host
            .cell(&session, "def r(n): return r(n + 1)\nr(0)")
            .await
            .error
            .unwrap();
        assert_eq!(deep.r#type, "RecursionError");
        assert!(deep.frames.len() <= 100 && deep.omitted_frames > 500);
    });
}

#[test]
fn an_interrupted_cell_leaves_its_session_alive() {
    everywhere(async |host| {
        let session = host.session("python3").await;
        host.cell(&session, "x = 7").await;
        assert!(!host.interrupt(&session, 1.0).await.interrupted);
        let running = host
            .begin(&session, "import time\nwhile True: time.sleep(0.01)")
            .await;
        let second = host.try_begin(cell(&session, "1")).await.err().unwrap();
        assert_eq!(grpc_kit::metadata(&second)["cell"], "2");
        let answer = host.interrupt(&session, 20.0).await;
        assert!(answer.interrupted);
        let ran = follow(running).await;
        ran.gives(CellOutcome::Interrupted, "", None);
        assert_eq!(ran.error.unwrap().r#type, "KeyboardInterrupt");
        host.cell(&session, "x")
            .await
            .gives(CellOutcome::Succeeded, "", Some("7"));
    });
}

#[test]
fn a_cell_that_passes_its_own_limits_is_interrupted_only() {
    everywhere(async |host| {
        let session = host.session("python3").await;
        host.cell(&session, "x = 7").await;
        let slow = RunCellRequest {
            wall_time: seconds(2.0),
            ..cell(&session, "import time; print('begun'); time.sleep(60)")
        };
        let ran = follow(host.try_begin(slow).await.unwrap()).await;
        ran.gives(CellOutcome::WallExceeded, "begun\n", None);
        let loud = RunCellRequest {
            output_bytes: Some(1000),
            ..cell(&session, "while True: print('x' * 99)")
        };
        let ran = follow(host.try_begin(loud).await.unwrap()).await;
        assert_eq!(ran.ended.outcome(), CellOutcome::OutputExceeded);
        assert_eq!(ran.ended.interruption(), CellInterruption::Output);
        assert_eq!(ran.stdout.len(), 1000);
        assert!(ran.ended.stdout_truncated_bytes > 0);
        let long = RunCellRequest {
            output_bytes: Some(10),
            ..cell(&session, "print('x' * 30 + 'the end')")
        };
        let ran = follow(host.try_begin(long).await.unwrap()).await;
        ran.gives(CellOutcome::Succeeded, "xxxxxxxxxx", None);
        assert_eq!(ran.ended.stdout_truncated_bytes, 28);
        assert!(ran.ended.stdout_end.ends_with(b"xxthe end\n"));
        host.cell(&session, "x")
            .await
            .gives(CellOutcome::Succeeded, "", Some("7"));
        let wide = host.session_with(CreateSessionRequest {
            limits: Some(Limits {
                result_bytes: Some(100),
                ..Limits::default()
            }),
            ..wish("python3")
        });
        let ran = host.cell(&wide.await, "'é' * 1000").await;
        assert_eq!(ran.value.unwrap().len(), 99);
    });
}

#[test]
fn a_caller_that_goes_interrupts_its_cell() {
    as_every_user(async || {
        let host = Host::full().await;
        let session = host.session("python3").await;
        let source = "import time\ntry: print('begun', flush=True); time.sleep(60)\nfinally: seen = 'interrupted'";
        let mut running = host.begin(&session, source).await;
        // Before the cell has reached its `try` it cannot handle an interruption.
        while !matches!(
            running.message().await.unwrap().unwrap().event,
            Some(Event::Output(_))
        ) {}
        drop(running);
        until(&host, &session, |now| now.state() == SessionState::Idle).await;
        host.cell(&session, "seen")
            .await
            .gives(CellOutcome::Succeeded, "", Some("'interrupted'"));
        let mut asked = tonic::Request::new(cell(&session, "time.sleep(60)"));
        asked.set_timeout(Duration::from_secs(3));
        // The answers are not read, and the deadline holds nevertheless.
        let unread = host.sessions.clone().run_cell(asked).await.unwrap();
        until(&host, &session, |now| now.state() == SessionState::Idle).await;
        drop(unread);
    });
}

#[test]
fn output_between_cells_comes_with_the_next_one_and_a_slow_reader_slows_it() {
    as_every_user(async || {
        let host = Host::full().await;
        let session = host.session("python3").await;
        let source = "import threading, time\ngo, done = threading.Event(), threading.Event()\ndef late():\n    go.wait(); print('late'); done.set()\nthreading.Thread(target=late, daemon=True).start()";
        host.cell(&session, source)
            .await
            .gives(CellOutcome::Succeeded, "", None);
        host.cell(&session, "go.set()").await;
        let ran = host.cell(&session, "done.wait(60)").await;
        assert_eq!(ran.value.as_deref(), Some("True"));
        // The late output may belong to either cell. A child of the cell writes to the same
        // streams.
        let ran = host.cell(&session, "import os, subprocess\nsubprocess.run(['echo', 'child'], check=True)\nos.write(2, b'direct')").await;
        assert_eq!(
            (ran.stdout.as_str(), ran.stderr.as_str()),
            ("child\n", "direct")
        );
        let total = 4 << 20;
        let big = RunCellRequest {
            output_bytes: Some(total),
            wall_time: seconds(120.0),
            ..cell(&session, "for _ in range(4096): os.write(1, b'z' * 1024)")
        };
        let unread = host.try_begin(big).await.unwrap();
        let stays = host.look(&session).await.unwrap();
        assert_eq!(stays.state(), SessionState::Running);
        let ran = follow(unread).await;
        assert_eq!(ran.stdout.len() as u64, total);
    });
}

#[test]
fn what_is_wrong_with_a_request_is_named() {
    as_every_user(async || {
        let host = Host::full().await;
        let fields = |status: Status| -> Vec<String> {
            assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
            let mut fields: Vec<String> = grpc_kit::violations(&status)
                .into_iter()
                .map(|(field, _)| field)
                .collect();
            fields.sort();
            fields
        };
        let against_rules = CreateSessionRequest {
            idle_time: seconds(0.0),
            total_time: Some(prost_types::Duration {
                seconds: -1,
                nanos: 0,
            }),
            limits: Some(Limits {
                memory_bytes: Some(0),
                ..Limits::default()
            }),
            ..CreateSessionRequest::default()
        };
        let malformed = CreateSessionRequest {
            request_id: "a b".to_owned(),
            caller_id: "ä".to_owned(),
            environment: [("TAVERN_X".to_owned(), String::new())].into(),
            ..wish("python3")
        };
        for (wrong, expected) in [
            (
                against_rules,
                &["idle_time", "limits.memory_bytes", "runtime", "total_time"][..],
            ),
            (
                malformed,
                &["caller_id", "environment[TAVERN_X]", "request_id"],
            ),
        ] {
            let refused = host.sessions.clone().create_session(wrong).await;
            assert_eq!(fields(refused.unwrap_err()), expected);
        }
        let refused = host
            .sessions
            .clone()
            .create_session(wish("bash"))
            .await
            .unwrap_err();
        assert_eq!(refused.code(), Code::FailedPrecondition);

        let session = host.session("python3").await;
        let wrong = RunCellRequest {
            wall_time: seconds(0.0),
            output_bytes: Some(0),
            ..cell(&session, "")
        };
        let refused = host.try_begin(wrong).await.err().unwrap();
        assert_eq!(
            fields(refused),
            ["output_bytes", "source_text", "wall_time"]
        );
        let unknown = Session {
            session_id: "sess_0".to_owned(),
            ..Session::default()
        };
        let refused = host.try_begin(cell(&unknown, "1")).await.err().unwrap();
        assert_eq!(refused.code(), Code::NotFound);
        assert_eq!(grpc_kit::metadata(&refused)["session_id"], "sess_0");
        let runtimes = host
            .client
            .clone()
            .list_runtimes(ListRuntimesRequest {})
            .await
            .unwrap();
        for runtime in runtimes.into_inner().runtimes {
            assert_eq!(runtime.sessions, runtime.name != "bash", "{runtime:?}");
        }
    });
}
