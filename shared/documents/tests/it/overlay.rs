//! Stored documents, over documents of files.

use std::{fs, path::Path};

use core_types::Timestamp;
use documents::{ChangeError, Documents, Put, Request, store::NewDocument};

use crate::{NoteKind, TENANT, body, collection, notes, sqlite};

async fn put(notes: &Documents<NoteKind>, text: &str, etag: &str) -> Result<(), String> {
    let put = Put {
        id: "",
        text,
        etag,
        validate_only: false,
        request: None,
    };
    let put = notes.put(TENANT, put).await;
    put.map(drop).map_err(|error| format!("{error:?}"))
}

/// Returns the text in force under an id, whether it is a file, and its revision.
async fn in_force(notes: &Documents<NoteKind>, id: &str) -> Option<(String, bool, u64)> {
    let known = notes.get(TENANT, id).await.expect("it is read")?;
    let revision = known.revision_number();
    Some((known.document.text.clone(), known.from_file, revision))
}

fn write(files: &Path, name: &str, text: &str) {
    fs::write(files.join(name), text).expect("it is written");
}

#[tokio::test]
async fn a_document_hides_the_file_of_its_id_until_it_is_deleted() {
    let directory = tempfile::tempdir().unwrap();
    let files = directory.path().join("notes");
    fs::create_dir(&files).unwrap();
    write(&files, "one.json", "one from a file");
    let notes = notes(directory.path(), &files).await;
    let of_file = |revision| Some(("one from a file".to_owned(), true, revision));
    assert_eq!(in_force(&notes, "one").await, of_file(1));
    let refused = notes.delete(TENANT, "one", "").await;
    assert!(matches!(refused, Err(ChangeError::IsFile)), "{refused:?}");

    put(&notes, "one that was put", "").await.unwrap();
    let of_put = ("one that was put".to_owned(), false, 2);
    assert_eq!(in_force(&notes, "one").await, Some(of_put));
    let listed = notes.list(TENANT, "", 9).await.expect("it lists");
    assert_eq!(listed.entries.len(), 1);

    notes.delete(TENANT, "one", "").await.unwrap();
    assert_eq!(in_force(&notes, "one").await, of_file(3));
    let missing = notes.delete(TENANT, "two", "").await;
    assert!(matches!(missing, Err(ChangeError::NotFound)), "{missing:?}");
}

#[tokio::test]
async fn an_etag_must_be_that_of_the_document_in_force() {
    let directory = tempfile::tempdir().unwrap();
    let notes = notes(directory.path(), Path::new("")).await;
    let stale = put(&notes, "one", "etag").await.unwrap_err();
    assert!(stale.contains("EtagMismatch { current: \"\" }"), "{stale}");
    put(&notes, "one", "").await.unwrap();
    let current = body("one").to_string();
    put(&notes, "one changed", &current).await.unwrap();
    let stale = put(&notes, "one again", &current).await.unwrap_err();
    assert!(stale.contains(&body("one changed").to_string()), "{stale}");
    let stale = notes.delete(TENANT, "one", &current).await;
    assert!(matches!(stale, Err(ChangeError::EtagMismatch { .. })));
    assert_eq!(in_force(&notes, "one").await.unwrap().0, "one changed");
}

#[tokio::test]
async fn a_repeat_gets_the_first_answer_even_after_a_deletion() {
    let directory = tempfile::tempdir().unwrap();
    let notes = notes(directory.path(), Path::new("")).await;
    let ask = |text, request_body| Put {
        id: "",
        text,
        etag: "",
        validate_only: false,
        request: Request::of("PutNote", "r1", body(request_body)),
    };
    let (first, replayed) = notes.put(TENANT, ask("one", "a")).await.unwrap();
    assert_eq!((first.revision_number(), replayed), (1, false));
    put(&notes, "one changed", "").await.unwrap();
    let (again, replayed) = notes.put(TENANT, ask("one", "a")).await.unwrap();
    assert_eq!((again.revision_number(), replayed), (1, true));
    assert_eq!(again.document.text, "one");
    notes.delete(TENANT, "one", "").await.unwrap();
    let (again, replayed) = notes.put(TENANT, ask("one", "a")).await.unwrap();
    assert_eq!((again.revision, replayed), (None, true));
    let other = notes.put(TENANT, ask("two", "b")).await;
    assert!(matches!(other, Err(ChangeError::RequestIdReused)));
}

#[tokio::test]
async fn a_check_stores_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let notes = notes(directory.path(), Path::new("")).await;
    let check = |text| Put {
        id: "",
        text,
        etag: "",
        validate_only: true,
        request: Request::of("PutNote", "r1", body(text)),
    };
    let (checked, _) = notes.put(TENANT, check("one")).await.unwrap();
    assert_eq!((checked.revision, checked.from_file), (None, false));
    assert_eq!(in_force(&notes, "one").await, None);
    let (_, replayed) = notes.put(TENANT, check("one")).await.unwrap();
    assert!(!replayed);
    let invalid = notes.put(TENANT, check(" ")).await;
    assert!(matches!(invalid, Err(ChangeError::Invalid(_))));
}

#[tokio::test]
async fn changed_files_are_read_again_and_a_broken_one_stays_as_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let files = directory.path().join("notes");
    fs::create_dir(&files).unwrap();
    write(&files, "a.json", "one");
    write(&files, "b.json", "one of another file");
    write(&files, "c.json", " ");
    let notes = notes(directory.path(), &files).await;
    let findings = notes.left_out(TENANT);
    let places: Vec<&str> = findings.iter().map(|found| found.path.as_str()).collect();
    assert_eq!(places, ["b.json", "c.json"], "{findings:?}");

    write(&files, "a.json", " ");
    write(&files, "b.json", "two");
    write(&files, "c.json", "three");
    notes.refresh().await.unwrap();
    assert_eq!(in_force(&notes, "one").await.unwrap().0, "one");
    assert_eq!(in_force(&notes, "two").await.unwrap().0, "two");

    fs::remove_file(files.join("a.json")).unwrap();
    write(&files, "b.json", "two changed");
    let changes = notes.reload().await.unwrap().unwrap();
    assert_eq!(changes.added, Vec::<String>::new());
    assert_eq!(changes.changed, ["two"]);
    assert_eq!(changes.removed, ["one"]);
}

#[tokio::test]
async fn a_document_whose_process_ended_before_its_revision_gets_one() {
    let directory = tempfile::tempdir().unwrap();
    let new = NewDocument {
        id: "one",
        text: "one",
        replaces: 0,
        request: None,
        now: Timestamp::from_unix_nanos(1),
    };
    let store = sqlite(directory.path()).await;
    assert!(store.put(collection("note"), new).await.unwrap());
    store.close().await;
    drop(store);
    let notes = notes(directory.path(), Path::new("")).await;
    let known = ("one".to_owned(), false, 1);
    assert_eq!(in_force(&notes, "one").await, Some(known.clone()));
    assert_eq!(in_force(&notes, "one").await, Some(known));
}

#[tokio::test]
async fn everything_is_there_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let first = notes(directory.path(), Path::new("")).await;
    put(&first, "one", "").await.unwrap();
    put(&first, "one changed", "").await.unwrap();
    drop(first);
    let second = notes(directory.path(), Path::new("")).await;
    let known = ("one changed".to_owned(), false, 2);
    assert_eq!(in_force(&second, "one").await, Some(known));
    let first = second.at(TENANT, "one", 1).await.unwrap().unwrap();
    assert_eq!(first.document.text, "one");
}

#[tokio::test]
async fn a_list_merges_files_and_documents_and_continues_where_a_page_ended() {
    let directory = tempfile::tempdir().unwrap();
    let files = directory.path().join("notes");
    fs::create_dir(&files).unwrap();
    for id in ["b", "d", "f"] {
        write(&files, &format!("{id}.json"), id);
    }
    let notes = notes(directory.path(), &files).await;
    let large = format!("c {}", "x".repeat(3 << 20));
    for text in ["a", &large, "d that was put", "e"] {
        put(&notes, text, "").await.unwrap();
    }
    for (size, expected) in [
        (3, vec!["a b", "c", "d e f"]),
        (9, vec!["a b", "c", "d e f"]),
        (1, vec!["a", "b", "c", "d", "e", "f"]),
    ] {
        let (mut pages, mut token) = (Vec::new(), String::new());
        loop {
            let listed = notes.list(TENANT, &token, size).await.expect("it lists");
            assert_eq!(listed.is_first, pages.is_empty());
            let ids = listed
                .entries
                .iter()
                .map(|known| known.document.id.as_str());
            pages.push(ids.collect::<Vec<_>>().join(" "));
            token = listed.next_page_token;
            if token.is_empty() {
                break;
            }
        }
        assert_eq!(pages, expected, "pages of {size}");
    }
}
