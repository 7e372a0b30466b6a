//! What every store does, whatever it stands on.

use sql_store::{SqliteDatabase, SqliteOptions};
use workflow_domain::cache_key::{KeyParts, node_name};
use workflow_runner::{LastResult, ResultChange, ResultRow, ResultStore};

use super::*;

async fn database(directory: &tempfile::TempDir) -> SqliteDatabase {
    let options = SqliteOptions::new(directory.path().join("test.db"));
    SqliteDatabase::open(options, &[MIGRATIONS]).await.unwrap()
}

async fn sqlite(directory: &tempfile::TempDir) -> impl WorkflowStore {
    SqliteStore::new(database(directory).await)
}

fn put<'a>(id: &'a str, text: &'a str) -> Put<'a> {
    Put {
        id,
        text,
        expected: None,
        request: None,
        now: Timestamp::from_unix_nanos(1_000),
    }
}

fn stored(id: &str, text: &str) -> StoredWorkflow {
    StoredWorkflow {
        id: id.into(),
        text: text.into(),
    }
}

async fn saves_lists_and_replaces(store: impl WorkflowStore) {
    for (id, text) in [("b", "2"), ("a", "1"), ("c", "3"), ("a", "4")] {
        assert_eq!(store.put(put(id, text)).await.unwrap(), PutOutcome::Saved);
    }
    assert_eq!(store.get("a").await.unwrap(), Some(stored("a", "4")));
    assert_eq!(store.get("d").await.unwrap(), None);
    assert_eq!(store.ids("", 2).await.unwrap(), ["a", "b"]);
    assert_eq!(store.ids("b", 2).await.unwrap(), ["c"]);
}

async fn replaces_only_what_the_caller_knows(store: impl WorkflowStore) {
    let expecting = |text, etag: &str| Put {
        expected: Some(etag.to_owned()),
        ..put("a", text)
    };
    store.put(put("a", "1")).await.unwrap();
    let refused = store.put(expecting("2", "x")).await.unwrap();
    assert_eq!(
        refused,
        PutOutcome::EtagMismatch {
            current: etag_of("1")
        }
    );
    assert_eq!(
        store.put(expecting("2", &etag_of("1"))).await.unwrap(),
        PutOutcome::Saved
    );
    assert_eq!(store.get("a").await.unwrap(), Some(stored("a", "2")));
}

async fn answers_a_repeated_request_as_the_first_time(store: impl WorkflowStore) {
    let asking = |text, body: &[u8]| Put {
        request: Some(("r", Hash::of(body))),
        ..put("a", text)
    };
    assert_eq!(
        store.put(asking("1", b"x")).await.unwrap(),
        PutOutcome::Saved
    );
    store.put(put("a", "2")).await.unwrap();
    assert_eq!(
        store.put(asking("1", b"x")).await.unwrap(),
        PutOutcome::Replayed(stored("a", "1"))
    );
    assert_eq!(
        store.put(asking("3", b"y")).await.unwrap(),
        PutOutcome::RequestIdReused
    );
    assert_eq!(store.get("a").await.unwrap(), Some(stored("a", "2")));
}

async fn keeps_texts_as_long_as_they_are_used(store: impl WorkflowStore) {
    let asking = Put {
        request: Some(("r", Hash::of(b"x"))),
        ..put("a", "asked")
    };
    store.put(asking).await.unwrap();
    store.put(put("a", "saved")).await.unwrap();
    let used = store.keep("used").await.unwrap();
    let unused = store.keep("unused").await.unwrap();
    assert_eq!(store.keep("used").await.unwrap(), used);
    assert_eq!(
        store
            .forget(Timestamp::from_unix_nanos(500), &[used])
            .await
            .unwrap(),
        1
    );
    assert_eq!(store.kept(&used).await.unwrap().as_deref(), Some("used"));
    assert_eq!(store.kept(&unused).await.unwrap(), None);
    assert_eq!(
        store.kept(&Hash::of(b"asked")).await.unwrap().as_deref(),
        Some("asked")
    );
    // Once the request is old, the text that only it saved is forgotten too.
    assert_eq!(
        store
            .forget(Timestamp::from_unix_nanos(5_000), &[used])
            .await
            .unwrap(),
        1
    );
    assert_eq!(store.get("a").await.unwrap(), Some(stored("a", "saved")));
}

async fn deletes_only_what_the_caller_knows(store: impl WorkflowStore) {
    store.put(put("a", "1")).await.unwrap();
    let kept = store.keep("1").await.unwrap();
    let refused = store.delete("a", Some("x")).await.unwrap();
    let current = etag_of("1");
    assert_eq!(
        refused,
        DeleteOutcome::EtagMismatch {
            current: current.clone()
        }
    );
    let deleted = store.delete("a", Some(&current)).await.unwrap();
    assert_eq!(deleted, DeleteOutcome::Deleted);
    assert_eq!(store.get("a").await.unwrap(), None);
    assert_eq!(store.ids("", 10).await.unwrap(), [] as [&str; 0]);
    assert_eq!(store.kept(&kept).await.unwrap().as_deref(), Some("1"));
    let again = store.delete("a", Some(&current)).await.unwrap();
    assert_eq!(again, DeleteOutcome::NotFound);
}

macro_rules! on_every_store {
    ($($name:ident),* $(,)?) => {
        mod on_sqlite {
            $(
                #[tokio::test]
                async fn $name() {
                    let directory = tempfile::tempdir().unwrap();
                    super::$name(super::sqlite(&directory).await).await;
                }
            )*
        }
    };
}

on_every_store!(
    saves_lists_and_replaces,
    replaces_only_what_the_caller_knows,
    deletes_only_what_the_caller_knows,
    answers_a_repeated_request_as_the_first_time,
    keeps_texts_as_long_as_they_are_used,
);

#[tokio::test]
async fn results_are_read_as_they_were_written_until_they_are_dropped() {
    let directory = tempfile::tempdir().unwrap();
    let results = ResultTable::new(database(&directory).await);
    let last = |name: &str, kept: i64| {
        let parts = KeyParts::from_text(&format!("{{\"inputs.n\":\"{name:0>32}\"}}")).unwrap();
        LastResult {
            node: node_name("workflow w", name),
            key: parts.key("workflow w"),
            parts,
            kept: Timestamp::from_unix_nanos(kept),
        }
    };
    let (first, second) = (last("1", 1), last("2", 2));
    let row = |last: &LastResult| ResultRow {
        key: last.key,
        bytes: 2,
        run_id: "flow_1".to_owned(),
        kept: last.kept,
    };
    let kept = |last: &LastResult| ResultChange::Kept {
        last: last.clone(),
        run_id: "flow_1".to_owned(),
        outputs: "{}".into(),
    };
    let used = ResultChange::Used(first.key, Timestamp::from_unix_nanos(3));
    let written = results.write(&[kept(&first), kept(&second), used]).await;
    written.unwrap();
    assert_eq!(results.all().await.unwrap(), [row(&second), row(&first)]);
    let both = [first.clone(), second.clone()];
    assert_eq!(results.last().await.unwrap(), both);
    let outputs = results.outputs(&first.key).await.unwrap();
    assert_eq!(outputs.as_deref(), Some("{}"));
    let dropped = [
        ResultChange::Dropped(first.key),
        ResultChange::NodeDropped(first.node),
    ];
    results.write(&dropped).await.unwrap();
    assert_eq!(results.all().await.unwrap(), [row(&second)]);
    assert_eq!(results.last().await.unwrap(), [second]);
    assert_eq!(results.outputs(&first.key).await.unwrap(), None);
}
