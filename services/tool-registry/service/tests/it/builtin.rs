//! The platform's own tools.

use contracts::tavern::{
    common::v1::{CallStatus, ErrorCategory, OutputStream, run_event::Kind},
    sandbox::v1 as sandbox,
};
use doubles::Mode;
use serde_json::json;

use crate::fixture::{Fixture, code_of, request, script_tool};

#[tokio::test]
async fn seed_004_5_1_2_a_file_is_written_and_appended_to() {
    let fixture = Fixture::new().await;
    let file = "/logs/today.log";
    fixture
        .output(
            "c",
            "FileOperator.WriteFile",
            json!({"filePath": file, "content": "任务开始..."}),
        )
        .await;
    fixture
        .output(
            "c",
            "FileOperator.AppendFile",
            json!({"filePath": file, "content": "\n添加新记录。"}),
        )
        .await;
    let content = fixture
        .output("c", "FileOperator.ReadFile", json!({"filePath": file}))
        .await;
    assert_eq!(content, "任务开始...\n添加新记录。");
    let listing = fixture
        .output("c", "FileOperator.ListFiles", json!({}))
        .await;
    assert_eq!(listing["entries"][1]["path"], "logs/today.log");
}

#[tokio::test]
async fn seed_002_5_2_several_files_are_read_at_once() {
    let fixture = Fixture::new().await;
    fixture
        .output(
            "c",
            "FileOperator.WriteFile",
            json!({"filePath": "src/app.ts", "content": "app"}),
        )
        .await;
    let args = json!({"args": {"file": [{"path": "src/app.ts"}, {"path": "src/utils.ts"}]}});
    let read = fixture.output("c", "read_file", args).await;
    assert_eq!(read[0], json!({"path": "src/app.ts", "content": "app"}));
    assert_eq!(read[1]["error"]["code"], "file_not_found");
    let none = json!({"args": {"file": [{"path": "nothing"}]}});
    assert_eq!(
        code_of(&fixture.call("read_file", none).await),
        "file_not_found"
    );
}

#[tokio::test]
async fn seed_002_3_2_4_and_5_3_diffs_are_applied_whole_or_not_at_all() {
    let fixture = Fixture::new().await;
    let write = |path: &str, content: &str| json!({"filePath": path, "content": content});
    fixture
        .output(
            "c",
            "FileOperator.WriteFile",
            write("src/main.ts", "old\nrest\n"),
        )
        .await;
    let blocks = "<<<<<<< SEARCH\n:start_line:1\n-------\nold\n=======\nnew <&>\n>>>>>>> REPLACE\n";
    let applied = json!({"file_path": "src/main.ts", "diff_content": blocks});
    fixture.output("c", "ApplyDiffTool", applied.clone()).await;
    let content = fixture
        .output(
            "c",
            "FileOperator.ReadFile",
            json!({"filePath": "src/main.ts"}),
        )
        .await;
    assert_eq!(content, "new <&>\nrest\n");
    let again = crate::fixture::with_effect("", "ApplyDiffTool", applied);
    let again = contracts::tavern::registry::v1::CallToolRequest {
        conversation_id: "c".into(),
        ..again
    };
    let (_, again) = fixture.finish(again).await;
    assert_eq!(
        (again.status(), code_of(&again)),
        (CallStatus::Failed, "diff_does_not_apply")
    );
    let patch = "--- a/x\n+++ b/x\n@@ -1,5 +1,5 @@\n-new <&>\n+newer\n rest\n            ";
    fixture
        .output(
            "c",
            "ApplyProjectDiff",
            json!({"target_file": "src/main.ts", "diff_patch": patch}),
        )
        .await;
    let content = fixture
        .output(
            "c",
            "FileOperator.ReadFile",
            json!({"filePath": "src/main.ts"}),
        )
        .await;
    assert_eq!(content, "newer\nrest\n");
}

#[tokio::test]
async fn j17_paths_outside_the_workspace_are_refused_by_every_file_tool() {
    let rules = json!({"rules": [{"id": "delete", "tools": ["FileOperator.DeleteFile"], "action": "allow"}]});
    let fixture = Fixture::with_approvals(&[], &rules).await;
    for path in ["../secret", "/../../etc/passwd", "a/../../b", "..", "a/.."] {
        for (tool, arguments) in [
            (
                "FileOperator.WriteFile",
                json!({"filePath": path, "content": "x"}),
            ),
            (
                "FileOperator.AppendFile",
                json!({"filePath": path, "content": "x"}),
            ),
            ("FileOperator.ReadFile", json!({"filePath": path})),
            ("FileOperator.DeleteFile", json!({"filePath": path})),
            ("FileOperator.ListFiles", json!({"filePath": path})),
            ("read_file", json!({"args": {"file": [{"path": path}]}})),
            (
                "ApplyDiffTool",
                json!({"file_path": path, "diff_content": "<<<<<<< SEARCH\na\n=======\nb\n>>>>>>> REPLACE"}),
            ),
            (
                "ApplyProjectDiff",
                json!({"target_file": path, "diff_patch": "@@ -1 +1 @@\n-a\n+b"}),
            ),
        ] {
            let result = fixture.call(tool, arguments).await;
            let error = result.error.unwrap();
            assert_eq!(error.code, "path_outside_workspace", "{tool} {path}");
            assert_eq!(error.category(), ErrorCategory::Policy);
        }
    }
}

#[tokio::test]
async fn a_call_without_a_conversation_has_a_workspace_of_its_own() {
    let fixture = Fixture::new().await;
    let write = json!({"filePath": "a", "content": "x"});
    assert_eq!(
        fixture.call("FileOperator.WriteFile", write).await.status(),
        CallStatus::Succeeded
    );
    let read = fixture
        .call("FileOperator.ReadFile", json!({"filePath": "a"}))
        .await;
    assert_eq!(code_of(&read), "file_not_found");
    let left = std::fs::read_dir(fixture.directory.path().join("workspaces"))
        .unwrap()
        .count();
    assert_eq!(left, 1, "only the staging directory is left");
}

#[tokio::test]
async fn j22_parameters_named_like_policy_switches_are_refused_as_unknown() {
    let fixture = Fixture::new().await;
    for name in [
        "approved",
        "sandbox",
        "timeout",
        "tenant_id",
        "dangerouslySkip",
    ] {
        let result = fixture
            .call("FileOperator.ListFiles", json!({name: true}))
            .await;
        assert_eq!(result.status(), CallStatus::Rejected, "{name}");
        assert_eq!(
            result.error.unwrap().violations[0].code,
            "unknown_parameter"
        );
    }
}

#[tokio::test]
async fn the_time_is_told_and_code_runs() {
    let fixture = Fixture::new().await;
    let time = fixture.call("system:get_current_time", json!({})).await;
    assert!(time.output_json.contains("unix_seconds"), "{time:?}");
    let code = json!({"language": "python", "code": "import sys\nprint(6 * 7)\nprint('log', file=sys.stderr)"});
    let (events, result) = fixture
        .finish(request("CodeInterpreter:execute", code))
        .await;
    assert_eq!(result.output_json, r#"{"stdout":"42\n","stderr":"log\n"}"#);
    let written = |stream: OutputStream| -> String {
        let kinds = events.iter().filter_map(|event| event.kind.as_ref());
        let chunks = kinds.map(|kind| match kind {
            Kind::OutputChunk(chunk) if chunk.stream() == stream => chunk.text.as_str(),
            _ => "",
        });
        chunks.collect()
    };
    assert_eq!(written(OutputStream::Out), "42\n");
    assert_eq!(written(OutputStream::Err), "log\n");
    let crash = json!({"language": "python", "code": "raise ValueError('no such thing')"});
    let result = fixture.call("CodeInterpreter:execute", crash).await;
    let error = result.error.unwrap();
    assert_eq!(error.code, "script_exited");
    assert!(
        error.message.contains("ValueError: no such thing"),
        "{}",
        error.message
    );
    assert!(
        error.details_json.contains("\"exit_code\":1"),
        "{}",
        error.details_json
    );
}

#[tokio::test]
async fn an_error_in_code_is_given_with_its_line_and_its_trace() {
    let fixture = Fixture::new().await;
    for (language, code, expected, line) in [
        (
            "python",
            "print('begun')\nnumbers = {}\nprint(numbers['mean'])",
            "the code failed: KeyError: 'mean' (line 3)\nTraceback (most recent call last):\n  File \"main.py\", line 3, in <module>\n",
            3,
        ),
        (
            "nodejs",
            "console.log('begun');\nmissing();",
            "the code failed: ReferenceError: missing is not defined (line 2)\nmain.js:2\n",
            2,
        ),
        (
            "bash",
            "echo begun\nnot-a-command\nexit 3",
            "the code failed: not-a-command: command not found (line 2)\nmain.sh: line 2",
            2,
        ),
    ] {
        let crash = json!({"language": language, "code": code});
        let result = fixture.call("CodeInterpreter:execute", crash).await;
        let error = result.error.unwrap();
        assert!(error.message.starts_with(expected), "{}", error.message);
        let shown = error.message.contains("\nOn standard output:\nbegun");
        assert!(shown, "{}", error.message);
        let details: serde_json::Value = serde_json::from_str(&error.details_json).unwrap();
        assert_eq!(details["error"]["line"], line, "{details}");
        assert_eq!(details["stdout"], "begun\n");
    }
}

#[tokio::test]
async fn whatever_ends_a_program_the_model_reads_the_end_of_both_streams() {
    let fixture = Fixture::with_scripts(&[script_tool("script")]).await;
    let limit = sandbox::OutputExceeded::default();
    let wall = sandbox::WallExceeded::default();
    let kinds = [
        sandbox::verdict::Kind::Exited(sandbox::Exited { code: 1 }),
        sandbox::verdict::Kind::Wall(wall),
        sandbox::verdict::Kind::Output(limit),
    ];
    for kind in kinds {
        fixture
            .sandbox
            .set(Mode::Answer(Box::new(sandbox::ExecuteResponse {
                verdict: Some(sandbox::Verdict {
                    kind: Some(kind.clone()),
                }),
                stdout: b"test_a FAILED\n1 failed, 2 passed\n".to_vec(),
                stderr: b"a warning\n".to_vec(),
                ..sandbox::ExecuteResponse::default()
            })));
        let code = json!({"language": "bash", "code": "pytest"});
        for (tool, arguments) in [("CodeInterpreter:execute", &code), ("script", &code)] {
            let result = fixture.call(tool, arguments.clone()).await;
            let message = &result.error.as_ref().unwrap().message;
            for text in ["1 failed, 2 passed", "a warning"] {
                assert!(message.contains(text), "{tool}: {kind:?}: {message}");
            }
        }
    }
}

#[tokio::test]
async fn files_that_code_left_are_named_with_size_and_digest() {
    let fixture = Fixture::new().await;
    let file = sandbox::OutputFile {
        path: "chart.svg".to_owned(),
        size_bytes: 12,
        sha256: "ab".repeat(32),
        ..sandbox::OutputFile::default()
    };
    let refused = sandbox::RefusedFile {
        path: "link".to_owned(),
        reason: sandbox::RefusedReason::SymbolicLink.into(),
        ..sandbox::RefusedFile::default()
    };
    let collected = sandbox::CollectedFiles {
        files: vec![file],
        refused: vec![refused],
        refused_count: 7,
        partial: true,
    };
    for (code, field) in [(0, "output_json"), (1, "details_json")] {
        let kind = sandbox::verdict::Kind::Exited(sandbox::Exited { code });
        fixture
            .sandbox
            .set(Mode::Answer(Box::new(sandbox::ExecuteResponse {
                verdict: Some(sandbox::Verdict { kind: Some(kind) }),
                collected: Some(collected.clone()),
                ..sandbox::ExecuteResponse::default()
            })));
        let code = json!({"language": "python", "code": "x"});
        let result = fixture.call("CodeInterpreter:execute", code).await;
        let given = match &result.error {
            None => &result.output_json,
            Some(error) => &error.details_json,
        };
        let given: serde_json::Value = serde_json::from_str(given).unwrap();
        assert_eq!(
            given["files"],
            json!([{"path": "chart.svg", "bytes": 12, "sha256": "ab".repeat(32)}]),
            "{field}"
        );
        assert_eq!(
            given["files_not_kept"],
            json!([{"path": "link", "reason": "symbolic_link"}])
        );
        assert_eq!(given["files_not_kept_count"], 7);
    }
    let asked = fixture.sandbox.last.lock().unwrap().clone().unwrap();
    assert!(asked.collect.unwrap().as_blobs);
}

#[tokio::test]
async fn each_verdict_of_the_sandbox_is_a_typed_failure() {
    use sandbox::verdict::Kind as Verdict;
    let fixture = Fixture::new().await;
    for (verdict, category, code) in [
        (
            Verdict::Wall(Default::default()),
            ErrorCategory::Timeout,
            "wall_limit",
        ),
        (
            Verdict::Cpu(Default::default()),
            ErrorCategory::Limit,
            "cpu_limit",
        ),
        (
            Verdict::Memory(Default::default()),
            ErrorCategory::Limit,
            "memory_limit",
        ),
        (
            Verdict::Processes(Default::default()),
            ErrorCategory::Limit,
            "process_limit",
        ),
        (
            Verdict::Output(Default::default()),
            ErrorCategory::Limit,
            "output_limit",
        ),
        (
            Verdict::Disk(Default::default()),
            ErrorCategory::Limit,
            "disk_limit",
        ),
        (
            Verdict::ForbiddenSyscall(Default::default()),
            ErrorCategory::Policy,
            "forbidden_syscall",
        ),
        (
            Verdict::NetworkDenied(Default::default()),
            ErrorCategory::Policy,
            "network_denied",
        ),
        (
            Verdict::Policy(Default::default()),
            ErrorCategory::Policy,
            "policy_refused",
        ),
        (
            Verdict::Signalled(Default::default()),
            ErrorCategory::Runtime,
            "script_signalled",
        ),
        (
            Verdict::LauncherFailure(Default::default()),
            ErrorCategory::Dependency,
            "sandbox_failed",
        ),
    ] {
        fixture.sandbox.set(Mode::Verdict(verdict));
        let result = fixture
            .call(
                "CodeInterpreter:execute",
                json!({"language": "bash", "code": "x"}),
            )
            .await;
        let error = result.error.unwrap();
        assert_eq!((error.category(), error.code.as_str()), (category, code));
        assert!(error.details_json.contains("last words"));
    }
}

#[tokio::test]
async fn a_sandbox_that_refuses_is_a_failure_of_the_call_not_of_the_method() {
    let fixture = Fixture::new().await;
    for (code, expected) in [
        (tonic::Code::InvalidArgument, "program_refused"),
        (tonic::Code::Internal, "sandbox_failed"),
        (tonic::Code::ResourceExhausted, "sandbox_unavailable"),
    ] {
        fixture.sandbox.set(Mode::Refuse(code));
        let result = fixture
            .call(
                "CodeInterpreter:execute",
                json!({"language": "bash", "code": "x"}),
            )
            .await;
        assert_eq!(code_of(&result), expected);
    }
}

#[tokio::test]
async fn a_cell_without_a_conversation_is_rejected_with_what_to_use_instead() {
    let fixture = Fixture::new().await;
    let cell = json!({"language": "python", "code": "1"});
    let result = fixture.call("CodeInterpreter:run_cell", cell).await;
    assert_eq!(result.status(), CallStatus::Rejected);
    let error = result.error.unwrap();
    assert_eq!(error.code, "conversation_required");
    assert!(error.message.contains("CodeInterpreter:execute"));
}
