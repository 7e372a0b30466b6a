//! Databases of earlier versions, and the rows of several tenants.

mod tenants;

use documents::{Collection, DocumentStore, Request, RequestStore, Seen, StoredDocuments};
use search_words::Terms;
use sql_store::{SqliteDatabase, SqliteOptions};

use super::*;

const BODY: Hash = Hash([7; 32]);

/// Rows of a database before documents had one store.
const EARLIER: [&str; 8] = [
    "INSERT INTO profiles VALUES ('elara', 'a profile')",
    "INSERT INTO scenes VALUES ('wood', 'a scene')",
    "INSERT INTO revisions VALUES ('project', 'tale', 1, 'e1', 'v1', 0, 0, 5, 'first')",
    "INSERT INTO revisions VALUES ('project', 'tale', 2, 'e2', 'v2', 0, 0, 6, 'second')",
    "INSERT INTO put_requests VALUES ('r1', ?1)",
    "INSERT INTO append_requests VALUES ('conv', 'r1', ?1, 4)",
    "INSERT INTO knowledge_requests VALUES (1, 'kb', 'r1', ?1, 'caiu_1', 3, 0)",
    "INSERT INTO private_states VALUES ('conv', 'elara', 2, 9, '{}', '[]', NULL, 'r1', ?1)",
];

#[tokio::test]
async fn documents_and_requests_of_an_earlier_version_are_there() {
    let directory = tempfile::tempdir().expect("a directory");
    let options = SqliteOptions::new(directory.path().join("agent.db"));
    let earlier = SqliteDatabase::open(options.clone(), &[MIGRATIONS.up_to(16)]).await;
    let earlier = earlier.expect("the earlier version opens");
    for statement in EARLIER {
        let row = sqlx::query(statement).bind(&BODY.0[..]);
        let written = row.execute(earlier.writer()).await;
        written.expect("a row of the earlier version");
    }
    earlier.close().await;
    drop(earlier);

    let all = [documents::MIGRATIONS, MIGRATIONS];
    let database = SqliteDatabase::open(options, &all).await;
    let database = database.expect("the database is brought up to date");
    let (store, documents) = (
        AgentStore::new(database.clone()),
        StoredDocuments::new(database),
    );
    for (kind, id, text) in [
        ("profile", "elara", "a profile"),
        ("scene", "wood", "a scene"),
        ("project", "tale", "second"),
    ] {
        let tenant = Tenant::DEFAULT;
        let row = documents.get(Collection { tenant, kind }, id).await;
        let row = row.expect("it is read").expect("it is there");
        assert_eq!((row.text.as_str(), row.version), (text, 1));
    }
    let tenant = Tenant::DEFAULT;
    let projects = Collection {
        tenant,
        kind: "project",
    };
    let revisions = documents.revisions(projects, "tale", None, 9).await;
    let numbers = revisions.expect("they are read").into_iter();
    assert_eq!(numbers.map(|row| row.number).collect::<Vec<_>>(), [2, 1]);

    let put = Request::of("PutProfile", "r1", BODY).expect("it has an id");
    let owner = StateOwner::agent(tenant, "conv", "elara");
    let (append, update) = (
        NamedRequest {
            id: "r1".to_owned(),
            body: BODY,
        },
        owner.named("r1", BODY),
    );
    for (request, answer) in [
        (put, String::new()),
        (append.within(APPEND, "conv"), "4".to_owned()),
        (
            append.within(WRITE, "kb"),
            r#"{"caiu_id":"caiu_1","version":3,"is_enabled":false}"#.to_owned(),
        ),
        (owner.request(&update), "2".to_owned()),
    ] {
        let seen = store.seen(tenant, request).await.expect("it is read");
        assert_eq!(seen, Seen::Same(answer), "{request:?}");
    }
    let written: WrittenEntry =
        serde_json::from_str(r#"{"caiu_id":"caiu_1","version":3,"is_enabled":false}"#)
            .expect("an answer is read");
    assert!(!written.is_enabled);
    let state = store.state(&owner, Some(2)).await.expect("it is read");
    assert_eq!(state.map(|row| row.request_id), Some("r1".to_owned()));
}
