//! The delay from a script's print to its clients.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, ensure};
use contracts::tavern::gateway::v1::gateway_service_client::GatewayServiceClient;
use rustix::time::{ClockId, clock_gettime};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;
use tokio::task::JoinSet;
use tonic::transport::Channel;

use crate::harness::Effort;
use crate::series::Series;
use crate::support::edge::{Edge, EdgeClient};
use crate::support::in_process::{connect, follow};
use crate::support::served::Served;
use crate::table::Figure;

use super::start_script;

/// The goal for the median seconds until a client receives a print.
const GOAL: f64 = 10e-3;

/// The goal for the 99th percentile.
const TAIL_GOAL: f64 = 40e-3;

/// The clients of a run with many of them.
const MANY: usize = 500;

/// The goal for the relative length of a run with many clients.
const SLOWED: f64 = 1.1;

/// The lines that a script prints.
const LINES: usize = 80;

/// The pause between two lines; longer than the time for which output is joined.
const PAUSE: Duration = Duration::from_millis(40);

pub(super) async fn run(effort: &Effort) -> anyhow::Result<Vec<Figure>> {
    let environment = [
        "CONNECTIONS",
        "CONNECTIONS_PER_PEER",
        "STREAMS",
        "STREAMS_PER_PEER",
    ]
    .map(|limit| (format!("TAVERN__SERVER__MAX_{limit}"), "2000".to_owned()));
    let server = Served::start(effort, "127.83.4.1", &environment).await?;
    let mut gateway = connect(server.address()).await?;
    let (mut alone, mut crowded, mut bare) = (Seen::default(), Seen::default(), Seen::default());
    for round in 0..=effort.times(10) {
        let one = followed(&mut gateway, server.address(), 1).await?;
        let many = followed(&mut gateway, server.address(), MANY).await?;
        let floor = piped().await?;
        // The first script brings files into memory.
        if round > 0 {
            alone.add(one);
            crowded.add(many);
            bare.add(floor);
        }
    }
    let floor = || Series::seconds(bare.delays.clone());
    let delay = || Series::seconds(alone.delays.clone());
    let print = "from a script's print to a client at a WebSocket";
    let alone_lengths = Series::seconds(alone.lengths.clone());
    let goal = alone_lengths.median() * SLOWED;
    Ok(vec![
        Figure::new(print, delay())
            .floor("pipe to socket", floor())
            .goal(GOAL),
        Figure::new(print, delay())
            .floor("pipe to socket", floor())
            .goal_of_tail(TAIL_GOAL),
        Figure::new(
            format!("{print}, one of {MANY}"),
            Series::seconds(crowded.delays),
        )
        .floor("pipe to socket", floor()),
        Figure::new(
            format!("a run that {MANY} follow"),
            Series::seconds(crowded.lengths),
        )
        .floor("a run that one follows", alone_lengths)
        .goal(goal),
    ])
}

/// The measurements of clients of scripts, in seconds.
#[derive(Debug, Default)]
struct Seen {
    /// From each print to its client.
    delays: Vec<f64>,
    /// From the first print of each script to the end of its run.
    lengths: Vec<f64>,
}

impl Seen {
    fn add(&mut self, more: Seen) {
        self.delays.extend(more.delays);
        self.lengths.extend(more.lengths);
    }
}

/// The script: it waits until its followers are connected, then prints the time.
fn script(settle: Duration) -> String {
    format!(
        "import time\ntime.sleep({})\nfor _ in range({LINES}):\n    print(time.monotonic(), flush=True)\n    time.sleep({})",
        settle.as_secs_f64(),
        PAUSE.as_secs_f64()
    )
}

/// Runs the script with a number of followers, one of which measures.
async fn followed(
    gateway: &mut GatewayServiceClient<Channel>,
    address: &str,
    clients: usize,
) -> anyhow::Result<Seen> {
    let settle = Duration::from_millis(300 + 4 * clients as u64);
    let (run_id, answers) = start_script(gateway, &script(settle)).await?;
    let run = tokio::spawn(follow(answers));
    let mut others = JoinSet::new();
    for _ in 1..clients {
        let mut client = EdgeClient::open(address, Edge::WebSocket, &run_id).await?;
        others.spawn(async move { while client.skip(4096).await {} });
    }
    let mut client = EdgeClient::open(address, Edge::WebSocket, &run_id).await?;
    let (mut seen, mut first) = (Seen::default(), None);
    while let Some(frame) = client.frame().await? {
        let now = monotonic_seconds();
        let record: Value = serde_json::from_slice(&frame)?;
        let printed = &record["event"]["outputChunk"]["text"];
        for line in printed.as_str().unwrap_or_default().lines() {
            let at: f64 = line.parse()?;
            first.get_or_insert(at);
            seen.delays.push(now - at);
        }
    }
    ensure!(
        seen.delays.len() == LINES,
        "{} lines came",
        seen.delays.len()
    );
    seen.lengths
        .push(monotonic_seconds() - first.context("no line came")?);
    run.await??;
    others.join_all().await;
    Ok(seen)
}

/// Runs the script with a bare interpreter, and passes its output to a socket.
async fn piped() -> anyhow::Result<Seen> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let mut child = Command::new("python3")
        .args(["-I", "-c", &script(Duration::ZERO)])
        .stdout(Stdio::piped())
        .spawn()?;
    let mut output = child.stdout.take().context("its output is a pipe")?;
    let client = TcpStream::connect(listener.local_addr()?).await?;
    let (mut server, _) = listener.accept().await?;
    server.set_nodelay(true)?;
    let passing = tokio::spawn(async move { tokio::io::copy(&mut output, &mut server).await });
    let mut lines = BufReader::new(client).lines();
    let mut seen = Seen::default();
    while let Some(line) = lines.next_line().await? {
        let at: f64 = line.parse()?;
        seen.delays.push(monotonic_seconds() - at);
    }
    passing.await??;
    ensure!(child.wait().await?.success(), "python3 fails");
    Ok(seen)
}

/// The monotonic clock, which scripts share with this process.
fn monotonic_seconds() -> f64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}
