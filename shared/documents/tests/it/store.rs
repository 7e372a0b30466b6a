//! Facts of a store, in a file and at a server.

use core_types::Timestamp;
use documents::{
    DocumentStore, MIGRATIONS, Request, RequestStore, SERVER_MIGRATIONS, Seen, StoredDocuments,
    store::{NewDocument, NewRevision},
};
use futures::future::join_all;
use sql_store::{Database, Migrations};

use crate::{TENANT, body, collection};

const FILE: [Migrations; 1] = [MIGRATIONS];
const SERVER: [Migrations; 1] = [SERVER_MIGRATIONS];

postgres_kit::on_every_database! {
    (FILE, SERVER)
    documents_of_a_kind_are_read_as_they_were_put_and_paged_by_id
    a_put_replaces_only_the_version_that_it_names
    a_request_is_noted_with_the_change_that_it_asks_for
    a_request_is_remembered_for_a_week
    revisions_are_numbered_and_one_that_changes_nothing_is_none
    revisions_that_are_used_are_not_deleted
    of_changes_at_once_to_one_version_one_is_stored
    revisions_added_at_once_have_numbers_without_gaps
}

const NOW: Timestamp = Timestamp::from_unix_nanos(1_000);

fn new<'a>(id: &'a str, text: &'a str, replaces: u64) -> NewDocument<'a> {
    NewDocument {
        id,
        text,
        replaces,
        request: None,
        now: NOW,
    }
}

fn request<'a>(id: &'a str, text: &str) -> Request<'a> {
    Request::of("Put", id, body(text)).expect("it has an id")
}

async fn documents_of_a_kind_are_read_as_they_were_put_and_paged_by_id(database: Database) {
    let store = StoredDocuments::new(database);
    for (kind, id) in [("a", "y"), ("a", "x"), ("a", "z"), ("b", "x")] {
        assert!(store.put(collection(kind), new(id, kind, 0)).await.unwrap());
    }
    let ids = async |after, limit| {
        let page = store
            .page(collection("a"), after, limit, 1_000)
            .await
            .unwrap();
        page.into_iter().map(|row| row.id).collect::<Vec<_>>()
    };
    assert_eq!(ids("", 2).await, ["x", "y"]);
    assert_eq!(ids("y", 2).await, ["z"]);
    let row = store.get(collection("b"), "x").await.unwrap().unwrap();
    assert_eq!((row.version, row.text.as_str()), (1, "b"));
    assert_eq!(store.get(collection("b"), "y").await.unwrap(), None);
}

async fn a_put_replaces_only_the_version_that_it_names(database: Database) {
    let store = StoredDocuments::new(database);
    let put = async |text, replaces| store.put(collection("a"), new("x", text, replaces)).await;
    assert!(!put("first", 1).await.unwrap());
    assert!(put("first", 0).await.unwrap());
    assert!(!put("other", 0).await.unwrap());
    assert!(put("second", 1).await.unwrap());
    let row = store.get(collection("a"), "x").await.unwrap().unwrap();
    assert_eq!((row.version, row.text.as_str()), (2, "second"));
}

async fn a_request_is_noted_with_the_change_that_it_asks_for(database: Database) {
    let store = StoredDocuments::new(database);
    let named = |replaces, request| NewDocument {
        request: Some(request),
        ..new("x", "text", replaces)
    };
    let seen = async |asked| store.seen(TENANT, asked).await.unwrap();
    let first = request("r1", "body");
    // A refused change notes no request.
    assert!(!store.put(collection("a"), named(7, first)).await.unwrap());
    assert_eq!(seen(first).await, Seen::New);
    assert!(store.put(collection("a"), named(0, first)).await.unwrap());
    assert_eq!(seen(first).await, Seen::Same(String::new()));
    assert_eq!(seen(request("r1", "another body")).await, Seen::OtherBody);
    assert!(!store.put(collection("a"), named(1, first)).await.unwrap());

    let second = request("r2", "delete");
    let delete = async |id, asked| store.delete(collection("a"), id, Some(asked), NOW).await;
    assert!(!delete("y", second).await.unwrap());
    assert_eq!(seen(second).await, Seen::New);
    assert!(delete("x", second).await.unwrap());
    assert_eq!(seen(second).await, Seen::Same(String::new()));
    let elsewhere = Request {
        scope: "elsewhere",
        ..second
    };
    assert_eq!(seen(elsewhere).await, Seen::New);
}

async fn a_request_is_remembered_for_a_week(database: Database) {
    let store = StoredDocuments::new(database);
    let put = async |id, asked, seconds: i64| {
        let now = Timestamp::from_unix_nanos(seconds * 1_000_000_000);
        let put = NewDocument {
            request: Some(asked),
            now,
            ..new(id, "text", 0)
        };
        assert!(store.put(collection("a"), put).await.unwrap());
    };
    let (first, week) = (request("r1", "body"), 7 * 86_400);
    put("x", first, 0).await;
    put("y", request("r2", "body"), week).await;
    assert_ne!(store.seen(TENANT, first).await.unwrap(), Seen::New);
    put("z", request("r3", "body"), week + 1).await;
    assert_eq!(store.seen(TENANT, first).await.unwrap(), Seen::New);
}

fn revision(id: &str, etag: &str, label: &str) -> NewRevision {
    NewRevision {
        id: id.to_owned(),
        etag: etag.to_owned(),
        label: label.to_owned(),
        from_file: false,
        text: format!("text of {etag}"),
    }
}

async fn revisions_are_numbered_and_one_that_changes_nothing_is_none(database: Database) {
    let store = StoredDocuments::new(database);
    let add = async |new: &[NewRevision]| {
        let added = store
            .add_revisions(collection("a"), new, NOW)
            .await
            .unwrap();
        added.iter().map(|row| row.number).collect::<Vec<_>>()
    };
    let (one, two) = (revision("x", "one", "v1"), revision("x", "two", "v1"));
    assert_eq!(add(&[one.clone(), one.clone(), two]).await, [1, 1, 2]);
    let file = NewRevision {
        from_file: true,
        ..revision("x", "two", "v2")
    };
    assert_eq!(add(&[file, revision("y", "one", "")]).await, [3, 1]);

    let newest = store
        .newest_revisions(collection("a"), &["x", "y", "z"])
        .await
        .unwrap();
    let numbers: Vec<u64> = newest.values().map(|row| row.number).collect();
    assert_eq!(numbers, [3, 1]);
    let page = store
        .revisions(collection("a"), "x", Some(3), 9)
        .await
        .unwrap();
    let same = page.iter().map(|row| (row.number, row.same_version_as));
    assert_eq!(same.collect::<Vec<_>>(), [(2, 1), (1, 0)]);
    let kept = store.revision(collection("a"), "x", 1).await.unwrap();
    assert_eq!(kept.map(|(_, text)| text), Some("text of one".to_owned()));
}

async fn revisions_that_are_used_are_not_deleted(database: Database) {
    let store = StoredDocuments::new(database);
    let new = ["one", "two", "three", "four"].map(|etag| revision("x", etag, ""));
    store
        .add_revisions(collection("a"), &new, NOW)
        .await
        .unwrap();
    let deleted = store.delete_revisions(collection("a"), "x", 3, &[2]).await;
    deleted.unwrap();
    let left = store
        .revisions(collection("a"), "x", None, 9)
        .await
        .unwrap();
    let numbers: Vec<u64> = left.iter().map(|row| row.number).collect();
    assert_eq!(numbers, [4, 2]);
}

async fn of_changes_at_once_to_one_version_one_is_stored(database: Database) {
    let store = StoredDocuments::new(database);
    for replaces in 0..5 {
        let texts: Vec<String> = (0..8).map(|number| format!("text {number}")).collect();
        let changes = texts
            .iter()
            .map(|text| store.put(collection("a"), new("x", text, replaces)));
        let stored = join_all(changes).await;
        let stored = stored
            .into_iter()
            .filter(|stored| *stored.as_ref().unwrap());
        assert_eq!(stored.count(), 1, "of version {replaces}");
    }
    let same = request("r1", "body");
    let named = |id| NewDocument {
        request: Some(same),
        ..new(id, "text", 0)
    };
    let changes = ["p", "q", "r", "s"].map(|id| store.put(collection("a"), named(id)));
    let stored = join_all(changes).await;
    let stored = stored
        .into_iter()
        .filter(|stored| *stored.as_ref().unwrap());
    assert_eq!(stored.count(), 1, "of one request");
}

async fn revisions_added_at_once_have_numbers_without_gaps(database: Database) {
    let store = StoredDocuments::new(database);
    let new: Vec<_> = (0..8)
        .map(|number| [revision("x", &format!("etag {number}"), "")])
        .collect();
    let added = new
        .iter()
        .map(|new| store.add_revisions(collection("a"), new, NOW));
    let added = join_all(added).await;
    let mut numbers: Vec<u64> = added
        .into_iter()
        .map(|added| added.unwrap()[0].number)
        .collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (1..=8).collect::<Vec<_>>());
}
