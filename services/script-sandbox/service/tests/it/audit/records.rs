//! The content of the audit log for each caller.

use std::time::Duration;

use blob_store::BlobDigest;
use contracts::tavern::sandbox::v1::{
    CreateSessionRequest, DeleteSessionRequest, ExecuteResponse, RunCellRequest,
};
use sandbox_engine::domain::isolation::IsolationLevel;
use script_sandbox::SandboxSettings;

use super::{Record, number, of_trace, the_only, traced};
use crate::{
    rounds::{as_every_user, everywhere},
    support::{Host, class, eventually, expect_class, marker, processes_with, python, request},
};

/// The value of a field of each record.
fn all<'a>(records: &'a [Record], name: &str) -> Vec<&'a str> {
    let value = |record: &'a Record| record.get(name).map_or("", String::as_str);
    records.iter().map(value).collect()
}

#[test]
fn a_record_names_caller_request_source_and_figures_and_nothing_else() {
    everywhere(async |host| {
        let source = "import os; print('pri' + 'vate'); os.write(3, b'[\"private\"]')";
        let mut asked = python(source);
        asked.caller_id = "a\"b\\c".to_owned();
        asked.effect_id = "effect-1".to_owned();
        asked.stdin = b"private".to_vec();
        asked.arguments = vec!["private\n".to_owned()];
        asked
            .environment
            .insert("PRIVATE".to_owned(), "private".to_owned());
        let (answer, trace) = traced(host.client.clone().execute(asked)).await;
        let response = answer.unwrap().into_inner();
        expect_class(&response, &["exited 0"]);
        let record = &the_only(&trace);
        let names: Vec<&str> = record.keys().map(String::as_str).collect();
        let expected = [
            "caller_id",
            "code",
            "cpu_ms",
            "disk_bytes",
            "effect_id",
            "event",
            "isolation",
            "memory_bytes",
            "memory_enforcement",
            "message",
            "processes",
            "runtime",
            "setup_ms",
            "source_sha256",
            "trace_id",
            "verdict",
            "wall_ms",
            "warm_start",
            "what",
        ];
        assert_eq!(names, expected);
        assert!(
            record.values().all(|text| !text.contains("private")),
            "{record:?}"
        );
        for (name, value) in [
            ("caller_id", "a\"b\\c"),
            ("effect_id", "effect-1"),
            ("runtime", "python3"),
            (
                "source_sha256",
                &BlobDigest::of(source.as_bytes()).to_string(),
            ),
            ("code", "0"),
        ] {
            assert_eq!(record[name], value, "{name}");
        }
        let reached = response.isolation().as_str_name().to_lowercase();
        assert_eq!(format!("isolation_level_{}", record["isolation"]), reached);
        assert!(number(record, "memory_bytes") > Some(1 << 20), "{record:?}");
    });
}

#[test]
fn a_session_tells_of_its_opening_its_cells_and_its_end() {
    everywhere(async |host| {
        let mut sessions = host.sessions.clone();
        let wish = CreateSessionRequest {
            runtime: "python".to_owned(),
            caller_id: "ada".to_owned(),
            ..CreateSessionRequest::default()
        };
        let (made, opening) = traced(sessions.create_session(wish)).await;
        let session = made.unwrap().into_inner().session.unwrap();
        let (session_id, caller_id) = (session.session_id, session.caller_id);
        for (source, verdict) in [("x = 1", "succeeded"), ("x.y", "raised")] {
            let cell = RunCellRequest {
                session_id: session_id.clone(),
                caller_id: caller_id.clone(),
                source_text: source.to_owned(),
                ..RunCellRequest::default()
            };
            let (begun, trace) = traced(sessions.run_cell(cell)).await;
            let mut answers = begun.unwrap().into_inner();
            while answers.message().await.unwrap().is_some() {}
            let records = of_trace(&trace);
            assert_eq!(all(&records, "what"), ["cell"; 2]);
            assert_eq!(all(&records, "event"), ["started", "ended"]);
            assert_eq!(all(&records, "verdict"), ["", verdict]);
            assert_eq!(all(&records, "session_id"), [session_id.as_str(); 2]);
            let digest = BlobDigest::of(source.as_bytes()).to_string();
            assert_eq!(all(&records, "source_sha256"), [digest.as_str(); 2]);
        }
        let request = DeleteSessionRequest {
            session_id: session_id.clone(),
            caller_id,
        };
        let deleted = sessions.delete_session(request).await.unwrap();
        let end = deleted.into_inner().session.unwrap().end.unwrap();
        let verdict = class(&ExecuteResponse {
            verdict: end.verdict,
            ..ExecuteResponse::default()
        });
        // The records of a session belong to the call that has made it.
        let records = of_trace(&opening);
        assert_eq!(all(&records, "event"), ["opened", "ended"]);
        assert_eq!(all(&records, "what"), ["session"; 2]);
        assert_eq!(all(&records, "caller_id"), ["ada"; 2]);
        assert_eq!(all(&records, "runtime"), ["python3"; 2]);
        assert_eq!(all(&records, "reason"), ["", "Deleted"]);
        let verdict = verdict.split(' ').next().unwrap();
        assert_eq!(all(&records, "verdict"), ["", verdict]);
    });
}

#[test]
fn a_caller_that_goes_away_leaves_one_record() {
    everywhere(async |host| {
        let marker = marker();
        let source = format!("sleep {marker}");
        let mut client = host.client.clone();
        let (send, trace) = tokio::sync::oneshot::channel();
        let call = tokio::spawn(async move {
            let asked = request("bash", &source);
            traced(async {
                send.send(telemetry::context::current_trace_id()).unwrap();
                client.execute(asked).await
            })
            .await
        });
        let trace = trace.await.unwrap();
        eventually("the script runs", || !processes_with(&marker).is_empty()).await;
        assert_eq!(all(&of_trace(&trace), "event"), ["started"]);
        call.abort();
        let mut records = Vec::new();
        eventually("its record comes", || {
            records.extend(of_trace(&trace));
            !records.is_empty()
        })
        .await;
        // No process is left that could make a second one.
        eventually("no process is left", || processes_with(&marker).is_empty()).await;
        records.extend(of_trace(&trace));
        assert_eq!(all(&records, "verdict"), ["cancelled"]);
    });
}

#[test]
fn a_caller_that_does_not_wait_for_its_turn_leaves_one_record() {
    as_every_user(async || {
        let host = Host::with(SandboxSettings {
            concurrent_scripts: 1,
            ..SandboxSettings::default()
        })
        .await;
        let running = host.sleeper("").await;
        let mut asked = tonic::Request::new(request("bash", "true"));
        asked.set_timeout(Duration::from_millis(300));
        let (answer, trace) = traced(host.client.clone().execute(asked)).await;
        assert_eq!(answer.unwrap_err().code(), tonic::Code::DeadlineExceeded);
        let mut records = Vec::new();
        eventually("its record comes", || {
            records.extend(of_trace(&trace));
            !records.is_empty()
        })
        .await;
        assert_eq!(all(&records, "verdict"), ["abandoned"]);
        assert_eq!(all(&records, "event"), ["refused"]);
        running.end().await;
    });
}

#[test]
fn what_is_refused_though_sound_leaves_a_record() {
    as_every_user(async || {
        let host = Host::reduced().await;
        let mut demanding = python("1");
        demanding.minimum_isolation = contracts::tavern::sandbox::v1::IsolationLevel::Full.into();
        let mut odd = python("1");
        odd.runtime = format!("\u{1b}[2J\n{}", "x".repeat(200));
        let mut wrong = python("1");
        wrong.caller_id = "with blank".to_owned();
        for (asked, runtime, verdict) in [
            (request("cobol", "x"), "cobol", "runtime_unavailable"),
            (odd, "unknown", "runtime_unavailable"),
            (demanding, "python3", "isolation_unavailable"),
        ] {
            let (answer, trace) = traced(host.client.clone().execute(asked)).await;
            assert_eq!(answer.unwrap_err().code(), tonic::Code::FailedPrecondition);
            let records = of_trace(&trace);
            assert_eq!(all(&records, "event"), ["refused"]);
            assert_eq!(all(&records, "runtime"), [runtime]);
            assert_eq!(all(&records, "verdict"), [verdict]);
        }
        let (answer, trace) = traced(host.client.clone().execute(wrong)).await;
        assert_eq!(answer.unwrap_err().code(), tonic::Code::InvalidArgument);
        assert_eq!(of_trace(&trace), [] as [Record; 0]);
        assert_eq!(host.sandbox.report().level, Some(IsolationLevel::Reduced));
    });
}
