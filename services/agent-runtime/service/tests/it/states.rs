//! The private states of agents.

use contracts::tavern::{
    agent::v1::{
        DeleteConversationRequest, GetPrivateStateRequest, GetPrivateStateResponse,
        GetWorldStateRequest, ListPrivateStateVersionsRequest, PutProfileRequest, StartTurnRequest,
        StateOperation, UpdatePrivateStateRequest, UpdatePrivateStateResponse,
        get_world_state_request::Scene, state_operation::Kind as Change,
        state_service_client::StateServiceClient,
    },
    common::v1::{ErrorReason, run_event::Kind},
};
use doubles::TestRegistry;
use grpc_kit::Outbound;
use serde_json::{Value, json};
use tonic::Status;

use crate::world::{Running, World, says};

const TALK: &str = "talk";

fn profile() -> Value {
    let elara = include_str!("../../../domain/tests/fixtures/elara.agent_profile.json");
    let mut profile: Value = serde_json::from_str(elara).unwrap();
    profile["id"] = json!("ada");
    profile["core_deliberation_workflow_id"] = json!("");
    profile["skill_workflow_ids_inventory"] = json!([]);
    profile["tool_ids_inventory"] = json!(["core:ReadPrivateState"]);
    profile["custom_metadata"]["tavern"] = json!({"model": "play"});
    profile
}

fn world(turns: &Value) -> World {
    let registry =
        TestRegistry::default()
            .double()
            .gives("ReadPrivateStateTool", &["key"], json!("calm"));
    World::of(
        registry,
        &[("ada.json", &profile())],
        &json!({"turns": turns}),
    )
}

fn talk(text: &str) -> StartTurnRequest {
    StartTurnRequest {
        conversation_id: TALK.to_owned(),
        ..says(text)
    }
}

fn set(path: &str, value: &Value) -> StateOperation {
    StateOperation {
        kind: Change::Set.into(),
        path: path.to_owned(),
        value_json: value.to_string(),
    }
}

impl Running {
    fn states(&self) -> StateServiceClient<Outbound> {
        StateServiceClient::new(grpc_kit::local(&self.runtime.services()).outermost())
    }

    /// Returns the value at a path of the world state that an agent has in a conversation.
    pub(crate) async fn world_of(&self, id: &str, path: &str) -> Result<String, Status> {
        let request = GetWorldStateRequest {
            scene: Some(Scene::ConversationId(id.to_owned())),
            path: path.to_owned(),
            ..GetWorldStateRequest::default()
        };
        let read = self.states().get_world_state(request).await?;
        Ok(read.into_inner().value_json)
    }

    async fn state(&self, path: &str, version: u64) -> Result<GetPrivateStateResponse, Status> {
        let request = GetPrivateStateRequest {
            conversation_id: TALK.to_owned(),
            path: path.to_owned(),
            version,
            ..GetPrivateStateRequest::default()
        };
        Ok(self.states().get_private_state(request).await?.into_inner())
    }

    async fn update(
        &self,
        request_id: &str,
        expected_version: u64,
        operations: Vec<StateOperation>,
    ) -> Result<UpdatePrivateStateResponse, Status> {
        let request = UpdatePrivateStateRequest {
            conversation_id: TALK.to_owned(),
            request_id: request_id.to_owned(),
            expected_version,
            operations,
            ..UpdatePrivateStateRequest::default()
        };
        Ok(self
            .states()
            .update_private_state(request)
            .await?
            .into_inner())
    }
}

#[tokio::test]
async fn g106_a_state_begins_with_the_first_turn_and_the_model_reads_it_last() {
    let world = world(&json!([
        {
            "expect": {"last_contains": ["Your private state now:", "\"mood\":\"calm\"", "\"warned_player\":false"]},
            "answer": {"text": "<ACTION><core__ReadPrivateState><key>mood</key></core__ReadPrivateState></ACTION>"}
        },
        {"expect": {"contains": ["Tool core:ReadPrivateState executed"]}, "answer": {"text": "Calm."}},
        {"expect": {"last_contains": ["\"mood\":\"warm\""]}, "answer": {"text": "Warm."}}
    ]));
    let running = world.build().await;
    let none = running.state("", 0).await.unwrap_err();
    assert_eq!(
        grpc_kit::reason(&none),
        Some(ErrorReason::ConversationNotFound)
    );
    let ended = running.play(talk("How are you?")).await;
    assert_eq!(ended.text(), "Calm.", "{}", ended.error_message());
    assert_eq!(world.registry.asked()[0].tool_id, "ReadPrivateStateTool");
    let versions: Vec<u64> = ended
        .events
        .iter()
        .filter_map(|event| match &event.kind {
            Some(Kind::ModelRequested(asked)) => Some(asked.state_version),
            _ => None,
        })
        .collect();
    assert_eq!(versions, [1, 1]);
    running
        .update("", 0, vec![set("mood", &json!("warm"))])
        .await
        .unwrap();
    assert_eq!(running.play(talk("And now?")).await.text(), "Warm.");
}

#[tokio::test]
async fn g301_versions_are_kept_and_a_repeated_request_gives_the_first_answer() {
    let world = world(&json!([{"answer": {"text": "Hello."}}]));
    let running = world.build().await;
    running.play(talk("hello")).await;
    let change = || vec![set("mood", &json!("warm"))];
    let first = running.update("u-1", 1, change()).await.unwrap();
    assert_eq!(
        (first.version, first.previous_json.as_str()),
        (2, "\"calm\"")
    );
    let again = running.update("u-1", 1, change()).await.unwrap();
    assert!(again.replayed);
    assert_eq!(again.version, 2);
    let other = running
        .update("u-1", 1, vec![set("mood", &json!("cross"))])
        .await;
    assert_eq!(
        grpc_kit::reason(&other.unwrap_err()),
        Some(ErrorReason::RequestIdReused)
    );
    assert_eq!(
        running.state("mood", 1).await.unwrap().value_json,
        "\"calm\""
    );
    assert_eq!(
        running.state("mood", 0).await.unwrap().value_json,
        "\"warm\""
    );
    let request = ListPrivateStateVersionsRequest {
        conversation_id: TALK.to_owned(),
        page_size: 1,
        ..ListPrivateStateVersionsRequest::default()
    };
    let page = running
        .states()
        .list_private_state_versions(request.clone())
        .await;
    let page = page.unwrap().into_inner();
    assert_eq!(page.versions[0].changed_paths, ["/mood"]);
    let request = ListPrivateStateVersionsRequest {
        page_token: page.next_page_token,
        ..request
    };
    let last = running.states().list_private_state_versions(request).await;
    assert_eq!(last.unwrap().into_inner().versions[0].version, 1);
}

#[tokio::test]
async fn g303_a_stale_version_and_a_broken_schema_change_nothing() {
    let world = world(&json!([{"answer": {"text": "Hello."}}]));
    let running = world.build().await;
    running.play(talk("hello")).await;
    let stale = running
        .update("", 7, vec![set("mood", &json!("warm"))])
        .await
        .unwrap_err();
    assert_eq!(
        grpc_kit::reason(&stale),
        Some(ErrorReason::StateVersionMismatch)
    );
    let changes = vec![set("mood", &json!("furious")), set("trust", &json!(1_000))];
    let broken = running.update("", 0, changes).await.unwrap_err();
    assert_eq!(grpc_kit::reason(&broken), Some(ErrorReason::StateInvalid));
    let mut places: Vec<String> = grpc_kit::violations(&broken)
        .into_iter()
        .map(|(place, _)| place)
        .collect();
    places.sort();
    assert_eq!(places, ["/mood", "/trust"]);
    let missing = running.state("stock.moonmos", 0).await.unwrap_err();
    assert_eq!(
        grpc_kit::reason(&missing),
        Some(ErrorReason::StatePathNotFound)
    );
    assert!(
        missing.message().contains("moonmoss"),
        "{}",
        missing.message()
    );
    assert_eq!(running.state("", 0).await.unwrap().version, 1);
}

#[tokio::test]
async fn every_wrong_field_of_a_change_is_named() {
    let running = world(&json!([])).build().await;
    let wrong = StateOperation {
        kind: Change::Unspecified.into(),
        path: "a..b".to_owned(),
        value_json: "nope".to_owned(),
    };
    let refused = running.update("", 0, vec![wrong]).await.unwrap_err();
    let fields: Vec<String> = grpc_kit::violations(&refused)
        .into_iter()
        .map(|(field, _)| field)
        .collect();
    assert_eq!(
        fields,
        [
            "operations[0].path",
            "operations[0].value_json",
            "operations[0].kind"
        ]
    );
}

#[tokio::test]
async fn g301_concurrent_changes_are_all_made() {
    let world = world(&json!([{"answer": {"text": "Hello."}}]));
    let running = world.build().await;
    running.play(talk("hello")).await;
    let add = StateOperation {
        kind: Change::Increment.into(),
        path: "trust".to_owned(),
        value_json: "1".to_owned(),
    };
    let adds = (0..32).map(|_| running.update("", 0, vec![add.clone()]));
    futures::future::try_join_all(adds).await.unwrap();
    let state = running.state("trust", 0).await.unwrap();
    assert_eq!((state.version, state.value_json.as_str()), (33, "42"));
}

#[tokio::test]
async fn g602_a_deleted_conversation_takes_its_states_along_and_a_restart_keeps_them() {
    let world = world(&json!([{"answer": {"text": "Hello."}}]));
    let running = world.build().await;
    running.play(talk("hello")).await;
    running
        .update("", 0, vec![set("mood", &json!("warm"))])
        .await
        .unwrap();
    running.runtime.shutdown().await;
    drop(running);
    let running = world.build().await;
    assert_eq!(
        running.state("mood", 0).await.unwrap().value_json,
        "\"warm\""
    );
    let request = DeleteConversationRequest {
        conversation_id: TALK.to_owned(),
    };
    let mut conversations = running.conversations.clone();
    conversations.delete_conversation(request).await.unwrap();
    let request = GetPrivateStateRequest {
        conversation_id: TALK.to_owned(),
        profile_id: "ada".to_owned(),
        ..GetPrivateStateRequest::default()
    };
    let gone = running
        .states()
        .get_private_state(request)
        .await
        .unwrap_err();
    assert_eq!(
        grpc_kit::reason(&gone),
        Some(ErrorReason::ConversationNotFound)
    );
}

#[tokio::test]
async fn g110_an_ephemeral_turn_has_no_state() {
    let world = world(&json!([{
        "expect": {"last_is": "hello"},
        "answer": {"text": "Hello."}
    }]));
    let running = world.build().await;
    let request = StartTurnRequest {
        ephemeral: true,
        ..says("hello")
    };
    let ended = running.play(request).await;
    assert_eq!(ended.text(), "Hello.", "{}", ended.error_message());
    let request = UpdatePrivateStateRequest {
        conversation_id: ended.run.conversation_id.clone(),
        operations: vec![set("mood", &json!("warm"))],
        ..UpdatePrivateStateRequest::default()
    };
    let refused = running
        .states()
        .update_private_state(request)
        .await
        .unwrap_err();
    assert_eq!(
        grpc_kit::reason(&refused),
        Some(ErrorReason::ConversationNotFound)
    );
}

#[tokio::test]
async fn g303_a_profile_whose_values_break_its_schema_is_refused_with_every_place() {
    let running = world(&json!([])).build().await;
    let mut wrong = profile();
    wrong["initial_private_state_values"] = json!({"mood": "furious", "trust": "high"});
    let put = PutProfileRequest {
        profile_json: wrong.to_string(),
        ..PutProfileRequest::default()
    };
    let refused = running.profiles.clone().put_profile(put).await.unwrap_err();
    let found = format!("{:?}", grpc_kit::violations(&refused));
    for place in [
        "initial_private_state_values/mood",
        "initial_private_state_values/trust",
    ] {
        assert!(found.contains(place), "{place} is not in: {found}");
    }
}
