//! A tenant that starts more runs than the service carries out, beside one that starts a run now and then.

use std::time::{Duration, Instant};

use contracts::access::Role;
use contracts::tavern::registry::v1::GetTenantRequest;
use contracts::tavern::run::v1::{WatchRunRequest, run_service_client::RunServiceClient};
use contracts::tavern::tenant::v1::TenantQuantity;
use grpc_kit::Transport;
use testkit::{Stack, eventually};
use tokio::task::JoinSet;

use crate::harness::Effort;
use crate::series::Series;
use crate::table::Figure;

/// The runs that wait in the queue while the quiet tenant is measured.
const QUEUED: u64 = 10_000;

/// The callers of the tenant that floods: several times as many as keep the service busy.
const FLOODERS: usize = 192;

/// The clients, each with a connection of its own, that the callers share.
const CLIENTS: usize = 8;

/// The most that a run of the quiet tenant may take beside the flood, in seconds; or twice its time alone.
const MOST: f64 = 20e-3;

/// The pause between two runs of the quiet tenant.
const PAUSE: Duration = Duration::from_millis(20);

pub(super) async fn run(effort: &Effort) -> anyhow::Result<Vec<Figure>> {
    let stack = Stack::builder()
        .with_keys()
        .env("TAVERN_WORKFLOW__MAX_QUEUED_RUNS", QUEUED.to_string())
        .env("TAVERN_WORKFLOW__MAX_ACTIVE_RUNS", "64")
        .start()
        .await?;
    for tenant in ["quiet", "noisy"] {
        stack.create_tenant(tenant, 1, Vec::new()).await?;
    }
    let quiet = stack
        .transport_of_principal("quiet", "ada", Role::Admin)
        .await?;
    super::put_workflow(&quiet).await?;
    let times = effort.times(500);
    let alone = runs(&quiet, times).await?;
    let mut clients = Vec::new();
    for client in 0..CLIENTS {
        let name = format!("client{client}");
        let noisy = stack.transport_of_principal("noisy", &name, Role::Admin);
        clients.push(noisy.await?);
    }
    super::put_workflow(&clients[0]).await?;
    let mut flooders = JoinSet::new();
    for caller in 0..FLOODERS {
        let noisy = clients[caller % CLIENTS].clone();
        flooders.spawn(async move {
            // A full queue refuses a start; the client ignores the pause that the refusal asks for.
            loop {
                super::start(&noisy).await.ok();
            }
        });
    }
    eventually("the queue is nearly full", || async {
        (queued(&stack).await.ok()? > QUEUED / 2).then_some(())
    })
    .await?;
    let beside = runs(&quiet, times).await?;
    let left = queued(&stack).await?;
    flooders.shutdown().await;
    let alone = Series::seconds(alone);
    let goal = (2.0 * alone.tail()).max(MOST);
    let figure = Figure::new(
        format!("a run beside a flood of another tenant, {left} queued"),
        Series::seconds(beside),
    );
    Ok(vec![figure.floor("a run alone", alone).goal_of_tail(goal)])
}

async fn queued(stack: &Stack) -> anyhow::Result<u64> {
    let request = GetTenantRequest {
        name: "noisy".to_owned(),
    };
    let found = stack.tenants().get_tenant(request).await?.into_inner();
    let mut uses = found.uses.into_iter();
    let queued = uses.find(|used| used.quantity() == TenantQuantity::QueuedRuns);
    Ok(queued.map_or(0, |used| used.used))
}

/// Returns the seconds of runs from their start until their end was seen.
async fn runs(transport: &Transport, times: usize) -> anyhow::Result<Vec<f64>> {
    let mut seconds = Vec::with_capacity(times);
    for _ in 0..times {
        tokio::time::sleep(PAUSE).await;
        let begin = Instant::now();
        let run_id = super::start(transport).await?;
        let watch = WatchRunRequest {
            run_id,
            ..WatchRunRequest::default()
        };
        let mut client = RunServiceClient::new(transport.outermost());
        let mut events = client.watch_run(watch).await?.into_inner();
        while events.message().await?.is_some() {}
        seconds.push(begin.elapsed().as_secs_f64());
    }
    Ok(seconds)
}
