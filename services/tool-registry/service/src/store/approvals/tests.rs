use core_types::Principal;
use serde_json::json;
use sql_store::{Database, SqliteDatabase, SqliteOptions};

use super::*;
use crate::store::{
    MIGRATIONS,
    both_databases::{FILE, SERVER},
};

fn tenant(name: &str) -> Tenant {
    Tenant::new(name).unwrap()
}

fn approval(principal: &str, id: &str, created: i64) -> Approval {
    let fields = json!({
        "id": id, "state": "Pending", "principal": Principal::new(principal).unwrap(), "body": "",
        "run_id": "r", "effect_id": "e", "tool_id": "give", "tool_digest": "d", "arguments": "{}",
        "reasons": [], "effect": "side_effecting", "conversation_id": "c", "role": "", "needed": 1,
        "reason_required": false, "consents": [], "edited": false, "created": created,
        "expires": 100, "ended": null
    });
    serde_json::from_value(fields).unwrap()
}

fn ids(stored: Vec<Stored>) -> Vec<String> {
    stored
        .into_iter()
        .map(|stored| stored.approval.id)
        .collect()
}

postgres_kit::on_every_database! {
    (FILE, SERVER)
    equal_effects_and_conversations_of_two_tenants_are_two_things
    a_list_is_filtered_and_continues_behind_its_last_place
    ended_approvals_come_with_the_conversation_for_which_they_stand
    a_tenant_that_is_removed_leaves_nothing
}

async fn equal_effects_and_conversations_of_two_tenants_are_two_things(store: Database) {
    let (default, acme) = (Tenant::DEFAULT, tenant("acme"));
    for (principal, id) in [("ada", "apr_1"), ("acme/ada", "apr_2")] {
        store
            .put(&approval(principal, id, 7), "call")
            .await
            .unwrap();
        let of = Principal::new(principal).unwrap().tenant();
        store.remember(of, "c", "digest", id).await.unwrap();
    }
    let filter = ApprovalFilter::default();
    for (of, own, foreign) in [(default, "apr_1", "apr_2"), (acme, "apr_2", "apr_1")] {
        assert!(store.get(of, own).await.unwrap().is_some());
        assert!(store.get(of, foreign).await.unwrap().is_none());
        let counts = store.of_effect(of, "e").await.unwrap();
        assert_eq!(counts.unwrap().approval.id, own);
        assert_eq!(store.pending(of).await.unwrap(), 1);
        assert_eq!(ids(store.list(of, &filter, None, 9).await.unwrap()), [own]);
        let remembered = store.remembered(of, "c", "digest").await.unwrap();
        assert_eq!(remembered.as_deref(), Some(own));
        store.forget_call(of, foreign).await.unwrap();
        store.delete(of, &[foreign.to_owned()]).await.unwrap();
    }
    // The work of the service itself is about all tenants.
    assert_eq!(store.unattended().await.unwrap().len(), 2);
    assert_eq!(store.overdue(100, 9).await.unwrap().len(), 2);
    store.delete(default, &["apr_1".to_owned()]).await.unwrap();
    assert_eq!(
        store.remembered(default, "c", "digest").await.unwrap(),
        None
    );
    assert!(
        store
            .remembered(acme, "c", "digest")
            .await
            .unwrap()
            .is_some()
    );
    assert!(
        store
            .of_effect(tenant("beta"), "e")
            .await
            .unwrap()
            .is_none()
    );
}

async fn a_list_is_filtered_and_continues_behind_its_last_place(store: Database) {
    for (principal, id, created) in [
        ("acme/ada", "apr_1", 1),
        ("acme/bob", "apr_2", 2),
        ("acme/ada", "apr_3", 2),
        ("acme/ada", "apr_4", 3),
    ] {
        let mut approval = approval(principal, id, created);
        approval.effect_id = id.to_owned();
        store.put(&approval, "").await.unwrap();
    }
    let list = async |filter: &ApprovalFilter, after, limit| {
        ids(store
            .list(tenant("acme"), filter, after, limit)
            .await
            .unwrap())
    };
    let all = ApprovalFilter::default();
    assert_eq!(list(&all, None, 3).await, ["apr_4", "apr_3", "apr_2"]);
    assert_eq!(list(&all, Some((2, "apr_2")), 3).await, ["apr_1"]);
    let of_bob = ApprovalFilter {
        principal: Some(Principal::new("acme/bob").unwrap()),
        state: Some(State::Pending),
        conversation: "c".to_owned(),
        run: "r".to_owned(),
    };
    assert_eq!(list(&of_bob, None, 9).await, ["apr_2"]);
    let elsewhere = ApprovalFilter {
        run: "another".to_owned(),
        ..all
    };
    assert!(list(&elsewhere, None, 9).await.is_empty());
}

async fn ended_approvals_come_with_the_conversation_for_which_they_stand(store: Database) {
    for (id, created) in [("apr_1", 1), ("apr_2", 2), ("apr_3", 3)] {
        let mut approval = approval("acme/ada", id, created);
        approval.effect_id = id.to_owned();
        approval.ended = (id != "apr_3").then_some(5);
        store.put(&approval, "").await.unwrap();
    }
    store
        .remember(tenant("acme"), "c", "digest", "apr_1")
        .await
        .unwrap();
    let ended = async |after| {
        let ended = store.ended_before(10, after, 9).await.unwrap();
        let places = ended
            .into_iter()
            .map(|(approval, conversation)| (approval.id, conversation));
        places.collect::<Vec<_>>()
    };
    let [first, second] =
        [("apr_1", "c"), ("apr_2", "")].map(|(id, of)| (id.to_owned(), of.to_owned()));
    assert_eq!(ended((0, "")).await, [first, second.clone()]);
    assert_eq!(ended((1, "apr_1")).await, [second]);
}

async fn a_tenant_that_is_removed_leaves_nothing(store: Database) {
    for (principal, id) in [
        ("acme/ada", "apr_1"),
        ("acme/ada", "apr_2"),
        ("ada", "apr_3"),
    ] {
        let mut approval = approval(principal, id, 1);
        approval.effect_id = id.to_owned();
        store.put(&approval, "").await.unwrap();
    }
    assert_eq!(store.remove_of(tenant("acme"), 1).await.unwrap(), 1);
    assert_eq!(store.remove_of(tenant("acme"), 1).await.unwrap(), 0);
    assert_eq!(store.pending(tenant("acme")).await.unwrap(), 0);
    assert_eq!(store.pending(Tenant::DEFAULT).await.unwrap(), 1);
}

#[tokio::test]
async fn approvals_of_an_earlier_version_belong_to_the_default_tenant() {
    let directory = tempfile::tempdir().unwrap();
    let options = SqliteOptions::new(directory.path().join("approvals.db"));
    let earlier = [documents::MIGRATIONS, MIGRATIONS.up_to(6)];
    let earlier = SqliteDatabase::open(options.clone(), &earlier)
        .await
        .unwrap();
    let documents = [("ada", "apr_1", 2), ("local", "apr_2", 3)].map(|(by, id, created)| {
        let mut approval = approval(by, id, created);
        approval.effect_id = id.to_owned();
        approval
    });
    for approval in &documents {
        let statement = "INSERT INTO approvals (approval_id, effect_id, state, conversation_id, run_id, \
                         created, expires, document_json, call_json) VALUES (?1, ?2, 1, 'c', 'r', ?3, 100, ?4, 'call')";
        let row = sqlx::query(statement)
            .bind(&approval.id)
            .bind(&approval.effect_id);
        let row = row.bind(approval.created);
        let row = row.bind(serde_json::to_string(approval).unwrap());
        row.execute(earlier.writer()).await.unwrap();
    }
    let remembered = "INSERT INTO remembered_approvals VALUES ('c', 'digest', 'apr_1')";
    sqlx::query(remembered)
        .execute(earlier.writer())
        .await
        .unwrap();
    earlier.close().await;
    drop(earlier);

    let database = SqliteDatabase::open(options, &FILE).await;
    let store = Database::from(database.unwrap());
    let listed = store
        .list(Tenant::DEFAULT, &ApprovalFilter::default(), None, 9)
        .await;
    let listed = listed.unwrap();
    assert!(listed.iter().all(|stored| stored.call_json == "call"));
    let listed: Vec<Approval> = listed.into_iter().map(|stored| stored.approval).collect();
    let [first, second] = documents;
    assert_eq!(listed, [second, first]);
    for (by, id) in [("ada", "apr_1"), ("local", "apr_2")] {
        let of_principal = ApprovalFilter {
            principal: Some(Principal::new(by).unwrap()),
            ..ApprovalFilter::default()
        };
        let listed = store.list(Tenant::DEFAULT, &of_principal, None, 9).await;
        assert_eq!(ids(listed.unwrap()), [id]);
    }
    let found = store.of_effect(Tenant::DEFAULT, "apr_2").await.unwrap();
    assert_eq!(found.unwrap().approval.id, "apr_2");
    let remembered = store
        .remembered(Tenant::DEFAULT, "c", "digest")
        .await
        .unwrap();
    assert_eq!(remembered.as_deref(), Some("apr_1"));
    let foreign = store
        .list(tenant("acme"), &ApprovalFilter::default(), None, 9)
        .await;
    assert_eq!(foreign.unwrap().len(), 0);
}
