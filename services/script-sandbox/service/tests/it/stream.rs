//! Talks with running scripts.

mod progress;

use std::time::Duration;

use contracts::tavern::sandbox::v1::{
    ExecuteRequest, ExecuteResponse, ExecuteStreamRequest, ExecuteStreamResponse, Limits,
    OutputStream, ResultState, ScriptSignal, SendSignal, StdinChunk, StdinEnd, StdinState,
    execute_stream_request::Message, execute_stream_response::Event,
    script_sandbox_service_client::ScriptSandboxServiceClient, verdict::Kind,
};
use script_sandbox::runner::streaming::output_queue::BUDGET;
use tokio::sync::mpsc;
use tonic::{
    Code, Status, Streaming,
    transport::{Channel, Endpoint},
};

use crate::{
    audit::{one_record, traced},
    killed::{Service, scratch},
    rounds::{as_every_user, everywhere},
    support::{
        Host, class, eventually, expect_class, expect_output, limited, marker, processes_with,
        python, request, seconds,
    },
};

/// A talk, seen from the caller.
struct Talk {
    say: mpsc::Sender<ExecuteStreamRequest>,
    answers: Streaming<ExecuteStreamResponse>,
    sequence: u64,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    /// The trace that identifies its audit record.
    trace: String,
}

impl Talk {
    async fn try_begin(host: &Host, first: Message) -> Result<Talk, Status> {
        let (say, said) = mpsc::channel(16);
        say.send(message(first)).await.unwrap();
        let said =
            futures::stream::unfold(
                said,
                |mut said| async move { Some((said.recv().await?, said)) },
            );
        let (answer, trace) = traced(host.client.clone().execute_stream(said)).await;
        let answers = answer?.into_inner();
        Ok(Talk {
            say,
            answers,
            sequence: 0,
            stdout: Vec::new(),
            stderr: Vec::new(),
            trace,
        })
    }

    async fn begin(host: &Host, start: ExecuteRequest) -> Talk {
        Talk::try_begin(host, Message::Start(start)).await.unwrap()
    }

    async fn say(&self, said: Message) {
        self.say.send(message(said)).await.unwrap();
    }

    async fn stdin(&self, text: &str) {
        let data = text.as_bytes().to_vec();
        self.say(Message::Stdin(StdinChunk { data })).await;
    }

    async fn signal(&self, signal: ScriptSignal) {
        let signal = signal.into();
        self.say(Message::Signal(SendSignal { signal })).await;
    }

    /// The next event; its sequence is checked, and output is kept at its offset.
    async fn next(&mut self) -> Event {
        let answer = self.answers.message().await.unwrap().unwrap();
        self.sequence += 1;
        assert_eq!(answer.sequence, self.sequence);
        let event = answer.event.unwrap();
        if let Event::Output(chunk) = &event {
            let kept = match chunk.stream() {
                OutputStream::Stdout => &mut self.stdout,
                OutputStream::Stderr => &mut self.stderr,
                other => unreachable!("output on {other:?}"),
            };
            assert_eq!(chunk.offset, kept.len() as u64);
            assert!((1..=64 << 10).contains(&chunk.data.len()));
            kept.extend_from_slice(&chunk.data);
        }
        event
    }

    /// Waits until standard output contains this text.
    async fn hears(&mut self, text: &str) {
        while !String::from_utf8_lossy(&self.stdout).contains(text) {
            let event = self.next().await;
            assert!(!matches!(event, Event::Ended(_)), "{text}: {event:?}");
        }
    }

    /// Follows the script to its end; no event comes after it.
    async fn end(&mut self) -> ExecuteResponse {
        loop {
            if let Event::Ended(ended) = self.next().await {
                assert!(self.answers.message().await.unwrap().is_none());
                assert_eq!(ended.stdout_bytes, self.stdout.len() as u64);
                assert_eq!(ended.stderr_bytes, self.stderr.len() as u64);
                assert!(ended.stdout.is_empty() && ended.stderr.is_empty());
                one_record(&self.trace, "stream", &ended);
                return ended;
            }
        }
    }
}

fn message(message: Message) -> ExecuteStreamRequest {
    ExecuteStreamRequest {
        message: Some(message),
    }
}

fn wall(limit: f64) -> Limits {
    Limits {
        wall_time: seconds(limit),
        ..Limits::default()
    }
}

#[test]
fn events_come_in_order_and_the_last_one_says_everything() {
    everywhere(async |host| {
        let name = host.kind;
        let source = "import os, sys\nprint('out', flush=True)\nprint('err', file=sys.stderr, flush=True)\nos.write(3, b'[1]')\nsys.exit(3)";
        let mut talk = Talk::begin(&host, python(source)).await;
        let Event::Started(started) = talk.next().await else {
            panic!("{name}: the first event is not a start");
        };
        assert_eq!(started.runtime, "python3");
        let ended = talk.end().await;
        expect_class(&ended, &["exited 3"]);
        assert_eq!(
            (talk.stdout.as_slice(), talk.stderr.as_slice()),
            (&b"out\n"[..], &b"err\n"[..])
        );
        assert_eq!(ended.result_state(), ResultState::Json);
        assert_eq!(ended.result_json, "[1]");
        assert_eq!(ended.isolation, started.isolation, "{name}");
        assert_eq!(ended.missing_layers, started.missing_layers, "{name}");
        assert_eq!(ended.memory_enforcement, started.memory_enforcement);
        assert_eq!(ended.limits, started.limits);
        assert!(ended.usage.unwrap().max_memory_bytes > 1 << 20);
    });
}

#[test]
fn a_script_answers_what_is_said_to_it() {
    as_every_user(async || {
        for (runtime, source) in [
            (
                "python3",
                "for line in open(0): print('heard', line.strip(), flush=True)\nprint('end')",
            ),
            (
                "bash",
                "while read -r line; do echo \"heard $line\"; done; echo end",
            ),
            (
                "node",
                "require('readline').createInterface({ input: process.stdin }).on('line', (line) => console.log('heard', line)).on('close', () => console.log('end'))",
            ),
        ] {
            let host = Host::full().await;
            let mut start = request(runtime, source);
            start.stdin = b"zero\n".to_vec();
            let mut talk = Talk::begin(&host, start).await;
            talk.hears("heard zero").await;
            for word in ["one", "two", "three"] {
                talk.stdin(&format!("{word}\n")).await;
                talk.hears(&format!("heard {word}\n")).await;
            }
            talk.say(Message::StdinEnd(StdinEnd {})).await;
            let ended = talk.end().await;
            expect_class(&ended, &["exited 0"]);
            assert!(talk.stdout.ends_with(b"end\n"), "{runtime}");
        }
    });
}

#[test]
fn what_becomes_of_the_input_is_reported() {
    as_every_user(async || {
        let host = Host::full().await;
        let source = "import os, time\nos.read(0, 5)\nos.close(0)\nprint('closed', flush=True)\ntime.sleep(60)";
        let mut talk = Talk::begin(&host, python(source)).await;
        talk.stdin("12345").await;
        talk.hears("closed").await;
        talk.stdin("678").await;
        loop {
            if let Event::Stdin(progress) = talk.next().await
                && progress.state() == StdinState::ClosedByScript
            {
                assert_eq!((progress.written_bytes, progress.dropped_bytes), (5, 3));
                break;
            }
        }
        // The end of the requests is the end of the input and nothing else.
        let mut talk = Talk::begin(&host, request("bash", "cat; echo end")).await;
        talk.stdin("kept ").await;
        talk.say = mpsc::channel(1).0;
        expect_class(&talk.end().await, &["exited 0"]);
        assert_eq!(talk.stdout, b"kept end\n");
    });
}

#[test]
fn signals_reach_the_script_and_its_children() {
    everywhere(async |host| {
        let name = host.kind;
        let source = "trap 'echo caught' USR1; (trap 'echo child; exit' USR1; echo ready; while :; do sleep 0.05; done) & wait; wait; echo over; while :; do sleep 0.05; done";
        let mut talk = Talk::begin(&host, request("bash", source)).await;
        talk.hears("ready").await;
        talk.signal(ScriptSignal::Usr1).await;
        talk.hears("caught").await;
        talk.hears("child").await;
        talk.signal(ScriptSignal::Term).await;
        let ended = talk.end().await;
        assert_eq!(class(&ended), "signalled SIGTERM", "{name}");

        // An ignored signal ends no process, and unread input blocks none.
        let source = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\ntry:\n    print('ready', flush=True)\n    time.sleep(60)\nexcept KeyboardInterrupt:\n    print('interrupted')";
        let mut talk = Talk::begin(&host, python(source)).await;
        talk.hears("ready").await;
        talk.stdin(&"x".repeat(200 << 10)).await;
        talk.signal(ScriptSignal::Term).await;
        talk.signal(ScriptSignal::Int).await;
        expect_class(&talk.end().await, &["exited 0"]);
        assert!(talk.stdout.ends_with(b"interrupted\n"), "{name}");
    });
}

#[test]
fn a_slow_reader_slows_the_script_and_loses_nothing() {
    as_every_user(async || {
        let host = Host::full().await;
        let total = 8 << 20;
        let source = format!(
            "import os\nfor n in range({}):\n    os.write(1, (b'%07d\\n' % n) * 1024)\nos.write(2, b'done')",
            total / 8192
        );
        let limits = Limits {
            output_bytes: Some(total),
            ..wall(120.0)
        };
        let marker = &marker();
        let mut start = limited(python(&source), limits);
        start.arguments = vec![marker.clone()];
        let mut talk = Talk::begin(&host, start).await;
        assert!(matches!(talk.next().await, Event::Started(_)));
        // No handler reads, and the script sleeps in its write: it has not ended.
        let mut rests = 0;
        eventually("the script waits", || {
            let asleep = |pid: &u32| {
                std::fs::read_to_string(format!("/proc/{pid}/stat"))
                    .is_ok_and(|stat| stat.contains(") S "))
            };
            // No other cause could make it sleep so long.
            rests = if processes_with(marker).iter().any(asleep) {
                rests + 1
            } else {
                0
            };
            rests >= 20
        })
        .await;
        let ended = talk.end().await;
        expect_class(&ended, &["exited 0"]);
        assert_eq!(talk.stdout.len() as u64, total);
        for (n, line) in talk.stdout.chunks(8192).enumerate() {
            assert_eq!(line, format!("{n:07}\n").repeat(1024).as_bytes());
        }
        assert_eq!(talk.stderr, b"done");
    });
}

#[test]
fn the_wall_limit_ends_a_script_that_waits_in_its_write() {
    everywhere(async |host| {
        let name = host.kind;
        let limits = Limits {
            output_bytes: Some(60 << 20),
            ..wall(6.0)
        };
        let marker = marker();
        let start = limited(request("bash", &format!("exec yes {marker}")), limits);
        let mut talk = Talk::begin(&host, start).await;
        assert!(matches!(talk.next().await, Event::Started(_)), "{name}");
        // No handler reads until the script is gone.
        let writes = || !processes_with(&format!("yes\u{0}{marker}")).is_empty();
        eventually("the script writes", writes).await;
        eventually("the script is ended", || !writes()).await;
        let ended = talk.end().await;
        expect_class(&ended, &["wall"]);
        // The content of the outbox, one pending addition, and the content of the pipes.
        let most = BUDGET + (1 << 20);
        assert!(talk.stdout.len() < most, "{name}: {}", talk.stdout.len());
    });
}

#[test]
fn output_over_the_limit_is_counted_and_not_sent() {
    everywhere(async |host| {
        let name = host.kind;
        let limits = Limits {
            output_bytes: Some(100_000),
            ..wall(30.0)
        };
        let source = "import os\nos.write(2, b'x' * 70000)\nwhile True: os.write(1, b'y' * 30000)";
        let mut talk = Talk::begin(&host, limited(python(source), limits)).await;
        let ended = talk.end().await;
        let Some(Kind::Output(output)) = &ended.verdict.as_ref().unwrap().kind else {
            panic!("{name}: {}", class(&ended));
        };
        assert_eq!(output.limit_bytes, 6_400_000);
        assert_eq!((talk.stdout.len(), talk.stderr.len()), (100_000, 70_000));
        assert!(ended.stdout_truncated_bytes > 0 && ended.stderr_truncated_bytes == 0);
        assert!(output.observed_bytes <= 100_000 + ended.stdout_truncated_bytes);
    });
}

#[test]
fn e94_a_talk_that_ends_takes_every_process_along() {
    everywhere(async |host| {
        let name = host.kind;
        for way in ["drop", "deadline"] {
            let nap = marker();
            let source = format!("setsid sleep {nap} & sleep {nap} & echo ready; wait");
            let (say, said) = mpsc::channel::<ExecuteStreamRequest>(1);
            say.send(message(Message::Start(request("bash", &source))))
                .await
                .unwrap();
            let said = futures::stream::unfold(said, |mut said| async move {
                Some((said.recv().await?, said))
            });
            let mut asked = tonic::Request::new(said);
            if way == "deadline" {
                asked.set_timeout(Duration::from_secs(8));
            }
            let mut answers = host
                .client
                .clone()
                .execute_stream(asked)
                .await
                .unwrap()
                .into_inner();
            eventually("two sleepers run", || processes_with(&nap).len() >= 2).await;
            if way == "drop" {
                drop(answers);
            } else {
                // The reader has stopped reading, and the deadline holds nevertheless.
                eventually("the deadline ends it", || processes_with(&nap).is_empty()).await;
                let status = loop {
                    match answers.message().await {
                        Ok(Some(_)) => {}
                        Ok(None) => panic!("{name}: the stream ended well"),
                        Err(status) => break status,
                    }
                };
                assert_eq!(status.code(), Code::DeadlineExceeded);
            }
            eventually("no process is left", || processes_with(&nap).is_empty()).await;
        }
    });
}

#[test]
fn messages_out_of_order_are_named() {
    as_every_user(async || {
        let host = Host::full().await;
        let fields = |status: &Status| -> Vec<String> {
            assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
            grpc_kit::violations(status)
                .into_iter()
                .map(|(field, _)| field)
                .collect()
        };
        let first = Talk::try_begin(&host, Message::StdinEnd(StdinEnd {})).await;
        assert_eq!(fields(&first.err().unwrap()), ["start"]);
        let mut named = python("1");
        named.limits = Some(Limits {
            output_bytes: Some(1 << 40),
            ..Limits::default()
        });
        let wrong = Talk::try_begin(&host, Message::Start(named)).await;
        let expected = ["start.limits.output_bytes"];
        assert_eq!(fields(&wrong.err().unwrap()), expected);

        let end = || Message::StdinEnd(StdinEnd {});
        let chunk = |length| {
            Message::Stdin(StdinChunk {
                data: vec![b'x'; length],
            })
        };
        let signal = |signal| Message::Signal(SendSignal { signal });
        for (said, field) in [
            (vec![Message::Start(python("1"))], "start"),
            (vec![end(), chunk(1)], "stdin"),
            (vec![end(), end()], "stdin_end"),
            (vec![chunk(0)], "stdin.data"),
            (vec![chunk((256 << 10) + 1)], "stdin.data"),
            (vec![signal(0)], "signal.signal"),
            (vec![signal(9)], "signal.signal"),
            (vec![signal(-1)], "signal.signal"),
        ] {
            let nap = &marker();
            let mut talk = Talk::begin(&host, request("bash", &format!("sleep {nap}"))).await;
            for said in said {
                talk.say(said).await;
            }
            let status = loop {
                match talk.answers.message().await {
                    Ok(Some(_)) => {}
                    Ok(None) => panic!("{field}: the talk ended well"),
                    Err(status) => break status,
                }
            };
            assert_eq!(fields(&status), [field]);
            drop(talk);
            eventually("no process is left", || processes_with(nap).is_empty()).await;
        }
    });
}

#[tokio::test]
async fn a_caller_that_says_nothing_is_not_waited_for() {
    let host = Host::full().await;
    let silent = futures::stream::pending::<ExecuteStreamRequest>();
    let refused = host.client.clone().execute_stream(silent).await;
    assert_eq!(refused.err().unwrap().code(), Code::DeadlineExceeded);
}

/// A talk with a script whose standard input comes byte by byte.
async fn byte_by_byte(
    client: &mut ScriptSandboxServiceClient<Channel>,
    source: &str,
    bytes: usize,
) -> Streaming<ExecuteStreamResponse> {
    let start = message(Message::Start(request("bash", source)));
    let data = b"x".to_vec();
    let byte = message(Message::Stdin(StdinChunk { data }));
    let said = std::iter::once(start).chain(std::iter::repeat_n(byte, bytes));
    let talk = client.execute_stream(futures::stream::iter(said)).await;
    talk.unwrap().into_inner()
}

#[tokio::test(flavor = "multi_thread")]
async fn small_chunks_that_no_handler_reads_leave_the_connection_to_others() {
    const MANY: usize = 20_000;
    let directory = tempfile::tempdir().unwrap();
    scratch(directory.path());
    let service = Service::start("full", directory.path()).await;
    // Data sent back to this client byte by byte must not exhaust its own budget.
    let channel = Endpoint::from_shared(service.uri.clone())
        .unwrap()
        .initial_connection_window_size(128 << 20);
    let mut client = ScriptSandboxServiceClient::new(channel.connect().await.unwrap());
    // More than the service accepts, and than the window of a stream has room for.
    let mut unread = Vec::new();
    for _ in 0..3 {
        unread.push(byte_by_byte(&mut client, "exec sleep 600", 20 * MANY).await);
    }
    let mut read = byte_by_byte(&mut client, "exec cat", MANY).await;
    let mut came = 0;
    let ended = loop {
        match read.message().await.unwrap().unwrap().event.unwrap() {
            Event::Output(chunk) => came += chunk.data.len(),
            Event::Ended(ended) => break ended,
            _ => {}
        }
    };
    expect_class(&ended, &["exited 0"]);
    assert_eq!(came, MANY);
    let neighbour = client.execute(request("bash", "echo alive")).await;
    expect_output(neighbour.unwrap().get_ref(), "alive\n");
    for mut talk in unread {
        let first = talk.message().await.unwrap().unwrap().event.unwrap();
        assert!(matches!(first, Event::Started(_)), "{first:?}");
    }
}
