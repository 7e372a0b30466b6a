//! The suite of every store, and documents on top of one.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod overlay;
mod store;
mod tenants;

use std::{path::Path, sync::Arc};

use core_types::{SystemClock, Tenant};
use documents::{
    Collection, DocumentParts, DocumentStore, Documents, FilePlace, Kind, MIGRATIONS,
    StoredDocuments,
};
use run_log::Hash;
use sql_store::{SqliteDatabase, SqliteOptions};

const TENANT: Tenant = Tenant::DEFAULT;

/// A text whose first word is its id, and the second its label.
#[derive(Debug, PartialEq, Eq)]
struct Note {
    id: String,
    text: String,
}

/// The kind of notes, also as one whose changes the service does not follow.
#[derive(Debug)]
struct NoteKind<const FOLLOWED: bool = true>;

impl<const FOLLOWED: bool> Kind for NoteKind<FOLLOWED> {
    type Document = Note;
    type Invalid = String;

    const NAME: &'static str = "note";
    const MAX_BYTES: usize = 1_000;
    const REVISIONS: bool = true;
    const FOLLOWED: bool = FOLLOWED;
    const KEEPS_LAST_GOOD: bool = true;

    fn id(note: &Note) -> &str {
        &note.id
    }

    fn text(note: &Note) -> &str {
        &note.text
    }

    fn etag(note: &Note) -> String {
        body(&note.text).to_string()
    }

    fn label(note: &Note) -> &str {
        note.text.split(' ').nth(1).unwrap_or_default()
    }

    fn read(&self, _id: &str, text: &str) -> Result<Note, String> {
        let id = text.split(' ').next().unwrap_or_default().to_owned();
        let text = text.to_owned();
        match id.is_empty() {
            true => Err("it has no words".to_owned()),
            false => Ok(Note { id, text }),
        }
    }

    fn read_file(&self, _file: &FilePlace<'_>, text: &Arc<str>) -> Result<Note, String> {
        self.read("", text.trim_end())
    }

    fn unreadable(&self, problem: String) -> String {
        problem
    }
}

async fn sqlite(directory: &Path) -> Arc<dyn DocumentStore> {
    let options = SqliteOptions::new(directory.join("documents.db"));
    let database = SqliteDatabase::open(options, &[MIGRATIONS]).await;
    Arc::new(StoredDocuments::new(database.expect("the database opens")))
}

async fn notes(directory: &Path, files: &Path) -> Documents<NoteKind> {
    notes_of(NoteKind, directory, files).await
}

async fn notes_of<K: Kind>(kind: K, directory: &Path, files: &Path) -> Documents<K> {
    let parts = DocumentParts {
        store: sqlite(directory).await,
        runs: None,
        clock: Arc::new(SystemClock),
    };
    let opened = Documents::open(kind, files, parts).await;
    opened.expect("the documents open")
}

fn collection(kind: &'static str) -> Collection {
    let tenant = TENANT;
    Collection { tenant, kind }
}

fn body(text: &str) -> Hash {
    Hash::of(text.as_bytes())
}
