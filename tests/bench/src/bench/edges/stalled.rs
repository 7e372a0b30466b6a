//! Clients that stall, or read a little now and then, and their effect on others.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use contracts::tavern::run::v1::run_service_client::RunServiceClient;
use contracts::tavern::run::v1::{GetRunRequest, WatchRunRequest, WatchRunResponse};
use futures::{StreamExt, TryStreamExt, stream};
use tokio::task::JoinSet;
use tonic::Streaming;
use tonic::transport::{Channel, Endpoint};

use crate::harness::{Effort, one_by_one};
use crate::series::{Series, Unit};
use crate::support::edge::{Edge, EdgeClient};
use crate::support::in_process::{connect, follow};
use crate::support::processes;
use crate::support::served::Served;
use crate::table::Figure;

use super::start_script;

/// The clients at each edge, gRPC included.
const EACH: usize = 2_000;

/// The share of slow clients: one of this many reads a little now and then.
const SLOW: usize = 10;

/// The streams of a gRPC client on one connection.
const STREAMS: usize = 180;

/// The goal for the memory of a stream, in KiB.
const GOAL: f64 = 64.0;

/// The goal for its memory left when all have ended, in KiB.
const LEFT_GOAL: f64 = 8.0;

/// The time that the system may take until memory no longer changes.
const PATIENCE: Duration = Duration::from_secs(60);

/// A run with nearly as much output as a call shows, in pieces of a usual size.
const SCRIPT: &str =
    "import time\nfor _ in range(250):\n    print('x' * 3600, flush=True)\n    time.sleep(0.025)";

pub(super) async fn run(effort: &Effort) -> anyhow::Result<Vec<Figure>> {
    let each = effort.times(EACH);
    let environment = [
        "CONNECTIONS",
        "CONNECTIONS_PER_PEER",
        "STREAMS",
        "STREAMS_PER_PEER",
    ]
    .map(|limit| (format!("TAVERN__SERVER__MAX_{limit}"), "15000".to_owned()));
    let server = Served::start(effort, "127.83.4.2", &environment).await?;
    let mut gateway = connect(server.address()).await?;
    let (run_id, answers) = start_script(&mut gateway, SCRIPT).await?;
    follow(answers).await?;
    let (short_run_id, answers) = start_script(&mut gateway, "print(1)").await?;
    follow(answers).await?;
    // A first round makes one-time allocations.
    drop(Crowd::gather(server.address(), &run_id, each.min(50)).await?);
    settled(&server).await?;

    let well_behaved = endpoint(server.address())?.connect().await?;
    let alone = calls(&well_behaved, &short_run_id, effort).await?;
    let (before, kernel_before) = (resident(&server)?, kernel_kibibytes()?);
    let crowd = Crowd::gather(server.address(), &run_id, each).await?;
    let streams = crowd.len() as f64;
    settled(&server).await?;
    let (during, kernel_during) = (resident(&server)?, kernel_kibibytes()?);
    let beside = calls(&well_behaved, &short_run_id, effort).await?;
    drop(crowd);
    settled(&server).await?;
    let after = resident(&server)?;

    let of_each = |kibibytes: f64| Series::new(Unit::Kibibytes, vec![kibibytes / streams]);
    let goal = 2.0 * alone.tail() + 5e-3;
    Ok(vec![
        Figure::new(
            format!("memory of each of {streams} streams that stall, at all edges"),
            of_each(during - before),
        )
        .goal(GOAL),
        Figure::new(
            "the same in the kernel, both ends",
            of_each(kernel_during - kernel_before),
        ),
        Figure::new(
            "the same, left when all have ended",
            of_each(after - before),
        )
        .goal(LEFT_GOAL),
        Figure::new(
            format!("GetRun over loopback, beside {streams} streams that stall"),
            beside,
        )
        .floor("without them", alone)
        .goal_of_tail(goal),
    ])
}

/// Clients that do not read.
struct Crowd {
    stalled: Vec<EdgeClient>,
    /// Clients that read a little now and then.
    slow: JoinSet<()>,
    grpc: Vec<Streaming<WatchRunResponse>>,
}

impl Crowd {
    /// Opens `each` streams at each edge.
    async fn gather(address: &str, run_id: &str, each: usize) -> anyhow::Result<Self> {
        let edges = Edge::ALL.into_iter().flat_map(|edge| vec![edge; each]);
        let mut clients: Vec<EdgeClient> = stream::iter(edges)
            .map(|edge| EdgeClient::open(address, edge, run_id))
            .buffer_unordered(32)
            .try_collect()
            .await?;
        let mut slow = JoinSet::new();
        for mut client in clients.split_off(clients.len() - clients.len() / SLOW) {
            slow.spawn(async move {
                while client.skip(512).await {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
            });
        }
        let mut grpc = Vec::new();
        while grpc.len() < each {
            let channel = endpoint(address)?.connect().await?;
            let mut runs = RunServiceClient::new(channel);
            for _ in 0..STREAMS.min(each - grpc.len()) {
                let request = WatchRunRequest {
                    run_id: run_id.to_owned(),
                    after_sequence: 0,
                };
                grpc.push(runs.watch_run(request).await?.into_inner());
            }
        }
        Ok(Self {
            stalled: clients,
            slow,
            grpc,
        })
    }

    fn len(&self) -> usize {
        self.stalled.len() + self.slow.len() + self.grpc.len()
    }
}

fn endpoint(address: &str) -> anyhow::Result<Endpoint> {
    Ok(Endpoint::from_shared(address.to_owned())?.tcp_nodelay(true))
}

/// Gets a run, one call after the other.
async fn calls(channel: &Channel, run_id: &str, effort: &Effort) -> anyhow::Result<Series> {
    let runs = RunServiceClient::new(channel.clone());
    let seconds = one_by_one(effort.times(5_000), || {
        let mut runs = runs.clone();
        async move {
            let request = GetRunRequest {
                run_id: run_id.to_owned(),
            };
            runs.get_run(request).await?;
            Ok(())
        }
    });
    Ok(Series::seconds(seconds.await?))
}

/// Waits until the memory of the server has not changed for two seconds.
async fn settled(server: &Served) -> anyhow::Result<()> {
    let begin = Instant::now();
    let mut last = resident(server)?;
    loop {
        tokio::time::sleep(Duration::from_secs(2)).await;
        let now = resident(server)?;
        if (now - last).abs() < 512.0 {
            return Ok(());
        }
        ensure!(
            begin.elapsed() < PATIENCE,
            "the memory of the server does not settle"
        );
        last = now;
    }
}

fn resident(server: &Served) -> anyhow::Result<f64> {
    let mebibytes = processes::resident_mebibytes(server.id()).context("the server has ended")?;
    Ok(mebibytes * 1024.0)
}

/// Returns the memory of the kernel for all TCP sockets of the machine, in KiB.
fn kernel_kibibytes() -> anyhow::Result<f64> {
    let text = fs::read_to_string("/proc/net/sockstat")?;
    let words: Vec<&str> = text
        .lines()
        .find(|line| line.starts_with("TCP:"))
        .context("the kernel counts sockets")?
        .split_whitespace()
        .collect();
    let pages: f64 = words.last().context("the line has figures")?.parse()?;
    Ok(pages * 4.0)
}
