//! Documents of several tenants, and those of `system`, which all read.

use std::{path::Path, sync::Arc};

use core_types::{SystemClock, Tenant};
use documents::{ChangeError, DocumentParts, Documents, Kind, Put, Request};

use crate::{Note, NoteKind, body, notes, notes_of, sqlite};

fn tenant(name: &str) -> Tenant {
    Tenant::new(name).expect("it is a name")
}

async fn put<K: Kind<Document = Note>>(notes: &Documents<K>, of: Tenant, text: &str) {
    let put = Put {
        id: "",
        text,
        etag: "",
        validate_only: false,
        request: None,
    };
    notes.put(of, put).await.expect("it is put");
}

/// Returns the texts of a tenant by id, each with whether it is shared, in pages of two.
async fn texts(notes: &Documents<NoteKind>, of: Tenant) -> Vec<(String, bool)> {
    let (mut texts, mut after) = (Vec::new(), String::new());
    loop {
        let (page, more) = notes.page(of, &after, 2).await.expect("it is read");
        let page = page
            .iter()
            .map(|known| (known.document.text.clone(), known.is_shared));
        texts.extend(page);
        match more {
            Some(last) => after = last,
            None => return texts,
        }
    }
}

async fn text<K: Kind<Document = Note>>(
    notes: &Documents<K>,
    of: Tenant,
    id: &str,
) -> Option<String> {
    let known = notes.get(of, id).await.expect("it is read");
    known.map(|known| known.document.text.clone())
}

#[tokio::test]
async fn a_tenant_reads_its_own_documents_and_the_shared_ones_and_no_others() {
    let directory = tempfile::tempdir().unwrap();
    let notes = notes(directory.path(), Path::new("")).await;
    let [acme, other] = ["acme", "other"].map(tenant);
    put(&notes, Tenant::SYSTEM, "a shared").await;
    put(&notes, Tenant::SYSTEM, "b shared").await;
    put(&notes, Tenant::SYSTEM, "e shared").await;
    put(&notes, acme, "b of acme").await;
    put(&notes, acme, "c of acme").await;
    put(&notes, other, "c of other").await;
    put(&notes, other, "d of other").await;

    let [shared, own] =
        [true, false].map(|is_shared| move |text: &str| (text.to_owned(), is_shared));
    let of_acme = [
        shared("a shared"),
        own("b of acme"),
        own("c of acme"),
        shared("e shared"),
    ];
    assert_eq!(texts(&notes, acme).await, of_acme);
    let of_other = [
        shared("a shared"),
        shared("b shared"),
        own("c of other"),
        own("d of other"),
        shared("e shared"),
    ];
    assert_eq!(texts(&notes, other).await, of_other);
    let of_system = ["a shared", "b shared", "e shared"].map(own);
    assert_eq!(texts(&notes, Tenant::SYSTEM).await, of_system);
    assert_eq!(text(&notes, acme, "d").await, None);
    assert_eq!(text(&notes, acme, "b").await.unwrap(), "b of acme");
    assert_eq!(
        text(&notes, Tenant::DEFAULT, "b").await.unwrap(),
        "b shared"
    );
}

#[tokio::test]
async fn a_shared_document_is_hidden_but_not_changed_by_others() {
    let [followed, unfollowed] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    hides(&notes(followed.path(), Path::new("")).await).await;
    hides(&notes_of(NoteKind::<false>, unfollowed.path(), Path::new("")).await).await;
}

async fn hides<K: Kind<Document = Note, Invalid: std::fmt::Debug>>(notes: &Documents<K>) {
    let acme = tenant("acme");
    put(notes, Tenant::SYSTEM, "a shared").await;
    let refused = notes.delete(acme, "a", "").await;
    assert!(matches!(refused, Err(ChangeError::IsShared)), "{refused:?}");
    put(notes, acme, "a of acme").await;
    assert_eq!(
        text(notes, Tenant::SYSTEM, "a").await,
        Some("a shared".to_owned())
    );
    assert_eq!(text(notes, acme, "a").await, Some("a of acme".to_owned()));
    notes.delete(acme, "a", "").await.expect("it is deleted");
    assert_eq!(text(notes, acme, "a").await, Some("a shared".to_owned()));
}

#[tokio::test]
async fn a_revision_is_one_of_the_document_in_force() {
    let directory = tempfile::tempdir().unwrap();
    let notes = notes(directory.path(), Path::new("")).await;
    let acme = tenant("acme");
    for text in ["a shared", "a shared again", "a shared for ever"] {
        put(&notes, Tenant::SYSTEM, text).await;
    }
    let at = async |revision| {
        let known = notes.at(acme, "a", revision).await.unwrap();
        known.map(|known| (known.document.text.clone(), known.is_shared))
    };
    assert_eq!(at(2).await, Some(("a shared again".to_owned(), true)));
    put(&notes, acme, "a of acme").await;
    assert_eq!(at(1).await, Some(("a of acme".to_owned(), false)));
    assert_eq!(at(2).await, None);
    notes.delete(acme, "a", "").await.unwrap();
    assert_eq!(at(3).await, Some(("a shared for ever".to_owned(), true)));
}

#[tokio::test]
async fn files_belong_to_the_default_tenant() {
    let directory = tempfile::tempdir().unwrap();
    let files = directory.path().join("notes");
    std::fs::create_dir(&files).unwrap();
    std::fs::write(files.join("a.json"), "a from a file").unwrap();
    let notes = notes(directory.path(), &files).await;
    assert_eq!(
        text(&notes, Tenant::DEFAULT, "a").await.unwrap(),
        "a from a file"
    );
    assert_eq!(text(&notes, tenant("acme"), "a").await, None);
    assert_eq!(texts(&notes, tenant("acme")).await, []);
}

#[tokio::test]
async fn the_page_token_of_another_tenant_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let notes = notes(directory.path(), Path::new("")).await;
    let acme = tenant("acme");
    for text in ["a", "b"] {
        put(&notes, acme, text).await;
        put(&notes, Tenant::DEFAULT, text).await;
    }
    let token = notes.list(acme, "", 1).await.unwrap().next_page_token;
    notes.list(acme, &token, 1).await.unwrap();
    notes.list(Tenant::DEFAULT, &token, 1).await.unwrap_err();
}

#[tokio::test]
async fn a_removed_tenant_leaves_no_row_and_another_with_equal_ids_keeps_all() {
    let directory = tempfile::tempdir().unwrap();
    let store = sqlite(directory.path()).await;
    let parts = DocumentParts {
        store: Arc::clone(&store),
        runs: None,
        clock: Arc::new(SystemClock),
    };
    let opened = Documents::open(NoteKind::<true>, Path::new(""), parts).await;
    let notes = opened.unwrap();
    let [acme, other] = ["acme", "other"].map(tenant);
    for of in [acme, other] {
        for id in ["a", "b", "c"] {
            let put = Put {
                id: "",
                text: id,
                etag: "",
                validate_only: false,
                request: Request::of("PutNote", id, body(id)),
            };
            notes.put(of, put).await.unwrap();
        }
    }
    let file = directory.path().join("documents.db");
    let rows = async |of: Tenant| sql_store::count_rows(&file, of.as_str()).await.unwrap();
    let before = rows(other).await;
    assert!(before.values().all(|rows| *rows == 3), "{before:?}");
    assert_eq!(store.remove_tenant(acme, 2).await.unwrap(), 3);
    assert_eq!(store.remove_tenant(acme, 2).await.unwrap(), 0);
    assert!(rows(acme).await.values().all(|rows| *rows == 0));
    assert_eq!(rows(other).await, before);
}
