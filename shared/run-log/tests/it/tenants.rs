//! Owners of runs: lists, look-ups and request ids by tenant.

use core_types::{Principal, Tenant};
use run_log::{CreateError, Created, NewRun, Order, Owners, RunCursor, RunFilter, StateFilter};

use crate::fixture::{self, Fixture, request, run_id, sqlite_at, start};

on_every_log! {
    equal_request_ids_of_two_tenants_are_two_runs
    a_request_id_of_a_deleted_run_is_used_in_its_tenant_only
    a_run_is_found_for_its_owners_only
    lists_show_the_runs_of_their_owners_only
    open_runs_are_counted_by_tenant
    only_finished_runs_of_the_tenant_are_removed
}

fn principal(text: &str) -> Principal {
    Principal::new(text).unwrap()
}

fn owned(on: &Fixture, number: u128, owner: &str) -> NewRun {
    NewRun {
        owner: principal(owner),
        ..on.new_run(number)
    }
}

fn acme() -> Tenant {
    Tenant::new("acme").unwrap()
}

async fn equal_request_ids_of_two_tenants_are_two_runs(on: Fixture) {
    let named = |number, owner, body| NewRun {
        request: Some(request("r", body)),
        ..owned(&on, number, owner)
    };
    for (number, owner) in [(1, "bob"), (2, "acme/bob")] {
        let created = on.log.create(named(number, owner, "body"), Vec::new());
        assert!(matches!(created.await, Ok(Created::New(_))), "{owner}");
        let repeated = on.log.create(named(3, owner, "body"), Vec::new());
        let Ok(Created::Replayed(first)) = repeated.await else {
            panic!("the request of {owner} started a second run")
        };
        assert_eq!((first.id, first.owner), (run_id(number), principal(owner)));
        let other = on.log.create(named(3, owner, "another body"), Vec::new());
        let Err(CreateError::RequestIdConflict { run, owner: of }) = other.await else {
            panic!("the request id of {owner} was used twice")
        };
        assert_eq!((run, of), (run_id(number), principal(owner)));
    }
    let key = request("r", "body");
    for (tenant, number) in [
        (Tenant::DEFAULT, Some(1)),
        (acme(), Some(2)),
        (Tenant::SYSTEM, None),
    ] {
        let found = on.log.by_request(tenant, &key.scope, &key.request_id).await;
        assert_eq!(found.unwrap().map(|run| run.id), number.map(run_id));
    }
}

async fn a_request_id_of_a_deleted_run_is_used_in_its_tenant_only(on: Fixture) {
    let named = |number, owner| NewRun {
        request: Some(request("r", "body")),
        ..owned(&on, number, owner)
    };
    let writer = start(&on.log, named(1, "acme/bob")).await;
    writer.finish(1, fixture::events(1..=1)).await.unwrap();
    on.log.delete(run_id(1)).await.unwrap();
    let again = on.log.create(named(2, "acme/eve"), Vec::new()).await;
    assert!(matches!(again, Err(CreateError::RequestOfDeletedRun { run, .. }) if run == run_id(1)));
    start(&on.log, named(2, "eve")).await;
}

async fn a_run_is_found_for_its_owners_only(on: Fixture) {
    let run = owned(&on, 1, "acme/bob");
    start(&on.log, run).await;
    for (owners, is_found) in [
        (Owners::All, true),
        (Owners::Tenant(acme()), true),
        (Owners::One(principal("acme/bob")), true),
        (Owners::One(principal("acme/eve")), false),
        (Owners::One(principal("bob")), false),
        (Owners::Tenant(Tenant::DEFAULT), false),
        (Owners::Tenant(Tenant::SYSTEM), false),
    ] {
        let found = on.log.find(run_id(1), &owners).await.unwrap();
        let owner = found.map(|run| run.owner);
        assert_eq!(owner, is_found.then(|| principal("acme/bob")), "{owners:?}");
        assert_eq!(on.log.find(run_id(2), &owners).await.unwrap(), None);
    }
}

/// Returns the numbers of all runs of a list, which is read in pages of `size`.
async fn listed(on: &Fixture, filter: &RunFilter, order: Order, size: usize) -> Vec<u128> {
    let (mut numbers, mut after): (Vec<u128>, Option<RunCursor>) = Default::default();
    loop {
        let page = on.log.list(filter, order, after.as_ref(), size).await;
        let page = page.unwrap();
        let ids = page.runs.iter().map(|run| run.id.uuid().as_u128());
        numbers.extend(ids);
        after = page.next;
        if after.is_none() {
            return numbers;
        }
    }
}

async fn lists_show_the_runs_of_their_owners_only(on: Fixture) {
    const OWNERS: [&str; 5] = ["local", "bob", "acme/bob", "acme/eve", "zeta/bob"];
    let owner_of = |number: u128| OWNERS[usize::try_from(number).unwrap() % OWNERS.len()];
    for number in 1..=40 {
        let run = NewRun {
            subject: "flow".to_owned(),
            conversation: "talk".to_owned(),
            ..owned(&on, number, owner_of(number))
        };
        let writer = start(&on.log, run).await;
        if number % 3 == 0 {
            writer.finish(1, fixture::events(1..=1)).await.unwrap();
        }
    }
    let owners = [
        Owners::All,
        Owners::Tenant(Tenant::DEFAULT),
        Owners::Tenant(acme()),
        Owners::Tenant(Tenant::new("empty").unwrap()),
        Owners::One(principal("acme/bob")),
        Owners::One(principal("bob")),
        Owners::One(Principal::LOCAL),
    ];
    let named = || Some("flow".to_owned());
    let conditions = [
        RunFilter::default(),
        RunFilter {
            subject: named(),
            ..RunFilter::default()
        },
        RunFilter {
            conversation: Some("talk".to_owned()),
            ..RunFilter::default()
        },
        RunFilter {
            state: StateFilter::Open,
            ..RunFilter::default()
        },
        RunFilter {
            state: StateFilter::FinishedAs(1),
            subject: named(),
            ..RunFilter::default()
        },
    ];
    for owners in owners {
        for conditions in conditions.clone() {
            let in_state = |number: &u128| match conditions.state {
                StateFilter::Open => !number.is_multiple_of(3),
                StateFilter::FinishedAs(_) => number.is_multiple_of(3),
                _ => true,
            };
            let seen = |number: &u128| owners.admit(&principal(owner_of(*number)));
            let mut expected: Vec<u128> = (1..=40).filter(seen).filter(in_state).collect();
            let filter = RunFilter {
                owners: owners.clone(),
                ..conditions.clone()
            };
            for size in [3, 100] {
                let oldest = listed(&on, &filter, Order::OldestFirst, size).await;
                assert_eq!(oldest, expected, "{filter:?}");
            }
            expected.reverse();
            let newest = listed(&on, &filter, Order::NewestFirst, 7).await;
            assert_eq!(newest, expected, "{filter:?}");
        }
    }
}

async fn open_runs_are_counted_by_tenant(on: Fixture) {
    let open = async || {
        let open = on.log.open_runs_by_tenant().await.unwrap();
        open.values().sum::<u64>()
    };
    for number in 1..=9 {
        let owner = ["bob", "acme/bob", "acme/eve"][usize::try_from(number).unwrap() % 3];
        let writer = start(&on.log, owned(&on, number, owner)).await;
        assert_eq!(open().await, u64::try_from(number.min(7)).unwrap());
        if number > 6 {
            writer.finish(1, fixture::events(1..=1)).await.unwrap();
            assert_eq!(open().await, 6);
        }
    }
    let by_tenant = on.log.open_runs_by_tenant().await.unwrap();
    assert!(
        by_tenant
            .into_iter()
            .eq([(acme(), 4), (Tenant::DEFAULT, 2)])
    );
    for (tenant, most, expected) in [
        (acme(), 100, 4),
        (acme(), 3, 3),
        (Tenant::DEFAULT, 100, 2),
        (Tenant::SYSTEM, 100, 0),
    ] {
        let found = on.log.open_runs_of(tenant, most).await.unwrap();
        assert_eq!(found, expected, "{tenant}, at most {most}");
    }
}

async fn only_finished_runs_of_the_tenant_are_removed(on: Fixture) {
    let run = |number: u128, owner| NewRun {
        request: Some(request(&format!("r{number}"), "body")),
        ..owned(&on, number, owner)
    };
    for number in 1..=5 {
        let writer = start(&on.log, run(number, "acme/bob")).await;
        writer.finish(1, fixture::events(1..=1)).await.unwrap();
    }
    // Its request id stays, until the tenant is removed.
    on.log.delete(run_id(5)).await.unwrap();
    let open = start(&on.log, run(6, "acme/eve")).await;
    let other = start(&on.log, run(7, "bob")).await;
    other.finish(1, fixture::events(1..=1)).await.unwrap();

    let seen = std::sync::Mutex::new(Vec::new());
    let before = async |most| {
        let note = |run: run_log::RunSummary| {
            seen.lock().unwrap().push(run.id.uuid().as_u128());
            std::future::ready(Ok::<(), run_log::StorageError>(()))
        };
        on.log.remove_of(acme(), most, note).await.unwrap()
    };
    assert!(before(2).await > 0, "more are left");
    assert_eq!(
        *seen.lock().unwrap(),
        [1, 2],
        "the oldest first, with their data"
    );
    for _ in 0..3 {
        assert!(before(2).await > 0, "an open run is left");
    }
    open.finish(1, fixture::events(1..=1)).await.unwrap();
    while before(2).await > 0 {}
    assert_eq!(*seen.lock().unwrap(), [1, 2, 3, 4, 6]);
    let all = listed(&on, &RunFilter::default(), Order::OldestFirst, 100).await;
    assert_eq!(all, [7]);
    start(&on.log, run(5, "acme/bob")).await;
}

#[tokio::test]
async fn runs_keep_their_owners_over_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("runs.db");
    let log = sqlite_at(&path).await;
    let run = |number, owner| NewRun {
        owner: principal(owner),
        request: Some(request("r", "body")),
        ..NewRun::new(run_id(number), "flow", fixture::at(1))
    };
    start(&log, run(1, "bob")).await;
    start(&log, run(2, "acme/bob")).await;
    log.close().await;
    let log = sqlite_at(&path).await;
    for (number, owner) in [(1, "bob"), (2, "acme/bob")] {
        let owners = Owners::One(principal(owner));
        let found = log.find(run_id(number), &owners);
        assert!(found.await.unwrap().is_some(), "{owner}");
        let replayed = log.create(run(3, owner), Vec::new()).await;
        assert!(matches!(replayed, Ok(Created::Replayed(first)) if first.id == run_id(number)));
    }
}
