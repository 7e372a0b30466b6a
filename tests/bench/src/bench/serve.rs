//! The start of `tavern serve`, and its memory while it is idle.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, ensure};

use crate::harness::{Effort, seconds_of};
use crate::series::{Series, Unit};
use crate::support::{processes, served};
use crate::table::Figure;

/// The time without requests before the memory is measured.
const IDLE: Duration = Duration::from_secs(2);

pub(super) async fn run(effort: &Effort) -> anyhow::Result<Vec<Figure>> {
    let program = served::program("tavern")?;
    let (mut ready, mut floor) = (Vec::new(), Vec::new());
    let mut idle = Vec::new();
    for round in 0..=effort.times(20) {
        let server = served::Served::start(effort, "127.83.1.1", &[]).await?;
        let mut printed = Ok(false);
        let seconds = seconds_of(|| {
            let output = Command::new(&program).arg("--version").output();
            printed = output.map(|output| output.status.success());
        });
        ensure!(printed?, "`tavern --version` fails");
        // The first start brings files into memory.
        if round == 0 {
            continue;
        }
        ready.push(server.seconds_to_ready);
        floor.push(seconds);
        if idle.len() < 5 {
            tokio::time::sleep(IDLE).await;
            idle.push(processes::resident_mebibytes(server.id()).context("the server has ended")?);
        }
    }
    Ok(vec![
        Figure::new("start to ready, all in one", Series::seconds(ready))
            .floor("tavern --version", Series::seconds(floor))
            .goal(1.0),
        Figure::new(
            "resident memory while idle, all in one",
            Series::new(Unit::Mebibytes, idle),
        )
        .goal(60.0),
    ])
}
