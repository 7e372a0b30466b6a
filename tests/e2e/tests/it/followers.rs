//! Many followers of one run: they leave room for other calls, and followers that do not read cost
//! little.

use contracts::tavern::run::v1::run_service_client::RunServiceClient;
use contracts::tavern::run::v1::{CancelRunRequest, WatchRunRequest, WatchRunResponse};
use testkit::{Process, Stack, eventually, invoke, until};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tonic::{Streaming, transport::Channel, transport::Endpoint};

use crate::text::{failing_agents, model_text, user_message};

/// The window of a client that has chosen none.
const DEFAULT_WINDOW: u32 = 65_535;

/// A client with one connection, as the libraries of other languages have it, on which
/// `connection_window` bytes may wait unread.
async fn one_connection(
    stack: &Stack,
    connection_window: u32,
) -> anyhow::Result<RunServiceClient<Channel>> {
    let endpoint = Endpoint::from_shared(stack.address())?
        .initial_stream_window_size(DEFAULT_WINDOW)
        .initial_connection_window_size(connection_window);
    Ok(RunServiceClient::new(endpoint.connect().await?))
}

async fn watch(
    client: &mut RunServiceClient<Channel>,
    run_id: &str,
) -> anyhow::Result<Streaming<WatchRunResponse>> {
    let request = WatchRunRequest {
        run_id: run_id.to_owned(),
        after_sequence: 0,
    };
    Ok(client.watch_run(request).await?.into_inner())
}

async fn followers_leave_room_for_a_cancel(stack: Stack) -> anyhow::Result<()> {
    let started = |_: &_| true;
    let request = user_message("slow_thinker", "Think.");
    let (run_id, _) = until(&stack.gateway(), request, started).await?;
    // h2 ends a connection on which many small frames wait; its window decides how many.
    let mut client = one_connection(&stack, 8 << 20).await?;
    let mut followers = Vec::new();
    for _ in 0..120 {
        let mut follower = watch(&mut client, &run_id).await?;
        anyhow::ensure!(follower.message().await?.is_some());
        followers.push(follower);
    }
    let mut request = tonic::Request::new(CancelRunRequest {
        run_id,
        reason: "enough".into(),
    });
    request.set_timeout(std::time::Duration::from_secs(30));
    let cancelled = client.cancel_run(request).await?.into_inner();
    assert_eq!(cancelled.still_running, []);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_and_twenty_followers_leave_room_for_a_cancel() -> anyhow::Result<()> {
    let stack = Stack::builder().deploy(failing_agents()).start().await?;
    followers_leave_room_for_a_cancel(stack).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_and_twenty_followers_leave_room_for_a_cancel_between_processes()
-> anyhow::Result<()> {
    let builder = Stack::builder().separate().deploy(failing_agents());
    followers_leave_room_for_a_cancel(builder.start().await?).await
}

/// The resident memory of a process in KiB, without pages of its program, which the first use of any code
/// adds.
fn resident(process: &Process) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.id()));
    let status = status.unwrap_or_default();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"));
    let figure = line.and_then(|line| line.trim().strip_suffix("kB"));
    figure.map_or(0, |figure| figure.trim().parse().unwrap_or(0))
}

fn resident_of_all(stack: &mut Stack) -> u64 {
    stack.processes().iter().map(resident).sum()
}

/// Waits until the memory of all processes has not changed for a while.
async fn settled(stack: &mut Stack) -> anyhow::Result<u64> {
    let mut last = (0, 0);
    eventually("the memory to settle", || {
        let now = resident_of_all(stack);
        let same = now.abs_diff(last.0) <= now / 100;
        last = if same { (last.0, last.1 + 1) } else { (now, 0) };
        let settled = (last.1 > 50).then_some(now);
        async move { settled }
    })
    .await
}

/// The memory of 400 stalled streams: 64 KiB each, the share of a peer in each process that passes
/// their messages on, and a tenth that allocators keep.
const MOST_KIB: u64 = (400 * 64 + 4 * (8 << 10)) * 11 / 10;

/// Starts a run with records of a megabyte; returns its id, and the memory of all processes.
async fn long_run(stack: &mut Stack) -> anyhow::Result<(String, u64)> {
    let text = "A long answer without a call. ".repeat(33_000);
    let run = invoke(&stack.gateway(), model_text(&text)).await?;
    let run_id = run.run.run_id;
    // The memory of caches that the first followers fill is not a stream's.
    testkit::collect(&stack.runs(), &run_id, 0).await?;
    Ok((run_id, settled(stack).await?))
}

/// Checks that streams that are held cost little.
async fn cost_little<S>(stack: &mut Stack, before: u64, held: &[S]) -> anyhow::Result<()> {
    let grown = settled(stack).await?.saturating_sub(before);
    assert!(grown <= MOST_KIB, "{grown} KiB for {} streams", held.len());
    Ok(())
}

async fn stalled_followers_cost_little(mut stack: Stack) -> anyhow::Result<()> {
    let (run_id, before) = long_run(&mut stack).await?;
    let mut held = Vec::new();
    for _ in 0..4 {
        let mut client = one_connection(&stack, DEFAULT_WINDOW).await?;
        for _ in 0..100 {
            held.push(watch(&mut client, &run_id).await?);
        }
    }
    cost_little(&mut stack, before, &held).await?;
    drop(held);
    eventually("the memory to come back", || {
        let left = resident_of_all(&mut stack).saturating_sub(before);
        async move { (left <= MOST_KIB * 2 / 3).then_some(()) }
    })
    .await
}

/// Follows a run as a page does, and reads only the first byte.
async fn page(stack: &Stack, run_id: &str, headers: &str) -> anyhow::Result<TcpStream> {
    let address = stack.address();
    let host = address.trim_start_matches("http://");
    let socket = TcpSocket::new_v4()?;
    socket.set_recv_buffer_size(4 << 10)?;
    let mut stream = socket.connect(host.parse()?).await?;
    let request = format!("GET /v1/runs/{run_id}/events HTTP/1.1\r\nhost: {host}\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).await?;
    stream.read_u8().await?;
    Ok(stream)
}

#[tokio::test(flavor = "multi_thread")]
async fn stalled_pages_that_follow_a_long_run_cost_little_memory() -> anyhow::Result<()> {
    const UPGRADE: &str = "connection: upgrade\r\nupgrade: websocket\r\n\
        sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    let mut stack = Stack::builder()
        .env("TAVERN__SERVER__MAX_CONNECTIONS_PER_PEER", "500")
        .start()
        .await?;
    let (run_id, before) = long_run(&mut stack).await?;
    let mut held = Vec::new();
    for _ in 0..200 {
        held.push(page(&stack, &run_id, UPGRADE).await?);
        held.push(page(&stack, &run_id, "accept: text/event-stream\r\n").await?);
    }
    cost_little(&mut stack, before, &held).await
}

#[tokio::test(flavor = "multi_thread")]
async fn stalled_followers_of_a_long_run_cost_little_memory() -> anyhow::Result<()> {
    stalled_followers_cost_little(Stack::all_in_one().await?).await
}

#[tokio::test(flavor = "multi_thread")]
async fn stalled_followers_between_processes_cost_little_memory() -> anyhow::Result<()> {
    stalled_followers_cost_little(Stack::builder().separate().start().await?).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_connection_is_logged_with_the_setting_to_raise() -> anyhow::Result<()> {
    let mut stack = Stack::builder()
        .env("TAVERN__SERVER__MAX_CONNECTIONS_PER_PEER", "8")
        .start()
        .await?;
    let mut held = Vec::new();
    for _ in 0..16 {
        let address = stack.address();
        let address = address.trim_start_matches("http://");
        held.push(tokio::net::TcpStream::connect(address).await?);
    }
    eventually("the log line", || {
        let text = stack.processes()[0].output();
        let named = text.contains("server.max_connections_per_peer");
        async move { named.then_some(()) }
    })
    .await
}
