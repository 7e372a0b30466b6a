//! The commands about the files of conversations.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use testkit::{Stack, binary};

use super::{printed, text};

/// Runs a command about files in a directory, with an input.
fn files(stack: &Stack, at: &Path, arguments: &[&str], input: &[u8]) -> anyhow::Result<Output> {
    let mut command = Command::new(binary("tavern")?);
    command.arg("files").args(arguments).current_dir(at);
    command.env("TAVERN_ADDRESS", stack.address());
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut running = command.stderr(Stdio::piped()).spawn()?;
    if let Some(mut stdin) = running.stdin.take() {
        stdin.write_all(input)?;
    }
    Ok(running.wait_with_output()?)
}

fn printed_at(stack: &Stack, at: &Path, arguments: &[&str]) -> anyhow::Result<String> {
    let output = files(stack, at, arguments, b"")?;
    anyhow::ensure!(output.status.success(), "{arguments:?}: {output:?}");
    Ok(text(&output.stdout))
}

/// Returns the error of a command that fails.
fn refused(stack: &Stack, at: &Path, arguments: &[&str]) -> anyhow::Result<String> {
    let output = files(stack, at, arguments, b"")?;
    anyhow::ensure!(!output.status.success(), "{arguments:?}: {output:?}");
    Ok(text(&output.stderr))
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_stored_listed_saved_moved_and_deleted() -> anyhow::Result<()> {
    let stack = Stack::all_in_one().await?;
    let directory = tempfile::tempdir()?;
    let at = directory.path();
    let content: Vec<u8> = (0..3_000_000_u32).map(|byte| (byte % 253) as u8).collect();
    std::fs::write(at.join("销售 1.bin"), &content)?;
    assert_eq!(
        printed_at(&stack, at, &["put", "c", "in/销售 1.bin"])?,
        "in/销售 1.bin\n"
    );
    let piped = files(&stack, at, &["put", "c", "note.txt", "-"], b"12 sacks\n")?;
    assert!(piped.status.success(), "{piped:?}");
    let taken = refused(&stack, at, &["put", "c", "note.txt", "销售 1.bin", "--new"])?;
    assert!(taken.contains("etag"), "{taken}");

    let listed = printed_at(&stack, at, &["ls", "c"])?;
    assert!(listed.starts_with("PATH "), "{listed}");
    assert!(
        listed.contains("note.txt") && listed.contains("text/plain"),
        "{listed}"
    );
    assert!(listed.contains("3000000"), "{listed}");
    let json = printed(&stack, &["files", "ls", "c", "--json"])?;
    let first: Value = serde_json::from_str(json.lines().next().unwrap_or_default())?;
    assert_eq!(first["path"], "in/销售 1.bin");

    let exists = refused(&stack, at, &["get", "c", "in/销售 1.bin"])?;
    assert!(exists.contains("--force"), "{exists}");
    std::fs::remove_file(at.join("销售 1.bin"))?;
    assert_eq!(
        printed_at(&stack, at, &["get", "c", "in/销售 1.bin"])?,
        "销售 1.bin\n"
    );
    assert_eq!(std::fs::read(at.join("销售 1.bin"))?, content);
    assert_eq!(
        printed_at(&stack, at, &["get", "c", "note.txt", "-"])?,
        "12 sacks\n"
    );
    std::fs::write(at.join("other.txt"), "old")?;
    printed_at(
        &stack,
        at,
        &["get", "c", "note.txt", "other.txt", "--force"],
    )?;
    assert_eq!(std::fs::read_to_string(at.join("other.txt"))?, "12 sacks\n");

    let moved = ["mv", "c", "note.txt", "out/note.txt"];
    assert_eq!(printed_at(&stack, at, &moved)?, "out/note.txt\n");
    assert!(refused(&stack, at, &moved)?.contains("note.txt"));
    let onto = ["mv", "c", "out/note.txt", "in/销售 1.bin"];
    assert!(refused(&stack, at, &onto)?.contains("new_path"));
    printed_at(&stack, at, &["rm", "c", "out/note.txt"])?;
    for gone in [
        &["rm", "c", "out/note.txt"][..],
        &["get", "c", "out/note.txt", "new.txt"],
        &["ls", "unknown"],
        &["put", "c", "../evil.txt", "other.txt"],
        &["put", "c", "none.txt"],
    ] {
        refused(&stack, at, gone)?;
    }
    // Nothing of the files that were not saved stays.
    let mut left: Vec<_> = std::fs::read_dir(at)?
        .map(|entry| entry.map(|entry| entry.file_name()))
        .collect::<Result<_, _>>()?;
    left.sort();
    assert_eq!(left, ["other.txt", "销售 1.bin"]);
    Ok(())
}
