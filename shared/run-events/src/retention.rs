//! Retention of runs: the times of the passes and their metrics, and the knowledge of a run's owner that
//! [`run_log::Retention`] lacks.

mod guard;
mod neighbours;
mod run_cache;
mod settings;

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use async_trait::async_trait;
use contracts::tavern::common::v1::RunState;
use core_types::{Clock, Timestamp};
use opentelemetry::{KeyValue, metrics::Counter};
use run_log::{PassReport, Retention, RetentionError, RetentionGuard, RetentionPeriods, RunLogs};
use tonic::Status;

pub use guard::{RunGuard, RunsOnly, ServiceRetention};
pub use neighbours::Neighbours;
pub use run_cache::RunCache;
pub use settings::{RetentionSettings, check_age};

use crate::runs::Runs;

/// The bounds of the time between two passes, of which four fit into the shortest time that runs are kept.
const SHORTEST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Made when first needed, which is after telemetry has been set up.
static COUNTERS: LazyLock<Counters> = LazyLock::new(Counters::new);

struct Counters {
    runs: Counter<u64>,
    bytes: Counter<u64>,
}

impl Counters {
    fn new() -> Self {
        let meter = telemetry::meter();
        let runs = meter.u64_counter("tavern.retention.runs");
        let bytes = meter.u64_counter("tavern.retention.returned");
        Self {
            runs: runs
                .with_unit("{run}")
                .with_description("Runs and ledger entries that were deleted because of their age.")
                .build(),
            bytes: bytes
                .with_unit("By")
                .with_description("Space that went back to the file system.")
                .build(),
        }
    }
}

/// The owner of a log whose old runs are deleted.
#[async_trait]
pub trait SweepTarget: Send + Sync {
    /// Deletes old data alongside the log. Returns the guard of its runs for this pass, and a
    /// report of the deletion.
    ///
    /// # Errors
    /// The reason that the pass cannot be made now.
    async fn begin(
        &self,
        now: Timestamp,
    ) -> Result<(Box<dyn RetentionGuard + '_>, PassReport), Status>;
}

/// Makes the passes over one log.
#[derive(Debug)]
pub struct Sweeper {
    name: &'static str,
    retention: Retention,
    pause: Duration,
    clock: Arc<dyn Clock>,
}

impl Sweeper {
    /// Makes the sweeper of a log, with the name of its file and the retention times of its runs.
    /// `success` is the state of a run that succeeded.
    pub fn new(
        name: &'static str,
        log: RunLogs,
        settings: RetentionSettings,
        success: i32,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let periods = RetentionPeriods {
            success,
            succeeded: settings.succeeded(),
            others: settings.failed(),
        };
        let pause = periods.shortest().unwrap_or(LONGEST_PAUSE) / 4;
        Self {
            name,
            retention: Retention::new(log, periods),
            pause: pause.clamp(SHORTEST_PAUSE, LONGEST_PAUSE),
            clock,
        }
    }

    /// Makes a pass at once and then one after each pause, without end.
    pub async fn run(mut self, target: impl SweepTarget) {
        loop {
            match self.pass(&target).await {
                Ok(report) if report.runs + report.requests + report.bytes > 0 => tracing::info!(
                    log = self.name,
                    runs = report.runs,
                    kept = report.kept,
                    requests = report.requests,
                    bytes = report.bytes,
                    "what ended long ago is deleted"
                ),
                Ok(_) => {}
                Err(error) => tracing::warn!(
                    log = self.name,
                    error = grpc_kit::failure::chain(&error),
                    "what ended long ago is kept until the next pass"
                ),
            }
            tokio::time::sleep(self.pause).await;
        }
    }

    /// Makes a pass.
    ///
    /// # Errors
    /// The reason for its early end.
    pub async fn pass(&mut self, target: &dyn SweepTarget) -> Result<PassReport, RetentionError> {
        let now = self.clock.now();
        let begun = target.begin(now).await;
        let (guard, beside) = begun.map_err(|status| RetentionError::Guard(status.into()))?;
        let mut report = self.retention.pass(now, &*guard).await?;
        report.runs += beside.runs;
        report.bytes += beside.bytes;
        let log = [KeyValue::new(telemetry::attributes::STORE, self.name)];
        COUNTERS.runs.add(report.runs, &log);
        COUNTERS.bytes.add(report.bytes, &log);
        Ok(report)
    }
}

/// The runs of a service, its neighbours, and the retention of its other data.
struct ServiceRuns {
    runs: Runs,
    neighbours: Neighbours,
    service: Arc<dyn ServiceRetention>,
}

#[async_trait]
impl SweepTarget for ServiceRuns {
    async fn begin(
        &self,
        now: Timestamp,
    ) -> Result<(Box<dyn RetentionGuard + '_>, PassReport), Status> {
        let guard = RunGuard::new(&self.runs, &self.neighbours, &*self.service);
        let beside = self.service.sweep(now, &guard).await?;
        Ok((Box::new(guard), beside))
    }
}

impl Runs {
    /// Begins to delete runs that ended long ago, until the service ends. `name` is the name of the
    /// log's file, `service` the retention of the other data of the service.
    pub fn retain(
        &self,
        name: &'static str,
        settings: RetentionSettings,
        neighbours: Neighbours,
        service: Arc<dyn ServiceRetention>,
    ) {
        let log = self.store().logs.clone();
        let success = RunState::Succeeded.into();
        let clock = Arc::clone(self.clock());
        let sweeper = Sweeper::new(name, log, settings, success, clock);
        let target = ServiceRuns {
            runs: self.clone(),
            neighbours,
            service,
        };
        self.sweep(sweeper, target);
    }

    /// Begins to make the passes over another log of the service, until the service ends.
    pub fn sweep(&self, sweeper: Sweeper, target: impl SweepTarget + 'static) {
        self.executor().spawn(sweeper.run(target));
    }
}
