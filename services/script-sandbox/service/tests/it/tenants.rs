//! Tenants in the sandbox: their limits, and their end.

use contracts::tavern::{
    common::v1::ErrorReason,
    sandbox::v1::SessionState,
    tenant::v1::{
        SyncTenantsRequest, SyncTenantsResponse, SyncedTenant, Tenant, TenantLimit, TenantQuantity,
        TenantState, tenant_peer_service_client::TenantPeerServiceClient,
    },
};
use grpc_kit::Services;
use tonic::{Code, Status};

use script_sandbox::{SandboxSettings, settings::SessionSettings};

use crate::{
    principals::{Caller, by, sandbox, sandbox_with},
    support::{expect_output, expect_refusal, marker, processes_with, python, request},
};

struct Tenants(Services);

impl Tenants {
    async fn new() -> Self {
        Self(sandbox().await)
    }

    fn by(&self, principal: &str) -> Caller {
        by(&self.0, principal)
    }

    /// Sends the tenant `acme` as the registry does.
    async fn send(
        &self,
        state: TenantState,
        limit: Option<(TenantQuantity, u64)>,
        cancel: bool,
    ) -> SyncTenantsResponse {
        let limits = limit.map(|(quantity, hard)| TenantLimit {
            quantity: quantity.into(),
            hard,
            soft: 0,
        });
        let tenant = Tenant {
            name: "acme".to_owned(),
            state: state.into(),
            limits: limits.into_iter().collect(),
            ..Tenant::default()
        };
        let tenants = vec![SyncedTenant {
            tenant: Some(tenant),
            uses: Vec::new(),
            cancel,
        }];
        let mut peer = TenantPeerServiceClient::new(grpc_kit::local(&self.0).outermost());
        let answer = peer.sync_tenants(SyncTenantsRequest { tenants }).await;
        answer.unwrap().into_inner()
    }

    async fn limit(&self, quantity: TenantQuantity, hard: u64) -> SyncTenantsResponse {
        let limit = Some((quantity, hard));
        self.send(TenantState::Open, limit, false).await
    }
}

fn used(answer: &SyncTenantsResponse, tenant: &str, quantity: TenantQuantity) -> u64 {
    let own = answer.tenants.iter().filter(|it| it.tenant == tenant);
    let uses = own.flat_map(|it| &it.uses);
    let uses = uses.filter(|usage| usage.quantity() == quantity);
    uses.map(|usage| usage.used).sum()
}

fn left(answer: &SyncTenantsResponse) -> u64 {
    let own = answer.tenants.iter().find(|it| it.tenant == "acme");
    own.map_or(0, |own| own.left)
}

#[track_caller]
fn expect_limit(refused: &Status, limit: &str) {
    expect_refusal(refused, Code::ResourceExhausted, ErrorReason::TenantLimit);
    assert_eq!(grpc_kit::metadata(refused)["limit"], limit);
    assert!(grpc_kit::retry_after(refused).is_some());
}

/// Begins a script that sleeps, and waits until it does.
async fn sleeper(caller: &Caller) -> (tokio::task::JoinHandle<Result<(), Status>>, String) {
    let (marker, mut scripts) = (marker(), caller.scripts.clone());
    let asked = request("bash", &format!("exec sleep {marker}"));
    let call = tokio::spawn(async move { scripts.execute(asked).await.map(drop) });
    while processes_with(&marker).is_empty() {
        tokio::task::yield_now().await;
    }
    (call, marker)
}

#[tokio::test(flavor = "multi_thread")]
async fn s608_scripts_and_sessions_at_once_are_counted_together_for_all_principals_of_a_tenant() {
    let tenants = Tenants::new().await;
    let quantity = TenantQuantity::SandboxSlots;
    tenants.limit(quantity, 2).await;
    let (bob, eve, other) = (
        tenants.by("acme/bob"),
        tenants.by("acme/eve"),
        tenants.by("ada"),
    );
    let session = bob.session("", "r1").await;
    let (running, marker) = sleeper(&eve).await;
    let answer = tenants.limit(quantity, 2).await;
    assert_eq!(used(&answer, "acme", quantity), 2);
    for caller in [&bob, &eve] {
        let refused = caller.scripts.clone().execute(python("print(1)")).await;
        expect_limit(&refused.unwrap_err(), "sandbox_slots");
        let refused = caller.try_session("other").await;
        expect_limit(&refused.unwrap_err(), "sandbox_slots");
    }
    // A repeat of the request finds the session, which takes no further place.
    assert_eq!(bob.session("", "r1").await.session_id, session.session_id);
    let ran = other.scripts.clone().execute(python("print(1)")).await;
    expect_output(&ran.unwrap().into_inner(), "1\n");
    running.abort();
    while !processes_with(&marker).is_empty() {
        tokio::task::yield_now().await;
    }
    loop {
        let ran = eve.scripts.clone().execute(python("print(1)")).await;
        match ran {
            Ok(ran) => break expect_output(&ran.into_inner(), "1\n"),
            // The place is given back after the last process is gone.
            Err(refused) => expect_limit(&refused, "sandbox_slots"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s608_seconds_of_scripts_and_cells_are_counted_for_the_day() {
    let tenants = Tenants::new().await;
    let quantity = TenantQuantity::SandboxSeconds;
    tenants.limit(quantity, 1).await;
    let (bob, other) = (tenants.by("acme/bob"), tenants.by("ada"));
    let session = bob.session("", "r1").await;
    let sleep = request("bash", "sleep 1.1");
    let ran = bob.scripts.clone().execute(sleep).await;
    expect_output(&ran.unwrap().into_inner(), "");
    let refused = bob.scripts.clone().execute(python("print(1)")).await;
    expect_limit(&refused.unwrap_err(), "sandbox_seconds");
    let refused = bob.cell(&session, "1").await.unwrap_err();
    expect_limit(&refused, "sandbox_seconds");
    let ran = other.scripts.clone().execute(python("print(1)")).await;
    expect_output(&ran.unwrap().into_inner(), "1\n");
    let answer = tenants.limit(quantity, 1_000_000).await;
    let by_script = used(&answer, "acme", quantity);
    assert!(by_script >= 1, "{answer:?}");
    bob.cell(&session, "import time; time.sleep(1.1)")
        .await
        .unwrap();
    let answer = tenants.limit(quantity, 1_000_000).await;
    // A reported use is not reported again.
    assert!(used(&answer, "acme", quantity) >= 1, "{answer:?}");
    let answer = tenants.limit(quantity, 1_000_000).await;
    assert_eq!(used(&answer, "acme", quantity), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn s608_blobs_beyond_the_bytes_of_a_tenant_are_refused_to_all_its_principals() {
    let tenants = Tenants::new().await;
    let quantity = TenantQuantity::StoredBytes;
    // Each blob counts as a block of 4 KiB.
    tenants.limit(quantity, 2 * 4096).await;
    let (bob, eve, other) = (
        tenants.by("acme/bob"),
        tenants.by("acme/eve"),
        tenants.by("ada"),
    );
    let first = bob.upload("", "a").await;
    eve.upload("", "a").await;
    for (caller, text) in [(&bob, "b"), (&eve, "")] {
        let refused = caller.try_upload("", text).await.unwrap_err();
        expect_limit(&refused, "stored_bytes");
    }
    // None was pushed out.
    assert!(bob.has("", &first).await && eve.has("", &first).await);
    other.upload("", "b").await;
    let answer = tenants.limit(quantity, 2 * 4096).await;
    assert_eq!(used(&answer, "acme", quantity), 2 * 4096);
    assert_eq!(used(&answer, "default", quantity), 4096);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removed_tenant_leaves_nothing_and_another_keeps_everything() {
    let tenants = Tenants::new().await;
    let callers = [tenants.by("acme/bob"), tenants.by("bob")];
    let mut made = Vec::new();
    for caller in &callers {
        let blob = caller.upload("", "a").await;
        let (call, marker) = sleeper(caller).await;
        made.push((blob, caller.session("", "r1").await, call, marker));
    }
    let [(blob, session, call, marker), own] = <[_; 2]>::try_from(made).ok().unwrap();
    // Open runs continue until they are to be cancelled.
    tenants.send(TenantState::Closing, None, false).await;
    let ran = callers[0].scripts.clone().execute(python("print(1)")).await;
    expect_output(&ran.unwrap().into_inner(), "1\n");
    assert!(!processes_with(&marker).is_empty());
    tenants.send(TenantState::Closing, None, true).await;
    let closed = |refused: &Status| {
        expect_refusal(refused, Code::FailedPrecondition, ErrorReason::TenantClosed);
    };
    closed(&call.await.unwrap().unwrap_err());
    assert!(processes_with(&marker).is_empty());
    let ended = callers[0].get(&session).await.unwrap();
    assert_eq!(ended.state(), SessionState::Ended);
    let refused = callers[0].scripts.clone().execute(python("print(1)")).await;
    closed(&refused.unwrap_err());
    closed(&callers[0].try_session("other").await.unwrap_err());
    closed(&callers[0].try_upload("", "b").await.unwrap_err());
    assert!(callers[0].has("", &blob).await);
    while left(&tenants.send(TenantState::Removing, None, true).await) > 0 {
        tokio::task::yield_now().await;
    }
    let gone = callers[0].get(&session).await.unwrap_err();
    expect_refusal(&gone, Code::NotFound, ErrorReason::SessionNotFound);
    assert!(!callers[0].has("", &blob).await);
    let answer = tenants.send(TenantState::Removing, None, true).await;
    assert_eq!(used(&answer, "acme", TenantQuantity::StoredBytes), 0);
    assert_eq!(used(&answer, "default", TenantQuantity::SandboxSlots), 2);

    let (blob, session, call, marker) = own;
    assert!(callers[1].has("", &blob).await);
    assert!(!processes_with(&marker).is_empty());
    let alive = callers[1].get(&session).await.unwrap();
    assert_eq!(alive.state(), SessionState::Idle);
    call.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_that_has_taken_every_session_gives_an_idle_one_to_another() {
    let services = sandbox_with(SandboxSettings {
        sessions: SessionSettings {
            maximum: 3,
            ..SessionSettings::default()
        },
        ..SandboxSettings::default()
    });
    let services = services.await;
    let [bob, kim, ada] = ["acme/bob", "beta/kim", "ada"].map(|name| by(&services, name));
    let first = bob.evictable().await.unwrap();
    let of_kim = kim.evictable().await.unwrap();
    let second = bob.evictable().await.unwrap();
    let of_ada = ada.evictable().await.unwrap();
    let state = async |caller: &Caller, session| caller.get(session).await.unwrap().state();
    assert_eq!(state(&bob, &first).await, SessionState::Ended);
    for (caller, session) in [(&bob, &second), (&kim, &of_kim), (&ada, &of_ada)] {
        assert_eq!(state(caller, session).await, SessionState::Idle);
    }
    // No other has more, so that its own one goes.
    bob.evictable().await.unwrap();
    assert_eq!(state(&bob, &second).await, SessionState::Ended);
    for (caller, session) in [(&kim, &of_kim), (&ada, &of_ada)] {
        assert_eq!(state(caller, session).await, SessionState::Idle);
    }
}
