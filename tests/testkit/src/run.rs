//! Following runs in tests.

use anyhow::{Context, bail, ensure};
use contracts::tavern::common::v1::{Run, RunEvent, watch_record::Record};
use contracts::tavern::gateway::v1::InvokeTextRequest;
use contracts::tavern::gateway::v1::gateway_service_client::GatewayServiceClient;
use contracts::tavern::run::v1::WatchRunRequest;
use contracts::tavern::run::v1::run_service_client::RunServiceClient;
use contracts::watch::decode;
use grpc_kit::Outbound;

/// All records of a watch.
#[derive(Clone, Debug)]
pub struct Followed {
    /// The events in order.
    pub events: Vec<RunEvent>,
    /// The run as it ended.
    pub run: Run,
    /// Whether the request id had been seen before.
    pub replayed: bool,
}

/// Invokes a text and follows the run to its end.
///
/// # Errors
/// The call fails, or the events have gaps.
pub async fn invoke(
    gateway: &GatewayServiceClient<Outbound>,
    request: InvokeTextRequest,
) -> anyhow::Result<Followed> {
    let mut stream = gateway.clone().invoke_text(request).await?.into_inner();
    let mut events = Vec::new();
    while let Some(answer) = stream.message().await? {
        if let Some(run) = take(decode(answer.record)?, &mut events, 0)? {
            return Ok(Followed {
                events,
                run,
                replayed: answer.replayed,
            });
        }
    }
    bail!("the stream ended before the run did")
}

/// Follows a run to its end, after the sequence `after`.
///
/// # Errors
/// The call fails, or the events have gaps.
pub async fn collect(
    runs: &RunServiceClient<Outbound>,
    run_id: &str,
    after: u64,
) -> anyhow::Result<Followed> {
    let request = WatchRunRequest {
        run_id: run_id.to_owned(),
        after_sequence: after,
    };
    let mut stream = runs.clone().watch_run(request).await?.into_inner();
    let mut events = Vec::new();
    while let Some(answer) = stream.message().await? {
        if let Some(run) = take(decode(answer.record)?, &mut events, after)? {
            return Ok(Followed {
                events,
                run,
                replayed: false,
            });
        }
    }
    bail!("the stream ended before the run did")
}

/// Invokes a text and follows the run until `enough` holds, then drops the stream.
///
/// # Errors
/// The call fails, or the run ends before.
pub async fn until(
    gateway: &GatewayServiceClient<Outbound>,
    request: InvokeTextRequest,
    enough: impl Fn(&RunEvent) -> bool,
) -> anyhow::Result<(String, Vec<RunEvent>)> {
    let mut stream = gateway.clone().invoke_text(request).await?.into_inner();
    let mut events = Vec::new();
    while let Some(answer) = stream.message().await? {
        if let Some(run) = take(decode(answer.record)?, &mut events, 0)? {
            bail!("the run ended first: {run:?}");
        }
        if events.last().is_some_and(&enough) {
            return Ok((answer.run_id, events));
        }
    }
    bail!("the stream ended first")
}

/// Adds one record; returns the run when it has ended.
fn take(
    record: Option<Record>,
    events: &mut Vec<RunEvent>,
    after: u64,
) -> anyhow::Result<Option<Run>> {
    match record.context("a watch gave an empty record")? {
        Record::Event(event) => {
            let due = after + events.len() as u64 + 1;
            ensure!(
                event.sequence == due,
                "event {} came where {due} was due",
                event.sequence
            );
            events.push(event);
            Ok(None)
        }
        Record::Terminal(terminal) => terminal
            .run
            .context("the terminal record has no run")
            .map(Some),
        Record::Heartbeat(_) => Ok(None),
        Record::Gap(gap) => bail!("events are missing: {gap:?}"),
        Record::Drain(_) => bail!("the server drains"),
    }
}
