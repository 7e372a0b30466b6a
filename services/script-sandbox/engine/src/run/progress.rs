//! Reads the progress that a script reports, at a bounded pace.

use std::time::Duration;

use tokio::{
    io::AsyncReadExt,
    net::unix::pipe,
    time::{Instant, sleep_until},
};

use crate::domain::progress::{ProgressLines, ScriptProgress};

/// The size of one read, in bytes.
const CHUNK: usize = 4 << 10;

/// The most reads per [`WINDOW`]. A script that writes faster than 64 KiB in that time blocks in
/// its write.
const READS: u32 = 16;

/// The time over which reads are counted.
const WINDOW: Duration = Duration::from_millis(20);

/// The least time between two reports.
const INTERVAL: Duration = Duration::from_millis(200);

/// Divides the elapsed time: the reports of a long script are at least this part of it apart, so
/// that no script causes many.
const SHARE: u32 = 500;

/// Reads to the end, and shows the latest report once every [`INTERVAL`] at most, and at the end.
pub async fn follow(mut pipe: pipe::Receiver, show: impl Fn(ScriptProgress) + Send) {
    let began = Instant::now();
    let (mut window, mut reads) = (began, 0);
    let (mut latest, mut due) = (None, began);
    let mut lines = ProgressLines::default();
    let mut chunk = [0; CHUNK];
    loop {
        let read = tokio::select! {
            read = async {
                if reads == READS {
                    sleep_until(window + WINDOW).await;
                }
                pipe.read(&mut chunk).await
            } => read,
            () = sleep_until(due), if latest.is_some() => {
                latest.take().into_iter().for_each(&show);
                let now = Instant::now();
                due = now + INTERVAL.max((now - began) / SHARE);
                continue;
            }
        };
        let Ok(read @ 1..) = read else {
            break;
        };
        latest = lines.take(&chunk[..read]).or(latest);
        if window.elapsed() >= WINDOW {
            (window, reads) = (Instant::now(), 0);
        }
        reads += 1;
    }
    latest.into_iter().for_each(show);
}

#[cfg(test)]
mod tests {
    use std::{io::Write, sync::Mutex};

    use super::*;

    /// Writes and closes; returns the reports shown.
    async fn shown(written: Vec<u8>) -> Vec<ScriptProgress> {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let writing = tokio::task::spawn_blocking(move || {
            std::fs::File::from(writer).write_all(&written).unwrap();
        });
        let all = Mutex::new(Vec::new());
        let pipe = pipe::Receiver::from_owned_fd(reader).unwrap();
        follow(pipe, |progress| all.lock().unwrap().push(progress)).await;
        writing.await.unwrap();
        all.into_inner().unwrap()
    }

    #[tokio::test]
    async fn the_last_report_is_shown_and_most_of_a_flood_is_not() {
        let mut flood = Vec::new();
        for step in 0..20_000 {
            writeln!(flood, "{{\"progress\": {}}}", f64::from(step) / 20_000.0).unwrap();
        }
        flood.extend(b"{\"progress\":1,\"message\":\"done\"}\n");
        let shown = shown(flood).await;
        let last = shown.last().unwrap();
        assert_eq!((last.fraction, &*last.message), (Some(1.0), "done"));
        assert!(shown.len() < 200, "{}", shown.len());
    }

    #[tokio::test]
    async fn a_script_that_says_nothing_shows_nothing() {
        assert_eq!(shown(Vec::new()).await, []);
    }
}
