//! Knowledge bases, and the goals that they describe.

use contracts::tavern::{
    agent::v1::{
        DeleteKnowledgeBaseRequest, DeleteKnowledgeEntryRequest, GetProfileRequest, Goal,
        GoalOrigin, GoalStatus, ListGoalsRequest, ListKnowledgeBasesRequest,
        ListKnowledgeEntriesRequest, PutKnowledgeBaseRequest, QueryKnowledgeRequest,
        StartTurnRequest, UpdateGoalRequest, UpdateGoalResponse, WriteKnowledgeEntryRequest,
        WriteKnowledgeEntryResponse, knowledge_service_client::KnowledgeServiceClient,
        state_service_client::StateServiceClient,
    },
    common::v1::{ErrorReason, run_event::Kind},
};
use doubles::TestRegistry;
use grpc_kit::Outbound;
use serde_json::{Value, json};
use tonic::Status;

use crate::{
    scenes::{self, event},
    world::{Running, World, says},
};

const TALK: &str = "talk";

fn lore() -> Value {
    json!({
        "kb_id": "kb_lore", "kb_displayName": "Lore",
        "entries": [
            {"id": "moss", "entry_type": "lore_detail", "displayName": "Moonmoss",
             "content": {"mime_type": "text/plain", "value": "It glows under the oldest oaks."}},
            {"id": "guard", "entry_type": "goal", "content": {"value": "Keep people out at night."}},
            {"id": "zh", "content": {"value": "月光苔在黄昏后发光。"}},
            {"id": "hidden", "content": {"value": "The oaks are hollow."},
             "management_metadata": {"is_enabled": false}},
        ],
    })
}

fn profile() -> Value {
    json!({
        "id": "ada",
        "knowledge_base_references": [
            {"source_id": "kb_lore", "alias": "lore", "access_permissions": ["read", "write_suggestions"]},
            {"source_id": "kb_journal", "alias": "journal", "access_permissions": ["read", "write_caiu"]},
            {"source_id": "kb_secret", "alias": "secret", "access_permissions": []},
            {"source_id": "kb_gone", "alias": "gone"},
        ],
        "initial_goals_reference": [
            {"caiu_id": "guard", "activation_priority": 0.7},
            {"caiu_id": "unknown", "kb_alias_or_id": "journal"},
        ],
        "custom_metadata": {"tavern": {"model": "play"}},
    })
}

fn world(turns: &Value) -> World {
    let mut world = World::of(
        TestRegistry::default(),
        &[("ada.json", &profile())],
        &json!({"turns": turns}),
    );
    let directory = world.directory.path().join("knowledge");
    std::fs::create_dir(&directory).unwrap();
    for (file, base) in [
        ("lore.json", lore()),
        ("journal.json", json!({"kb_id": "kb_journal"})),
        (
            "secret.json",
            json!({"kb_id": "kb_secret", "entries": [{"id": "s", "content": "oaks"}]}),
        ),
        ("wrong.json", json!({"entries": [{}]})),
    ] {
        std::fs::write(directory.join(file), base.to_string()).unwrap();
    }
    world.settings.knowledge_dir = directory;
    world
}

impl Running {
    fn knowledge(&self) -> KnowledgeServiceClient<Outbound> {
        KnowledgeServiceClient::new(grpc_kit::local(&self.runtime.services()).outermost())
    }

    fn goal_states(&self) -> StateServiceClient<Outbound> {
        StateServiceClient::new(grpc_kit::local(&self.runtime.services()).outermost())
    }

    async fn find(
        &self,
        conversation_id: &str,
        kb: &str,
        query: &str,
    ) -> Result<Vec<String>, Status> {
        let request = QueryKnowledgeRequest {
            conversation_id: conversation_id.to_owned(),
            query: query.to_owned(),
            kb: kb.to_owned(),
            limit: 0,
        };
        let found = self
            .knowledge()
            .query_knowledge(request)
            .await?
            .into_inner();
        let found = found.entries.into_iter();
        Ok(found
            .map(|found| format!("{}/{}", found.kb, found.entry.unwrap().caiu_id))
            .collect())
    }

    async fn write(
        &self,
        request_id: &str,
        kb: &str,
        caiu_id: &str,
        text: &str,
    ) -> Result<WriteKnowledgeEntryResponse, Status> {
        let request = WriteKnowledgeEntryRequest {
            conversation_id: TALK.to_owned(),
            request_id: request_id.to_owned(),
            kb: kb.to_owned(),
            caiu_id: caiu_id.to_owned(),
            text: text.to_owned(),
            ..WriteKnowledgeEntryRequest::default()
        };
        let written = self.knowledge().write_knowledge_entry(request).await?;
        Ok(written.into_inner())
    }

    async fn goals(&self, conversation_id: &str) -> Vec<Goal> {
        let request = ListGoalsRequest {
            conversation_id: conversation_id.to_owned(),
            ..ListGoalsRequest::default()
        };
        let listed = self.goal_states().list_goals(request).await.unwrap();
        listed.into_inner().goals
    }

    async fn set_goal(
        &self,
        request_id: &str,
        goal_id: &str,
        status: GoalStatus,
    ) -> Result<UpdateGoalResponse, Status> {
        let request = UpdateGoalRequest {
            conversation_id: TALK.to_owned(),
            request_id: request_id.to_owned(),
            goal_id: goal_id.to_owned(),
            status: status.into(),
            ..UpdateGoalRequest::default()
        };
        Ok(self.goal_states().update_goal(request).await?.into_inner())
    }
}

fn talk(text: &str) -> StartTurnRequest {
    StartTurnRequest {
        conversation_id: TALK.to_owned(),
        ..says(text)
    }
}

fn reason<T: std::fmt::Debug>(refused: Result<T, Status>) -> Option<ErrorReason> {
    grpc_kit::reason(&refused.unwrap_err())
}

#[tokio::test]
async fn an_agent_finds_what_its_profile_lets_it_read_in_english_and_chinese() {
    let running = world(&json!([{"answer": {"text": "Hello."}}]))
        .build()
        .await;
    running.play(talk("hello")).await;
    for (kb, query, expected) in [
        ("", "glowing oak?", &["lore/moss"][..]),
        ("lore", "the MOONMOSS", &["lore/moss", "lore/guard"][..1]),
        ("kb_lore", "黄昏", &["lore/zh"]),
        ("", "nothing of this kind", &[]),
        ("", "?!", &[]),
    ] {
        let found = running.find(TALK, kb, query).await.unwrap();
        assert_eq!(found, expected, "{kb} {query}");
    }
    assert_eq!(
        reason(running.find(TALK, "secret", "oaks").await),
        Some(ErrorReason::KnowledgeDenied)
    );
    let gone = running.find(TALK, "gone", "oaks").await.unwrap_err();
    assert_eq!(
        grpc_kit::metadata(&gone)["known"],
        "lore,journal,secret,gone"
    );
    // An operator reads everything by its id.
    assert_eq!(
        running.find("", "kb_secret", "oaks").await.unwrap(),
        ["kb_secret/s"]
    );
    let request = GetProfileRequest {
        profile_id: "ada".to_owned(),
        revision: 0,
    };
    let profile = running.profiles.clone().get_profile(request).await.unwrap();
    let profile = profile.into_inner().profile.unwrap();
    let remarked: Vec<&str> = profile
        .diagnostics
        .iter()
        .map(|one| one.path.as_str())
        .collect();
    assert_eq!(remarked, ["/knowledge_base_references/3/source_id"]);
}

#[tokio::test]
async fn an_agent_writes_entries_of_its_own_once_and_suggestions_are_not_found() {
    let world = world(&json!([{"answer": {"text": "Hello."}}]));
    let running = world.build().await;
    running.play(talk("hello")).await;
    let first = running
        .write("w-1", "journal", "", "The player likes feverfew.")
        .await
        .unwrap();
    let again = running
        .write("w-1", "journal", "", "The player likes feverfew.")
        .await
        .unwrap();
    assert_eq!(
        (again.caiu_id.as_str(), again.version, again.replayed),
        (first.caiu_id.as_str(), 1, true)
    );
    let other = running.write("w-1", "journal", "", "Another text.").await;
    assert_eq!(reason(other), Some(ErrorReason::RequestIdReused));
    let changed = running
        .write("w-2", "journal", &first.caiu_id, "The player likes mint.")
        .await;
    assert_eq!(changed.unwrap().version, 2);
    assert_eq!(running.find(TALK, "", "feverfew").await.unwrap(), [""; 0]);
    assert_eq!(
        running.find(TALK, "", "mint").await.unwrap(),
        [format!("journal/{}", first.caiu_id)]
    );

    let suggested = running
        .write("", "lore", "", "Mint grows here.")
        .await
        .unwrap();
    assert!(!suggested.is_enabled);
    assert_eq!(running.find(TALK, "lore", "mint").await.unwrap(), [""; 0]);
    assert_eq!(
        reason(running.write("", "lore", "moss", "x").await),
        Some(ErrorReason::KnowledgeDenied)
    );
    assert_eq!(
        reason(running.write("", "secret", "", "x").await),
        Some(ErrorReason::KnowledgeDenied)
    );
    assert_eq!(
        reason(running.write("", "journal", "none", "x").await),
        Some(ErrorReason::KnowledgeBaseNotFound)
    );

    // A changed document keeps the entries of agents, also over a restart.
    let mut changed = lore();
    changed["entries"] = json!([{"id": "path", "content": "The path bends."}]);
    std::fs::write(
        world.settings.knowledge_dir.join("lore.json"),
        changed.to_string(),
    )
    .unwrap();
    running.runtime.shutdown().await;
    let running = world.build().await;
    let request = ListKnowledgeEntriesRequest {
        kb_id: "kb_lore".to_owned(),
        ..ListKnowledgeEntriesRequest::default()
    };
    let entries = running
        .knowledge()
        .list_knowledge_entries(request)
        .await
        .unwrap();
    let entries = entries.into_inner().entries.into_iter();
    let entries: Vec<(String, String)> = entries
        .map(|entry| (entry.caiu_id, entry.author_profile_id))
        .collect();
    assert_eq!(
        entries,
        [
            (suggested.caiu_id, "ada".to_owned()),
            ("path".to_owned(), String::new())
        ]
    );
    assert_eq!(running.find(TALK, "", "moonmoss").await.unwrap(), [""; 0]);
}

#[tokio::test]
async fn operators_put_list_and_delete_knowledge_bases() {
    let running = world(&json!([])).build().await;
    let mut knowledge = running.knowledge();
    let list = ListKnowledgeBasesRequest::default();
    let list = knowledge
        .list_knowledge_bases(list)
        .await
        .unwrap()
        .into_inner();
    let rows: Vec<(&str, u32, bool)> = list
        .knowledge_bases
        .iter()
        .map(|base| (base.kb_id.as_str(), base.entry_count, base.from_file))
        .collect();
    assert_eq!(
        rows,
        [
            ("kb_journal", 0, true),
            ("kb_lore", 4, true),
            ("kb_secret", 1, true)
        ]
    );
    assert_eq!(list.diagnostics[0].path, "wrong.json");
    let put = |text: Value, etag: &str| {
        let request = PutKnowledgeBaseRequest {
            knowledge_json: text.to_string(),
            etag: etag.to_owned(),
            validate_only: false,
        };
        let mut knowledge = running.knowledge();
        async move { knowledge.put_knowledge_base(request).await }
    };
    let wrong = put(json!({"kb_id": "kb", "entries": [{"id": "a"}]}), "")
        .await
        .unwrap_err();
    assert_eq!(
        grpc_kit::violations(&wrong)[0].0,
        "knowledge_json/entries/0/content"
    );
    let stale = put(json!({"kb_id": "kb_lore"}), "other").await;
    assert_eq!(reason(stale), Some(ErrorReason::EtagMismatch));
    let etag = &list.knowledge_bases[1].etag;
    let base = put(json!({"kb_id": "kb_lore"}), etag)
        .await
        .unwrap()
        .into_inner();
    let base = base.knowledge_base.unwrap();
    assert_eq!((base.entry_count, base.from_file), (0, false));
    let mut delete = DeleteKnowledgeBaseRequest {
        kb_id: "kb_lore".to_owned(),
        etag: "other".to_owned(),
    };
    let stale = running
        .knowledge()
        .delete_knowledge_base(delete.clone())
        .await;
    assert_eq!(reason(stale), Some(ErrorReason::EtagMismatch));
    delete.etag = base.etag;
    running
        .knowledge()
        .delete_knowledge_base(delete.clone())
        .await
        .unwrap();
    let again = running.knowledge().delete_knowledge_base(delete).await;
    assert_eq!(reason(again), Some(ErrorReason::KnowledgeBaseNotFound));
    let entry = DeleteKnowledgeEntryRequest {
        kb_id: "kb_secret".to_owned(),
        caiu_id: "s".to_owned(),
    };
    running
        .knowledge()
        .delete_knowledge_entry(entry.clone())
        .await
        .unwrap();
    let again = running.knowledge().delete_knowledge_entry(entry).await;
    assert_eq!(reason(again), Some(ErrorReason::KnowledgeBaseNotFound));
    assert_eq!(
        running.find("", "kb_secret", "oaks").await.unwrap(),
        [""; 0]
    );
}

#[tokio::test]
async fn g106_goals_begin_with_their_entries_and_the_model_reads_them_after_the_states() {
    let running = world(&json!([
        {"expect": {"last_contains": ["Your goals now, the most important first:\n- guard (active, 0.7): Keep people out at night.\n- unknown (active, 0.5)"]},
         "answer": {"text": "Hello."}},
        {"expect": {"last_contains": ["- unknown (active, 0.5)"], "last_lacks": ["guard"]},
         "answer": {"text": "Done."}},
    ])).build().await;
    let ended = running.play(talk("hello")).await;
    assert_eq!(ended.text(), "Hello.", "{}", ended.error_message());
    let goals = running.goals(TALK).await;
    let listed: Vec<(&str, &str, bool)> = goals
        .iter()
        .map(|goal| (goal.goal_id.as_str(), goal.kb_id.as_str(), goal.resolved))
        .collect();
    assert_eq!(listed, [("guard", "kb_lore", true), ("unknown", "", false)]);
    let elsewhere = ListGoalsRequest {
        conversation_id: "elsewhere".to_owned(),
        profile_id: "agent".to_owned(),
    };
    let elsewhere = running.goal_states().list_goals(elsewhere).await;
    assert_eq!(reason(elsewhere), Some(ErrorReason::ConversationNotFound));

    let changed = running
        .set_goal("g-1", "guard", GoalStatus::Completed)
        .await
        .unwrap();
    let again = running
        .set_goal("g-1", "guard", GoalStatus::Completed)
        .await
        .unwrap();
    assert_eq!(
        (changed.version, again.version, again.replayed),
        (2, 2, true)
    );
    let previous: Value = serde_json::from_str(&changed.previous_json).unwrap();
    assert_eq!(previous["status"], "active");
    let new = running
        .set_goal("", "without text", GoalStatus::Active)
        .await
        .unwrap_err();
    assert_eq!(
        grpc_kit::violations(&new),
        [("description".into(), "is required for a new goal".into())]
    );
    assert_eq!(grpc_kit::reason(&new), Some(ErrorReason::StateInvalid));
    let ended = running.play(talk("and now?")).await;
    assert_eq!(ended.text(), "Done.", "{}", ended.error_message());
    let versions: Vec<u64> = ended
        .events
        .iter()
        .filter_map(|event| match &event.kind {
            Some(Kind::ModelRequested(asked)) => Some(asked.goals_version),
            _ => None,
        })
        .collect();
    assert_eq!(versions, [2]);
}

#[tokio::test]
async fn g106_the_goals_of_a_scene_replace_those_of_the_profile_or_are_added() {
    let mut scene = scenes::scene();
    scene["agent_instances"][1]["initial_goals_override_reference"] =
        json!([{"caiu_id": "warn", "activation_priority": 0.9}]);
    let elara = json!([{"expect": {"last_contains": ["- warn (active, 0.9)"]}, "answer": {"text": "Yes."}}]);
    let running = scenes::world(&scene, &json!([]), &elara).build().await;
    let run_id = running.start_scene().await;
    running
        .publish(event(&run_id, "npc.elara.address", &json!({})))
        .await
        .unwrap();
    running.until_handled(&run_id, 1).await;
    let conversation = format!("{run_id}.elara");
    assert_eq!(running.messages(&conversation).await[1].text, "Yes.");
    let goals = running.goals(&conversation).await;
    assert_eq!(
        (goals[0].goal_id.as_str(), goals[0].origin()),
        ("warn", GoalOrigin::Scene)
    );
    running.end_scene(&run_id).await;
}
