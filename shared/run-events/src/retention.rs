//! Retention of runs: when passes are made, what they report, and what a run's owner knows that
//! [`run_log::Retention`] does not.

mod keeper;
mod neighbours;
mod settings;

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use async_trait::async_trait;
use contracts::tavern::common::v1::RunState;
use core_types::{Clock, Timestamp};
use opentelemetry::{KeyValue, metrics::Counter};
use run_log::{Ages, Keeper, Passed, Retention, RetentionError, RunLog};
use tonic::Status;

pub use keeper::{Besides, NothingBesides, RunKeeper};
pub use neighbours::Neighbours;
pub use settings::{RetentionSettings, check_age};

use crate::runs::Runs;

/// The bounds of the time between two passes, of which four fit into the shortest age.
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
pub trait Swept: Send + Sync {
    /// Deletes what is old beside the log, and returns what decides about its runs in this pass. The second
    /// value is the number of bytes that went back to the file system.
    ///
    /// # Errors
    /// Why the pass cannot be made now.
    async fn begin(&self, now: Timestamp) -> Result<(Box<dyn Keeper + '_>, u64), Status>;
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
    /// Takes a log by the name of its file, and says how long its runs are kept. `success` is the state of one
    /// that succeeded.
    pub fn new(
        name: &'static str,
        log: Arc<dyn RunLog>,
        settings: RetentionSettings,
        success: i32,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let ages = Ages {
            success,
            succeeded: settings.succeeded(),
            others: settings.failed(),
        };
        let pause = ages.shortest().unwrap_or(LONGEST_PAUSE) / 4;
        Self {
            name,
            retention: Retention::new(log, ages),
            pause: pause.clamp(SHORTEST_PAUSE, LONGEST_PAUSE),
            clock,
        }
    }

    /// Makes a pass at once and then one after each pause, without end.
    pub async fn run(mut self, owner: impl Swept) {
        loop {
            match self.pass(&owner).await {
                Ok(passed) if passed.runs + passed.requests + passed.bytes > 0 => tracing::info!(
                    log = self.name,
                    runs = passed.runs,
                    kept = passed.kept,
                    requests = passed.requests,
                    bytes = passed.bytes,
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
    /// Why it ended early.
    pub async fn pass(&mut self, owner: &dyn Swept) -> Result<Passed, RetentionError> {
        let now = self.clock.now();
        let begun = owner.begin(now).await;
        let (keeper, bytes) = begun.map_err(|status| RetentionError::Keeper(status.into()))?;
        let mut passed = self.retention.pass(now, &*keeper).await?;
        passed.bytes += bytes;
        let log = [KeyValue::new(telemetry::attributes::STORE, self.name)];
        COUNTERS.runs.add(passed.runs, &log);
        COUNTERS.bytes.add(passed.bytes, &log);
        Ok(passed)
    }
}

/// All runs of a service, with its neighbours and what it keeps beside them.
struct SweptRuns {
    runs: Runs,
    neighbours: Neighbours,
    besides: Arc<dyn Besides>,
}

#[async_trait]
impl Swept for SweptRuns {
    async fn begin(&self, now: Timestamp) -> Result<(Box<dyn Keeper + '_>, u64), Status> {
        let keeper = RunKeeper::new(&self.runs, &self.neighbours, &*self.besides);
        let bytes = self.besides.sweep(now, &keeper).await?;
        Ok((Box::new(keeper), bytes))
    }
}

impl Runs {
    /// Begins to delete runs that ended long ago, until the service ends. `name` is that of the log's file,
    /// `besides` what the service keeps beside its runs.
    pub fn retain(
        &self,
        name: &'static str,
        settings: RetentionSettings,
        neighbours: Neighbours,
        besides: Arc<dyn Besides>,
    ) {
        let log = Arc::new(self.store().logs.clone());
        let success = RunState::Succeeded.into();
        let clock = Arc::clone(self.clock());
        let sweeper = Sweeper::new(name, log, settings, success, clock);
        let swept = SweptRuns {
            runs: self.clone(),
            neighbours,
            besides,
        };
        self.sweep(sweeper, swept);
    }

    /// Begins to make the passes over another log of the service, until the service ends.
    pub fn sweep(&self, sweeper: Sweeper, owner: impl Swept + 'static) {
        self.executor().spawn(sweeper.run(owner));
    }
}
