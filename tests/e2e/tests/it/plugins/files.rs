//! The files that plugins may use: those of the conversation, and those that they keep.

use anyhow::ensure;
use contracts::tavern::registry::v1::UninstallPluginRequest;
use futures::future::try_join_all;
use serde_json::json;
use testkit::Stack;

use tool_domain::package::PackageFile;

use super::{call, code_of, file, files, install, output_of, package};
use crate::text::{output, result_of, write_file};

/// Counts its calls in a file that it keeps, and writes as much as it is asked to.
const COUNT: &str = r#"
import json, os, sys
arguments = json.load(sys.stdin)
path = os.path.join(os.environ["TAVERN_STORAGE"], "counts", "all")
os.makedirs(os.path.dirname(path), exist_ok=True)
count = int(open(path).read()) + 1 if os.path.exists(path) else 1
open(path, "w").write(str(count))
if "bytes" in arguments:
    open("storage/large", "wb").write(bytes(arguments["bytes"]))
print(json.dumps(count))
sys.exit(arguments.get("exit", 0))
"#;

const STORAGE: &str = "permissions: {storage: {bytes: 1000000}}\n";

async fn count(stack: &Stack) -> anyhow::Result<i64> {
    let counted = output_of(stack, ("counter:count", ""), json!({})).await?;
    counted.as_i64().ok_or_else(|| anyhow::anyhow!("{counted}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_keeps_files_between_calls_that_run_one_at_a_time() -> anyhow::Result<()> {
    for builder in [Stack::builder(), Stack::builder().separate()] {
        let mut stack = builder.start().await?;
        let counter = package(files("counter", STORAGE, &[("count", COUNT)]))?;
        install(&stack, &counter).await?;
        let mut counts = try_join_all((0..8).map(|_| count(&stack))).await?;
        counts.sort_unstable();
        assert_eq!(counts, [1, 2, 3, 4, 5, 6, 7, 8]);
        // A call that fails keeps nothing, whether by its script or by its room.
        for (arguments, code) in [
            (json!({"exit": 1}), "script_exited"),
            (json!({"bytes": 1_000_001}), "storage_full"),
        ] {
            let failed = call(&stack, ("counter:count", ""), arguments).await?;
            ensure!(code_of(&failed) == code, "{failed:?}");
        }
        assert_eq!(count(&stack).await?, 9);
        stack.restart().await?;
        assert_eq!(count(&stack).await?, 10);
        // They outlive the plugin, unless they are purged.
        for (purge, expected) in [(false, 11), (true, 1)] {
            let request = UninstallPluginRequest {
                name: "counter".into(),
                purge,
                ..UninstallPluginRequest::default()
            };
            stack.plugins().uninstall_plugin(request).await?;
            install(&stack, &counter).await?;
            assert_eq!(count(&stack).await?, expected, "purge: {purge}");
        }
    }
    Ok(())
}

/// Writes a file beside the one that it reads.
const REPORT: &str = r#"
import json, os
workspace = os.environ["TAVERN_WORKSPACE"]
names = sorted(os.listdir(workspace))
sales = os.path.join(workspace, "sales.csv")
text = open(sales).read() if os.path.exists(sales) else ""
open(os.path.join(workspace, "report.txt"), "w").write(text.upper())
os.symlink("/etc/passwd", os.path.join(workspace, "link"))
print(json.dumps({"names": names, "text": text}))
"#;

fn writer(access: &str) -> Vec<PackageFile> {
    let manifest = format!("permissions: {{files: {{workspace: {access}}}}}\n");
    files("reporter", &manifest, &[("report", REPORT)])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_works_on_the_files_of_the_conversation_as_far_as_it_may() -> anyhow::Result<()> {
    let stack = Stack::all_in_one().await?;
    let report = |conversation: &'static str| {
        let stack = &stack;
        async move { output_of(stack, ("reporter:report", conversation), json!({})).await }
    };
    let read = |path: &'static str| {
        let text = format!(
            "<ACTION><FileOperator.ReadFile><filePath>{path}</filePath></FileOperator.ReadFile></ACTION>"
        );
        result_of(&stack, "talk", text)
    };
    result_of(&stack, "talk", write_file("sales.csv", "a,1")).await?;
    // With the directory of the script its path has a level more than the sandbox takes.
    let deep = format!("{}file", "d/".repeat(31));
    output(&result_of(&stack, "talk", write_file(&deep, "deep")).await?)?;
    install(&stack, &package(writer("read"))?).await?;
    let seen = json!({"names": ["sales.csv"], "text": "a,1"});
    assert_eq!(report("talk").await?, seen);
    ensure!(code_of(&read("report.txt").await?) == "file_not_found");

    install(&stack, &package(writer("write"))?).await?;
    assert_eq!(report("talk").await?, seen);
    let written = output(&read("report.txt").await?)?;
    ensure!(written.to_string().contains("A,1"), "{written}");
    ensure!(code_of(&read("link").await?) == "file_not_found");
    // Another conversation has other files, and a call without one has none.
    let nothing = json!({"names": [], "text": ""});
    assert_eq!(report("other").await?, nothing);
    assert_eq!(report("").await?, nothing);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_package_has_no_files_where_others_are_placed() -> anyhow::Result<()> {
    let stack = Stack::all_in_one().await?;
    let mut files = writer("write");
    files.push(file("workspace/sales.csv", "mine"));
    let refused = super::plan(&stack, &package(files)?).await.err();
    let refused = refused.map(|error| error.to_string()).unwrap_or_default();
    assert!(refused.contains("workspace/sales.csv"), "{refused}");
    Ok(())
}
