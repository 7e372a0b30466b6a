//! The limits, the uses and the end of a tenant.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use contracts::tavern::common::v1::{ErrorReason, RunState};
use contracts::tavern::tenant::v1::tenant_peer_service_client::TenantPeerServiceClient;
use contracts::tavern::tenant::v1::*;
use contracts::tavern::workflow::v1::{PutWorkflowRequest, StartRunRequest};
use serde_json::json;
use sqlx::ConnectOptions as _;
use sqlx::sqlite::SqliteConnectOptions;
use workflow_execution::WorkflowSettings;

use crate::cache::doubling;
use crate::principals::Caller;
use crate::support::*;

/// Two principals of the same name in two tenants.
const TWO: [&str; 2] = ["acme/bob", "globex/bob"];

/// The rows of a tenant by table, of all files.
type Rows = BTreeMap<String, u64>;

fn acme(state: TenantState) -> Tenant {
    Tenant {
        name: "acme".to_owned(),
        weight: 1,
        state: state.into(),
        ..Tenant::default()
    }
}

fn one_at_a_time(settings: &mut WorkflowSettings) {
    settings.max_active_runs = 1;
}

/// A run with a tool that waits.
fn waiting() -> StartRunRequest {
    of_definition(&json!({"nodes": [tool("t", "wait")]}), json!({}))
}

impl World {
    /// Sends the tenant `acme` as the registry does, and returns the number of rows that are left and its uses by quantity.
    async fn sync(&self, tenant: Tenant, cancel: bool) -> (u64, BTreeMap<String, u64>) {
        let transport = grpc_kit::local(&self.service.services());
        let mut client = TenantPeerServiceClient::new(transport.outermost());
        let synced = SyncedTenant {
            tenant: Some(tenant),
            cancel,
            ..SyncedTenant::default()
        };
        let tenants = vec![synced];
        let answer = client.sync_tenants(SyncTenantsRequest { tenants }).await;
        let answers = answer.unwrap().into_inner().tenants.into_iter();
        let found = answers.into_iter().find(|found| found.tenant == "acme");
        let found = found.unwrap_or_default();
        let uses = found.uses.iter();
        let uses = uses.map(|one| (one.quantity().as_str_name().to_owned(), one.used));
        (found.left, uses.collect())
    }

    async fn rows(&self, tenant: &str) -> Rows {
        let mut rows = Rows::new();
        for file in ["workflow-execution.db", "workflow-execution.runs.db"] {
            let path = self.directory.path().join("data").join(file);
            rows.extend(sql_store::count_rows(&path, tenant).await.unwrap());
        }
        rows
    }

    /// Returns the rows of a tenant once every table has some: results are written later.
    async fn rows_everywhere(&self, tenant: &str) -> Rows {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let rows = self.rows(tenant).await;
            if rows.values().all(|rows| *rows > 0) {
                return rows;
            }
            assert!(Instant::now() < deadline, "a table has no row: {rows:?}");
        }
    }

    /// Stores a revision, which no workflow has yet.
    async fn add_revision(&self, tenant: &str) {
        let path = self.directory.path().join("data/workflow-execution.db");
        let options = SqliteConnectOptions::new().filename(path);
        let mut connection = options.connect().await.unwrap();
        let added = sqlx::query(
            "INSERT INTO document_revision (tenant, kind, id, revision, etag, label, from_file, \
             same_version_as, created, text) VALUES (?1, 'workflow', 'work', 1, '', '', 0, 0, 0, '')",
        );
        added.bind(tenant).execute(&mut connection).await.unwrap();
    }

    async fn started(&self, caller: &Caller, request: StartRunRequest) -> String {
        let started = caller.client.clone().start_run(request).await.unwrap();
        started.into_inner().run.unwrap().run_id
    }
}

#[tokio::test]
async fn a_removed_tenant_leaves_no_row_and_another_with_equal_names_keeps_all() {
    let world = World::new().await;
    world.service.recover().await.unwrap();
    let definition = doubling(json!({"ttl": "5m"}));
    for principal in TWO {
        let caller = world.by(principal);
        let put = PutWorkflowRequest {
            workflow_id: "work".to_owned(),
            definition_json: definition.to_string(),
            request_id: "put".to_owned(),
            ..PutWorkflowRequest::default()
        };
        caller.client.clone().put_workflow(put).await.unwrap();
        let request = StartRunRequest {
            request_id: "run".to_owned(),
            ..of_workflow("work", json!({"n": 1}))
        };
        let run = world.started(&caller, request).await;
        assert_eq!(world.outcome(&run).await.state(), RunState::Succeeded);
        caller.put_schedule("daily-work").await;
        let time = caller.trigger("daily-work", "once").await.unwrap();
        if !time.run_id.is_empty() {
            world.outcome(&time.run_id).await;
        }
        world
            .add_revision(principal.split('/').next().unwrap())
            .await;
    }
    let before = world.rows_everywhere("globex").await;
    assert_eq!(world.rows_everywhere("acme").await, before);

    let mut left = 1;
    for _ in 0..10 {
        (left, _) = world.sync(acme(TenantState::Removing), false).await;
        if left == 0 {
            break;
        }
    }
    assert_eq!(left, 0);
    let of_acme = world.rows("acme").await;
    assert!(of_acme.values().all(|rows| *rows == 0), "{of_acme:?}");
    assert_eq!(world.rows("globex").await, before);
    let world = world.restart().await;
    assert_eq!(world.rows("acme").await, of_acme);
}

#[tokio::test]
async fn the_queued_runs_of_a_tenant_are_bounded_reported_and_cancelled() {
    let world = World::with(one_at_a_time).await;
    let [caller, other] = TWO.map(|principal| world.by(principal));
    let limited = Tenant {
        limits: vec![TenantLimit {
            quantity: TenantQuantity::QueuedRuns.into(),
            hard: 1,
            soft: 0,
        }],
        ..acme(TenantState::Open)
    };
    world.sync(limited.clone(), false).await;
    let running = world.started(&caller, waiting()).await;
    let queued = world.started(&caller, waiting()).await;
    assert_eq!(world.run_of(&queued).await.state(), RunState::Queued);
    let refused = caller.client.clone().start_run(waiting()).await;
    let refused = refused.unwrap_err();
    assert_eq!(grpc_kit::reason(&refused), Some(ErrorReason::TenantLimit));
    assert_eq!(grpc_kit::metadata(&refused)["limit"], "queued_runs");
    assert!(grpc_kit::retry_after(&refused).is_some());
    let of_other = world.started(&other, waiting()).await;
    assert_eq!(world.run_of(&of_other).await.state(), RunState::Queued);

    let (_, uses) = world.sync(limited, false).await;
    let [open, of_queue] = [TenantQuantity::OpenRuns, TenantQuantity::QueuedRuns]
        .map(|quantity| quantity.as_str_name().to_owned());
    assert_eq!(uses, BTreeMap::from([(open, 2), (of_queue, 1)]));
    world.sync(acme(TenantState::Closing), true).await;
    for run in [&running, &queued] {
        assert_eq!(world.outcome(run).await.state(), RunState::Cancelled);
    }
    world.registry.release();
    assert_eq!(world.outcome(&of_other).await.state(), RunState::Succeeded);
    let (_, uses) = world.sync(acme(TenantState::Closing), true).await;
    assert_eq!(uses, BTreeMap::new());
}

#[tokio::test]
async fn a_tenant_whose_queue_is_full_leaves_the_others_theirs() {
    let world = World::with(|settings| {
        settings.max_active_runs = 1;
        settings.max_queued_runs = 1;
    })
    .await;
    let [caller, other] = TWO.map(|principal| world.by(principal));
    world.started(&caller, waiting()).await;
    for caller in [&caller, &other] {
        let queued = world.started(caller, waiting()).await;
        assert_eq!(world.run_of(&queued).await.state(), RunState::Queued);
        let refused = caller.client.clone().start_run(waiting()).await;
        let refused = refused.unwrap_err();
        assert_eq!(grpc_kit::reason(&refused), Some(ErrorReason::Overloaded));
    }
    world.registry.release();
}

#[tokio::test]
async fn w51_a_run_of_another_tenant_comes_before_a_backlog() {
    let world = World::with(one_at_a_time).await;
    let [caller, other] = TWO.map(|principal| world.by(principal));
    let mut runs = Vec::new();
    for _ in 0..6 {
        runs.push(world.started(&caller, waiting()).await);
    }
    let of_other = world.started(&other, waiting()).await;
    world.registry.release();
    for run in runs.iter().chain([&of_other]) {
        world.outcome(run).await;
    }
    let asked = world.registry.asked().into_iter();
    let asked: Vec<String> = asked.map(|call| call.effect_id).collect();
    let turn = asked
        .iter()
        .position(|effect| effect.starts_with(&of_other));
    assert!(turn.unwrap() <= 2, "{asked:?} {of_other}");
}
