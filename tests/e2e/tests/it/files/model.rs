//! Random operations of file tools, cells, code and clients on one workspace, against a model, with kills between them.
//!
//! `TAVERN_TEST_FILE_OPERATIONS` sets the number of operations; `make bars` sets 1,000. `TAVERN_TEST_SEED` repeats a run.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, ensure};
use contracts::tavern::registry::v1::{
    MoveFileRequest, workspace_service_client::WorkspaceServiceClient,
};
use testkit::{Stack, size};

use super::client::Client;
use super::workspace::run;
use crate::text::{output, result_of};

/// Operations in `make test`.
const OPERATIONS: u64 = 150;

/// The operations between two kills.
const BETWEEN: usize = 25;

const CONVERSATION: &str = "talk";

/// Names with blanks, other scripts and directories.
const PATHS: [&str; 8] = [
    "a.txt",
    "b b.csv",
    "数据/表.csv",
    "数据/图 📈.bin",
    "deep/er/x",
    "deep/y.json",
    "z",
    "results/own.png",
];

/// The files as they have to be.
type Model = BTreeMap<String, String>;

/// A text of some length, from a few bytes to more than travels in one piece.
fn content(random: &mut fastrand::Rng) -> String {
    let length = [0, 1, 30, 5_000, 300_000][random.usize(..5)];
    let line = format!("{:08x} ", random.u32(..));
    line.chars().cycle().take(length).collect()
}

fn tool(name: &str, path: &str, content: &str) -> String {
    format!(
        "<ACTION><FileOperator.{name}><filePath>{path}</filePath><content>{content}</content>\
         </FileOperator.{name}></ACTION>"
    )
}

/// Carries out one operation, and returns its name.
async fn operate(
    stack: &Stack,
    model: &mut Model,
    random: &mut fastrand::Rng,
) -> anyhow::Result<&'static str> {
    let files = Client::of(stack, CONVERSATION);
    let path = PATHS[random.usize(..PATHS.len())];
    let known = model.contains_key(path);
    let text = content(random);
    let short = text
        .get(..text.len().min(5_000))
        .unwrap_or_default()
        .to_owned();
    match random.u8(..8) {
        0 => {
            let status = files.put(path, "", text.as_bytes()).await?.status;
            ensure!(status == if known { 200 } else { 201 }, "put: {status}");
            model.insert(path.to_owned(), text);
            Ok("put")
        }
        1 => {
            let status = files.send("DELETE", path, "", b"").await?.status;
            ensure!(status == if known { 204 } else { 404 }, "delete: {status}");
            model.remove(path);
            Ok("delete")
        }
        2 if !short.is_empty() => {
            let result = result_of(stack, CONVERSATION, tool("WriteFile", path, &short)).await?;
            output(&result)?;
            model.insert(path.to_owned(), short);
            Ok("WriteFile")
        }
        3 if !short.is_empty() => {
            let result = result_of(stack, CONVERSATION, tool("AppendFile", path, &short)).await?;
            output(&result)?;
            model.entry(path.to_owned()).or_default().push_str(&short);
            Ok("AppendFile")
        }
        4 => {
            let new = PATHS[random.usize(..PATHS.len())];
            let is_free = !model.contains_key(new) || new == path;
            let request = MoveFileRequest {
                conversation_id: CONVERSATION.to_owned(),
                path: path.to_owned(),
                new_path: new.to_owned(),
                etag: String::new(),
            };
            let mut client = WorkspaceServiceClient::new(stack.transport_with(None).outermost());
            let moved = client.move_file(request).await;
            ensure!(moved.is_ok() == (known && is_free), "{moved:?}");
            if moved.is_ok() {
                let text = model.remove(path).context("it is known")?;
                model.insert(new.to_owned(), text);
            }
            Ok("move")
        }
        kind => {
            let tool = if kind == 5 { "execute" } else { "run_cell" };
            let moved = PATHS[random.usize(..PATHS.len())];
            let code = format!(
                "import os\np, q = {path:?}, {moved:?}\n\
                 if os.path.exists(p) and {renames}:\n os.makedirs(os.path.dirname(q) or '.', exist_ok=True)\n os.replace(p, q)\n\
                 elif os.path.exists(p) and {removes}: os.remove(p)\n\
                 else:\n os.makedirs(os.path.dirname(p) or '.', exist_ok=True)\n open(p, 'a').write({short:?})",
                renames = if kind == 6 { "True" } else { "False" },
                removes = if text.is_empty() { "True" } else { "False" },
            );
            output(&run(stack, (tool, CONVERSATION), &code).await?)?;
            if known && kind == 6 {
                let text = model.remove(path).context("it is known")?;
                model.insert(moved.to_owned(), text);
            } else if known && text.is_empty() {
                model.remove(path);
            } else {
                model.entry(path.to_owned()).or_default().push_str(&short);
            }
            Ok(tool)
        }
    }
}

/// Compares the files, as clients and cells see them, with the model.
async fn compare(stack: &Stack, model: &Model) -> anyhow::Result<()> {
    let files = Client::of(stack, CONVERSATION);
    let listed = files.list("").await?.json()?;
    let listed = listed["files"].as_array().context("a list")?;
    let paths: Vec<&str> = listed
        .iter()
        .filter_map(|file| file["path"].as_str())
        .collect();
    let expected: Vec<&str> = model.keys().map(String::as_str).collect();
    ensure!(paths == expected, "{paths:?} instead of {expected:?}");
    for (path, text) in model {
        let read = files.get(path, "").await?;
        ensure!(read.body == text.as_bytes(), "`{path}` is another one");
    }
    let code = "import os\nfor d, _, fs in os.walk('.'):\n for f in fs:\n  \
                p = os.path.join(d, f)[2:]\n  print(p, len(open(p).read()))";
    let seen = output(&run(stack, ("run_cell", CONVERSATION), code).await?)?;
    let mut seen: Vec<&str> = seen["stdout"].as_str().context("text")?.lines().collect();
    seen.sort_unstable();
    let mut expected: Vec<String> = model
        .iter()
        .map(|(path, text)| format!("{path} {}", text.chars().count()))
        .collect();
    expected.sort();
    ensure!(
        seen == expected,
        "a cell sees {seen:?} instead of {expected:?}"
    );
    Ok(())
}

/// Plays operations, with `interrupt` between some, and compares the files now and then.
pub(crate) async fn play(
    stack: &mut Stack,
    operations: u64,
    mut interrupt: impl AsyncFnMut(&mut Stack, &mut fastrand::Rng) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    let seed = size("TAVERN_TEST_SEED", now)?;
    let operations = size("TAVERN_TEST_FILE_OPERATIONS", operations)?;
    let mut random = fastrand::Rng::with_seed(seed);
    let mut model = Model::new();
    let mut done: Vec<&str> = Vec::new();
    for operation in 1..=usize::try_from(operations)? {
        let carried = operate(stack, &mut model, &mut random).await;
        let at = || format!("operation {operation} of seed {seed}, after {done:?}");
        done.push(carried.with_context(at)?);
        if operation % BETWEEN == 0 {
            interrupt(stack, &mut random).await?;
            done.push("kill");
        }
        if operation % 10 == 0 {
            let at = || format!("after operation {operation} of seed {seed}: {done:?}");
            compare(stack, &model).await.with_context(at)?;
            done.clear();
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_files_are_those_of_a_model_whatever_is_killed_between_the_operations()
-> anyhow::Result<()> {
    let mut stack = Stack::builder().separate().start().await?;
    let kill = async |stack: &mut Stack, random: &mut fastrand::Rng| {
        let service = ["tool-registry", "script-sandbox"][random.usize(..2)];
        stack.kill_service(service)?;
        stack.restart_service(service).await
    };
    play(&mut stack, OPERATIONS, kill).await
}
