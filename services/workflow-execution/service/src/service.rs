//! The service: its parts, and its life from start to end.

use std::sync::Arc;

use contracts::tavern::workflow::v1::schedule_service_server::ScheduleServiceServer;
use contracts::tavern::workflow::v1::workflow_service_server::WorkflowServiceServer;
use core_types::{Clock, IdSource, RunOwner, SystemClock, SystemIds};
use data_home::{DataHome, LogOptions, ServiceData};
use documents::{DocumentParts, DocumentStore, Kind as _, StoredDocuments};
use grpc_kit::Services;
use run_events::{Neighbours, RetentionSettings, Runs, retention::RunsOnly};
use sql_store::Database;

use crate::error::Error;
use crate::library::{Library, NodeTypes, WorkflowKind};
use crate::peers::Peers;
use crate::rpc::{Rpc, ScheduleRpc};
use crate::runner::{self, DefinitionStore, Inner, ScheduleTicker, Schedules};
use crate::settings::WorkflowSettings;
use crate::store::{MIGRATIONS, ResultTable};
use crate::tenants::StoredData;
use tenancy::TenantSync;
use workflow_runner::run_keys::RunKeys;
use workflow_runner::{Concurrency, ResultCache, RunBounds, RunPlaces, Runner};

/// The log of runs.
const LOG: LogOptions = LogOptions::new("workflow-execution.runs.db", "flow");

/// The data of this service.
pub const DATA: ServiceData = ServiceData {
    service: "workflow-execution",
    file: "workflow-execution.db",
    in_file: &[documents::MIGRATIONS, MIGRATIONS],
    schema: "workflow",
    kinds: &[WorkflowKind::NAME],
    logs: &[LOG],
};

/// The workflow-execution service.
#[derive(Clone, Debug)]
pub struct WorkflowExecution {
    home: DataHome,
    inner: Arc<Inner>,
    documents: Arc<dyn DocumentStore>,
    database: Database,
    retention: RetentionSettings,
    neighbours: Neighbours,
}

/// Builds the service on its data directory, with the machine's clock.
///
/// # Errors
/// [`Error`] when a directory or database cannot be opened.
pub async fn build(settings: WorkflowSettings, peers: Peers) -> Result<WorkflowExecution, Error> {
    build_with(settings, peers, Arc::new(SystemClock), Arc::new(SystemIds)).await
}

/// Builds the service with a clock and a source of ids.
///
/// # Errors
/// [`Error`] when a directory or database cannot be opened.
pub async fn build_with(
    settings: WorkflowSettings,
    peers: Peers,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn IdSource>,
) -> Result<WorkflowExecution, Error> {
    let home = DataHome::open(settings.home()).await?;
    build_at(home, settings, peers, (clock, ids)).await
}

/// Builds the service at a home that the process has opened, in place of that of the settings.
///
/// # Errors
/// [`Error`] when a database cannot be opened.
pub async fn build_at(
    home: DataHome,
    settings: WorkflowSettings,
    peers: Peers,
    (clock, ids): (Arc<dyn Clock>, Arc<dyn IdSource>),
) -> Result<WorkflowExecution, Error> {
    let database = home.tables(DATA.file, DATA.in_file).await?;
    let cache = ResultCache::open(Arc::new(ResultTable::new(database.clone()))).await?;
    let schedules = Schedules::new(Arc::new(database.clone()));
    let documents: Arc<dyn DocumentStore> = Arc::new(StoredDocuments::new(database.clone()));
    let parts = DocumentParts {
        store: Arc::clone(&documents),
        runs: None,
        clock: Arc::clone(&clock),
    };
    let options = LogOptions {
        window: settings.batch_window,
        ..LOG
    };
    let logs = home.log(options).await?;
    let library = Library::open(
        &settings.workflows_dir,
        parts,
        (
            Arc::new(workflow_nodes::builtin()),
            NodeTypes::new(peers.clone()),
        ),
    )
    .await?;
    let concurrency = Concurrency {
        per_run: settings.max_effects_per_run,
        per_depth: settings.max_effects,
        per_type: settings.max_effects_by_type,
    };
    let runs = Runs::new(
        logs,
        RunOwner::Workflow,
        Arc::clone(&clock),
        Arc::clone(&ids),
    );
    runs.pause_below(peers.agent.clone());
    let neighbours = peers.neighbours.clone();
    let hooks = peers.hooks.clone();
    let bounds = RunBounds {
        active: settings.max_active_runs,
        queued: settings.max_queued_runs,
        waiting: settings.max_waiting_runs,
    };
    let tenants = runs.tenants().clone();
    let inner = Inner {
        library,
        hooks,
        runs,
        runner: Arc::new(Runner::new(
            peers,
            cache,
            (concurrency, tenants.clone()),
            settings.rest_after,
        )),
        clock,
        ids,
        keys: RunKeys::default(),
        places: RunPlaces::new(bounds, tenants),
        definitions: DefinitionStore::new(Arc::new(database.clone())),
        schedules,
        ticker: ScheduleTicker::default(),
    };
    let inner = Arc::new(inner);
    runner::resume_what_rests(&inner);
    Ok(WorkflowExecution {
        home,
        inner,
        documents,
        database,
        retention: settings.retention,
        neighbours,
    })
}

impl WorkflowExecution {
    /// Returns the services of a server of its own.
    pub fn services(&self) -> Services {
        let stored = StoredData {
            inner: Arc::clone(&self.inner),
            documents: Arc::clone(&self.documents),
            database: self.database.clone(),
        };
        let tenants = self.inner.runs.tenants().clone();
        self.services_beside_gateway()
            .add(self.inner.runs.service())
            .add(TenantSync::service(tenants, Arc::new(stored)))
    }

    /// Returns the services of a server that serves the gateway too, whose run service covers these
    /// runs. Tenants arrive in memory there.
    pub fn services_beside_gateway(&self) -> Services {
        let rpc = Rpc::new(Arc::clone(&self.inner));
        let schedules = ScheduleRpc::new(Arc::clone(&self.inner));
        Services::new()
            .add(WorkflowServiceServer::new(rpc))
            .add(ScheduleServiceServer::new(schedules))
    }

    /// Continues every run of the previous process, and starts schedules. To be called once the
    /// server listens; services that nodes need may come later.
    ///
    /// # Errors
    /// [`Error::Recover`] when the log does not work.
    pub async fn recover(&self) -> Result<(), Error> {
        runner::recover(&self.inner).await?;
        self.inner.runs.wake_when_due();
        self.inner.ticker.start(&self.inner);
        let (name, beside) = (LOG.file, Arc::new(RunsOnly));
        let neighbours = self.neighbours.clone();
        self.inner
            .runs
            .retain(name, self.retention, neighbours, beside);
        Ok(())
    }

    /// Returns the number of runs in memory. A run that only waits is in its log alone.
    pub fn runs_in_memory(&self) -> usize {
        self.inner.runs.in_memory()
    }

    /// Returns the home of the tables and logs.
    pub fn home(&self) -> &DataHome {
        &self.home
    }

    /// Ends all tasks. Runs that are not over continue at the next start.
    pub async fn shutdown(&self) {
        self.inner.ticker.stop().await;
        self.inner.runs.shutdown().await;
        self.inner.runner.flush().await;
        self.database.close().await;
    }
}
