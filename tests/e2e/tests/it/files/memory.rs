//! The memory that files take on their way.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, ensure};
use testkit::Stack;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::client::{Client, answer};
use super::expect;

/// The files, the number that passes at once, and the bytes of each.
const FILES: usize = 16;
const AT_ONCE: usize = 4;
const BYTES: usize = 64 << 20;

/// The memory that they may cost, in bytes.
const MOST: u64 = 16 << 20;

/// Returns the resident memory of a process, in bytes.
fn resident(process: u32) -> anyhow::Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.context("no line")?.trim().trim_end_matches(" kB");
    Ok(kib.parse::<u64>()? << 10)
}

/// Puts, reads and deletes a file without holding it.
async fn pass(files: &Client, bytes: usize) -> anyhow::Result<()> {
    let piece = vec![b'x'; 64 << 10];
    let headers = format!("content-length: {bytes}\r\n");
    let address = files.address("large.bin");
    let mut stream = files.begin("PUT", &address, &headers).await?;
    for _ in 0..bytes / piece.len() {
        stream.write_all(&piece).await?;
    }
    expect(answer(stream, false).await?, 201)?;
    let mut stream = files.begin("GET", &address, "").await?;
    let (mut buffer, mut read) = (vec![0; 64 << 10], 0);
    loop {
        match stream.read(&mut buffer).await? {
            0 => break,
            count => read += count,
        }
    }
    ensure!(read > bytes, "{read}");
    expect(files.send("DELETE", "large.bin", "", b"").await?, 204)?;
    Ok(())
}

/// Passes the files and returns the memory that they cost at the most.
async fn cost(stack: &mut Stack) -> anyhow::Result<u64> {
    let files = Client::of(stack, "small");
    pass(&files, 1 << 20).await?;
    let processes: Vec<u32> = stack
        .processes()
        .iter()
        .map(|process| process.id())
        .collect();
    let all = move || {
        processes
            .iter()
            .map(|process| resident(*process))
            .sum::<anyhow::Result<u64>>()
    };
    let before = all()?;
    let (most, ended) = (
        Arc::new(AtomicU64::new(before)),
        Arc::new(AtomicBool::new(false)),
    );
    let watched = tokio::spawn({
        let (most, ended) = (most.clone(), ended.clone());
        async move {
            while !ended.load(Ordering::Relaxed) {
                most.fetch_max(all().unwrap_or_default(), Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    });
    for round in 0..FILES / AT_ONCE {
        let passes = (0..AT_ONCE).map(|at| {
            let files = files.at(&format!("c{round}-{at}"));
            async move { pass(&files, BYTES).await }
        });
        futures::future::try_join_all(passes).await?;
    }
    ended.store(true, Ordering::Relaxed);
    watched.await?;
    Ok(most.load(Ordering::Relaxed) - before)
}

#[tokio::test(flavor = "multi_thread")]
async fn large_files_are_not_held() -> anyhow::Result<()> {
    let mut stack = Stack::all_in_one().await?;
    let cost = cost(&mut stack).await?;
    println!(
        "{FILES} files of {} MiB: +{:.1} MiB",
        BYTES >> 20,
        cost as f64 / f64::from(1 << 20)
    );
    ensure!(cost <= MOST, "{cost} bytes");
    Ok(())
}
