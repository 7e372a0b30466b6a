//! The shares of three tenants that all start more runs than the service carries out.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use contracts::access::Role;
use testkit::Stack;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::harness::Effort;
use crate::series::{Series, Unit};
use crate::table::Figure;

/// The weights of the tenants.
const WEIGHTS: [u32; 3] = [1, 2, 4];

/// The callers of each tenant, and the runs that it may have in the queue: so many callers that the queue of each is
/// always full.
const CALLERS: usize = 32;

/// The time until all queues are full.
const WARM_UP: Duration = Duration::from_secs(3);

pub(super) async fn run(effort: &Effort) -> anyhow::Result<Vec<Figure>> {
    let stack = Stack::builder()
        .with_keys()
        .env("TAVERN_WORKFLOW__MAX_QUEUED_RUNS", "100")
        .env("TAVERN_WORKFLOW__MAX_ACTIVE_RUNS", "4")
        .start()
        .await?;
    let mut callers = JoinSet::new();
    let mut started = Vec::new();
    for weight in WEIGHTS {
        let tenant = format!("weight{weight}");
        stack.create_tenant(&tenant, weight, Vec::new()).await?;
        let transport = stack
            .transport_of_principal(&tenant, "bob", Role::Admin)
            .await?;
        super::put_workflow(&transport).await?;
        let count = Arc::new(AtomicU64::new(0));
        started.push(Arc::clone(&count));
        for _ in 0..CALLERS {
            let (transport, count) = (transport.clone(), Arc::clone(&count));
            callers.spawn(async move {
                loop {
                    match super::start(&transport).await {
                        Ok(_) => count.fetch_add(1, Ordering::Relaxed),
                        // The queue is full.
                        Err(_) => {
                            sleep(Duration::from_millis(5)).await;
                            0
                        }
                    };
                }
            });
        }
    }
    sleep(WARM_UP).await;
    let read = || {
        started
            .iter()
            .map(|count| count.load(Ordering::Relaxed) as f64)
    };
    let (mut before, mut rates): (Vec<f64>, [Vec<f64>; 3]) = (read().collect(), Default::default());
    let seconds = effort.times(60);
    for _ in 0..seconds {
        sleep(Duration::from_secs(1)).await;
        let now: Vec<f64> = read().collect();
        for (tenant, rate) in rates.iter_mut().enumerate() {
            rate.push(now[tenant] - before[tenant]);
        }
        before = now;
    }
    callers.shutdown().await;
    let all: f64 = rates.iter().flatten().sum::<f64>() / seconds as f64;
    let weights: u32 = WEIGHTS.iter().sum();
    let figures = WEIGHTS.into_iter().zip(rates).map(|(weight, rate)| {
        let mean = rate.iter().sum::<f64>() / seconds as f64;
        let share = all * f64::from(weight) / f64::from(weights);
        let per_second = |value| Series::new(Unit::PerSecond, vec![value]);
        Figure::new(
            format!("runs of a tenant of weight {weight}, of {weights}"),
            per_second(mean),
        )
        .floor("its share of all runs", per_second(share))
        .goal(0.9 * share)
    });
    Ok(figures.collect())
}
