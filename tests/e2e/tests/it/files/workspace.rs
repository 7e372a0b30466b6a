//! One workspace for file tools, cells, code and clients.

use anyhow::Context;
use contracts::tavern::common::v1::{CallResult, CallStatus};
use contracts::tavern::sandbox::v1::session_service_client::SessionServiceClient;
use contracts::tavern::sandbox::v1::{ListSessionsRequest, RunCellRequest};
use serde_json::{Value, json};
use testkit::Stack;

use super::client::Client;
use crate::text::{output, result_of, write_file};

/// Runs code of Python in a conversation, as a model would call it.
pub(super) async fn run(
    stack: &Stack,
    (tool, conversation): (&str, &str),
    code: &str,
) -> anyhow::Result<CallResult> {
    let text = format!(
        "<ACTION><CodeInterpreter:{tool}><language>python</language>\
         <code><![CDATA[{code}]]></code></CodeInterpreter:{tool}></ACTION>"
    );
    result_of(stack, conversation, text).await
}

async fn cell(stack: &Stack, conversation: &str, code: &str) -> anyhow::Result<CallResult> {
    run(stack, ("run_cell", conversation), code).await
}

/// Returns the changes that an output names, by path.
fn changes(output: &Value) -> Vec<(&str, &str)> {
    let files = output["files"].as_array().map_or(&[][..], Vec::as_slice);
    files
        .iter()
        .map(|file| {
            let of = |name: &str| file[name].as_str().unwrap_or_default();
            (of("path"), of("change"))
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn file_tools_cells_code_and_clients_work_on_the_same_files() -> anyhow::Result<()> {
    for builder in [Stack::builder(), Stack::builder().separate()] {
        let stack = builder.start().await?;
        let files = Client::of(&stack, "talk");
        result_of(&stack, "talk", write_file("sales.csv", "a,1\n")).await?;
        files.put("up/数据 😀.txt", "", b"uploaded").await?;
        let ran = cell(
            &stack,
            "talk",
            "import os\nprint(open('sales.csv').read(), open('up/数据 😀.txt').read())\n\
             open('sales.csv', 'a').write('b,2\\n')\nos.remove('up/数据 😀.txt')\n\
             open('new.bin', 'wb').write(bytes(range(256)))\nNone",
        );
        let ran = output(&ran.await?)?;
        assert_eq!(ran["stdout"], "a,1\n uploaded\n");
        let expected = [
            ("new.bin", "created"),
            ("sales.csv", "changed"),
            ("up/数据 😀.txt", "removed"),
        ];
        assert_eq!(changes(&ran), expected);
        assert_eq!(files.get("sales.csv", "").await?.body, b"a,1\nb,2\n");
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(files.get("new.bin", "").await?.body, all);
        assert_eq!(files.get("up/数据 😀.txt", "").await?.status, 404);

        let read = "<ACTION><FileOperator.ReadFile><filePath>sales.csv</filePath>\
                    </FileOperator.ReadFile></ACTION>";
        let read = result_of(&stack, "talk", read.to_owned()).await?;
        assert_eq!(output(&read)?, json!("a,1\nb,2\n"));
        let code = "print(open('sales.csv').read())\nopen('out.txt', 'w').write('x')";
        let ran = output(&run(&stack, ("execute", "talk"), code).await?)?;
        assert_eq!(ran["stdout"], "a,1\nb,2\n\n");
        assert_eq!(changes(&ran), [("out.txt", "created")]);
        let seen = output(&cell(&stack, "talk", "open('out.txt').read()").await?)?;
        assert_eq!((&seen["value"], changes(&seen).len()), (&json!("'x'"), 0));
        // Another conversation has other files.
        let other = output(&cell(&stack, "other", "import os; os.listdir()").await?)?;
        assert_eq!(other["value"], "[]");
    }
    Ok(())
}

/// Runs a cell in the interpreter of a conversation without its workspace, as a thread that lives on would.
async fn behind(stack: &Stack, conversation: &str, code: &str) -> anyhow::Result<()> {
    let transport = stack.transport_with(None);
    let mut sessions = SessionServiceClient::new(transport.outermost());
    let request = ListSessionsRequest {
        caller_id: Some(conversation.to_owned()),
        ..ListSessionsRequest::default()
    };
    let listed = sessions.list_sessions(request).await?.into_inner();
    let session = listed.sessions.first().context("an interpreter")?;
    let request = RunCellRequest {
        session_id: session.session_id.clone(),
        caller_id: conversation.to_owned(),
        source_text: code.to_owned(),
        ..RunCellRequest::default()
    };
    let mut events = sessions.run_cell(request).await?.into_inner();
    while events.message().await?.is_some() {}
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_both_sides_changed_stays_in_both_versions() -> anyhow::Result<()> {
    let stack = Stack::all_in_one().await?;
    let files = Client::of(&stack, "talk");
    files.put("report.csv", "", b"first").await?;
    files.put("gone.csv", "", b"first").await?;
    cell(&stack, "talk", "None").await?;
    let change =
        "open('report.csv', 'w').write('by the code'); open('gone.csv', 'w').write('kept')";
    behind(&stack, "talk", change).await?;
    files.put("report.csv", "", b"by a person").await?;
    let deleted = files.send("DELETE", "gone.csv", "", b"").await?;
    assert_eq!(deleted.status, 204);
    let ran = output(&cell(&stack, "talk", "None").await?)?;
    let conflict = ran["files"].as_array().context("files")?;
    let conflict = conflict.iter().find(|file| file["path"] == "report.csv");
    let conflict = conflict.context("the file is named")?;
    assert_eq!(
        (&conflict["change"], &conflict["kept_as"]),
        (&json!("conflict"), &json!("report (cell 3).csv"))
    );
    assert_eq!(files.get("report.csv", "").await?.body, b"by a person");
    let beside = files.get("report (cell 3).csv", "").await?;
    assert_eq!(beside.body, b"by the code");
    assert_eq!(files.get("gone.csv", "").await?.body, b"kept");
    // The interpreter has them as the conversation does.
    let seen = "open('report.csv').read(), open('report (cell 3).csv').read()";
    let seen = output(&cell(&stack, "talk", seen).await?)?;
    assert_eq!(seen["value"], "('by a person', 'by the code')");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_workspace_keeps_the_variables_and_names_the_largest_files() -> anyhow::Result<()> {
    let stack = Stack::builder()
        .env("TAVERN_REGISTRY__WORKSPACE__TOTAL_BYTES", "2MiB")
        .env("TAVERN_REGISTRY__WORKSPACE__FILE_BYTES", "1MiB")
        .start()
        .await?;
    let ran = cell(
        &stack,
        "talk",
        "x = 7\nprint('seen')\nopen('big', 'wb').write(b'x' * 3_000_000)",
    )
    .await?;
    assert_eq!(ran.status(), CallStatus::Failed);
    let error = ran.error.context("an error")?;
    assert_eq!(error.code, "workspace_full");
    for part in ["'big' (3000000 bytes)", "seen"] {
        assert!(error.message.contains(part), "{}", error.message);
    }
    let next = output(&cell(&stack, "talk", "import os; os.truncate('big', 10); x").await?)?;
    assert_eq!((&next["value"], &next["cell"]), (&json!("7"), &json!(2)));
    assert_eq!(changes(&next), [("big", "created")]);
    let ran = run(
        &stack,
        ("execute", "talk"),
        "open('more', 'wb').write(b'x' * 3_000_000)",
    )
    .await?;
    assert_eq!(ran.error.context("an error")?.code, "workspace_full");
    assert_eq!(
        Client::of(&stack, "talk").get("more", "").await?.status,
        404
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_that_the_workspace_refuses_stay_in_the_interpreter() -> anyhow::Result<()> {
    let stack = Stack::builder()
        .env("TAVERN_REGISTRY__WORKSPACE__TOTAL_BYTES", "1MiB")
        .start()
        .await?;
    let files = Client::of(&stack, "talk");
    cell(&stack, "talk", "import os, time").await?;
    // A file that a person puts there meanwhile leaves no room for the changes.
    let code = "open('kept.txt', 'w').write('kept')\nopen('large', 'wb').write(b'x' * 600_000)\ntime.sleep(1.5)";
    let running = cell(&stack, "talk", code);
    let meanwhile = async {
        tokio::time::sleep(std::time::Duration::from_millis(500)).await;
        files.put("theirs", "", &[b'y'; 600_000]).await
    };
    let (ran, put) = tokio::join!(running, meanwhile);
    assert_eq!(put?.status, 201);
    assert_eq!(ran?.error.context("an error")?.code, "workspace_full");
    assert_eq!(files.get("kept.txt", "").await?.status, 404);
    let next = cell(&stack, "talk", "os.truncate('large', 10); None").await?;
    let next = output(&next)?;
    assert_eq!(
        changes(&next),
        [("kept.txt", "created"), ("large", "created")]
    );
    assert_eq!(files.get("kept.txt", "").await?.body, b"kept");
    // A path that no workspace has: the file is named again, and stays.
    let refused = "open('ends with a blank ', 'w').write('x')";
    for code in [refused, "os.path.exists('ends with a blank ')"] {
        let ran = output(&cell(&stack, "talk", code).await?)?;
        assert_eq!(ran["files_not_kept_count"], 1, "{ran}");
        assert!(matches!(ran["value"].as_str(), Some("1" | "True")), "{ran}");
    }
    // A file that was taken, and deleted by a person, goes from the interpreter too.
    files.send("DELETE", "kept.txt", "", b"").await?;
    let ran = output(&cell(&stack, "talk", "os.path.exists('kept.txt')").await?)?;
    assert_eq!(ran["value"], "False");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_files_are_there_when_the_variables_are_gone() -> anyhow::Result<()> {
    let mut stack = Stack::builder().separate().start().await?;
    cell(&stack, "talk", "x = 7\nopen('kept.txt', 'w').write('k')").await?;
    stack.kill_service("script-sandbox")?;
    stack.restart_service("script-sandbox").await?;
    let next = cell(
        &stack,
        "talk",
        "print(open('kept.txt').read(), 'x' in globals())",
    )
    .await?;
    assert_eq!(output(&next)?["stdout"], "k False\n");
    // An interpreter that ended says so.
    cell(
        &stack,
        "talk",
        "import os; open('last.txt', 'w').write('l'); os._exit(1)",
    )
    .await?;
    let next = output(&cell(&stack, "talk", "open('last.txt').read()").await?)?;
    assert_eq!(next["value"], "'l'");
    let reason = next["restarted_because"].as_str().context("a reason")?;
    assert!(
        reason.contains("its variables are gone, the files are there"),
        "{reason}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn files_beyond_the_room_of_an_interpreter_get_a_larger_one() -> anyhow::Result<()> {
    let stack = Stack::all_in_one().await?;
    let files = Client::of(&stack, "talk");
    cell(&stack, "talk", "x = 7").await?;
    for name in ["one", "two"] {
        let put = files.put(name, "", &vec![b'x'; 40 << 20]).await?;
        assert_eq!(put.status, 201);
    }
    let code = "import os; sorted(os.listdir()), 'x' in globals()";
    let next = output(&cell(&stack, "talk", code).await?)?;
    assert_eq!(next["value"], "(['one', 'two'], False)");
    let reason = next["restarted_because"].as_str().context("a reason")?;
    let expected = "the files of the conversation need an interpreter with more room; its variables are gone, the files \
                    are there";
    assert_eq!(reason, expected);
    let next = output(&cell(&stack, "talk", "1").await?)?;
    assert_eq!(
        (&next["cell"], &next["restarted_because"]),
        (&json!(2), &Value::Null)
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn pictures_are_files_that_the_output_names() -> anyhow::Result<()> {
    let stack = Stack::all_in_one().await?;
    let code = "class Dot:\n def _repr_png_(self):\n  import base64\n  return base64.b64decode('iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==')\n\
                class Table:\n def _repr_markdown_(self): return '| a |\\n|---|\\n| 1 |'\n def __repr__(self): return 'a 1'\n\
                display(Dot())\nTable()";
    let result = cell(&stack, "talk", code).await?;
    let ran = output(&result)?;
    let results = ran["results"].as_array().context("results")?;
    assert_eq!(results.len(), 2, "{ran}");
    let picture = &results[0]["data"]["image/png"];
    let path = picture["path"].as_str().context("a path")?;
    let served = Client::of(&stack, "talk").get(path, "").await?;
    assert_eq!(served.header("content-type"), "image/png");
    assert_eq!(picture["bytes"], json!(served.body.len()));
    assert_eq!(
        (&results[1]["main"], &results[1]["data"]["text/plain"]),
        (&json!(true), &json!("a 1"))
    );
    assert_eq!(changes(&ran), [] as [(&str, &str); 0]);
    let read = call_wire::observation(&result);
    assert!(
        read.contains("\nResult 1 (display): image/png 1×1, "),
        "{read}"
    );
    assert!(
        read.contains(&format!("{path}\nResult 2 (expression): \n| a |")),
        "{read}"
    );
    Ok(())
}
