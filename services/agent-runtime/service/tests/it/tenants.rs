//! Several tenants in one runtime, and several principals of one tenant, who cannot notice each other.

mod ends;
mod foreign;
mod limits;
mod shared;

use contracts::lf::a2a::v1::a2a_service_client::A2aServiceClient;
use contracts::tavern::{
    agent::v1::{
        AppendMessagesRequest, DeleteConversationRequest, GetConversationRequest,
        GetPrivateStateRequest, GetProfileRequest, ListConversationsRequest,
        ListKnowledgeBasesRequest, ListProfilesRequest, ListScenesRequest, Profile,
        PutKnowledgeBaseRequest, PutProfileRequest, PutSceneRequest, QueryKnowledgeRequest,
        StartSceneRequest, StartTurnRequest, StateOperation, UpdatePrivateStateRequest,
        agent_service_client::AgentServiceClient,
        conversation_service_client::ConversationServiceClient,
        knowledge_service_client::KnowledgeServiceClient,
        profile_service_client::ProfileServiceClient, scene_service_client::SceneServiceClient,
        state_operation::Kind as Change, state_service_client::StateServiceClient,
    },
    common::v1::ErrorReason,
    run::v1::{ListRunsRequest, run_service_client::RunServiceClient},
};
use core_types::{CallPath, Principal, Reach};
use doubles::TestRegistry;
use grpc_kit::{CallContext, Outbound};
use serde_json::{Value, json};
use tonic::Status;

use crate::{
    conversations::user,
    world::{Running, World, says},
};

/// The clients of one principal.
pub(crate) struct Caller {
    pub(crate) agent: AgentServiceClient<Outbound>,
    pub(crate) conversations: ConversationServiceClient<Outbound>,
    pub(crate) knowledge: KnowledgeServiceClient<Outbound>,
    pub(crate) profiles: ProfileServiceClient<Outbound>,
    pub(crate) runs: RunServiceClient<Outbound>,
    pub(crate) scenes: SceneServiceClient<Outbound>,
    pub(crate) states: StateServiceClient<Outbound>,
    pub(crate) tasks: A2aServiceClient<Outbound>,
    principal: String,
}

impl Running {
    /// Returns the clients of a principal that reaches its tenant.
    pub(crate) fn operator(&self, principal: &str) -> Caller {
        self.caller(principal, Reach::Tenant)
    }

    /// Returns the clients of a principal that reaches only its own.
    pub(crate) fn invoker(&self, principal: &str) -> Caller {
        self.caller(principal, Reach::Own)
    }

    fn caller(&self, principal: &str, reach: Reach) -> Caller {
        let named = Principal::new(principal).unwrap();
        let context = CallContext::new(named, CallPath::default()).reaching(reach);
        let to = grpc_kit::local(&self.runtime.services()).with(&context);
        Caller {
            agent: AgentServiceClient::new(to.clone()),
            conversations: ConversationServiceClient::new(to.clone()),
            knowledge: KnowledgeServiceClient::new(to.clone()),
            profiles: ProfileServiceClient::new(to.clone()),
            runs: RunServiceClient::new(to.clone()),
            scenes: SceneServiceClient::new(to.clone()),
            states: StateServiceClient::new(to.clone()),
            tasks: A2aServiceClient::new(to),
            principal: principal.to_owned(),
        }
    }
}

impl Caller {
    /// Appends a message to a conversation, under the request id `r1`; returns the new revision.
    pub(crate) async fn append(&self, id: &str, text: &str) -> Result<u64, Status> {
        let request = AppendMessagesRequest {
            conversation_id: id.to_owned(),
            expected_revision: 0,
            messages: vec![user(text)],
            request_id: "r1".to_owned(),
        };
        let appended = self.conversations.clone().append_messages(request).await?;
        Ok(appended.into_inner().conversation.unwrap().revision)
    }

    pub(crate) async fn start(&self, request: StartTurnRequest) -> Result<String, Status> {
        let started = self.agent.clone().start_turn(request).await?;
        Ok(started.into_inner().run.unwrap().run_id)
    }

    pub(crate) async fn put_profile(&self, profile: &Value) -> Profile {
        let request = PutProfileRequest {
            profile_json: profile.to_string(),
            request_id: "r1".to_owned(),
            ..PutProfileRequest::default()
        };
        let put = self.profiles.clone().put_profile(request).await.unwrap();
        put.into_inner().profile.unwrap()
    }

    pub(crate) async fn profile(&self, id: &str) -> Result<Profile, Status> {
        let request = GetProfileRequest {
            profile_id: id.to_owned(),
            revision: 0,
        };
        let got = self.profiles.clone().get_profile(request).await?;
        Ok(got.into_inner().profile.unwrap())
    }

    pub(crate) async fn put_knowledge(&self, base: &Value) {
        let request = PutKnowledgeBaseRequest {
            knowledge_json: base.to_string(),
            ..PutKnowledgeBaseRequest::default()
        };
        let put = self.knowledge.clone().put_knowledge_base(request).await;
        put.unwrap();
    }

    pub(crate) async fn find(&self, kb: &str, query: &str) -> Result<Vec<String>, Status> {
        let request = QueryKnowledgeRequest {
            kb: kb.to_owned(),
            query: query.to_owned(),
            ..QueryKnowledgeRequest::default()
        };
        let found = self.knowledge.clone().query_knowledge(request).await?;
        let entries = found.into_inner().entries.into_iter();
        Ok(entries.map(|found| found.entry.unwrap().text).collect())
    }

    /// Changes the private state of `ada` in a conversation, under the request id `r1`.
    async fn set_mood(&self, id: &str, mood: &str) -> Result<u64, Status> {
        let request = UpdatePrivateStateRequest {
            conversation_id: id.to_owned(),
            profile_id: "ada".to_owned(),
            request_id: "r1".to_owned(),
            operations: vec![StateOperation {
                kind: Change::Set.into(),
                path: "mood".to_owned(),
                value_json: json!(mood).to_string(),
            }],
            ..UpdatePrivateStateRequest::default()
        };
        let updated = self.states.clone().update_private_state(request).await?;
        Ok(updated.into_inner().version)
    }

    async fn put_scene(&self, name: &str) {
        let scene = json!({"id": "wood", "name": name,
            "agent_instances": [{"instance_id": "ada", "profile_id": "ada"}],
            "initial_world_state": {"of": name}});
        let request = PutSceneRequest {
            scene_json: scene.to_string(),
            ..PutSceneRequest::default()
        };
        self.scenes.clone().put_scene(request).await.unwrap();
    }

    pub(crate) async fn start_scene(&self) -> String {
        let request = StartSceneRequest {
            scene_id: "wood".to_owned(),
            request_id: "r1".to_owned(),
            ..StartSceneRequest::default()
        };
        let started = self.scenes.clone().start_scene(request).await.unwrap();
        started.into_inner().run.unwrap().run_id
    }

    /// Returns everything that the lists show.
    async fn listed(&self) -> Vec<String> {
        let (mut conversations, mut profiles) = (self.conversations.clone(), self.profiles.clone());
        let list = conversations.list_conversations(ListConversationsRequest::default());
        let list = list.await.unwrap().into_inner().conversations.into_iter();
        let talks =
            list.map(|it| format!("conversation {} of {}", it.conversation_id, it.principal));
        let mut listed: Vec<String> = talks.filter(|it| !it.contains(".ada")).collect();
        let list = profiles.list_profiles(ListProfilesRequest::default());
        let list = list.await.unwrap().into_inner();
        assert_eq!(list.diagnostics, []);
        listed.extend(
            list.profiles
                .into_iter()
                .map(|it| format!("profile {}", it.name)),
        );
        let list = self
            .scenes
            .clone()
            .list_scenes(ListScenesRequest::default())
            .await;
        let list = list.unwrap().into_inner().scenes.into_iter();
        listed.extend(list.map(|it| format!("scene {}", it.name)));
        let mut knowledge = self.knowledge.clone();
        let list = knowledge.list_knowledge_bases(ListKnowledgeBasesRequest::default());
        let list = list.await.unwrap().into_inner().knowledge_bases.into_iter();
        listed.extend(list.map(|it| format!("knowledge {}", it.name)));
        let list = self
            .runs
            .clone()
            .list_runs(ListRunsRequest::default())
            .await;
        let list = list.unwrap().into_inner().runs.into_iter();
        listed.extend(list.map(|it| format!("run of {}", it.principal)));
        listed
    }

    /// Checks that the caller has its own of everything, and nothing of another tenant.
    async fn has_its_own(&self, name: &str) {
        let who = &self.principal;
        let messages = self.messages("talk").await.unwrap();
        assert_eq!(messages, [name, "hello", "Hello."], "{who}");
        let request = GetPrivateStateRequest {
            conversation_id: "talk".to_owned(),
            profile_id: "ada".to_owned(),
            ..GetPrivateStateRequest::default()
        };
        let state = self.states.clone().get_private_state(request).await;
        let state = state.unwrap().into_inner();
        assert_eq!(state.value_json, json!({"mood": name}).to_string(), "{who}");
        assert_eq!(self.profile("ada").await.unwrap().name, name, "{who}");
        assert_eq!(
            self.find("lore", "moss").await.unwrap(),
            [format!("moss of {name}")]
        );
        let mut expected = vec![
            format!("conversation talk of {who}"),
            format!("profile {name}"),
            format!("scene {name}"),
            format!("knowledge {name}"),
        ];
        let runs = std::iter::repeat_n(format!("run of {who}"), 2);
        expected.extend(runs);
        assert_eq!(self.listed().await, expected, "{who}");
    }

    pub(crate) async fn messages(&self, id: &str) -> Result<Vec<String>, Status> {
        let request = contracts::tavern::agent::v1::ListMessagesRequest {
            conversation_id: id.to_owned(),
            ..Default::default()
        };
        let listed = self.conversations.clone().list_messages(request).await?;
        let messages = listed.into_inner().messages.into_iter();
        Ok(messages.map(|message| message.text).collect())
    }
}

pub(crate) fn profile(name: &str) -> Value {
    json!({"id": "ada", "name": name,
        "custom_metadata": {"tavern": {"model": "play", "system_prompt": "You are Ada."}}})
}

pub(crate) fn talk(id: &str) -> StartTurnRequest {
    StartTurnRequest {
        conversation_id: id.to_owned(),
        request_id: "r1".to_owned(),
        ..says("hello")
    }
}

/// Makes a world whose model answers each turn with `Hello.`
pub(crate) fn greeting() -> World {
    let turns = json!([{"answer": {"text": "Hello."}}, {"answer": {"text": "Hello."}}]);
    World::new(TestRegistry::default(), &[], &turns)
}

#[tokio::test]
async fn equal_names_ids_and_request_ids_of_two_tenants_are_two_things_also_after_a_restart() {
    let world = greeting();
    let running = world.build().await;
    let names = [("bob", "ours"), ("acme/bob", "theirs")];
    for (principal, name) in names {
        let caller = running.operator(principal);
        assert_eq!(caller.put_profile(&profile(name)).await.name, name);
        let entries = json!([{"id": "moss", "content": {"value": format!("moss of {name}")}}]);
        let base = json!({"kb_id": "lore", "kb_displayName": name, "entries": entries});
        caller.put_knowledge(&base).await;
        caller.put_scene(name).await;
        assert_eq!(caller.append("talk", name).await.unwrap(), 1);
        let run_id = caller.start(talk("talk")).await.unwrap();
        assert_eq!(running.follow(&run_id, 0).await.text(), "Hello.");
        assert_eq!(caller.set_mood("talk", name).await.unwrap(), 1);
        caller.start_scene().await;
    }
    for (principal, name) in names {
        running.operator(principal).has_its_own(name).await;
    }
    running.runtime.shutdown().await;
    let running = world.build().await;
    running.runtime.recover().await.unwrap();
    for (principal, name) in names {
        let caller = running.operator(principal);
        caller.has_its_own(name).await;
        // The requests are known, each in its tenant.
        assert_eq!(caller.append("talk", name).await.unwrap(), 1);
        assert_eq!(caller.set_mood("talk", name).await.unwrap(), 1);
    }
    let [ours, theirs] = names.map(|(principal, _)| running.operator(principal));
    let request = DeleteConversationRequest {
        conversation_id: "talk".to_owned(),
    };
    let mut conversations = ours.conversations.clone();
    let deleted = conversations.delete_conversation(request).await;
    deleted.unwrap();
    assert!(ours.messages("talk").await.is_err());
    theirs.has_its_own("theirs").await;
}

#[tokio::test]
async fn a_tenant_that_has_nothing_sees_nothing_and_no_file_and_no_finding_about_files() {
    let world = greeting();
    let agents = world.directory.path().join("agents");
    std::fs::write(agents.join("wrong.json"), "{").unwrap();
    let running = world.build().await;
    let ours = running.operator("bob");
    assert!(ours.profile("ada").await.unwrap().from_file);
    ours.append("talk", "hello").await.unwrap();
    let theirs = running.operator("acme/bob");
    assert_eq!(theirs.listed().await, Vec::<String>::new());
    let refused = theirs.profile("ada").await.unwrap_err();
    assert_eq!(
        grpc_kit::reason(&refused),
        Some(ErrorReason::ProfileNotFound)
    );
    assert!(!refused.message().contains("did you mean"), "{refused}");
    let refused = theirs.start(talk("")).await.unwrap_err();
    assert_eq!(
        grpc_kit::reason(&refused),
        Some(ErrorReason::ProfileNotFound)
    );
}

#[tokio::test]
async fn an_invoker_sees_its_own_conversations_and_an_operator_those_of_the_tenant() {
    let world = greeting();
    let running = world.build().await;
    for (principal, id) in [("mara", "m"), ("eve", "e"), ("acme/mara", "a")] {
        let caller = running.invoker(principal);
        caller.append(id, "hello").await.unwrap();
    }
    let list = async |caller: &Caller, page_token: &str| {
        let request = ListConversationsRequest {
            page_size: 1,
            page_token: page_token.to_owned(),
        };
        let mut conversations = caller.conversations.clone();
        let listed = conversations.list_conversations(request).await;
        listed.map(tonic::Response::into_inner)
    };
    let mine = list(&running.invoker("mara"), "").await.unwrap();
    assert_eq!(mine.conversations[0].conversation_id, "m");
    assert_eq!(mine.next_page_token, "");
    let operator = running.operator("ivo");
    let first = list(&operator, "").await.unwrap();
    assert_eq!(first.conversations[0].principal, "eve");
    let second = list(&operator, &first.next_page_token).await.unwrap();
    assert_eq!(second.conversations[0].principal, "mara");
    assert_eq!(second.next_page_token, "");
    // The token of another tenant's list is none.
    let foreign = list(&running.operator("acme/ivo"), &first.next_page_token).await;
    let forged = list(&running.operator("acme/ivo"), "forged").await;
    let (foreign, forged) = (foreign.unwrap_err(), forged.unwrap_err());
    let violated = |status: &Status| grpc_kit::violations(status);
    assert_eq!(violated(&foreign)[0].0, "page_token");
    assert_eq!(foreign.code(), forged.code());
    let request = GetConversationRequest {
        conversation_id: "m".to_owned(),
    };
    let got = operator
        .conversations
        .clone()
        .get_conversation(request)
        .await;
    assert!(got.is_ok());
}
