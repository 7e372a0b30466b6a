//! Rows of several tenants, and rows from before there were tenants.

use agent_domain::{
    knowledge::{self, KnowledgeBase},
    message::{ChatMessage, Role},
};
use core_types::{Principal, Reach, Timestamp};
use run_log::Owners;
use serde_json::json;

use super::*;
use crate::history::Batch;

/// Rows of each table of a database before there were tenants.
const EARLIER: [&str; 9] = [
    "INSERT INTO conversations VALUES ('talk', 5), ('walk', 6)",
    "INSERT INTO appended_messages VALUES ('talk', 1, 0, 7, 'user', 'hello', '[]', 'null', 'null')",
    "INSERT INTO appended_messages VALUES ('talk', 2, 0, 8, 'assistant', 'hm', '[]', 'null', 'null')",
    "INSERT INTO private_states VALUES ('talk', 'ada', 1, 9, '{\"a\":1}', '[]', NULL, 'r1')",
    "INSERT INTO open_questions VALUES ('wf_1', 'talk', 'ada', 'Which herb?')",
    "INSERT INTO knowledge_bases VALUES ('lore', 'Lore', '', 'e1', 0)",
    "INSERT INTO knowledge_entries VALUES (7, 'lore', 'moss', 'text', 'Moss', 'It glows.', '[]', 1, '', 1, 3, 9)",
    "INSERT INTO knowledge_words (rowid, words) VALUES (7, 'moss it glows')",
    "INSERT INTO request VALUES ('default', 'WriteKnowledge', 'lore', 'r1', x'07', '{}', 9)",
];

fn tenant(name: &str) -> Tenant {
    Tenant::new(name).expect("a name")
}

fn principal(name: &str) -> Principal {
    Principal::new(name).expect("a name")
}

fn at(nanos: i64) -> Timestamp {
    Timestamp::from_unix_nanos(nanos)
}

async fn fresh() -> (tempfile::TempDir, AgentStore) {
    let directory = tempfile::tempdir().expect("a directory");
    let options = SqliteOptions::new(directory.path().join("agent.db"));
    let database = SqliteDatabase::open(options, &FILE).await;
    let store = AgentStore::new(database.expect("the database opens"));
    (directory, store)
}

const FILE: [Migrations; 2] = [documents::MIGRATIONS, MIGRATIONS];
const SERVER: [Migrations; 2] = [documents::SERVER_MIGRATIONS, SERVER_MIGRATIONS];

postgres_kit::on_every_database! {
    (FILE, SERVER)
    equal_ids_of_two_tenants_are_two_things
    a_world_state_is_deleted_by_its_run_and_a_private_one_of_that_id_stays
    a_search_finds_and_ranks_by_the_entries_of_one_tenant_alone
    words_are_found_by_their_stems_and_chinese_by_two_characters
    a_state_has_one_change_of_a_version_and_keeps_its_latest_thousand
    batches_that_arrive_at_once_have_numbers_of_their_own
    all_of_a_tenant_is_removed_a_few_rows_at_a_time
    a_text_with_nul_is_refused_with_all_of_its_request
}

/// Makes a knowledge base whose entries have these texts, by their ids.
fn base(id: &str, entries: &[(&str, &str)]) -> KnowledgeBase {
    let entries = entries.iter();
    let entries = entries.map(|(id, text)| json!({"id": id, "content": {"value": text}}));
    let entries: Vec<_> = entries.collect();
    let text = json!({"kb_id": id, "entries": entries}).to_string();
    knowledge::read(&text).expect("a knowledge base")
}

async fn found(store: &AgentStore, of: Tenant, words: &str) -> Vec<String> {
    let terms = Terms::of(words).expect("words");
    let found = store.find_entries(of, &["lore"], &terms, 9).await;
    let found = found.expect("it is searched").into_iter();
    found.map(|(_, row)| row.entry.caiu_id).collect()
}

#[tokio::test]
async fn everything_from_before_there_were_tenants_belongs_to_the_default_one() {
    let directory = tempfile::tempdir().expect("a directory");
    let options = SqliteOptions::new(directory.path().join("agent.db"));
    let before = [documents::MIGRATIONS, MIGRATIONS.up_to(17)];
    let earlier = SqliteDatabase::open(options.clone(), &before).await;
    let earlier = earlier.expect("the earlier version opens");
    for statement in EARLIER {
        let written = sqlx::query(statement).execute(earlier.writer()).await;
        written.expect("a row of the earlier version");
    }
    earlier.close().await;
    drop(earlier);
    let all = [documents::MIGRATIONS, MIGRATIONS];
    let database = SqliteDatabase::open(options, &all).await;
    let store = AgentStore::new(database.expect("the database is brought up to date"));

    let own = Tenant::DEFAULT;
    let row = store.conversation(own, "talk").await.expect("it is read");
    let row = row.expect("it is there");
    assert_eq!((row.created, row.batches), (at(5), 2));
    let batches = store.appended(own, "talk").await.expect("they are read");
    let texts: Vec<&str> = batches
        .iter()
        .map(|batch| batch.messages[0].text.as_str())
        .collect();
    assert_eq!(texts, ["hello", "hm"]);
    let agent = StateOwner::agent(own, "talk", "ada");
    let state = store.state(&agent, None);
    let state = state.await.expect("it is read").expect("it is there");
    assert_eq!(
        (state.state.as_str(), state.request_id.as_str()),
        (r#"{"a":1}"#, "r1")
    );
    let questions = store.open_questions().await.expect("they are read");
    assert_eq!(
        questions,
        [OpenQuestion {
            tenant: own,
            asker: None,
            run_id: "wf_1".to_owned(),
            conversation_id: "talk".to_owned(),
            profile_id: "ada".to_owned(),
            prompt: "Which herb?".to_owned(),
        }]
    );
    let ids = store.knowledge_ids().await.expect("they are read");
    assert_eq!(ids, [(own, "lore".to_owned())]);
    let entry = store.entry(own, "lore", "moss").await.expect("it is read");
    assert_eq!(entry.map(|row| row.version), Some(3));
    assert_eq!(found(&store, own, "glowing").await, ["moss"]);
    let acme = tenant("acme");
    let foreign = store.conversation(acme, "talk").await.expect("it is read");
    assert_eq!(foreign, None);

    let unowned = store.conversations_without_owner(9).await;
    assert_eq!(unowned.expect("they are read"), ["talk", "walk"]);
    let ada = principal("ada");
    store.set_owner("talk", &ada).await.expect("it is stored");
    let other = store.set_owner("talk", &principal("eve")).await;
    other.expect("it changes nothing");
    let unowned = store.conversations_without_owner(9).await;
    assert_eq!(unowned.expect("they are read"), ["walk"]);
    let of_ada = store
        .conversations(&Owners::One(ada.clone()), None, 9)
        .await;
    let of_ada = of_ada.expect("they are read");
    assert_eq!((of_ada.len(), &of_ada[0].owner), (1, &ada));
}

fn file_of(store: &AgentStore) -> &SqliteDatabase {
    match &store.database {
        Database::Sqlite(file) => file,
        Database::Postgres(_) => panic!("it is a file"),
    }
}

/// Makes a request whose body differs by `of`.
fn body(of: u8) -> NamedRequest {
    NamedRequest {
        id: "r1".to_owned(),
        body: Hash([of; 32]),
    }
}

/// Writes a conversation, a state and a question of a principal, under equal ids.
async fn write(store: &AgentStore, of: u8, owner: &Principal) {
    let home = owner.tenant();
    let batch = [Batch {
        created: at(3),
        messages: vec![ChatMessage::new(Role::User, owner.as_str())],
    }];
    let request = body(of);
    let appended = store.append(owner, "talk", at(3), &batch, Some((&request, 1)));
    appended.await.expect("it is appended");
    let state = StateRow {
        version: 1,
        created: at(4),
        state: json!({"of": owner}).to_string(),
        paths: "[]".to_owned(),
        previous: None,
        request_id: "r1".to_owned(),
    };
    let state_owner = StateOwner::agent(home, "talk", "ada");
    let named = state_owner.named("r1", Hash([of; 32]));
    let put = store.put_state(&state_owner, &state, Some(&named)).await;
    assert!(put.expect("it is stored"), "{owner}");
    let question = OpenQuestion {
        tenant: home,
        asker: Some((owner.clone(), Reach::Own)),
        run_id: "wf_1".to_owned(),
        conversation_id: "talk".to_owned(),
        profile_id: "ada".to_owned(),
        prompt: owner.to_string(),
    };
    let opened = store.open_question(&question).await;
    assert!(opened.expect("it is stored"), "{owner}");
}

async fn equal_ids_of_two_tenants_are_two_things(database: Database) {
    let store = AgentStore::new(database);
    let owners = [principal("bob"), principal("acme/bob")];
    for (of, owner) in (0_u8..).zip(&owners) {
        write(&store, of, owner).await;
    }
    let read = async |owner: &Principal| {
        let batches = store.appended(owner.tenant(), "talk").await;
        let agent = StateOwner::agent(owner.tenant(), "talk", "ada");
        let state = store.state(&agent, None);
        (
            batches.expect("they are read"),
            state.await.expect("it is read"),
        )
    };
    for (of, owner) in (0_u8..).zip(&owners) {
        let (batches, state) = read(owner).await;
        assert_eq!(batches.len(), 1);
        assert_eq!(batches[0].messages[0].text, owner.as_str());
        assert_eq!(
            state.map(|row| row.state),
            Some(json!({"of": owner}).to_string())
        );
        let (same, other) = (body(of), body(of + 9));
        for (request, expected) in [
            (&same, Seen::Same("1".to_owned())),
            (&other, Seen::OtherBody),
        ] {
            let seen = store.seen(owner.tenant(), request.within(APPEND, "talk"));
            assert_eq!(seen.await.expect("it is read"), expected, "{owner}");
        }
        for owners in [Owners::One(owner.clone()), Owners::Tenant(owner.tenant())] {
            let rows = store.conversations(&owners, None, 9).await;
            let rows = rows.expect("they are read");
            assert_eq!(
                rows.iter().map(|row| &row.owner).collect::<Vec<_>>(),
                [owner]
            );
        }
    }
    let everything = store.conversations(&Owners::All, None, 1).await;
    let first = everything.expect("they are read").remove(0);
    let place = Some((first.created, first.owner.tenant(), first.id.as_str()));
    let next = store.conversations(&Owners::All, place, 9).await;
    let next = next.expect("they are read");
    assert_eq!(next.len(), 1);
    assert_ne!(next[0].owner, first.owner);

    let acme = tenant("acme");
    let states = store.delete_states(acme, "talk").await;
    states.expect("they are deleted");
    let deleted = store.delete_conversation(acme, "talk").await;
    deleted.expect("it is deleted");
    let closed = store.close_question(acme, "wf_1").await;
    closed.expect("it is deleted");
    let (batches, state) = read(&owners[0]).await;
    assert_eq!((batches.len(), state.is_some()), (1, true));
    let (batches, state) = read(&owners[1]).await;
    assert_eq!((batches.len(), state), (0, None));
    let left = store.open_questions().await.expect("they are read");
    let left = left.into_iter().map(|question| question.asker);
    let asker = (owners[0].clone(), Reach::Own);
    assert_eq!(left.collect::<Vec<_>>(), [Some(asker)]);
    let seen = store.seen(acme, body(1).within(APPEND, "talk")).await;
    assert_eq!(seen.expect("it is read"), Seen::New);
}

async fn a_world_state_is_deleted_by_its_run_and_a_private_one_of_that_id_stays(
    database: Database,
) {
    let store = AgentStore::new(database);
    let acme = tenant("acme");
    let row = StateRow {
        version: 1,
        created: at(1),
        state: "{}".to_owned(),
        paths: "[]".to_owned(),
        previous: None,
        request_id: String::new(),
    };
    let (world, private) = (
        StateOwner::world(acme, "scene_1"),
        StateOwner::agent(Tenant::DEFAULT, "scene_1", "ada"),
    );
    for owner in [&world, &private] {
        let put = store.put_state(owner, &row, None).await;
        put.expect("it is stored");
    }
    let deleted = store.delete_states(acme, "scene_1").await;
    deleted.expect("they are deleted");
    let kept = store.state(&world, None).await.expect("it is read");
    assert!(
        kept.is_some(),
        "a world state is no state of a conversation"
    );
    let deleted = store.delete_world(acme, "scene_1").await;
    deleted.expect("it is deleted");
    let world = store.state(&world, None).await.expect("it is read");
    let private = store.state(&private, None).await.expect("it is read");
    assert_eq!((world, private.is_some()), (None, true));
}

async fn a_search_finds_and_ranks_by_the_entries_of_one_tenant_alone(database: Database) {
    let store = AgentStore::new(database);
    let (acme, other) = (tenant("acme"), tenant("a-2"));
    // Of two words, the rarer one decides.
    let own = base(
        "lore",
        &[("oak", "oak"), ("fern", "fern"), ("oaks", "an oak of old")],
    );
    let put = store.put_knowledge_base(acme, &own, false, at(1)).await;
    put.expect("it is stored");
    let alone = found(&store, acme, "oak fern").await;
    assert_eq!(alone, ["fern", "oak", "oaks"]);
    let ferns: Vec<(String, &str)> = (0..50).map(|n| (format!("f{n}"), "fern")).collect();
    let ferns: Vec<(&str, &str)> = ferns
        .iter()
        .map(|(id, text)| (id.as_str(), *text))
        .collect();
    let foreign = base("lore", &ferns);
    for of in [other, Tenant::DEFAULT, Tenant::SYSTEM] {
        let put = store.put_knowledge_base(of, &foreign, false, at(2)).await;
        put.expect("it is stored");
    }
    assert_eq!(found(&store, acme, "oak fern").await, alone);
    assert_eq!(found(&store, other, "oak").await, [""; 0]);
    assert_eq!(found(&store, other, "fern").await.len(), 9);

    let deleted = store.delete_knowledge_base(other, "lore").await;
    assert!(deleted.expect("it is deleted"));
    assert_eq!(found(&store, acme, "oak fern").await, alone);
    assert_eq!(found(&store, Tenant::DEFAULT, "fern").await.len(), 9);
    let entry = store.delete_entry(acme, "lore", "fern").await;
    assert!(entry.expect("it is deleted"));
    let entry = store.entry(Tenant::SYSTEM, "lore", "f0").await;
    assert!(entry.expect("it is read").is_some());
    assert_eq!(found(&store, acme, "fern").await, [""; 0]);
}

#[tokio::test]
async fn a_removed_tenant_leaves_no_row_and_another_with_equal_ids_keeps_all() {
    let (directory, store) = fresh().await;
    let documents = StoredDocuments::new(store.database.clone());
    let file = directory.path().join("agent.db");
    let rows = async |of: Tenant| {
        let counted = sql_store::count_rows(&file, of.as_str()).await;
        counted.expect("they are counted")
    };
    let owners = [
        principal("acme/bob"),
        principal("a-2/bob"),
        principal("bob"),
    ];
    let lore = base("lore", &[("oak", "oak"), ("fern", "fern")]);
    for (of, owner) in (0_u8..).zip(&owners) {
        let home = owner.tenant();
        write(&store, of, owner).await;
        let put = store.put_knowledge_base(home, &lore, false, at(1)).await;
        put.expect("it is stored");
        let profiles = Collection {
            tenant: home,
            kind: "profile",
        };
        let put = documents.replace(profiles, "ada", "a profile", None, at(2));
        put.await.expect("it is stored");
        sqlx::query("INSERT INTO document_revision VALUES (?1, 'profile', 'ada', 1, 'e1', '', 0, 0, 2, 'a profile')")
            .bind(home.as_str())
            .execute(file_of(&store).writer())
            .await
            .expect("it is stored");
    }
    let [acme, others @ ..] = owners.map(|owner| owner.tenant());
    let before = [rows(others[0]).await, rows(others[1]).await];
    for (table, count) in rows(acme).await {
        assert!(count > 0, "{table}");
    }
    let mut steps = Vec::new();
    loop {
        let left = store.remove_tenant(acme, 1).await.expect("it is removed");
        let documents = documents.remove_tenant(acme, 1).await;
        steps.push(left + documents.expect("they are removed"));
        let stored: u64 = rows(acme).await.values().sum();
        assert_eq!(steps.last(), Some(&stored));
        if stored == 0 {
            break;
        }
    }
    assert_eq!(steps, [2, 0], "an entry and a request are left");
    assert_eq!([rows(others[0]).await, rows(others[1]).await], before);
    for other in others {
        assert_eq!(found(&store, other, "oak").await, ["oak"]);
    }
    let named: i64 =
        sqlx::query_scalar("SELECT count(*) FROM sqlite_master WHERE name LIKE '%acme%'")
            .fetch_one(file_of(&store).reader())
            .await
            .expect("it is read");
    assert_eq!(named, 0, "the words of its entries");
}

async fn words_are_found_by_their_stems_and_chinese_by_two_characters(database: Database) {
    let store = AgentStore::new(database);
    let acme = tenant("acme");
    let lore = base(
        "lore",
        &[
            (
                "moss",
                "Moon moss glows in the dark of the caves; 月光苔会发光",
            ),
            (
                "fern",
                "The fern is poisonous, version 1.5e3 of v2, not of the moon",
            ),
            ("light", "月 and 光 are two characters, the sun's light too"),
            ("the", "the the the"),
        ],
    );
    let put = store.put_knowledge_base(acme, &lore, false, at(1)).await;
    put.expect("it is stored");
    for (query, first) in [
        ("glowing mosses", "moss"),
        ("POISON", "fern"),
        ("月光", "moss"),
        ("光苔", "moss"),
        ("v2", "fern"),
        ("1.5e3", "fern"),
        ("sun moon lights", "light"),
        ("the", "the"),
        ("the caves", "moss"),
    ] {
        let found = found(&store, acme, query).await;
        assert_eq!(
            found.first().map(String::as_str),
            Some(first),
            "{query}: {found:?}"
        );
    }
    assert_eq!(found(&store, acme, "月光").await, ["moss"]);
    assert_eq!(found(&store, acme, "苔月").await, [""; 0]);
    let hostile = found(&store, acme, "'); DROP TABLE x; -- | & ! <-> :*").await;
    assert_eq!(hostile, [""; 0]);
}

async fn a_state_has_one_change_of_a_version_and_keeps_its_latest_thousand(database: Database) {
    let store = AgentStore::new(database);
    let owner = StateOwner::agent(tenant("acme"), "talk", "ada");
    let row = |version: u64, state: &str| StateRow {
        version,
        created: at(i64::try_from(version).expect("a small number")),
        state: state.to_owned(),
        paths: "[]".to_owned(),
        previous: Some("null".to_owned()),
        request_id: String::new(),
    };
    for version in 1..=1_002 {
        let put = store.put_state(&owner, &row(version, "1"), None).await;
        assert!(put.expect("it is stored"));
    }
    let named = owner.named("late", BODY);
    let refused = row(1_002, "2");
    let late = store.put_state(&owner, &refused, Some(&named));
    assert!(
        !late.await.expect("it is refused"),
        "another change was first"
    );
    let seen = store.seen(owner.tenant, owner.request(&named)).await;
    assert_eq!(
        seen.expect("it is read"),
        Seen::New,
        "its request has changed nothing"
    );
    let newest = store.state(&owner, None).await.expect("it is read");
    assert_eq!(newest, Some(row(1_002, "1")));
    let versions = store.state_versions(&owner, Some(5), 9).await;
    let versions = versions.expect("they are read").into_iter();
    assert_eq!(versions.map(|row| row.version).collect::<Vec<_>>(), [4, 3]);
    let then = store.state_at(&owner, at(7)).await.expect("it is read");
    assert_eq!(then.map(|row| row.version), Some(7));
}

async fn batches_that_arrive_at_once_have_numbers_of_their_own(database: Database) {
    let store = AgentStore::new(database);
    let owner = principal("acme/bob");
    let batch = |text: &str| Batch {
        created: at(3),
        messages: vec![ChatMessage::new(Role::User, text); 3],
    };
    let appends = (0..8).map(|number| {
        let (store, owner, batch) = (store.clone(), owner.clone(), batch(&number.to_string()));
        tokio::spawn(async move { store.append(&owner, "talk", at(3), &[batch], None).await })
    });
    for append in appends.collect::<Vec<_>>() {
        let appended = append.await.expect("it does not panic");
        appended.expect("it is appended");
    }
    let row = store.conversation(owner.tenant(), "talk").await;
    assert_eq!(row.expect("it is read").map(|row| row.batches), Some(8));
    let batches = store.appended(owner.tenant(), "talk").await;
    let batches = batches.expect("they are read");
    let sizes: Vec<usize> = batches.iter().map(|batch| batch.messages.len()).collect();
    assert_eq!(sizes, [3; 8]);
}

async fn all_of_a_tenant_is_removed_a_few_rows_at_a_time(database: Database) {
    let store = AgentStore::new(database);
    let lore = base("lore", &[("oak", "oak"), ("fern", "fern"), ("elm", "elm")]);
    let owners = [principal("acme/bob"), principal("a-2/bob")];
    for (of, owner) in (0_u8..).zip(&owners) {
        write(&store, of, owner).await;
        let put = store.put_knowledge_base(owner.tenant(), &lore, false, at(1));
        put.await.expect("it is stored");
    }
    let [acme, other] = owners.map(|owner| owner.tenant());
    let mut left = Vec::new();
    while left.last() != Some(&0) {
        let removed = store.remove_tenant(acme, 1).await;
        left.push(removed.expect("some are removed"));
    }
    assert_eq!(left, [2, 1, 0]);
    let talk = store.conversation(acme, "talk").await.expect("it is read");
    assert_eq!(talk, None);
    let ids = store.knowledge_ids().await.expect("they are read");
    assert_eq!(ids, [(other, "lore".to_owned())]);
    let put = store
        .put_knowledge_base(acme, &base("lore", &[]), false, at(1))
        .await;
    put.expect("it is stored");
    assert_eq!(found(&store, acme, "oak").await, [""; 0]);
    assert_eq!(found(&store, other, "oak").await, ["oak"]);
}

async fn a_text_with_nul_is_refused_with_all_of_its_request(database: Database) {
    let store = AgentStore::new(database);
    let owner = principal("acme/bob");
    let acme = owner.tenant();
    let batch = [Batch {
        created: at(3),
        messages: ["first", "a\0b"]
            .map(|text| ChatMessage::new(Role::User, text))
            .to_vec(),
    }];
    let request = body(1);
    let appended = store.append(&owner, "talk", at(3), &batch, Some((&request, 1)));
    let refused = appended.await.expect_err("it has a NUL");
    assert!(matches!(refused, StoreError::Nul(_)), "{refused:?}");
    let talk = store.conversation(acme, "talk").await.expect("it is read");
    assert_eq!(talk, None);
    let seen = store.seen(acme, request.within(APPEND, "talk")).await;
    assert_eq!(seen.expect("it is read"), Seen::New);

    let lore = base("lore", &[]);
    let put = store.put_knowledge_base(acme, &lore, false, at(1)).await;
    put.expect("it is stored");
    let mut entry = base("lore", &[("oak", "oak")]).entries.remove(0);
    entry.display_name = "\0".to_owned();
    let written = store
        .put_entry((acme, "lore"), &entry, "", None, at(2))
        .await;
    assert!(matches!(written, Err(StoreError::Nul(_))), "{written:?}");
    let entries = store.entries(acme, "lore", "", 9).await;
    assert!(entries.expect("they are read").is_empty());
}
