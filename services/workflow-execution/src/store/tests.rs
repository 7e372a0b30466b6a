//! What every store does, whatever it stands on.

use sql_store::{SqliteDatabase, SqliteOptions};

use super::*;

async fn sqlite(directory: &tempfile::TempDir) -> impl Store {
    let options = SqliteOptions::new(directory.path().join("test.db"));
    SqliteStore::new(SqliteDatabase::open(options, &[MIGRATIONS]).await.unwrap())
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

async fn saves_lists_and_replaces(store: impl Store) {
    for (id, text) in [("b", "2"), ("a", "1"), ("c", "3"), ("a", "4")] {
        assert_eq!(store.put(put(id, text)).await.unwrap(), PutOutcome::Saved);
    }
    assert_eq!(store.get("a").await.unwrap(), Some(stored("a", "4")));
    assert_eq!(store.get("d").await.unwrap(), None);
    assert_eq!(store.ids("", 2).await.unwrap(), ["a", "b"]);
    assert_eq!(store.ids("b", 2).await.unwrap(), ["c"]);
}

async fn replaces_only_what_the_caller_knows(store: impl Store) {
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

async fn answers_a_repeated_request_as_the_first_time(store: impl Store) {
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

async fn keeps_texts_as_long_as_they_are_used(store: impl Store) {
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

async fn deletes_only_what_the_caller_knows(store: impl Store) {
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
