//! Facts of the stores.

use contracts::tavern::workflow::v1::{Schedule, ScheduleNotRunReason};
use core_types::{Principal, Tenant, Timestamp};
use documents::{Collection, DocumentStore, Request, RequestStore, Seen, StoredDocuments};
use prost::Message;
use sql_store::{Database, Migrations, SqliteDatabase, SqliteOptions};
use workflow_domain::cache_key::{KeyParts, node_name};
use workflow_runner::{LastResult, ResultChange, ResultRow, ResultStore};

use super::schedules::{Agenda, ScheduleRow, ScheduleStore, TimeRow, TimeState};
use super::*;

const FILE: [Migrations; 2] = [documents::MIGRATIONS, MIGRATIONS];
const SERVER: [Migrations; 1] = [SERVER_MIGRATIONS];

postgres_kit::on_every_database! {
    (FILE, SERVER)
    texts_are_kept_as_long_as_their_tenant_uses_them
    results_are_read_as_they_were_written_until_they_are_dropped
    equal_keys_of_two_tenants_name_two_results
    equal_schedules_of_two_tenants_are_two
    settled_times_are_trimmed_and_listed_from_the_latest
}

async fn database(directory: &tempfile::TempDir) -> Database {
    let options = SqliteOptions::new(directory.path().join("test.db"));
    let database = SqliteDatabase::open(options, &FILE).await;
    database.unwrap().into()
}

async fn texts_are_kept_as_long_as_their_tenant_uses_them(store: Database) {
    let kept = store;
    let (mine, theirs) = (Tenant::DEFAULT, Tenant::SYSTEM);
    let used = kept.keep(mine, "used").await.unwrap();
    let unused = kept.keep(mine, "unused").await.unwrap();
    assert_eq!(kept.kept(theirs, &used).await.unwrap(), None);
    for text in ["used", "unused"] {
        kept.keep(theirs, text).await.unwrap();
    }
    assert_eq!(kept.keep(mine, "used").await.unwrap(), used);
    let in_use = [(mine, used), (theirs, unused)];
    assert_eq!(kept.forget(&in_use).await.unwrap(), 2);
    for (tenant, hash, text) in [
        (mine, used, Some("used")),
        (mine, unused, None),
        (theirs, used, None),
        (theirs, unused, Some("unused")),
    ] {
        let found = kept.kept(tenant, &hash).await.unwrap();
        assert_eq!(found.as_deref(), text, "{tenant}");
    }
}

#[tokio::test]
async fn definitions_and_requests_of_an_earlier_version_are_there() {
    let directory = tempfile::tempdir().unwrap();
    let options = SqliteOptions::new(directory.path().join("test.db"));
    let earlier = SqliteDatabase::open(options, &[MIGRATIONS.up_to(3)]).await;
    let earlier = earlier.unwrap();
    let body = Hash::of(b"body");
    for statement in [
        "INSERT INTO definitions VALUES (?1, 'a text')",
        "INSERT INTO workflows VALUES ('w', ?1, 5)",
        "INSERT INTO put_requests VALUES ('r1', ?1, 'w', ?1, 5)",
    ] {
        let row = sqlx::query(statement).bind(&body.0[..]);
        row.execute(earlier.writer()).await.unwrap();
    }
    earlier.close().await;
    drop(earlier);

    let database = database(&directory).await;
    let documents = StoredDocuments::new(database.clone());
    let kept = database;
    let (tenant, kind) = (Tenant::DEFAULT, "workflow");
    let row = documents
        .get(Collection { tenant, kind }, "w")
        .await
        .unwrap();
    assert_eq!(row.map(|row| row.text), Some("a text".to_owned()));
    let put = Request::of("PutWorkflow", "r1", body).unwrap();
    let seen = documents.seen(tenant, put).await.unwrap();
    assert_eq!(seen, Seen::Same(String::new()));
    let text = kept.kept(tenant, &body).await;
    assert_eq!(text.unwrap().as_deref(), Some("a text"));
}

fn last_result(tenant: Tenant, name: &str, kept: i64) -> LastResult {
    let parts = KeyParts::from_text(&format!("{{\"inputs.n\":\"{name:0>32}\"}}")).unwrap();
    LastResult {
        tenant,
        node: node_name("workflow w", name),
        key: parts.key("workflow w"),
        parts,
        kept: Timestamp::from_unix_nanos(kept),
    }
}

fn row_of(last: &LastResult) -> ResultRow {
    ResultRow {
        key: (last.tenant, last.key),
        bytes: 2,
        run_id: "flow_1".to_owned(),
        kept: last.kept,
    }
}

fn kept(last: &LastResult, outputs: &str) -> ResultChange {
    ResultChange::Kept {
        last: last.clone(),
        run_id: "flow_1".to_owned(),
        outputs: outputs.into(),
    }
}

async fn results_are_read_as_they_were_written_until_they_are_dropped(store: Database) {
    let results = ResultTable::new(store);
    let first = last_result(Tenant::DEFAULT, "1", 1);
    let second = last_result(Tenant::DEFAULT, "2", 2);
    let key = (first.tenant, first.key);
    let used = ResultChange::Used(key, Timestamp::from_unix_nanos(3));
    let written = [kept(&first, "{}"), kept(&second, "{}"), used];
    results.write(&written).await.unwrap();
    let rows = [row_of(&second), row_of(&first)];
    assert_eq!(results.all().await.unwrap(), rows);
    let both = [first.clone(), second.clone()];
    assert_eq!(results.last().await.unwrap(), both);
    let outputs = results.outputs(&key).await.unwrap();
    assert_eq!(outputs.as_deref(), Some("{}"));
    let dropped = [
        ResultChange::Dropped(key),
        ResultChange::NodeDropped((first.tenant, first.node)),
    ];
    results.write(&dropped).await.unwrap();
    assert_eq!(results.all().await.unwrap(), [row_of(&second)]);
    assert_eq!(results.last().await.unwrap(), [second]);
    assert_eq!(results.outputs(&key).await.unwrap(), None);
}

async fn equal_keys_of_two_tenants_name_two_results(store: Database) {
    let results = ResultTable::new(store);
    let mine = last_result(Tenant::DEFAULT, "1", 1);
    let theirs = last_result(Tenant::SYSTEM, "1", 2);
    let (key, their_key) = ((mine.tenant, mine.key), (theirs.tenant, theirs.key));
    results.write(&[kept(&mine, "{}")]).await.unwrap();
    assert_eq!(results.outputs(&their_key).await.unwrap(), None);
    results.write(&[kept(&theirs, "[]")]).await.unwrap();
    let both = [mine.clone(), theirs.clone()];
    assert_eq!(results.last().await.unwrap(), both);
    let used = ResultChange::Used(key, Timestamp::from_unix_nanos(3));
    results.write(&[used]).await.unwrap();
    let rows = [row_of(&theirs), row_of(&mine)];
    assert_eq!(results.all().await.unwrap(), rows);
    let dropped = [
        ResultChange::Dropped(their_key),
        ResultChange::NodeDropped((theirs.tenant, theirs.node)),
    ];
    results.write(&dropped).await.unwrap();
    assert_eq!(results.last().await.unwrap(), [mine]);
    let outputs = results.outputs(&key).await.unwrap();
    assert_eq!(outputs.as_deref(), Some("{}"));
    assert_eq!(results.outputs(&their_key).await.unwrap(), None);
}

fn schedule(creator: &str, id: &str, next: i64) -> ScheduleRow {
    let at = Timestamp::from_unix_nanos;
    ScheduleRow {
        definition: Schedule {
            schedule_id: id.to_owned(),
            workflow_id: format!("of {creator}"),
            ..Schedule::default()
        },
        etag: creator.to_owned(),
        paused: false,
        since: at(1),
        next: Some(at(next)),
        created: at(1),
        creator: Principal::new(creator).unwrap(),
        pause_reason: String::new(),
    }
}

fn time(nanos: i64, request_id: &str) -> TimeRow {
    TimeRow {
        request_id: request_id.to_owned(),
        ..TimeRow::buffered(Timestamp::from_unix_nanos(nanos))
    }
}

fn run_ids(times: Result<Vec<TimeRow>, StoreError>) -> Vec<String> {
    let times = times.unwrap().into_iter();
    times.map(|time| time.run_id).collect()
}

async fn equal_schedules_of_two_tenants_are_two(store: Database) {
    let (mine, theirs) = (Tenant::DEFAULT, Tenant::new("acme").unwrap());
    let row = schedule("bob", "daily", 9);
    store.put(&row, &[time(5, "r1")]).await.unwrap();
    assert!(store.get(theirs, "daily").await.unwrap().is_none());
    assert!(store.list(theirs, "", 9).await.unwrap().is_empty());
    assert_eq!(store.count(theirs).await.unwrap(), 0);
    assert_eq!(run_ids(store.open_times(theirs, "daily").await).len(), 0);

    let row = schedule("acme/bob", "daily", 4);
    store.put(&row, &[time(5, "r1")]).await.unwrap();
    for (tenant, creator) in [(mine, "bob"), (theirs, "acme/bob")] {
        let found = store.get(tenant, "daily").await.unwrap().unwrap();
        assert_eq!((found.creator.as_str(), &*found.etag), (creator, creator));
        let listed = store.list(tenant, "", 9).await.unwrap();
        assert_eq!(listed.len(), 1, "{tenant}");
        assert_eq!(listed[0].definition.workflow_id, format!("of {creator}"));
        assert_eq!(store.count(tenant).await.unwrap(), 1);
        let started = TimeRow {
            state: TimeState::Started,
            run_id: creator.to_owned(),
            ..time(5, "r1")
        };
        store.set_time(tenant, "daily", &started).await.unwrap();
    }
    let due = store.due(Timestamp::from_unix_nanos(9)).await.unwrap();
    let tenants: Vec<_> = due.iter().map(ScheduleRow::tenant).collect();
    assert_eq!(tenants, [theirs, mine]);
    let late = Timestamp::from_unix_nanos(9);
    for (tenant, creator) in [(mine, "bob"), (theirs, "acme/bob")] {
        let times = store.times(tenant, "daily", late, 9).await;
        assert_eq!(run_ids(times), [creator]);
        let found = store.time_of_request(tenant, "daily", "r1").await;
        assert_eq!(found.unwrap().unwrap().run_id, creator);
    }
    store.put(&row, &[time(6, "r2")]).await.unwrap();
    let buffered = store.agenda().await.unwrap().buffered;
    assert_eq!(buffered, [(theirs, "daily".to_owned())]);
    store.delete(theirs, "daily").await.unwrap();
    assert!(store.get(theirs, "daily").await.unwrap().is_none());
    assert_eq!(run_ids(store.open_times(theirs, "daily").await).len(), 0);
    assert_eq!(run_ids(store.open_times(mine, "daily").await), ["bob"]);
}

async fn settled_times_are_trimmed_and_listed_from_the_latest(store: Database) {
    let mut paused = schedule("bob", "daily", 9);
    paused.paused = true;
    paused.next = None;
    let settled: Vec<TimeRow> = (1..=205)
        .map(|nanos| TimeRow {
            reason: ScheduleNotRunReason::Paused,
            state: TimeState::NotRun,
            ..time(nanos, "")
        })
        .collect();
    store.put(&paused, &settled).await.unwrap();
    let waiting = time(300, "r1");
    store.put(&paused, &[waiting]).await.unwrap();
    assert_eq!(store.agenda().await.unwrap(), Agenda::default());
    let late = Timestamp::from_unix_nanos(1_000);
    let times = store.times(Tenant::DEFAULT, "daily", late, 999).await;
    let times: Vec<i64> = times
        .unwrap()
        .into_iter()
        .map(|time| time.time.unix_nanos())
        .collect();
    let expected: Vec<i64> = std::iter::once(300).chain((6..=205).rev()).collect();
    assert_eq!(times, expected);
    let open = store.open_times(Tenant::DEFAULT, "daily").await.unwrap();
    assert_eq!(open.len(), 1);
}

#[tokio::test]
async fn the_rows_of_the_version_before_tenants_belong_to_the_default_one() {
    let directory = tempfile::tempdir().unwrap();
    let options = SqliteOptions::new(directory.path().join("test.db"));
    let migrations = [documents::MIGRATIONS, MIGRATIONS.up_to(5)];
    let earlier = SqliteDatabase::open(options, &migrations);
    let earlier = earlier.await.unwrap();
    let row = schedule("bob", "daily", 9);
    let last = last_result(Tenant::DEFAULT, "1", 1);
    let text_hash = Hash::of(b"a text");
    let blobs = [
        &text_hash.0[..],
        &row.definition.encode_to_vec()[..],
        &last.key.0[..],
        &last.node.0[..],
    ];
    for (statement, blob) in [
        ("INSERT INTO definitions VALUES (?1, 'a text')", 0),
        (
            "INSERT INTO schedules VALUES ('daily', ?1, 'e', 1, 1, NULL, 1, 'bob', 'why')",
            1,
        ),
        (
            "INSERT INTO schedule_times VALUES ('daily', 5, 6, 3, 4, 'm', 'flow_1', 1, 'r1', 'eve')",
            0,
        ),
        ("INSERT INTO results VALUES (?1, '{}', 'flow_1', 1, 2)", 2),
        (
            "INSERT INTO last_results SELECT ?1, key, '{\"inputs.n\":\"00000000000000000000000000000001\"}', 1 \
             FROM results",
            3,
        ),
    ] {
        let row = sqlx::query(statement).bind(blobs[blob]);
        row.execute(earlier.writer()).await.unwrap();
    }
    earlier.close().await;
    drop(earlier);

    let database = database(&directory).await;
    let tenant = Tenant::DEFAULT;
    let kept = database.clone();
    let text = kept.kept(tenant, &text_hash).await.unwrap();
    assert_eq!(text.as_deref(), Some("a text"));
    let schedules = database.clone();
    let found = schedules.get(tenant, "daily").await.unwrap().unwrap();
    assert_eq!(found.definition, row.definition);
    assert_eq!((&*found.etag, found.paused, found.next), ("e", true, None));
    assert_eq!((found.creator, &*found.pause_reason), (row.creator, "why"));
    let late = Timestamp::from_unix_nanos(9);
    let times = schedules.times(tenant, "daily", late, 9).await.unwrap();
    let [time] = &times[..] else {
        panic!("{times:?}");
    };
    assert_eq!((time.time.unix_nanos(), time.state), (5, TimeState::NotRun));
    assert_eq!(time.last, Some(Timestamp::from_unix_nanos(6)));
    assert_eq!(time.reason, ScheduleNotRunReason::Paused);
    assert_eq!((&*time.message, &*time.run_id), ("m", "flow_1"));
    assert!(time.manual);
    assert_eq!((&*time.request_id, &*time.principal), ("r1", "eve"));
    let results = ResultTable::new(database);
    assert_eq!(results.all().await.unwrap(), [row_of(&last)]);
    let outputs = results.outputs(&(tenant, last.key)).await.unwrap();
    assert_eq!(outputs.as_deref(), Some("{}"));
    assert_eq!(results.last().await.unwrap(), [last]);
}
