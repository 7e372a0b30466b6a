//! Runs of other tenants and principals: they are not there.

use contracts::tavern::common::v1::ErrorReason;
use contracts::tavern::run::v1 as run;
use contracts::tavern::tenant::v1::{
    self as proto, tenant_peer_service_client::TenantPeerServiceClient,
};
use core_types::{CallPath, IdSource, Principal, Reach, Tenant};
use run_events::seen_by;
use tenancy::{TenantData, TenantSync, Use};
use tonic::Request;

use super::*;

fn principal(text: &str) -> Principal {
    Principal::new(text).unwrap()
}

fn caller(text: &str, reach: Reach) -> CallContext {
    CallContext::new(principal(text), CallPath::default()).reaching(reach)
}

async fn started(runs: &Runs, owner: &str, request_id: &str) -> Recorder {
    let start = StartRun {
        can_wait: true,
        ..a_run(request_id, "body")
    };
    match runs.start(&caller(owner, Reach::Own), start).await.unwrap() {
        Started::New(recorder, _) => recorder,
        Started::Replayed(run) => panic!("the run of {owner} is not new: {run:?}"),
    }
}

/// Returns the answers of every method that names a run, each with the name of the method.
async fn answers(
    client: &RunServiceClient<grpc_kit::Outbound>,
    run_id: &str,
) -> Vec<(&'static str, tonic::Status)> {
    macro_rules! ask {
        ($($method:ident: $request:ident { $($field:ident: $value:expr),* })*) => {
            vec![$({
                let request = run::$request { run_id: run_id.to_owned(), $($field: $value),* };
                let refused = client.clone().$method(Request::new(request)).await;
                (stringify!($method), refused.err().expect(stringify!($method)))
            }),*]
        };
    }
    let text = || "1".to_owned();
    ask! {
        get_run: GetRunRequest {}
        watch_run: WatchRunRequest { after_sequence: 0 }
        cancel_run: CancelRunRequest { reason: text() }
        pause_run: PauseRunRequest { reason: text() }
        resume_run: ResumeRunRequest {}
        signal_run: SignalRunRequest { name: text(), payload_json: text(), signal_id: text() }
        answer_wait: AnswerWaitRequest {
            wait_id: text(), answer_json: text(), request_id: text(), answered_by: text()
        }
        list_waits: ListWaitsRequest { page_size: 1, page_token: String::new() }
        delete_run: DeleteRunRequest {}
    }
}

/// Returns the content of a status without the id.
fn shown(status: &tonic::Status, run_id: &str) -> (Code, String, String) {
    let details = String::from_utf8_lossy(status.details()).into_owned();
    let [message, details] = [status.message().to_owned(), details];
    let without_id = |text: String| text.replace(run_id, "ID");
    (status.code(), without_id(message), without_id(details))
}

#[tokio::test]
async fn a_run_out_of_reach_answers_as_a_missing_one() {
    let directory = tempfile::tempdir().unwrap();
    let mut runs = runs(directory.path()).await;
    let bob = started(&runs, "acme/bob", "").await.run_id().to_string();
    let missing = SystemIds.next_run(RunOwner::Agent).to_string();
    for restarted in [false, true] {
        if restarted {
            runs.shutdown().await;
            runs = super::runs(directory.path()).await;
        }
        let services = grpc_kit::Services::new().add(runs.service());
        let client =
            |context: &CallContext| RunServiceClient::new(grpc_kit::local(&services).with(context));
        for stranger in [
            caller("acme/eve", Reach::Own),
            caller("bob", Reach::Own),
            caller("bob", Reach::Tenant),
            caller("zeta/bob", Reach::Tenant),
            caller("system/root", Reach::Tenant),
        ] {
            let of_bob = answers(&client(&stranger), &bob).await;
            let of_none = answers(&client(&stranger), &missing).await;
            for ((method, foreign), (_, absent)) in of_bob.iter().zip(&of_none) {
                assert_eq!(foreign.code(), Code::NotFound, "{method} for {stranger:?}");
                let (foreign, absent) = (shown(foreign, &bob), shown(absent, &missing));
                assert_eq!(foreign, absent, "{method} for {stranger:?}");
            }
        }
        for friend in [
            caller("acme/bob", Reach::Own),
            caller("acme/eve", Reach::Tenant),
            CallContext::of_tenant(Tenant::new("acme").unwrap()),
            CallContext::outermost(),
        ] {
            let found = runs.get(&friend, &bob).await.unwrap();
            assert_eq!(found.principal, "acme/bob", "{friend:?}");
        }
    }
}

#[tokio::test]
async fn lists_and_conversations_show_no_run_out_of_reach() {
    let directory = tempfile::tempdir().unwrap();
    let runs = runs(directory.path()).await;
    let owners = ["acme/bob", "acme/eve", "bob", "local"];
    for owner in owners {
        started(&runs, owner, "").await;
    }
    for (reader, seen) in [
        (caller("acme/bob", Reach::Own), vec!["acme/bob"]),
        (
            caller("acme/bob", Reach::Tenant),
            vec!["acme/eve", "acme/bob"],
        ),
        (caller("bob", Reach::Own), vec!["bob"]),
        (caller("ada", Reach::Tenant), vec!["local", "bob"]),
        (caller("zeta/bob", Reach::Tenant), vec![]),
    ] {
        let (listed, _) = runs
            .list(&reader, &ListRunsRequest::default())
            .await
            .unwrap();
        let found: Vec<_> = listed.iter().map(|run| run.principal.as_str()).collect();
        assert_eq!(found, seen, "{reader:?}");
        let talk = runs
            .by_conversation(&reader, "conversation-1")
            .await
            .unwrap();
        assert_eq!(talk.len(), seen.len(), "{reader:?}");
    }
}

#[tokio::test]
async fn equal_request_ids_of_two_tenants_start_two_runs() {
    let directory = tempfile::tempdir().unwrap();
    let runs = runs(directory.path()).await;
    let bob = started(&runs, "acme/bob", "r1").await.run_id();
    let own = started(&runs, "bob", "r1").await.run_id();
    assert_ne!(bob, own);
    for (owner, run) in [("acme/bob", bob), ("bob", own)] {
        let context = caller(owner, Reach::Own);
        let again = runs.start(&context, a_run("r1", "body")).await.unwrap();
        assert!(matches!(again, Started::Replayed(first) if first.run_id == run.to_string()));
        let id = core_types::RequestId::new("r1").unwrap();
        let found = runs.by_request(&context, "test", &id).await.unwrap();
        assert_eq!(found.map(|run| run.run_id), Some(run.to_string()));
    }
}

/// A service without data of tenants.
#[derive(Debug)]
struct NoData;

#[tonic::async_trait]
impl TenantData for NoData {
    async fn uses(&self) -> Result<Vec<Use>, tonic::Status> {
        Ok(Vec::new())
    }

    async fn cancel(&self, _tenant: Tenant) -> Result<(), tonic::Status> {
        Ok(())
    }

    async fn remove(&self, _tenant: Tenant) -> Result<u64, tonic::Status> {
        Ok(0)
    }
}

/// Limits the open runs of `acme`, as the registry does.
async fn limit_open_runs(runs: &Runs, hard: u64) {
    let sync = TenantSync::service(runs.tenants().clone(), Arc::new(NoData));
    let local = grpc_kit::local(&grpc_kit::Services::new().add(sync));
    let open_runs = proto::TenantLimit {
        quantity: proto::TenantQuantity::OpenRuns.into(),
        hard,
        soft: 0,
    };
    let acme = proto::Tenant {
        name: "acme".to_owned(),
        limits: vec![open_runs],
        ..proto::Tenant::default()
    };
    let synced = proto::SyncedTenant {
        tenant: Some(acme),
        ..proto::SyncedTenant::default()
    };
    let request = proto::SyncTenantsRequest {
        tenants: vec![synced],
    };
    let mut peer = TenantPeerServiceClient::new(local.outermost());
    peer.sync_tenants(request).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_starts_at_once_as_many_succeed_as_the_limit_permits() {
    const LIMIT: usize = 7;
    let directory = tempfile::tempdir().unwrap();
    let mut runs = runs(directory.path()).await;
    limit_open_runs(&runs, LIMIT as u64).await;
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..40 {
        let runs = runs.clone();
        tasks.spawn(async move {
            let owner = caller(["acme/bob", "acme/eve"][number % 2], Reach::Own);
            let start = StartRun {
                can_wait: true,
                ..a_run(&format!("r{number}"), "body")
            };
            runs.start(&owner, start).await
        });
    }
    let ended = tasks.join_all().await;
    let (started, refused): (Vec<_>, Vec<_>) = ended.into_iter().partition(Result::is_ok);
    assert_eq!(started.len(), LIMIT);
    for refused in refused {
        assert_eq!(refused.unwrap_err().reason(), ErrorReason::TenantLimit);
    }
    started_in_other_tenants(&runs).await;

    runs.shutdown().await;
    runs = super::runs(directory.path()).await;
    limit_open_runs(&runs, LIMIT as u64).await;
    let bob = caller("acme/bob", Reach::Own);
    let refused = runs.start(&bob, a_run("", "")).await.unwrap_err();
    assert_eq!(refused.reason(), ErrorReason::TenantLimit);
    let open = runs.uses().await.unwrap();
    let of_acme = open.iter().find(|it| it.tenant.as_str() == "acme");
    assert_eq!(of_acme.map(|it| it.amount), Some(LIMIT as u64));
}

async fn started_in_other_tenants(runs: &Runs) {
    for _ in 0..20 {
        started(runs, "zeta/bob", "").await;
    }
}

#[tokio::test]
async fn a_repeat_finds_its_run_also_where_the_limit_is_reached() {
    let directory = tempfile::tempdir().unwrap();
    let runs = runs(directory.path()).await;
    limit_open_runs(&runs, 1).await;
    let first = started(&runs, "acme/bob", "r1").await.run_id().to_string();
    let bob = caller("acme/bob", Reach::Own);
    let again = runs.start(&bob, a_run("r1", "body")).await.unwrap();
    assert!(matches!(again, Started::Replayed(run) if run.run_id == first));
    for (request_id, body, reason) in [
        ("r1", "another body", ErrorReason::RequestIdReused),
        ("r2", "body", ErrorReason::TenantLimit),
        ("", "body", ErrorReason::TenantLimit),
    ] {
        let refused = runs.start(&bob, a_run(request_id, body)).await.unwrap_err();
        assert_eq!(refused.reason(), reason, "{request_id} with {body}");
    }
}

#[tokio::test]
async fn a_used_request_id_names_its_run_to_those_who_see_it() {
    let directory = tempfile::tempdir().unwrap();
    let runs = runs(directory.path()).await;
    let first = started(&runs, "acme/bob", "r1").await;
    let deleted = started(&runs, "acme/bob", "r2").await;
    let bob = caller("acme/bob", Reach::Own);
    let id = deleted.run_id().to_string();
    runs.cancel(&bob, &id, "").await.unwrap();
    runs.delete(&bob, &id).await.unwrap();
    for (reader, sees) in [
        (bob, true),
        (caller("acme/ada", Reach::Tenant), true),
        (caller("acme/eve", Reach::Own), false),
    ] {
        for (request_id, run) in [("r1", first.run_id()), ("r2", deleted.run_id())] {
            let refused = runs.start(&reader, a_run(request_id, "another")).await;
            let refused = refused.unwrap_err();
            assert_eq!(refused.reason(), ErrorReason::RequestIdReused);
            let status = refused.into_status();
            let details = String::from_utf8_lossy(status.details());
            let run = run.to_string();
            let named = [status.message().contains(&run), details.contains(&run)];
            assert_eq!(named, [sees; 2], "{request_id} for {reader:?}");
        }
    }
}

#[tokio::test]
async fn a_page_token_of_another_tenant_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let runs = runs(directory.path()).await;
    for _ in 0..2 {
        started(&runs, "acme/bob", "").await;
    }
    let one = ListRunsRequest {
        page_size: 1,
        ..ListRunsRequest::default()
    };
    let (_, page_token) = runs
        .list(&caller("acme/bob", Reach::Tenant), &one)
        .await
        .unwrap();
    let next = ListRunsRequest { page_token, ..one };
    let forged = ListRunsRequest {
        page_token: "forged".to_owned(),
        ..next.clone()
    };
    let stranger = caller("bob", Reach::Tenant);
    let refused = runs.list(&stranger, &next).await.unwrap_err();
    let as_forged = runs.list(&stranger, &forged).await.unwrap_err();
    assert_eq!(refused.reason(), as_forged.reason());
    assert!(
        runs.list(&caller("acme/eve", Reach::Tenant), &next)
            .await
            .is_ok()
    );
}

#[test]
fn the_owners_that_a_call_sees_are_those_of_its_context() {
    let names = ["local", "bob", "acme/bob", "acme/eve", "system/root"];
    for name in names {
        for reach in [Reach::Own, Reach::Tenant, Reach::Installation] {
            let context = caller(name, reach);
            for owner in names.map(principal) {
                let is_admitted = seen_by(&context).admit(&owner);
                assert_eq!(
                    is_admitted,
                    context.sees(&owner),
                    "{name} with {reach:?}: {owner}"
                );
            }
        }
    }
}
