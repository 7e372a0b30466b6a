//! The ends of sessions, which leave nothing behind.

use super::*;
use crate::support::patient;

/// Runs a cell that ends its session; every later call reports the reason.
async fn check(
    host: Host,
    limits: Limits,
    source: &str,
    ends: impl Fn(SessionEndReason, &Kind) -> bool,
) {
    let wish = CreateSessionRequest {
        limits: Some(limits),
        ..wish("python3")
    };
    let session = host.session_with(wish).await;
    let ran = host.cell(&session, source).await;
    let (reason, verdict) = ran.session_end();
    assert!(ends(reason, &verdict), "{reason:?} {verdict:?}");
    let later = host.look(&session).await.unwrap();
    assert_eq!(later.state(), SessionState::Ended);
    assert_eq!(later.end, ran.ended.session_end);
    let refused = host.try_begin(cell(&session, "1")).await.err().unwrap();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    let metadata = grpc_kit::metadata(&refused);
    let stated = reason
        .as_str_name()
        .trim_start_matches("SESSION_END_REASON_");
    assert_eq!(metadata["end"], stated);
    assert_eq!(metadata["session_id"], session.session_id);
    nothing_is_left(&host).await;
}

#[test]
fn a_cell_that_ends_the_interpreter_ends_the_session() {
    everywhere(async |host| {
        check(
            host,
            Limits::default(),
            "import os\nprint('last', flush=True)\nos._exit(7)",
            |reason, verdict| {
                reason == SessionEndReason::Interpreter
                    && matches!(verdict, Kind::Exited(exited) if exited.code == 7)
            },
        )
        .await;
    });
}

#[test]
fn a_crash_is_reported_with_its_signal() {
    everywhere(async |host| {
        check(
            host,
            Limits::default(),
            "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)",
            |reason, verdict| {
                reason == SessionEndReason::Interpreter
                    && matches!(verdict, Kind::Signalled(signalled) if signalled.name == "SIGSEGV")
            },
        )
        .await;
    });
}

#[test]
fn too_much_memory_ends_the_session_with_its_verdict() {
    everywhere(async |host| {
        let limits = Limits {
            memory_bytes: Some(128 << 20),
            ..patient()
        };
        let source = "x = bytearray(1 << 30)\nfor i in range(0, len(x), 4096): x[i] = 1";
        check(host, limits, source, |reason, verdict| {
            reason == SessionEndReason::Interpreter && matches!(verdict, Kind::Memory(_))
        })
        .await;
    });
}

#[test]
fn processor_time_is_counted_over_all_cells() {
    as_every_user(async || {
        let host = Host::full().await;
        let wish = CreateSessionRequest {
            limits: Some(Limits {
                cpu_time: seconds(2.0),
                wall_time: seconds(60.0),
                ..patient()
            }),
            ..wish("python3")
        };
        let session = host.session_with(wish).await;
        let spin =
            "import time\nend = time.process_time() + 0.5\nwhile time.process_time() < end: pass";
        host.cell(&session, spin)
            .await
            .gives(CellOutcome::Succeeded, "", None);
        let (reason, verdict) = host.cell(&session, "while True: pass").await.session_end();
        assert_eq!(reason, SessionEndReason::Interpreter);
        assert!(matches!(verdict, Kind::Cpu(_)), "{verdict:?}");
    });
}

#[test]
fn a_cell_that_ignores_its_interruption_takes_the_session_along() {
    everywhere(async |host| {
        let stubborn = "import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nprint('deaf', flush=True)\nwhile True: time.sleep(1)";
        let session = host.session("python3").await;
        let running = host.begin(&session, stubborn).await;
        // Before its first output it does not ignore any signal yet.
        let interrupt = async || {
            let answer = host.interrupt(&session, 0.5).await;
            assert!(answer.interrupted);
            let after = answer.session.unwrap();
            assert_eq!(
                after.end.unwrap().reason(),
                SessionEndReason::NotInterrupted
            );
        };
        let (reason, _) = follow_with(running, interrupt).await.session_end();
        assert_eq!(reason, SessionEndReason::NotInterrupted);

        let session = host.session("python3").await;
        let slow = RunCellRequest {
            wall_time: seconds(3.0),
            ..cell(&session, stubborn)
        };
        let ran = follow(host.try_begin(slow).await.unwrap()).await;
        assert_eq!(ran.session_end().0, SessionEndReason::NotInterrupted);
        assert_eq!(ran.ended.interruption(), CellInterruption::Wall);
        let message = ran.ended.session_end.unwrap().message;
        assert!(message.contains("at its time limit of 3 s"), "{message}");
        nothing_is_left(&host).await;
    });
}

#[test]
fn e91_forged_messages_end_their_own_session_only() {
    everywhere(async |host| {
        let name = host.kind;
        let forgeries = [
            "import os; os.write(3, b'rubbish that is no frame at all')",
            "import os; os.write(3, bytes([255] * 64))",
            "import os, struct; b = b'{\"ready\": {}}'; os.write(3, struct.pack('<I', len(b)) + b)",
            "import os, struct; b = b'{\"done\": {\"cell\": 99, \"outcome\": \"ok\"}}'; os.write(3, struct.pack('<I', len(b)) + b)",
            "import os, struct; b = b'[' * 100000; os.write(3, struct.pack('<I', len(b)) + b)",
            "import os; os.close(3); import time; time.sleep(60)",
        ];
        let neighbour = host.session("python3").await;
        host.cell(&neighbour, "x = 7").await;
        for forgery in forgeries {
            let session = host.session("python3").await;
            let forged = format!("{forgery}\nimport time; time.sleep(60)");
            let (reason, _) = host.cell(&session, &forged).await.session_end();
            assert_eq!(reason, SessionEndReason::ChannelBroken, "{name}: {forgery}");
        }
        host.cell(&neighbour, "x")
            .await
            .gives(CellOutcome::Succeeded, "", Some("7"));
        host.delete(&neighbour).await;

        // A well-formed lie is believed for the liar's own cell, and detected with the next one.
        let session = host.session("python3").await;
        let lie = "import os, struct; b = b'{\"done\": {\"cell\": 1, \"outcome\": \"ok\", \"value\": {\"text\": \"lie\"}}}'; os.write(3, struct.pack('<I', len(b)) + b)";
        host.cell(&session, lie)
            .await
            .gives(CellOutcome::Succeeded, "", Some("lie"));
        let (reason, _) = host.cell(&session, "1").await.session_end();
        assert_eq!(reason, SessionEndReason::ChannelBroken);
        nothing_is_left(&host).await;
    });
}

#[test]
fn e91_a_forged_error_with_very_many_frames_is_cut() {
    as_every_user(async || {
        let host = Host::full().await;
        let session = host.session("python3").await;
        let forged = r#"
import os, struct
frames = ",".join('{"line": %d, "file": "%s"}' % (line, "f" * 5000 if line == 1 else "") for line in range(1, 100_001))
body = ('{"done": {"cell": 1, "outcome": "error", "error": {"type": "E", "frames": [%s]}}}' % frames).encode()
body = memoryview(struct.pack("<I", len(body)) + body)
while body:
    body = body[os.write(3, body):]
"#;
        let ran = host.cell(&session, forged).await;
        assert_eq!(ran.ended.outcome(), CellOutcome::Raised, "{ran:?}");
        let error = ran.error.unwrap();
        let lines: Vec<u32> = error.frames.iter().map(|frame| frame.line).collect();
        let expected: Vec<u32> = (1..=50).chain(99_951..=100_000).collect();
        assert_eq!(lines, expected);
        assert_eq!(error.omitted_frames, 99_900);
        assert_eq!(error.frames[0].file.len(), 2000);
        nothing_is_left(&host).await;
    });
}

#[test]
fn time_ends_sessions_that_no_caller_uses_or_that_are_old() {
    everywhere(async |host| {
        let idle = host
            .session_with(CreateSessionRequest {
                idle_time: seconds(1.0),
                ..wish("python3")
            })
            .await;
        let old = host
            .session_with(CreateSessionRequest {
                total_time: seconds(3.0),
                ..wish("python3")
            })
            .await;
        let ended = |now: &Session| now.state() == SessionState::Ended;
        let gone = until(&host, &idle, ended).await.end.unwrap();
        assert_eq!(gone.reason(), SessionEndReason::Idle);
        let running = host
            .try_begin(cell(&old, "import time; time.sleep(60)"))
            .await;
        if let Ok(running) = running {
            assert_eq!(
                follow(running).await.session_end().0,
                SessionEndReason::Lifetime
            );
        }
        let gone = until(&host, &old, ended).await.end.unwrap();
        assert_eq!(gone.reason(), SessionEndReason::Lifetime);
        assert!(gone.message.contains("lifetime"));
        nothing_is_left(&host).await;
    });
}

#[test]
fn deleting_and_shutting_down_leave_no_process() {
    everywhere(async |host| {
        let name = host.kind;
        let nap = marker();
        let source = format!(
            "import subprocess\nfor _ in range(2): subprocess.Popen(['sleep', '{nap}'], start_new_session=True)\nprint('ready', flush=True)\nimport time; time.sleep(60)"
        );
        for way in ["delete", "shutdown"] {
            let session = host.session("python3").await;
            let mut running = host.begin(&session, &source).await;
            while !matches!(
                running.message().await.unwrap().unwrap().event,
                Some(Event::Output(_))
            ) {}
            // A program that has just been started has no command line for a moment.
            eventually("two sleepers run", || processes_with(&nap).len() >= 2).await;
            let reason = match way {
                "delete" => host.delete(&session).await.end.unwrap().reason(),
                _ => {
                    host.sandbox.shutdown().await;
                    host.look(&session).await.unwrap().end.unwrap().reason()
                }
            };
            let expected = match way {
                "delete" => SessionEndReason::Deleted,
                _ => SessionEndReason::Shutdown,
            };
            assert_eq!(reason, expected);
            // The answer comes when no process is left, so no wait is needed.
            assert!(processes_with(&nap).is_empty(), "{name} {way}");
        }
        nothing_is_left(&host).await;
    });
}

#[test]
fn fifty_sessions_come_and_go_and_leave_nothing() {
    as_every_user(async || {
        let host = Host::with(sessions(SessionSettings {
            maximum: 10,
            per_caller: 10,
            ..SessionSettings::default()
        }))
        .await;
        let session = host.session("python3").await;
        host.delete(&session).await;
        let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
        let before = descriptors();
        // A user that a session had once stays leased.
        const LEASES: usize = 10;
        for round in 0..5 {
            let lives = (0..10).map(|number| {
                let host = host.clone();
                tokio::spawn(async move {
                    let session = host.session("python3").await;
                    let ran = host
                        .cell(&session, &format!("{round} * 100 + {number}"))
                        .await;
                    let expected = (round * 100 + number).to_string();
                    ran.gives(CellOutcome::Succeeded, "", Some(&expected));
                    host.delete(&session).await;
                })
            });
            for life in lives.collect::<Vec<_>>() {
                life.await.unwrap();
            }
        }
        nothing_is_left(&host).await;
        eventually("the descriptors are back", || {
            descriptors() <= before + LEASES
        })
        .await;
    });
}
