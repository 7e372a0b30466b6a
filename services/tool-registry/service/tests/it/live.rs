//! The output of a script, as followers of its call see it while the script runs.

use contracts::tavern::{
    common::v1::{CallStatus, OutputChunk, OutputStream, run_event::Kind, watch_record},
    registry::v1::{
        Call, CallState, StartCallRequest, WatchCallRequest, WatchCallResponse,
        watch_call_response::Record,
    },
    run::v1::WatchRunRequest,
};
use doubles::Mode;
use futures::StreamExt;
use serde_json::{Value, json};
use tempfile::TempDir;
use tonic::Streaming;

use crate::{
    fixture::{Fixture, code_of, idempotent_script_tool, script_tool, with_effect},
    invocation::{self, call, invoke},
};

/// A place in which a test and its scripts meet.
struct Gate(TempDir);

impl Gate {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// A program that writes, waits for the gate to be opened, and writes again.
    fn program(&self) -> Value {
        json!({"language": "python", "code": self.code(1)})
    }

    /// The code of such a program, which writes to a file descriptor.
    fn code(&self, descriptor: u8) -> String {
        let path = self.0.path().join("open");
        format!(
            "import os, time\nos.write({descriptor}, b'one\\n')\n\
             while not os.path.exists({path:?}): time.sleep(0.002)\n\
             os.write({descriptor}, b'two\\n')\n"
        )
    }

    fn open(&self) {
        std::fs::write(self.0.path().join("open"), "").unwrap();
    }
}

async fn start(fixture: &Fixture, effect_id: &str, arguments: &Value) {
    start_tool(fixture, effect_id, "CodeInterpreter:execute", arguments).await;
}

async fn start_tool(fixture: &Fixture, effect_id: &str, tool: &str, arguments: &Value) {
    let request = StartCallRequest {
        tool_id: tool.into(),
        arguments_json: arguments.to_string(),
        effect_id: effect_id.into(),
        ..Default::default()
    };
    fixture.calls.clone().start_call(request).await.unwrap();
}

/// Follows a call.
struct Follower {
    stream: Streaming<WatchCallResponse>,
    after_sequence: u64,
    generation: u64,
}

enum Seen {
    Chunk(OutputChunk),
    Reset,
    End(Box<Call>),
}

impl Follower {
    async fn new(fixture: &Fixture, effect_id: &str) -> Self {
        Self::after(fixture, effect_id, 0, 0).await
    }

    async fn after(
        fixture: &Fixture,
        effect_id: &str,
        after_sequence: u64,
        generation: u64,
    ) -> Self {
        let request = WatchCallRequest {
            effect_id: effect_id.into(),
            after_sequence,
            generation,
        };
        let stream = fixture.calls.clone().watch_call(request).await.unwrap();
        Self {
            stream: stream.into_inner(),
            after_sequence,
            generation,
        }
    }

    async fn next(&mut self) -> Seen {
        loop {
            match self.stream.next().await.unwrap().unwrap().record {
                Some(Record::Event(event)) => {
                    let sequence = event.sequence;
                    let seen = match event.kind {
                        Some(Kind::OutputChunk(chunk)) => Seen::Chunk(chunk),
                        Some(Kind::OutputReset(reset)) => {
                            (self.generation, self.after_sequence) = (reset.generation, 0);
                            Seen::Reset
                        }
                        kind => panic!("{kind:?}"),
                    };
                    assert_eq!(sequence, self.after_sequence + 1);
                    self.after_sequence = sequence;
                    return seen;
                }
                Some(Record::Terminal(call)) => return Seen::End(Box::new(call)),
                _ => {}
            }
        }
    }

    async fn chunk(&mut self) -> OutputChunk {
        match self.next().await {
            Seen::Chunk(chunk) => chunk,
            Seen::Reset => panic!("the tool began again"),
            Seen::End(call) => panic!("it ended: {call:?}"),
        }
    }

    /// Reads to the end, and checks that nothing of either stream is missing.
    async fn rest(&mut self, mut out: String, mut err: String) -> (String, String, Call) {
        loop {
            match self.next().await {
                Seen::Chunk(chunk) => {
                    let text = match chunk.stream() {
                        OutputStream::Err => &mut err,
                        _ => &mut out,
                    };
                    assert_eq!(chunk.offset, text.len() as u64);
                    text.push_str(&chunk.text);
                }
                Seen::Reset => (out, err) = (String::new(), String::new()),
                Seen::End(call) => return (out, err, *call),
            }
        }
    }
}

#[tokio::test]
async fn a_chunk_is_seen_while_its_script_runs() {
    let (fixture, gate) = (Fixture::new().await, Gate::new());
    start(&fixture, "e1", &gate.program()).await;
    let mut follower = Follower::new(&fixture, "e1").await;
    let first = follower.chunk().await;
    assert_eq!(
        (first.text.as_str(), first.stream()),
        ("one\n", OutputStream::Out)
    );
    gate.open();
    let (out, _, call) = follower.rest(first.text, String::new()).await;
    assert_eq!(out, "one\ntwo\n");
    assert_eq!(call.state(), CallState::Succeeded);
}

#[tokio::test]
async fn the_run_of_a_text_shows_a_chunk_before_its_call_has_ended() {
    let (fixture, gate) = (Fixture::new().await, Gate::new());
    let request = invoke(vec![call(0, "CodeInterpreter:execute", gate.program())]);
    let run = invocation::start(&fixture, request).await;
    let watch = |after_sequence| WatchRunRequest {
        run_id: run.run_id.clone(),
        after_sequence,
    };
    let (mut text, mut settled, mut last) = (String::new(), false, 0);
    // A follower that is cut after every event has each of them once.
    'run: loop {
        let records = fixture.runs.clone().watch_run(watch(last)).await.unwrap();
        let mut records = records.into_inner();
        while let Some(record) = records.next().await {
            match contracts::watch::decode(record.unwrap().record)
                .unwrap()
                .unwrap()
            {
                watch_record::Record::Event(event) => {
                    assert_eq!(event.sequence, last + 1);
                    last = event.sequence;
                    match event.kind.unwrap() {
                        Kind::OutputChunk(chunk) => {
                            assert!(!settled);
                            assert_eq!(chunk.offset, text.len() as u64);
                            text.push_str(&chunk.text);
                            gate.open();
                        }
                        Kind::CallSettled(_) => settled = true,
                        _ => {}
                    }
                    continue 'run;
                }
                watch_record::Record::Terminal(_) => break 'run,
                _ => {}
            }
        }
    }
    assert_eq!((text.as_str(), settled), ("one\ntwo\n", true));
}

#[tokio::test]
async fn everything_written_is_shown_in_order_and_a_follower_resumes_where_it_was_cut() {
    let fixture = Fixture::new().await;
    let code = "import sys\nfor i in range(9000):\n  print(i, '石', flush=i % 97 == 0)\n  \
                print(-i, file=sys.stderr)";
    let expected: String = (0..9000).map(|i| format!("{i} 石\n")).collect();
    let expected_err: String = (0..9000).map(|i| format!("{}\n", -i)).collect();
    let arguments = json!({"language": "python", "code": code});
    start(&fixture, "e1", &arguments).await;
    // It is never read, which delays nothing.
    let _stalled = Follower::new(&fixture, "e1").await;
    let (mut out, mut err) = (String::new(), String::new());
    let mut follower = Follower::new(&fixture, "e1").await;
    for _ in 0..5 {
        let chunk = follower.chunk().await;
        match chunk.stream() {
            OutputStream::Err => err.push_str(&chunk.text),
            _ => out.push_str(&chunk.text),
        }
    }
    let mut resumed = Follower::after(&fixture, "e1", follower.after_sequence, 0).await;
    let (out, err, call) = resumed.rest(out, err).await;
    assert_eq!(call.state(), CallState::Succeeded);
    assert!(out == expected, "{} bytes", out.len());
    assert!(err == expected_err, "{} bytes", err.len());
}

#[tokio::test]
async fn after_a_restart_in_the_middle_followers_discard_what_they_had() {
    let gate = Gate::new();
    let mut fixture = Fixture::with_scripts(&[idempotent_script_tool("repeatable")]).await;
    let script = gate.code(2) + "print('{}')";
    std::fs::write(fixture.plugins.join("scripts/run.py"), script).unwrap();
    fixture.crash_and_restart().await;
    start_tool(&fixture, "e1", "repeatable", &json!({})).await;
    let mut follower = Follower::new(&fixture, "e1").await;
    let first = follower.chunk().await;
    assert_eq!((first.text.as_str(), first.generation), ("one\n", 0));
    fixture.crash_and_restart().await;
    fixture.recover().await;
    let mut follower = Follower::after(&fixture, "e1", 1, 0).await;
    assert!(matches!(follower.next().await, Seen::Reset));
    let again = follower.chunk().await;
    assert_eq!((again.text.as_str(), again.offset), ("one\n", 0));
    assert_eq!(again.generation, follower.generation);
    // The generation is known by now, so the sequence counts.
    let (after, generation) = (follower.after_sequence, follower.generation);
    let mut resumed = Follower::after(&fixture, "e1", after, generation).await;
    gate.open();
    let (_, err, call) = resumed.rest(String::new(), again.text).await;
    assert_eq!(err, "one\ntwo\n");
    assert_eq!(call.state(), CallState::Succeeded);
}

#[tokio::test]
async fn a_script_that_is_lost_with_its_sandbox_begins_again_only_if_it_may() {
    let fixture = Fixture::with_scripts(&[script_tool("effect")]).await;
    fixture.sandbox.set(Mode::Break("half".into()));
    let (events, result) = fixture.finish(with_effect("e1", "effect", json!({}))).await;
    assert_eq!(result.status(), CallStatus::InDoubt);
    assert_eq!(code_of(&result), "sandbox_lost");
    // The standard output of a plugin's script is its answer.
    assert!(events.is_empty(), "{events:?}");

    let arguments = json!({"language": "python", "code": "print('whole')"});
    start(&fixture, "e2", &arguments).await;
    let mut follower = Follower::new(&fixture, "e2").await;
    assert_eq!(follower.chunk().await.text, "half");
    fixture.sandbox.set(Mode::Run);
    let (out, _, call) = follower.rest("half".into(), String::new()).await;
    assert_eq!(out, "whole\n");
    assert_eq!(call.state(), CallState::Succeeded);
    assert!(follower.generation > 0);
}
