//! Many callers at once, of one process and of five: the rate shall not fall with their number.
//!
//! The floor of each figure is the best rate of the smaller numbers of callers, in the same rounds.

use std::sync::Arc;

use contracts::tavern::gateway::v1::ParseTextRequest;
use contracts::tavern::gateway::v1::gateway_service_client::GatewayServiceClient;
use testkit::Stack;
use tonic::transport::Channel;

use crate::harness::{Effort, at_once};
use crate::series::{Series, Unit};
use crate::support::in_process;
use crate::table::Figure;

/// Numbers of callers at once, the fewest first.
const CALLERS: [usize; 3] = [64, 200, 1_000];

/// The number of connections that the callers share. The gateway accepts 192 calls of each.
const CONNECTIONS: usize = 8;

/// The number of calls in a round, for each number of callers.
const WORK: usize = 4_000;

pub(super) async fn run(effort: &Effort) -> anyhow::Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for (place, programs, builder) in [
        ("one process", &["TAVERN"][..], Stack::builder()),
        (
            "five processes",
            &["TAVERN_GATEWAY", "TAVERN_REGISTRY"],
            Stack::builder().separate(),
        ),
    ] {
        // All callers have one address here, and behind the gateway they are one caller.
        let builder = programs.iter().fold(builder, |builder, program| {
            builder.env(format!("{program}__SERVER__MAX_STREAMS_PER_PEER"), "2000")
        });
        let stack = builder.start().await?;
        let mut gateways = Vec::new();
        for _ in 0..CONNECTIONS {
            gateways.push(in_process::connect(&stack.address()).await?);
        }
        let gateways = Arc::new(gateways);
        let gateway = move |caller: usize| gateways[caller % CONNECTIONS].clone();
        let parse = {
            let gateway = gateway.clone();
            move |caller| parse_text(gateway(caller))
        };
        figures.extend(rates(&format!("ParseText in {place}"), parse, effort).await?);
        let invoke = move |caller| invoke_text(gateway(caller));
        figures.extend(rates(&format!("InvokeText in {place}"), invoke, effort).await?);
    }
    Ok(figures)
}

async fn parse_text(mut gateway: GatewayServiceClient<Channel>) -> anyhow::Result<()> {
    let request = ParseTextRequest {
        text: in_process::model_text(1),
        scope: Some(in_process::scope()),
        ..ParseTextRequest::default()
    };
    gateway.parse_text(request).await?;
    Ok(())
}

async fn invoke_text(mut gateway: GatewayServiceClient<Channel>) -> anyhow::Result<()> {
    let stream = gateway.invoke_text(in_process::invocation(1)).await?;
    in_process::follow(stream.into_inner()).await.map(drop)
}

/// Measures the rate for each number of callers, in turn.
async fn rates<F, Fut>(what: &str, work: F, effort: &Effort) -> anyhow::Result<Vec<Figure>>
where
    F: Fn(usize) -> Fut + Clone + Send + 'static,
    Fut: Future<Output = anyhow::Result<()>> + Send,
{
    let mut rates = CALLERS.map(|_| Vec::new());
    for round in 0..=effort.times(10) {
        for (callers, rates) in CALLERS.into_iter().zip(&mut rates) {
            let rate = at_once(callers, WORK.div_ceil(callers), work.clone()).await?;
            if round > 0 {
                rates.push(rate);
            }
        }
    }
    let mut best: Option<(usize, Series)> = None;
    let mut figures = Vec::new();
    for (callers, rates) in CALLERS.into_iter().zip(rates) {
        let rates = Series::new(Unit::PerSecond, rates);
        let figure = Figure::new(format!("{what}, {callers} at once"), rates.clone());
        figures.push(match &best {
            None => figure,
            Some((fewer, best)) => figure.floor(format!("{fewer} at once"), best.clone()),
        });
        let is_best = best
            .as_ref()
            .is_none_or(|(_, best)| rates.median() > best.median());
        if is_best {
            best = Some((callers, rates));
        }
    }
    Ok(figures)
}
