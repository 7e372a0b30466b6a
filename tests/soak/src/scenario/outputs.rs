//! Output at the moment of the end.

use anyhow::{Context, ensure};
use contracts::tavern::sandbox::v1::verdict::Kind;

use crate::service::{self, Level, Service};

/// The bytes that a script writes at its end: more than a pipe holds.
const BREATH: usize = 200_000;

const WENT_ON: &str = "left a process that wrote behind the end";
const SILENT: &str = "were silent behind the end";

/// Lets `times` scripts end while they and a process of theirs write.
///
/// # Errors
/// A script whose own output lost a byte, or any remains.
pub(crate) async fn run(times: u32) -> anyhow::Result<String> {
    service::race(&Level::BOTH, times, &[WENT_ON, SILENT], one).await
}

async fn one(service: Service, number: u32) -> anyhow::Result<&'static str> {
    let turns = number * 37 % 500;
    let source = format!(
        "(while :; do printf .; done) &
         for ((turn = 0; turn < {turns}; turn++)); do :; done
         printf '%{BREATH}s\\n' end; exit 3"
    );
    let response = service.run(service::request("bash", source)).await?;
    let verdict = service::verdict(&response)?;
    ensure!(
        matches!(verdict, Kind::Exited(exited) if exited.code == 3),
        "{verdict:?}"
    );
    let own: Vec<u8> = response
        .stdout
        .iter()
        .copied()
        .filter(|byte| *byte != b'.')
        .collect();
    ensure!(
        own.len() == BREATH + 1 && own.ends_with(b" end\n"),
        "{} bytes of {} are left",
        own.len(),
        BREATH + 1
    );
    let end = response.stdout.iter().rposition(|byte| *byte == b'\n');
    let end = end.context("the last line has ended")?;
    Ok(if end + 1 < response.stdout.len() {
        WENT_ON
    } else {
        SILENT
    })
}
