//! The end of a tenant: nothing of it stays, and nothing of another goes.

use std::collections::BTreeMap;

use contracts::tavern::{
    common::v1::{CallStatus, ParsedText, ToolCall},
    registry::v1::{
        CloseTenantRequest, CreateTenantRequest, InvokeCallsRequest, StartCallRequest,
        UpdateTenantRequest, call_service_client::CallServiceClient,
        tenant_service_client::TenantServiceClient,
        tool_registry_service_client::ToolRegistryServiceClient,
    },
    tenant::v1::{
        SyncTenantsRequest, SyncTenantsResponse, SyncedTenant, Tenant as Message, TenantLimit,
        TenantQuantity, TenantState, tenant_peer_service_client::TenantPeerServiceClient,
    },
};
use core_types::Principal;
use futures::StreamExt;
use grpc_kit::{Outbound, Transport};
use serde_json::json;
use sqlx::{
    Connection as _, SqliteConnection,
    sqlite::{SqliteConnectOptions, SqliteJournalMode},
};
use tool_domain::identity::accounts::{Authority, Regain};
use tool_registry::identities::NotProven;

use crate::{
    approvals::give,
    backend::{flows, serve},
    fixture::{Fixture, finish, until, with_effect},
    tenants::{described, put},
};

const FILES: [&str; 3] = [
    "tool-registry.db",
    "tool-registry.effects.db",
    "tool-registry.runs.db",
];

async fn connect(fixture: &Fixture, file: &str) -> SqliteConnection {
    let options = SqliteConnectOptions::new()
        .filename(fixture.directory.path().join(file))
        .journal_mode(SqliteJournalMode::Wal)
        .busy_timeout(std::time::Duration::from_secs(60));
    SqliteConnection::connect_with(&options).await.unwrap()
}

/// Returns the number of rows of a tenant in every table that has tenants.
async fn rows(fixture: &Fixture, tenant: &str) -> BTreeMap<String, i64> {
    let mut counts = BTreeMap::new();
    for file in FILES {
        let mut database = connect(fixture, file).await;
        let tables: Vec<String> = sqlx::query_scalar(
            "SELECT m.name FROM sqlite_master m, pragma_table_info(m.name) c \
             WHERE m.type = 'table' AND c.name = 'tenant'",
        )
        .fetch_all(&mut database)
        .await
        .unwrap();
        assert_ne!(tables.len(), 0, "{file}");
        for table in tables {
            let count = format!("SELECT count(*) FROM {table} WHERE tenant = ?1");
            let count = sqlx::query_scalar(sqlx::AssertSqlSafe(count)).bind(tenant.to_owned());
            let count: i64 = count.fetch_one(&mut database).await.unwrap();
            counts.insert(format!("{file} {table}"), count);
        }
    }
    counts
}

fn calls_of(fixture: &Fixture, principal: &str) -> CallServiceClient<Outbound> {
    CallServiceClient::new(fixture.acting_for(principal, &[]))
}

/// Gives a tenant a row in every table, and a file. Returns the key of its principal.
async fn fill(fixture: &Fixture, tenant: &str, backend: &crate::backend::Backend) -> String {
    let registry = fixture.registry.as_ref().unwrap();
    let mut tenants = TenantServiceClient::new(fixture.acting_for("root", &[]));
    let request = CreateTenantRequest {
        name: tenant.to_owned(),
        ..CreateTenantRequest::default()
    };
    tenants.create_tenant(request).await.unwrap();
    let bob = format!("{tenant}/bob");
    let name = Principal::new(&bob).unwrap();
    let identities = registry.identities();
    let roles = ["admin".to_owned()];
    let made = identities.create_key((&name, Authority::Installation), &roles, &[], 30);
    let key = made.await.unwrap().secret_key;
    // People who can approve the calls of the other.
    let ann = Principal::new(&format!("{tenant}/ann")).unwrap();
    let made = identities.create_key((&ann, Authority::Installation), &roles, &[], 30);
    made.await.unwrap();

    put(fixture, &bob, described("own.a", "of a tenant")).await;
    let mut catalogue = ToolRegistryServiceClient::new(fixture.acting_for(&bob, &[]));
    catalogue.put_backend(flows(backend)).await.unwrap();
    let write = json!({"filePath": "a", "content": "x"});
    let request = with_effect("e1", "FileOperator.WriteFile", write.clone());
    let (_, written) = finish(calls_of(fixture, &bob), request).await.unwrap();
    assert_eq!(written.status(), CallStatus::Succeeded, "{written:?}");
    // It waits for people, and for its end when the tenant is removed.
    let request = StartCallRequest {
        tool_id: "give".into(),
        arguments_json: "{\"value\":1}".into(),
        effect_id: "e2".into(),
        ..StartCallRequest::default()
    };
    calls_of(fixture, &bob).start_call(request).await.unwrap();
    wait_for_pending(fixture, tenant, 1).await;
    let call = ToolCall {
        tool_id: "FileOperator.WriteFile".into(),
        arguments_json: write.to_string(),
        ..ToolCall::default()
    };
    let request = InvokeCallsRequest {
        parsed: Some(ParsedText {
            calls: vec![call],
            ..ParsedText::default()
        }),
        conversation_id: "c1".into(),
        request_id: "once".into(),
        ..InvokeCallsRequest::default()
    };
    let invoked = calls_of(fixture, &bob).invoke_calls(request).await;
    let mut invoked = invoked.unwrap().into_inner();
    while let Some(record) = invoked.next().await {
        record.unwrap();
    }
    let mut database = connect(fixture, FILES[0]).await;
    for statement in [
        "INSERT INTO remembered_approvals (tenant, conversation_id, digest, approval_id) VALUES (?1, 'c1', 'd', 'a')",
        "INSERT INTO blocked_principal (tenant, name, since) VALUES (?1, 'company:eve', 1)",
        "INSERT INTO issued_principal (tenant, name, issued, ends, token_json) VALUES (?1, 'company:ada', 1, 2, \
         '{\"account\":{\"name\":\"' || ?1 || '/company:ada\",\"roles\":[],\"groups\":[],\"tools\":{\"allowed\":[],\
         \"denied\":[]},\"created\":1,\"keys\":[]},\"iss\":\"a\",\"issued\":1,\"ends\":2}')",
        "INSERT INTO tenant_usage (tenant, day, quantity, amount) VALUES (?1, 1, 7, 100)",
    ] {
        let statement = sqlx::query(statement).bind(tenant.to_owned());
        statement.execute(&mut database).await.unwrap();
    }
    key
}

/// Returns a registry in which two tenants have equal things, and the keys of their principals.
async fn filled() -> (Fixture, [String; 2]) {
    let file = json!({"rules": [{"id": "gifts", "tools": ["give"], "action": "ask"}]});
    let fixture = Fixture::with_approvals(&[give()], &file).await;
    let root = Principal::new("root").unwrap();
    let identities = fixture.registry.as_ref().unwrap().identities().clone();
    let made = identities.bootstrap(&root, 30, Regain::Never).await;
    made.unwrap();
    let backend = serve().await;
    let acme = fill(&fixture, "acme", &backend).await;
    let beta = fill(&fixture, "beta", &backend).await;
    (fixture, [acme, beta])
}

/// Returns the number of approvals of a tenant that wait.
async fn pending(fixture: &Fixture, tenant: &str) -> i64 {
    let mut database = connect(fixture, FILES[0]).await;
    let count = "SELECT count(*) FROM approvals WHERE tenant = ?1 AND state = 1";
    let count = sqlx::query_scalar(count).bind(tenant.to_owned());
    count.fetch_one(&mut database).await.unwrap()
}

async fn wait_for_pending(fixture: &Fixture, tenant: &str, number: i64) {
    let mut rounds = 0;
    while pending(fixture, tenant).await != number {
        rounds += 1;
        assert!(rounds < 10_000, "{tenant} {number}");
    }
}

fn synced(name: &str, state: TenantState, cancel: bool) -> SyncedTenant {
    SyncedTenant {
        tenant: Some(Message {
            name: name.to_owned(),
            state: state.into(),
            ..Message::default()
        }),
        uses: Vec::new(),
        cancel,
    }
}

async fn sync(registry: &Transport, acme: SyncedTenant) -> SyncTenantsResponse {
    let mut peer = TenantPeerServiceClient::new(registry.outermost());
    let tenants = vec![acme, synced("beta", TenantState::Open, false)];
    let answer = peer.sync_tenants(SyncTenantsRequest { tenants }).await;
    answer.unwrap().into_inner()
}

#[tokio::test]
async fn a_removed_tenant_leaves_nothing_and_another_keeps_everything() {
    let (mut fixture, [of_acme, of_beta]) = filled().await;
    let registry = fixture.registry.clone().unwrap();
    let identities = registry.identities();
    let (acme, beta) = (rows(&fixture, "acme").await, rows(&fixture, "beta").await);
    let empty: Vec<&str> = acme
        .iter()
        .filter(|(_, count)| **count == 0)
        .map(|(table, _)| table.as_str())
        .collect();
    // A table that is new here needs a row above, and its removal.
    let never = [
        "tool-registry.db document_revision",
        "tool-registry.db identity",
    ];
    assert_eq!(empty, never);

    let mut tenants = TenantServiceClient::new(fixture.acting_for("root", &[]));
    let request = CloseTenantRequest {
        name: "acme".to_owned(),
        ..CloseTenantRequest::default()
    };
    tenants.close_tenant(request).await.unwrap();
    let transport = grpc_kit::local(&registry.services());
    let mut rounds = 0;
    loop {
        let answer = sync(&transport, synced("acme", TenantState::Removing, true)).await;
        let own = answer.tenants.iter().find(|it| it.tenant == "acme");
        if own.unwrap().left == 0 {
            break;
        }
        let refused = identities.resolve(&of_acme).await.unwrap_err();
        assert!(matches!(refused, NotProven::Closed(_)), "{refused:?}");
        rounds += 1;
        assert!(
            rounds < 1_000,
            "{answer:?} {:?}",
            rows(&fixture, "acme").await
        );
    }
    // The last step of the exchange.
    identities
        .remove_of("acme".to_owned().try_into().unwrap())
        .await
        .unwrap();
    for _ in 0..2 {
        let registry = fixture.registry.clone().unwrap();
        let refused = registry.identities().resolve(&of_acme).await.unwrap_err();
        assert_eq!(refused, NotProven::Credential);
        registry.identities().resolve(&of_beta).await.unwrap();
        let left = rows(&fixture, "acme").await;
        assert!(left.values().all(|count| *count == 0), "{left:?}");
        assert_eq!(rows(&fixture, "beta").await, beta);
        let places = fixture.directory.path().join("workspaces/.tenants");
        let places: Vec<_> = std::fs::read_dir(places).unwrap().flatten().collect();
        let names: Vec<_> = places.iter().map(|place| place.file_name()).collect();
        assert_eq!(names, ["beta"]);
        drop(registry);
        fixture.crash_and_restart().await;
    }
}

#[tokio::test]
async fn a_closing_tenant_loses_its_calls_once_they_are_to_be_cancelled() {
    let (fixture, _) = filled().await;
    let registry = fixture.registry.clone().unwrap();
    let transport = grpc_kit::local(&registry.services());
    let answer = sync(&transport, synced("acme", TenantState::Closing, false)).await;
    assert!(answer.tenants.iter().all(|it| it.left == 0), "{answer:?}");
    assert_eq!(pending(&fixture, "acme").await, 1);
    sync(&transport, synced("acme", TenantState::Closing, true)).await;
    wait_for_pending(&fixture, "acme", 0).await;
    assert_eq!(pending(&fixture, "beta").await, 1);
}

#[tokio::test]
async fn a_registry_that_is_started_twice_exchanges_tenants_once_until_its_end() {
    let mut fixture = Fixture::new().await;
    fixture.recover().await;
    fixture.recover().await;
    fixture.stop().await;
    let Fixture {
        sandbox,
        catalogue,
        calls,
        runs,
        ..
    } = fixture;
    drop((catalogue, calls, runs));
    // An exchange would hold its way to each service.
    let left = || std::sync::Arc::strong_count(&sandbox.permits);
    until("the end of every exchange", || left() == 1).await;
}

#[tokio::test]
async fn a_soft_bound_of_a_quantity_whose_use_is_not_reported_is_refused() {
    let (fixture, _) = filled().await;
    let mut tenants = TenantServiceClient::new(fixture.acting_for("root", &[]));
    for (quantity, soft, refused) in [
        (TenantQuantity::Streams, 1, true),
        (TenantQuantity::CallsPerSecond, 1, true),
        (TenantQuantity::Streams, 0, false),
        (TenantQuantity::CallsPerSecond, 0, false),
        (TenantQuantity::OpenRuns, 1, false),
    ] {
        let request = UpdateTenantRequest {
            name: "acme".to_owned(),
            limits: vec![TenantLimit {
                quantity: quantity.into(),
                hard: 2,
                soft,
            }],
            ..UpdateTenantRequest::default()
        };
        let updated = tenants.update_tenant(request).await.err();
        let violations = updated.map(|status| grpc_kit::violations(&status));
        let field = violations.map(|violations| violations[0].0.clone());
        let expected = refused.then(|| "limits[0].soft".to_owned());
        assert_eq!(field, expected, "{quantity:?} {soft}");
    }
}
