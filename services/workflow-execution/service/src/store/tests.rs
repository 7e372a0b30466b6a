//! Facts of the stores.

use core_types::{Tenant, Timestamp};
use documents::{Collection, DocumentStore, Request, RequestStore, Seen, SqliteDocuments};
use sql_store::{SqliteDatabase, SqliteOptions};
use workflow_domain::cache_key::{KeyParts, node_name};
use workflow_runner::{LastResult, ResultChange, ResultRow, ResultStore};

use super::*;

async fn database(directory: &tempfile::TempDir) -> SqliteDatabase {
    let options = SqliteOptions::new(directory.path().join("test.db"));
    SqliteDatabase::open(options, &[documents::MIGRATIONS, MIGRATIONS])
        .await
        .unwrap()
}

#[tokio::test]
async fn texts_are_kept_as_long_as_they_are_used() {
    let directory = tempfile::tempdir().unwrap();
    let kept = KeptDefinitions::new(database(&directory).await);
    let used = kept.keep("used").await.unwrap();
    let unused = kept.keep("unused").await.unwrap();
    assert_eq!(kept.keep("used").await.unwrap(), used);
    assert_eq!(kept.forget(&[used]).await.unwrap(), 1);
    assert_eq!(kept.kept(&used).await.unwrap().as_deref(), Some("used"));
    assert_eq!(kept.kept(&unused).await.unwrap(), None);
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
    let (kept, documents) = (
        KeptDefinitions::new(database.clone()),
        SqliteDocuments::new(database),
    );
    let (tenant, kind) = (Tenant::DEFAULT, "workflow");
    let row = documents
        .get(Collection { tenant, kind }, "w")
        .await
        .unwrap();
    assert_eq!(row.map(|row| row.text), Some("a text".to_owned()));
    let put = Request::of("PutWorkflow", "r1", body).unwrap();
    let seen = documents.seen(tenant, put).await.unwrap();
    assert_eq!(seen, Seen::Same(String::new()));
    assert_eq!(kept.kept(&body).await.unwrap().as_deref(), Some("a text"));
}

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
