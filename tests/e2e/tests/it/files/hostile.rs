//! Paths and addresses that no client should send.

use anyhow::{Context, ensure};
use testkit::Stack;

use super::client::{Client, encoded};
use super::{expect, paths};

#[tokio::test(flavor = "multi_thread")]
async fn no_path_leaves_the_workspace_or_is_taken_for_another() -> anyhow::Result<()> {
    let stack = Stack::all_in_one().await?;
    let files = Client::of(&stack, "a");
    expect(files.put("kept.txt", "", b"kept").await?, 201)?;
    expect(files.at("b").put("other.txt", "", b"other").await?, 201)?;
    let long = "n".repeat(256);
    let deep = "d/".repeat(33);
    let far = format!("{}x", "longer/".repeat(160));
    let odd = [
        "../b/other.txt".to_owned(),
        "out/../../b/other.txt".to_owned(),
        "..".to_owned(),
        ".".to_owned(),
        "/etc/passwd".to_owned(),
        "a\0b".to_owned(),
        "a\nb".to_owned(),
        "a\u{7f}b".to_owned(),
        "a//b".to_owned(),
        "a/./b".to_owned(),
        "a/".to_owned(),
        "a\\..\\b".to_owned(),
        "KEPT.txt".to_owned(),
        "kept.txt/below".to_owned(),
        encoded(&"名".repeat(100)),
        long,
        format!("{deep}x"),
        far,
    ];
    for path in &odd {
        let put = files.put(path, "", b"evil").await?;
        // A backslash is a character of a name.
        let allowed = path.contains('\\') || path.starts_with('%');
        ensure!(
            put.status == 400 || allowed && put.status == 201,
            "{path}: {}",
            put.status
        );
        if put.status == 201 {
            expect(files.send("DELETE", path, "", b"").await?, 204)?;
            continue;
        }
        for verb in ["GET", "HEAD", "DELETE"] {
            let answer = files.send(verb, path, "", b"").await?;
            ensure!(
                matches!(answer.status, 400 | 404),
                "{verb} {path}: {}",
                answer.status
            );
        }
    }
    send_raw(&files).await?;
    let list = expect(files.list("").await?, 200)?.json()?;
    ensure!(paths(&list) == ["kept.txt"], "{list}");
    let kept = expect(files.get("kept.txt", "").await?, 200)?;
    ensure!(kept.body == b"kept");
    let other = expect(files.at("b").get("other.txt", "").await?, 200)?;
    ensure!(other.body == b"other");
    Ok(())
}

/// Sends addresses as they are written.
async fn send_raw(files: &Client) -> anyhow::Result<()> {
    for raw in [
        "%2e%2e/b/other.txt",
        "..%2fb%2fother.txt",
        "%2e%2e%2f%2e%2e%2fa",
        "%2fetc%2fpasswd",
        "/etc/passwd",
        "../../b/files/other.txt",
        "a%00b",
        "a%ffb",
        "a%0d%0aset-cookie:%20a=b",
    ] {
        let address = format!("{}/{raw}", files.base);
        for verb in ["GET", "PUT", "DELETE"] {
            let headers = if verb == "PUT" {
                "content-length: 4\r\n"
            } else {
                ""
            };
            let body = if verb == "PUT" {
                b"evil".as_slice()
            } else {
                b""
            };
            let answer = files.exchange(verb, &address, headers, body).await?;
            ensure!(
                matches!(answer.status, 400 | 404),
                "{verb} {raw}: {}",
                answer.status
            );
            ensure!(answer.header("set-cookie").is_empty());
        }
    }
    for conversation in ["a%2fb", "%2e%2e%2fb", "a%00", "%ff", "a%20b"] {
        let answer = files.at(conversation).put("x", "", b"evil").await?;
        ensure!(
            matches!(answer.status, 400 | 404),
            "{conversation}: {}",
            answer.status
        );
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn names_that_differ_in_case_only_are_refused_and_long_names_are_kept() -> anyhow::Result<()>
{
    let stack = Stack::all_in_one().await?;
    let files = Client::of(&stack, "names");
    expect(files.put("Straße.txt", "", b"1").await?, 201)?;
    let refused = expect(files.put("STRASSE.txt", "", b"2").await?, 400);
    // Only simple case folding is stated; either way there is one content of each name.
    if refused.is_err() {
        ensure!(files.get("Straße.txt", "").await?.body == b"1");
    }
    expect(files.put("dir/a.txt", "", b"1").await?, 201)?;
    for taken in ["dir/A.txt", "DIR/b.txt", "dir", "dir/a.txt/b"] {
        expect(files.put(taken, "", b"2").await?, 400).context(taken)?;
    }
    let name = format!("{}.txt", "n".repeat(251));
    expect(files.put(&name, "", b"1").await?, 201)?;
    let read = expect(files.get(&name, "").await?, 200)?;
    ensure!(read.header("content-disposition").ends_with(&name));
    for odd in [
        "\"quoted\"; a=b.txt",
        "100%.txt",
        "a?b#c&d=e+f.txt",
        " lead",
        "trail .txt",
        "🦀/é.txt",
    ] {
        let put = files.put(odd, "", odd.as_bytes()).await?;
        ensure!(matches!(put.status, 201 | 400), "{odd}: {}", put.status);
        if put.status == 201 {
            ensure!(
                expect(files.get(odd, "").await?, 200)?.body == odd.as_bytes(),
                "{odd}"
            );
        }
    }
    Ok(())
}
