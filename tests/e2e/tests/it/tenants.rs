//! Several tenants of one installation, who cannot notice each other.

mod client;
mod lists;
mod matrix;
mod model;

use std::collections::BTreeMap;

use anyhow::{Context, ensure};
use contracts::access::Role;
use contracts::tavern::common::v1::ErrorReason;
use contracts::tavern::registry::v1::{
    CloseTenantRequest, GetTenantRequest, UpdateTenantRequest, UpdateTenantResponse,
};
use contracts::tavern::tenant::v1::{TenantLimit, TenantQuantity, TenantState};
use serde_json::{Value, json};
use testkit::{Stack, eventually};
use tonic::Status;

use client::Client;

fn limit(quantity: TenantQuantity, hard: u64) -> TenantLimit {
    TenantLimit {
        quantity: quantity.into(),
        hard,
        soft: 0,
    }
}

/// A workflow that waits for a signal.
fn waiting() -> Value {
    json!({"name": "Waits", "nodes": [{"id": "w", "type": "core:WaitSignal", "configValues": {"name": "go"}}],
        "edges": []})
}

async fn put_waiting(client: &Client) -> anyhow::Result<()> {
    let put = json!({"workflowId": "waits", "definitionJson": waiting().to_string()});
    client
        .ok("tavern.workflow.v1.WorkflowService/PutWorkflow", &put)
        .await?;
    Ok(())
}

const START: &str = "tavern.workflow.v1.WorkflowService/StartRun";

#[tokio::test(flavor = "multi_thread")]
async fn s608_a_tenant_has_so_many_open_runs_and_no_more_also_after_a_crash() -> anyhow::Result<()>
{
    let mut stack = Stack::builder().with_keys().start().await?;
    stack
        .create_tenant("acme", 1, vec![limit(TenantQuantity::OpenRuns, 1)])
        .await?;
    stack.create_tenant("other", 1, Vec::new()).await?;
    let bob = Client::new(&stack, "acme", "bob", Role::Admin).await?;
    let eve = Client::new(&stack, "other", "eve", Role::Admin).await?;
    put_waiting(&bob).await?;
    put_waiting(&eve).await?;
    let start = json!({"workflowId": "waits"});
    let refused = eventually("the limit is in force", || async {
        let answer = bob.call(START, &start).await.ok()?;
        (answer.status != 200).then_some(answer)
    })
    .await?;
    ensure!(refused.body.contains("TENANT_LIMIT"), "{}", refused.body);
    ensure!(refused.body.contains("open_runs"), "{}", refused.body);
    // Now the limit counts exactly.
    let runs = open_runs(&bob).await? + 2;
    ensure!(runs >= 3, "{runs} runs");
    set_open_runs(&stack, runs).await?;
    eventually("the new limit is in force", || async {
        bob.ok(START, &start).await.ok()
    })
    .await?;
    bob.ok(START, &start).await?;
    let answer = bob.call(START, &start).await?;
    ensure!(answer.body.contains("TENANT_LIMIT"), "{}", answer.body);
    ensure!(open_runs(&bob).await? == runs);
    stack.kill()?;
    stack.restart().await?;
    let answer = bob.call(START, &start).await?;
    ensure!(answer.body.contains("TENANT_LIMIT"), "{}", answer.body);
    for _ in 0..5 {
        eve.ok(START, &start).await?;
    }

    // A limit below the use stops nothing that runs.
    let updated = set_open_runs(&stack, 1).await?;
    ensure!(updated.over.len() == 1, "{:?}", updated.over);
    ensure!(open_runs(&bob).await? == runs);
    Ok(())
}

/// Returns the number of runs of a client, all of which are open.
async fn open_runs(client: &Client) -> anyhow::Result<usize> {
    let list = json!({"pageSize": 100});
    let listed = client
        .ok("tavern.run.v1.RunService/ListRuns", &list)
        .await?;
    Ok(listed["runs"].as_array().map_or(0, Vec::len))
}

async fn set_open_runs(stack: &Stack, most: usize) -> anyhow::Result<UpdateTenantResponse> {
    let request = UpdateTenantRequest {
        name: "acme".to_owned(),
        limits: vec![limit(TenantQuantity::OpenRuns, u64::try_from(most)?)],
        ..UpdateTenantRequest::default()
    };
    Ok(stack.tenants().update_tenant(request).await?.into_inner())
}

/// Returns the tables of a stack that have rows of a tenant, each with the number, but the record of the tenant itself.
async fn rows_of(stack: &Stack, tenant: &str) -> anyhow::Result<BTreeMap<String, u64>> {
    let mut rows = BTreeMap::new();
    let mut directories = vec![stack.directory().to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory)? {
            let path = entry?.path();
            if path.is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|it| it == "db") {
                rows.extend(sql_store::count_rows(&path, tenant).await?);
            }
        }
    }
    rows.retain(|_, count| *count > 0);
    Ok(rows)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_tenant_is_refused_at_the_door_and_leaves_nothing() -> anyhow::Result<()> {
    let stack = Stack::builder().with_keys().start().await?;
    stack.create_tenant("acme", 1, Vec::new()).await?;
    stack.create_tenant("other", 1, Vec::new()).await?;
    let bob = Client::new(&stack, "acme", "bob", Role::Admin).await?;
    let eve = Client::new(&stack, "other", "eve", Role::Admin).await?;
    let start = json!({"workflowId": "waits"});
    for client in [&bob, &eve] {
        put_waiting(client).await?;
        client.ok(START, &start).await?;
    }
    ensure!(rows_of(&stack, "acme").await?.contains_key("runs"));
    let request = CloseTenantRequest {
        name: "acme".to_owned(),
        grace: None,
    };
    stack.tenants().close_tenant(request).await?;
    let refused = eventually("the door refuses the tenant", || async {
        let answer = bob.call(START, &start).await.ok()?;
        (answer.status != 200).then_some(answer)
    })
    .await?;
    ensure!(refused.body.contains("TENANT_CLOSED"), "{}", refused.body);
    eventually("the tenant is removed", || async {
        let request = GetTenantRequest {
            name: "acme".to_owned(),
        };
        let found = stack.tenants().get_tenant(request).await.ok()?.into_inner();
        let state = found.tenant.unwrap_or_default().state();
        (state == TenantState::Removed).then_some(())
    })
    .await?;
    let left = rows_of(&stack, "acme").await?;
    ensure!(left.is_empty(), "{left:?}");
    let listed = eve
        .ok("tavern.run.v1.RunService/ListRuns", &json!({}))
        .await?;
    ensure!(
        listed["runs"].as_array().map_or(0, Vec::len) == 1,
        "{listed}"
    );
    eve.ok(START, &start).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn only_operators_of_the_installation_make_tenants_and_name_another() -> anyhow::Result<()> {
    let stack = Stack::builder().with_keys().start().await?;
    stack.create_tenant("acme", 1, Vec::new()).await?;
    let bob = Client::new(&stack, "acme", "bob", Role::Admin).await?;
    let ada = Client::new(&stack, "", "ada", Role::Admin).await?;
    for client in [&bob, &ada] {
        for (method, body) in [
            ("TenantService/CreateTenant", json!({"name": "mine"})),
            ("TenantService/ListTenants", json!({})),
            ("TenantService/CloseTenant", json!({"name": "acme"})),
            (
                "IdentityService/CreateKey",
                json!({"principal": "x", "tenant": "system", "roles": ["admin"]}),
            ),
            (
                "IdentityService/ListPrincipals",
                json!({"tenant": "system"}),
            ),
            (
                "IdentityService/BlockPrincipal",
                json!({"principal": "company:x", "tenant": "system"}),
            ),
            (
                "IdentityService/UnblockPrincipal",
                json!({"principal": "company:x", "tenant": "system"}),
            ),
            (
                "IdentityService/PutPrincipal",
                json!({"principal": {"name": "x", "systemRoles": ["admin"]}, "setSystemRoles": true}),
            ),
        ] {
            let answer = client
                .call(&format!("tavern.registry.v1.{method}"), &body)
                .await?;
            let refused = answer.body.contains("PERMISSION_DENIED");
            ensure!(refused, "{method}: {}", answer.body);
        }
    }
    for name in ["Acme", "system", "default", "local", "a_b"] {
        let created = stack.create_tenant(name, 1, Vec::new()).await;
        let refused = created.err().context("it is refused")?;
        let refused = refused.downcast_ref::<Status>().context("a status")?;
        let reason = grpc_kit::failure::reason(refused);
        ensure!(
            reason == Some(ErrorReason::InvalidFields),
            "{name}: {refused}"
        );
    }
    Ok(())
}
