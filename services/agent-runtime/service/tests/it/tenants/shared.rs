//! Documents of the tenant `system`, which all tenants read.

use contracts::tavern::{
    agent::v1::{
        DeleteKnowledgeBaseRequest, DeleteKnowledgeEntryRequest, DeleteProfileRequest,
        ListKnowledgeBasesRequest, ListProfileRevisionsRequest, QueryKnowledgeRequest,
        WriteKnowledgeEntryRequest,
    },
    common::v1::ErrorReason,
};
use serde_json::{Value, json};

use super::{Caller, greeting, profile, talk};

/// Makes the knowledge base `lore` with one entry.
fn base(name: &str, text: &str) -> Value {
    json!({"kb_id": "lore", "kb_displayName": name,
        "entries": [{"id": "moss", "content": {"value": text}}]})
}

/// Makes an agent that reads two knowledge bases.
fn reader() -> Value {
    let mut reader = profile("reader");
    reader["knowledge_base_references"] = json!([
        {"source_id": "lore", "alias": "lore", "access_permissions": ["read", "write_caiu"]},
        {"source_id": "notes", "alias": "notes"},
    ]);
    reader
}

impl Caller {
    /// Returns the knowledge bases with their names, and whether each is shared.
    async fn bases(&self) -> Vec<(String, bool)> {
        let mut knowledge = self.knowledge.clone();
        let list = knowledge.list_knowledge_bases(ListKnowledgeBasesRequest::default());
        let list = list.await.unwrap().into_inner().knowledge_bases.into_iter();
        list.map(|base| (base.name, base.shared)).collect()
    }
}

#[tokio::test]
async fn a_document_of_the_tenant_system_is_read_by_each_tenant_that_has_none_of_its_id() {
    let running = greeting().build().await;
    let (root, theirs) = (
        running.operator("system/root"),
        running.operator("acme/bob"),
    );
    assert!(!root.put_profile(&profile("shared")).await.shared);
    let read = theirs.profile("ada").await.unwrap();
    assert_eq!((read.name.as_str(), read.shared), ("shared", true));
    let revisions = ListProfileRevisionsRequest {
        profile_id: "ada".to_owned(),
        ..ListProfileRevisionsRequest::default()
    };
    for caller in [&root, &theirs] {
        let mut profiles = caller.profiles.clone();
        let listed = profiles.list_profile_revisions(revisions.clone()).await;
        assert_eq!(listed.unwrap().into_inner().revisions.len(), 1);
    }
    let run_id = theirs.start(talk("talk")).await.unwrap();
    let ended = running.follow(&run_id, 0).await;
    assert_eq!(
        (ended.text().as_str(), ended.run.principal.as_str()),
        ("Hello.", "acme/bob")
    );
    let request = DeleteProfileRequest {
        profile_id: "ada".to_owned(),
        etag: String::new(),
    };
    let refused = theirs
        .profiles
        .clone()
        .delete_profile(request.clone())
        .await;
    let refused = refused.unwrap_err();
    assert_eq!(grpc_kit::violations(&refused)[0].0, "profile_id");

    let own = theirs.put_profile(&profile("own")).await;
    assert_eq!((own.name.as_str(), own.shared), ("own", false));
    assert_eq!(theirs.profile("ada").await.unwrap().name, "own");
    assert_eq!(root.profile("ada").await.unwrap().name, "shared");
    let deleted = theirs.profiles.clone().delete_profile(request).await;
    deleted.unwrap();
    assert_eq!(theirs.profile("ada").await.unwrap().name, "shared");
}

#[tokio::test]
async fn a_shared_knowledge_base_is_read_by_every_tenant_beside_its_own() {
    let world = greeting();
    let running = world.build().await;
    let (root, theirs) = (
        running.operator("system/root"),
        running.operator("acme/bob"),
    );
    root.put_knowledge(&base("shared", "shared moss")).await;
    let notes =
        json!({"kb_id": "notes", "entries": [{"id": "n", "content": {"value": "moss of acme"}}]});
    theirs.put_knowledge(&notes).await;
    assert_eq!(
        theirs.bases().await,
        [("shared".to_owned(), true), ("notes".to_owned(), false)]
    );
    assert_eq!(theirs.find("lore", "moss").await.unwrap(), ["shared moss"]);

    // An agent searches own and shared ones together.
    theirs.put_profile(&reader()).await;
    let run_id = theirs.start(talk("talk")).await.unwrap();
    running.follow(&run_id, 0).await;
    let request = QueryKnowledgeRequest {
        conversation_id: "talk".to_owned(),
        query: "moss".to_owned(),
        ..QueryKnowledgeRequest::default()
    };
    let found = theirs.knowledge.clone().query_knowledge(request).await;
    let found = found.unwrap().into_inner().entries.into_iter();
    let mut found: Vec<String> = found.map(|found| found.kb).collect();
    found.sort();
    assert_eq!(found, ["lore", "notes"]);
    running.runtime.shutdown().await;
    let running = world.build().await;
    let again = running.operator("acme/bob").find("lore", "moss").await;
    assert_eq!(again.unwrap(), ["shared moss"]);
}

#[tokio::test]
async fn a_shared_knowledge_base_is_changed_by_no_other_tenant_but_hidden_by_its_own() {
    let world = greeting();
    let running = world.build().await;
    let theirs = running.operator("acme/bob");
    running
        .operator("system/root")
        .put_knowledge(&base("shared", "shared moss"))
        .await;
    theirs.put_profile(&reader()).await;
    let run_id = theirs.start(talk("talk")).await.unwrap();
    running.follow(&run_id, 0).await;
    let denied = Some(ErrorReason::KnowledgeDenied);
    for conversation_id in ["", "talk"] {
        let request = WriteKnowledgeEntryRequest {
            conversation_id: conversation_id.to_owned(),
            kb: "lore".to_owned(),
            text: "ours now".to_owned(),
            ..WriteKnowledgeEntryRequest::default()
        };
        let written = theirs
            .knowledge
            .clone()
            .write_knowledge_entry(request)
            .await;
        assert_eq!(
            grpc_kit::reason(&written.unwrap_err()),
            denied,
            "{conversation_id}"
        );
    }
    let entry = DeleteKnowledgeEntryRequest {
        kb_id: "lore".to_owned(),
        caiu_id: "moss".to_owned(),
    };
    let deleted = theirs.knowledge.clone().delete_knowledge_entry(entry).await;
    assert_eq!(grpc_kit::reason(&deleted.unwrap_err()), denied);
    let request = DeleteKnowledgeBaseRequest {
        kb_id: "lore".to_owned(),
        etag: String::new(),
    };
    let deleted = theirs
        .knowledge
        .clone()
        .delete_knowledge_base(request.clone())
        .await;
    assert_eq!(grpc_kit::violations(&deleted.unwrap_err())[0].0, "kb_id");

    theirs.put_knowledge(&base("own", "own moss")).await;
    assert_eq!(theirs.find("lore", "moss").await.unwrap(), ["own moss"]);
    running.runtime.shutdown().await;
    let running = world.build().await;
    let theirs = running.operator("acme/bob");
    assert_eq!(theirs.find("lore", "moss").await.unwrap(), ["own moss"]);
    let ours = running.operator("ivo");
    assert_eq!(ours.find("lore", "moss").await.unwrap(), ["shared moss"]);
    let deleted = theirs
        .knowledge
        .clone()
        .delete_knowledge_base(request)
        .await;
    deleted.unwrap();
    assert_eq!(theirs.find("lore", "moss").await.unwrap(), ["shared moss"]);
}
