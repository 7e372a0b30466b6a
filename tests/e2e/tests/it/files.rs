//! The files of conversations by plain HTTP, as any client sees them.

pub(crate) mod client;
mod foreign;
mod hostile;
mod memory;
pub(crate) mod model;
mod others;
mod page;
mod pictures;
mod uploads;
mod workspace;

use anyhow::{Context, ensure};
use serde_json::{Value, json};
use testkit::Stack;

use client::{Answer, Client};

/// The headers that every answer has.
const INERT: [(&str, &str); 4] = [
    ("x-content-type-options", "nosniff"),
    ("content-security-policy", "sandbox; default-src 'none'"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cache-control", "private, no-cache"),
];

fn check_inert(answer: &Answer) -> anyhow::Result<()> {
    for (name, value) in INERT {
        ensure!(
            answer.header(name) == value,
            "{name}: {:?}",
            answer.header(name)
        );
    }
    Ok(())
}

/// Expects a status, and an inert answer.
fn expect(answer: Answer, status: u16) -> anyhow::Result<Answer> {
    let text = String::from_utf8_lossy(&answer.body);
    ensure!(answer.status == status, "{}: {text}", answer.status);
    check_inert(&answer)?;
    Ok(answer)
}

/// Puts, reads, replaces and deletes a file under every condition.
async fn live(stack: &Stack) -> anyhow::Result<()> {
    let files = Client::of(stack, "life");
    let path = "out/销售 数据 📈.csv";
    let missing = expect(files.get(path, "").await?, 404)?;
    ensure!(missing.json()?["code"] == "not_found");

    let put = expect(files.put(path, "", b"month,sum\nJan,10\n").await?, 201)?;
    let first = put.header("etag").to_owned();
    ensure!(
        first.len() == 66 && first.starts_with('"') && first.ends_with('"'),
        "{first}"
    );
    let file = put.json()?;
    ensure!(
        file["path"] == path && file["sizeBytes"] == "17" && file["mediaType"] == "text/csv",
        "{file}"
    );
    ensure!(format!("\"{}\"", file["sha256"].as_str().context("no digest")?) == first);
    let again = expect(files.put(path, "", b"month,sum\nJan,10\n").await?, 200)?;
    ensure!(again.header("etag") == first);

    let read = expect(files.get(path, "").await?, 200)?;
    ensure!(read.body == b"month,sum\nJan,10\n");
    ensure!(read.header("content-type") == "text/plain; charset=utf-8");
    let disposition =
        "inline; filename*=UTF-8''%E9%94%80%E5%94%AE%20%E6%95%B0%E6%8D%AE%20%F0%9F%93%88.csv";
    ensure!(read.header("content-disposition") == disposition);
    ensure!(read.header("etag") == first && read.header("accept-ranges") == "bytes");
    let head = expect(files.send("HEAD", path, "", b"").await?, 200)?;
    ensure!(head.body.is_empty() && head.header("content-length") == "17");
    ensure!(head.header("etag") == first && head.header("content-disposition") == disposition);
    conditions(&files, path, &first).await?;
    listed(&files, path).await?;

    expect(files.send("DELETE", path, "", b"").await?, 204)?;
    expect(files.send("DELETE", path, "", b"").await?, 404)?;
    expect(files.get(path, "").await?, 404)?;
    let verb = files
        .send("POST", path, "content-length: 0\r\n", b"")
        .await?;
    ensure!(
        verb.status == 405 && verb.header("allow").contains("PUT"),
        "{}",
        verb.header("allow")
    );
    Ok(())
}

/// Changes a file only as the version that is named.
async fn conditions(files: &Client, path: &str, first: &str) -> anyhow::Result<()> {
    let none = |etag: &str| format!("if-none-match: {etag}\r\n");
    let same = |etag: &str| format!("if-match: {etag}\r\n");
    let other = format!("\"{}\"", "0".repeat(64));
    let known = expect(files.get(path, &none(first)).await?, 304)?;
    ensure!(known.body.is_empty() && known.header("etag") == first);
    expect(
        files
            .get(path, &none(&format!("{other}, W/{first}")))
            .await?,
        304,
    )?;
    expect(files.get(path, &none(&other)).await?, 200)?;
    expect(files.get(path, &same(first)).await?, 200)?;
    expect(files.get(path, &same(&other)).await?, 412)?;
    expect(files.send("HEAD", path, &same(&other), b"").await?, 412)?;

    let new = b"month,sum\nFeb,12\n".as_slice();
    for (headers, status) in [
        (none("*"), 412),
        (same(&other), 412),
        (same("\"not ours\""), 412),
        (same("W/\"weak\""), 412),
        (same("unquoted"), 400),
        (same(&format!("{first}, {other}")), 400),
        (none(first), 400),
        ("content-range: bytes 0-1/2\r\n".to_owned(), 400),
        ("content-encoding: gzip\r\n".to_owned(), 400),
    ] {
        let answer = files.put(path, &headers, new).await?;
        expect(answer, status).context(headers)?;
    }
    expect(files.get(path, &same(first)).await?, 200)?;
    let second = expect(files.put(path, &same(first), new).await?, 200)?;
    let second = second.header("etag").to_owned();
    ensure!(second != first);
    expect(files.put(path, &same(first), b"late").await?, 412)?;
    expect(
        files.put(path, &same("*"), b"month,sum\nJan,10\n").await?,
        200,
    )?;
    expect(files.put("none.csv", &same("*"), b"1").await?, 412)?;
    expect(files.put("none.csv", &none("*"), b"1").await?, 201)?;
    expect(
        files.send("DELETE", "none.csv", &same(first), b"").await?,
        412,
    )?;
    expect(
        files.send("DELETE", "none.csv", &none("*"), b"").await?,
        412,
    )?;
    expect(
        files.send("DELETE", "none.csv", &same("*"), b"").await?,
        204,
    )?;
    Ok(())
}

/// Lists files, whole and by pages.
async fn listed(files: &Client, path: &str) -> anyhow::Result<()> {
    for name in ["a.txt", "b.txt"] {
        expect(files.put(name, "", name.as_bytes()).await?, 201)?;
    }
    let all = expect(files.list("").await?, 200)?.json()?;
    ensure!(paths(&all) == ["a.txt", "b.txt", path], "{all}");
    ensure!(
        all["totalBytes"] == "27" && all.get("nextPageToken").is_none(),
        "{all}"
    );
    let first = expect(files.list("?page_size=2").await?, 200)?.json()?;
    ensure!(paths(&first) == ["a.txt", "b.txt"]);
    let token = first["nextPageToken"].as_str().context("no token")?;
    let rest = expect(files.list(&format!("?page_token={token}")).await?, 200)?;
    ensure!(paths(&rest.json()?) == [path]);
    for wrong in ["?page_token=x", "?page_size=-1", "?page_size=x", "?other=1"] {
        expect(files.list(wrong).await?, 400).context(wrong)?;
    }
    Ok(())
}

fn paths(list: &Value) -> Vec<&str> {
    let files = list["files"].as_array().into_iter().flatten();
    files.filter_map(|file| file["path"].as_str()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_lives_under_every_condition_in_one_process_and_in_five() -> anyhow::Result<()> {
    let builder = Stack::builder().separate();
    let (one, five) = tokio::try_join!(Stack::all_in_one(), builder.start())?;
    tokio::try_join!(live(&one), live(&five))?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_part_of_a_file_is_read() -> anyhow::Result<()> {
    let stack = Stack::all_in_one().await?;
    let files = Client::of(&stack, "parts");
    let content: Vec<u8> = (0..700_000_u32).map(|at| (at % 251) as u8).collect();
    let put = expect(files.put("bytes", "", &content).await?, 201)?;
    let etag = put.header("etag").to_owned();
    for (range, first, last) in [
        ("0-0", 0, 0),
        ("262143-262144", 262_143, 262_144),
        ("500000-", 500_000, 699_999),
        ("-10", 699_990, 699_999),
        ("699999-9999999", 699_999, 699_999),
    ] {
        for headers in [
            "".to_owned(),
            format!("if-range: {etag}\r\n"),
            format!("if-match: {etag}\r\n"),
        ] {
            let headers = format!("range: bytes={range}\r\n{headers}");
            let part = expect(files.get("bytes", &headers).await?, 206)?;
            ensure!(part.body == content[first..=last], "{range}");
            let stated = format!("bytes {first}-{last}/700000");
            ensure!(part.header("content-range") == stated && part.header("etag") == etag);
        }
    }
    for range in ["700000-", "-0"] {
        let headers = format!("range: bytes={range}\r\n");
        let none = expect(files.get("bytes", &headers).await?, 416)?;
        ensure!(none.header("content-range") == "bytes */700000");
    }
    for headers in [
        "range: bytes=0-1,5-6\r\n".to_owned(),
        "range: bytes=5-1\r\n".to_owned(),
        "range: lines=0-1\r\n".to_owned(),
        format!("range: bytes=0-1\r\nif-range: \"{}\"\r\n", "0".repeat(64)),
    ] {
        let whole = expect(files.get("bytes", &headers).await?, 200)?;
        ensure!(whole.body == content, "{headers}");
    }
    let known = format!("range: bytes=0-1\r\nif-none-match: {etag}\r\n");
    expect(files.get("bytes", &known).await?, 304)?;
    expect(files.get("none", "range: bytes=0-1\r\n").await?, 404)?;
    expect(files.put("empty", "", b"").await?, 201)?;
    expect(files.get("empty", "range: bytes=0-\r\n").await?, 416)?;
    ensure!(expect(files.get("empty", "").await?, 200)?.header("content-length") == "0");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_type_comes_from_the_content_and_no_page_is_one() -> anyhow::Result<()> {
    const BYTES: &str = "application/octet-stream";
    const TEXT: &str = "text/plain; charset=utf-8";
    let stack = Stack::all_in_one().await?;
    let files = Client::of(&stack, "types");
    let png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR".as_slice();
    let page = b"<!DOCTYPE html><script>alert(1)</script>".as_slice();
    let drawing =
        b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>".as_slice();
    for (path, content, kind, shown) in [
        ("a.png", png, "image/png", "inline"),
        ("a.pdf", b"%PDF-1.7\n", "application/pdf", "inline"),
        ("a.csv", b"a,b\n", TEXT, "inline"),
        ("a.py", b"print(1)\n", TEXT, "inline"),
        ("page.png", page, BYTES, "attachment"),
        ("page.pdf", page, BYTES, "attachment"),
        ("page.html", page, BYTES, "attachment"),
        ("page.HTM", page, BYTES, "attachment"),
        ("page.xhtml", page, BYTES, "attachment"),
        ("page.svg", page, BYTES, "attachment"),
        ("drawing.svg", drawing, BYTES, "attachment"),
        ("page.xml", drawing, BYTES, "attachment"),
        ("page", page, TEXT, "inline"),
        ("page.txt", page, TEXT, "inline"),
    ] {
        // The client's word for the type counts for nothing.
        let put = files
            .put(path, "content-type: text/html\r\n", content)
            .await?;
        expect(put, 201)?;
        let read = expect(files.get(path, "").await?, 200)?;
        let found = (
            read.header("content-type"),
            read.header("content-disposition"),
        );
        ensure!(
            found == (kind, &*format!("{shown}; filename*=UTF-8''{path}")),
            "{path}: {found:?}"
        );
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn tools_read_a_file_that_was_put() -> anyhow::Result<()> {
    let stack = Stack::all_in_one().await?;
    let files = Client::of(&stack, "shared");
    expect(files.put("note.txt", "", b"12 sacks").await?, 201)?;
    let text = "<ACTION><FileOperator.ReadFile><filePath>note.txt</filePath></FileOperator.ReadFile></ACTION>";
    let read = crate::text::result_of(&stack, "shared", text.to_owned()).await?;
    let output = crate::text::output(&read)?;
    ensure!(output.to_string().contains("12 sacks"), "{output}");
    let write = "<ACTION><FileOperator.WriteFile><filePath>out/a.json</filePath><content>{}</content>\
                 </FileOperator.WriteFile></ACTION>";
    crate::text::result_of(&stack, "shared", write.to_owned()).await?;
    let list = expect(files.list("").await?, 200)?.json()?;
    ensure!(paths(&list) == ["note.txt", "out/a.json"], "{list}");
    ensure!(expect(files.get("out/a.json", "").await?, 200)?.json()? == json!({}));
    Ok(())
}
