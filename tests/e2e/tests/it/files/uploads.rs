//! Uploads that break off, and that are too large.

use std::time::Duration;

use anyhow::ensure;
use contracts::tavern::registry::v1::workspace_service_client::WorkspaceServiceClient;
use contracts::tavern::registry::v1::write_file_request::Part;
use contracts::tavern::registry::v1::{WriteFileHeader, WriteFileRequest};
use futures::StreamExt;
use testkit::{Stack, eventually};
use tokio::io::AsyncWriteExt;

use super::client::{Client, answer};
use super::{expect, paths};

/// The largest file.
const MOST: usize = 64 << 20;

/// Sends content in chunks, as far as the server takes it, and reads the answer.
async fn put_in_chunks(files: &Client, path: &str, bytes: usize) -> anyhow::Result<super::Answer> {
    let headers = "transfer-encoding: chunked\r\n";
    let mut stream = files.begin("PUT", &files.address(path), headers).await?;
    let chunk = vec![b'x'; 1 << 20];
    let mut left = bytes;
    while left > 0 {
        let piece = &chunk[..left.min(chunk.len())];
        let head = format!("{:x}\r\n", piece.len());
        let sent = async {
            stream.write_all(head.as_bytes()).await?;
            stream.write_all(piece).await?;
            stream.write_all(b"\r\n").await
        };
        if sent.await.is_err() {
            break;
        }
        left -= piece.len();
    }
    if left == 0 {
        // The server may have answered already.
        let _ = stream.write_all(b"0\r\n\r\n").await;
    }
    answer(stream, false).await
}

async fn too_large(stack: &Stack) -> anyhow::Result<()> {
    let files = Client::of(stack, "large");
    expect(files.put("a.bin", "", b"small").await?, 201)?;
    // The size is refused before any content.
    let headers = format!("content-length: {}\r\nexpect: 100-continue\r\n", MOST + 1);
    let stream = files
        .begin("PUT", &files.address("a.bin"), &headers)
        .await?;
    let refused = expect(answer(stream, false).await?, 413)?;
    ensure!(
        refused.json()?["message"]
            .as_str()
            .is_some_and(|text| text.contains("67108864"))
    );
    expect(put_in_chunks(&files, "a.bin", MOST + 1).await?, 413)?;
    // A client that sends all before it reads comes to its answer too.
    let content = vec![b'x'; MOST + 1];
    expect(files.put("a.bin", "", &content).await?, 413)?;
    ensure!(expect(files.get("a.bin", "").await?, 200)?.body == b"small");
    expect(put_in_chunks(&files, "b.bin", MOST).await?, 201)?;
    for path in ["c.bin", "d.bin"] {
        expect(files.put(path, "", &content[..MOST]).await?, 201)?;
    }
    // All files of a conversation have a limit too.
    let full = expect(files.put("e.bin", "", &content[..MOST]).await?, 507)?;
    ensure!(full.json()?["code"] == "resource_exhausted");
    let list = expect(files.list("").await?, 200)?.json()?;
    ensure!(
        paths(&list) == ["a.bin", "b.bin", "c.bin", "d.bin"],
        "{list}"
    );
    Ok(())
}

/// Drops calls by gRPC after their content, of which nothing states the size, but before its end.
async fn drop_calls(stack: &Stack) -> anyhow::Result<()> {
    for _ in 0..20 {
        let mut files = WorkspaceServiceClient::new(stack.transport_with(None).outermost());
        let header = WriteFileHeader {
            conversation_id: "cut".to_owned(),
            path: "new.txt".to_owned(),
            ..WriteFileHeader::default()
        };
        let parts = [Part::Header(header), Part::Chunk(b"new".to_vec())];
        let parts = parts.map(|part| WriteFileRequest { part: Some(part) });
        let endless = tokio_stream::iter(parts).chain(futures::stream::pending());
        let call = files.write_file(endless);
        let ended = tokio::time::timeout(Duration::from_millis(50), call).await;
        ensure!(
            ended.is_err(),
            "the call ended before its content: {ended:?}"
        );
    }
    Ok(())
}

/// Breaks uploads off, and finds that they have changed nothing.
async fn cut_off(stack: &Stack) -> anyhow::Result<()> {
    let files = Client::of(stack, "cut");
    expect(files.put("old.txt", "", b"old").await?, 201)?;
    for path in ["old.txt", "new.txt"] {
        for headers in [
            "content-length: 1000000\r\n",
            "transfer-encoding: chunked\r\n",
        ] {
            let mut stream = files.begin("PUT", &files.address(path), headers).await?;
            if headers.starts_with("transfer") {
                stream.write_all(b"493e0\r\n").await?;
            }
            stream.write_all(&vec![b'x'; 300_000]).await?;
            stream.flush().await?;
            tokio::time::sleep(Duration::from_millis(100)).await;
            drop(stream);
        }
    }
    // A chunked body without its end has all its bytes, and is cut off nevertheless.
    let mut stream = files
        .begin(
            "PUT",
            &files.address("new.txt"),
            "transfer-encoding: chunked\r\n",
        )
        .await?;
    stream.write_all(b"3\r\nnew\r\n").await?;
    stream.shutdown().await?;
    if let Ok(answer) = answer(stream, false).await {
        ensure!(answer.status >= 400, "{}", answer.status);
    }
    drop_calls(stack).await?;
    tokio::time::sleep(Duration::from_millis(300)).await;
    expect(files.get("new.txt", "").await?, 404)?;
    ensure!(expect(files.get("old.txt", "").await?, 200)?.body == b"old");
    // Nothing of them stays on the disk.
    let directory = stack.directory().to_owned();
    eventually("the rests of uploads to be gone", || {
        let bytes = bytes_below(&directory);
        async move { (bytes < 250_000).then_some(()) }
    })
    .await?;
    Ok(())
}

/// Returns the bytes of the files below a directory that are of an upload: they are all the same.
fn bytes_below(directory: &std::path::Path) -> u64 {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let sizes = entries.map(|entry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => bytes_below(&entry.path()),
        Ok(metadata) if metadata.len() >= 250_000 => {
            let content = std::fs::read(entry.path()).unwrap_or_default();
            let is_rest = content
                .windows(1_000)
                .any(|part| part.iter().all(|byte| *byte == b'x'));
            if is_rest { metadata.len() } else { 0 }
        }
        _ => 0,
    });
    sizes.sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_too_large_changes_nothing() -> anyhow::Result<()> {
    too_large(&Stack::all_in_one().await?).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_too_large_changes_nothing_in_five_processes() -> anyhow::Result<()> {
    too_large(&Stack::builder().separate().start().await?).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_that_is_cut_off_changes_nothing() -> anyhow::Result<()> {
    let builder = Stack::builder().separate();
    let (one, five) = tokio::try_join!(Stack::all_in_one(), builder.start())?;
    tokio::try_join!(cut_off(&one), cut_off(&five))?;
    Ok(())
}
