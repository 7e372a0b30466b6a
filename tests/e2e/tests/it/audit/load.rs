//! Random administrative calls, half of them denied, whose process is killed at random points.
//!
//! `TAVERN_TEST_AUDITED` sets the number of calls, and `TAVERN_TEST_AUDIT_KILLS` that of kills; `make bars` sets 10,000
//! and 20.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::ensure;
use contracts::tavern::registry::v1::{
    AuditOutcome, AuditRecord, CreateTenantRequest, ListPrincipalsRequest, ListTenantsRequest,
    ListToolsRequest, Principal, PutPrincipalRequest, PutToolRequest, VerifyAuditRequest,
    audit_entry::Event, identity_service_client::IdentityServiceClient,
    tenant_service_client::TenantServiceClient,
    tool_registry_service_client::ToolRegistryServiceClient,
};
use grpc_kit::{Outbound, Transport};
use testkit::{Stack, size};
use tokio::sync::RwLock;
use tonic::{Code, Status};

use super::{client, key_for, records, tool};

/// Calls in `make test`.
const CALLS: usize = 300;
/// Kills in `make test`.
const KILLS: usize = 3;
/// The callers at once.
const CALLERS: usize = 8;

/// A call, by its number and its sort.
#[derive(Clone, Copy)]
struct Call {
    number: usize,
    sort: usize,
}

impl Call {
    /// Returns the name of the one thing that it makes.
    fn name(self) -> String {
        match self.sort % 4 {
            0 => format!("core-x:tool{}", self.number),
            1 | 2 => format!("person{}", self.number),
            _ => format!("customer{}", self.number),
        }
    }

    /// Makes the call over a transport.
    async fn make(self, to: &Outbound) -> Result<(), Status> {
        let name = self.name();
        match self.sort % 4 {
            0 => {
                let request = PutToolRequest {
                    definition_json: tool(&name),
                    ..PutToolRequest::default()
                };
                let mut tools = ToolRegistryServiceClient::new(to.clone());
                tools.put_tool(request).await.map(drop)
            }
            1 => {
                let mut identities = IdentityServiceClient::new(to.clone());
                let request = key_for(&name, &["viewer"]);
                identities.create_key(request).await.map(drop)
            }
            2 => {
                let principal = Principal {
                    name,
                    roles: vec!["invoker".to_owned()],
                    ..Principal::default()
                };
                let request = PutPrincipalRequest {
                    principal: Some(principal),
                    ..PutPrincipalRequest::default()
                };
                let mut identities = IdentityServiceClient::new(to.clone());
                identities.put_principal(request).await.map(drop)
            }
            _ => {
                let request = CreateTenantRequest {
                    name,
                    ..CreateTenantRequest::default()
                };
                let mut tenants = TenantServiceClient::new(to.clone());
                tenants.create_tenant(request).await.map(drop)
            }
        }
    }
}

/// The denied calls that had an answer, and those that had none.
#[derive(Default)]
struct Denied {
    answered: AtomicUsize,
    cut_off: AtomicUsize,
}

/// The ways of an administrator, of a principal without rights, and of a client without a key.
struct Ways {
    admin: Transport,
    viewer: Transport,
    stranger: Transport,
}

/// Makes calls until `calls` are made, each while the process runs.
async fn caller(
    ways: Arc<RwLock<Ways>>,
    next: Arc<AtomicUsize>,
    calls: usize,
    denied: Arc<Denied>,
) -> anyhow::Result<()> {
    loop {
        let number = next.fetch_add(1, Ordering::SeqCst);
        if number >= calls {
            return Ok(());
        }
        let call = Call {
            number,
            sort: fastrand::usize(..),
        };
        let (is_denied, way) = {
            let ways = ways.read().await;
            match number % 4 {
                0 | 1 => (false, ways.admin.outermost()),
                2 => (true, ways.viewer.outermost()),
                _ => (true, ways.stranger.outermost()),
            }
        };
        match (call.make(&way).await, is_denied) {
            (Ok(()), false) => {}
            (Err(status), true)
                if [Code::PermissionDenied, Code::Unauthenticated].contains(&status.code()) =>
            {
                denied.answered.fetch_add(1, Ordering::SeqCst);
            }
            // The process was killed meanwhile.
            (Err(status), _)
                if [
                    Code::Unavailable,
                    Code::Unknown,
                    Code::Internal,
                    Code::Cancelled,
                ]
                .contains(&status.code()) =>
            {
                if is_denied {
                    denied.cut_off.fetch_add(1, Ordering::SeqCst);
                }
            }
            (other, _) => anyhow::bail!("call {number}: {other:?}"),
        }
    }
}

/// Returns the names of everything that the calls can have made and that is there.
async fn made(stack: &Stack) -> anyhow::Result<BTreeSet<String>> {
    let way = stack.transport_with(stack.key()).outermost();
    let mut tools = ToolRegistryServiceClient::new(way.clone());
    let mut tenants = TenantServiceClient::new(way);
    let mut made = BTreeSet::new();
    let mut page_token = String::new();
    loop {
        let request = ListToolsRequest {
            page_size: 500,
            page_token,
        };
        let page = tools.list_tools(request).await?.into_inner();
        made.extend(page.tools.into_iter().map(|tool| tool.tool_id));
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    loop {
        let request = ListPrincipalsRequest {
            page_size: 500,
            page_token,
            ..ListPrincipalsRequest::default()
        };
        let page = stack
            .identities()
            .list_principals(request)
            .await?
            .into_inner();
        made.extend(page.principals.into_iter().map(|principal| principal.name));
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    loop {
        let request = ListTenantsRequest {
            page_size: 500,
            page_token,
        };
        let page = tenants.list_tenants(request).await?.into_inner();
        made.extend(page.tenants.into_iter().map(|tenant| tenant.name));
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    let ours = ["core-x:tool", "person", "customer"];
    made.retain(|name| ours.iter().any(|begin| name.starts_with(begin)));
    Ok(made)
}

/// The intents and the outcomes of the change of a thing.
type Recorded = BTreeMap<String, (usize, Vec<AuditOutcome>)>;

/// Returns the changes of everything that the calls can have made, and the number of denied calls.
fn read(records: &[AuditRecord]) -> (Recorded, u64) {
    let (mut changes, mut denied) = (Recorded::new(), 0);
    for record in records {
        match record.entry.as_ref().and_then(|entry| entry.event.as_ref()) {
            Some(Event::ChangeIntended(intended)) => {
                let name = intended.subject.clone().unwrap_or_default().names;
                changes.entry(name.join(" ")).or_default().0 += 1;
            }
            Some(Event::ChangeEnded(ended)) => {
                let name = ended.subject.clone().unwrap_or_default().names;
                let recorded = changes.entry(name.join(" ")).or_default();
                recorded.1.push(ended.outcome());
            }
            Some(Event::Denied(it)) => denied += it.count,
            _ => {}
        }
    }
    (changes, denied)
}

/// Checks that each change has one intent and one outcome, which is the true one. Returns the number that was made.
fn check(changes: &Recorded, before: &Recorded, made: &BTreeSet<String>) -> anyhow::Result<usize> {
    let mut done = 0;
    for (name, (intents, outcomes)) in changes {
        if before.contains_key(name) {
            continue;
        }
        ensure!(
            *intents == 1 && outcomes.len() == 1,
            "{name}: {intents} intents, {outcomes:?}"
        );
        let outcome = outcomes[0];
        ensure!(
            (outcome == AuditOutcome::Done) == made.contains(name),
            "{name}: {outcome:?}"
        );
        done += usize::from(outcome == AuditOutcome::Done);
    }
    ensure!(
        done == made.len(),
        "{done} of {} changes are recorded",
        made.len()
    );
    Ok(done)
}

#[tokio::test(flavor = "multi_thread")]
async fn kills_leave_each_change_one_intent_and_one_outcome_and_each_denied_call_its_count()
-> anyhow::Result<()> {
    let calls = size("TAVERN_TEST_AUDITED", CALLS)?;
    let kills = size("TAVERN_TEST_AUDIT_KILLS", KILLS)?;
    let mut stack = Stack::builder().with_keys().start().await?;
    let viewer = stack
        .identities()
        .create_key(key_for("viewer", &["viewer"]))
        .await?;
    let viewer = viewer.into_inner().secret_key;
    let before = read(&records(&stack).await?);
    let ways = |stack: &Stack| Ways {
        admin: stack.transport_with(stack.key()),
        viewer: stack.transport_with(Some(&viewer)),
        stranger: stack.transport_with(None),
    };
    let (next, denied) = (Arc::new(AtomicUsize::new(0)), Arc::new(Denied::default()));
    let shared = Arc::new(RwLock::new(ways(&stack)));
    let begin = || {
        let (shared, next, denied) = (Arc::clone(&shared), Arc::clone(&next), Arc::clone(&denied));
        tokio::spawn(caller(shared, next, calls, denied))
    };
    let callers: Vec<_> = (0..CALLERS).map(|_| begin()).collect();
    for kill in 1..=kills {
        // Kills fall on every part of the calls.
        let at = calls * kill / (kills + 1);
        while next.load(Ordering::SeqCst) < at {
            tokio::time::sleep(Duration::from_millis(fastrand::u64(1..5))).await;
        }
        // No call begins while the process is away; those under way are cut off.
        let mut present = shared.write().await;
        stack.kill()?;
        stack.restart().await?;
        *present = ways(&stack);
    }
    for caller in callers {
        caller.await??;
    }

    stack.kill()?;
    stack.restart().await?;
    let recorded = records(&stack).await?;
    let (changes, counted) = read(&recorded);
    let made = made(&stack).await?;
    let done = check(&changes, &before.0, &made)?;
    ensure!(
        made.len() >= calls / 2 - kills * CALLERS,
        "{} were made",
        made.len()
    );
    let counted = usize::try_from(counted - before.1)?;
    let (answered, cut_off) = (
        denied.answered.load(Ordering::SeqCst),
        denied.cut_off.load(Ordering::SeqCst),
    );
    ensure!(
        (answered..=answered + cut_off).contains(&counted),
        "{counted} denied calls are counted, of {answered} answered and {cut_off} cut off"
    );
    let verified = client(&stack)
        .verify_audit(VerifyAuditRequest::default())
        .await?;
    let verified = verified.into_inner();
    ensure!(verified.fault.is_none(), "{verified:?}");
    println!(
        "{done} changes, {counted} denied calls, {} records",
        verified.records
    );
    Ok(())
}
