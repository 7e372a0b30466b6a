//! The cost of tracing: processor time per invocation of a server that exports one trace in ten,
//! compared with a server that exports none.
//!
//! Both run the whole time and serve requests in turn, so that all other load of the machine
//! affects both alike. Processor time is compared and not time of day, as it hardly depends on
//! other load.

use anyhow::{Context, ensure};
use contracts::tavern::gateway::v1::gateway_service_client::GatewayServiceClient;
use tonic::transport::Channel;

use crate::harness::{Effort, at_once};
use crate::series::Series;
use crate::support::in_process::{connect, follow, invocation};
use crate::support::processes;
use crate::support::receiver::Receiver;
use crate::support::served::Served;
use crate::table::Figure;

/// The callers at once.
const CALLERS: usize = 16;

/// The requests of each in one round.
const EACH: usize = 250;

/// The goal for the relative cost of tracing.
const GOAL: f64 = 1.03;

pub(super) async fn run(effort: &Effort) -> anyhow::Result<Vec<Figure>> {
    let receiver = Receiver::start()?;
    let environment = [
        (
            "TAVERN__TELEMETRY__OTLP_ENDPOINT".to_owned(),
            receiver.endpoint(),
        ),
        (
            "TAVERN__TELEMETRY__SAMPLE_RATIO".to_owned(),
            "0.1".to_owned(),
        ),
    ];
    let plain = Asked::start(effort, "127.83.2.1", &[]).await?;
    let traced = Asked::start(effort, "127.83.2.2", &environment).await?;
    let (mut without, mut with) = (Vec::new(), Vec::new());
    for round in 0..=effort.times(20) {
        let cost = plain.round().await?;
        let traced_cost = traced.round().await?;
        if round > 0 {
            without.push(cost);
            with.push(traced_cost);
        }
    }
    ensure!(receiver.received() > 0, "nothing was exported");
    let without = Series::seconds(without);
    let goal = without.median() * GOAL;
    let figure = Figure::new(
        "processor time of an invocation, one in ten traced",
        Series::seconds(with),
    );
    Ok(vec![figure.floor("without export", without).goal(goal)])
}

/// A server with a client.
struct Asked {
    server: Served,
    gateway: GatewayServiceClient<Channel>,
}

impl Asked {
    async fn start(
        effort: &Effort,
        host: &str,
        environment: &[(String, String)],
    ) -> anyhow::Result<Self> {
        let server = Served::start(effort, host, environment).await?;
        let gateway = connect(server.address()).await?;
        Ok(Self { server, gateway })
    }

    /// Invokes many times and returns the seconds of processor time of each invocation.
    async fn round(&self) -> anyhow::Result<f64> {
        let used =
            || processes::processor_seconds(self.server.id()).context("the server has ended");
        let before = used()?;
        let gateway = self.gateway.clone();
        let ask = move |_| {
            let mut gateway = gateway.clone();
            async move {
                follow(gateway.invoke_text(invocation(1)).await?.into_inner())
                    .await
                    .map(drop)
            }
        };
        at_once(CALLERS, EACH, ask).await?;
        Ok((used()? - before) / (CALLERS * EACH) as f64)
    }
}
