//! ModelService and profiles over the wire.

use contracts::tavern::{
    agent::v1::{
        GenerateRequest, GenerateResponse, GetProfileRequest, ListModelsRequest,
        ListProfilesRequest, generate_response::Piece,
    },
    common::v1::{ChatMessage, ChatRole, ErrorReason},
};
use doubles::TestRegistry;
use serde_json::json;
use tonic::Status;

use crate::world::{Running, World};

fn says(role: ChatRole, text: &str) -> ChatMessage {
    ChatMessage {
        role: role.into(),
        text: text.to_owned(),
        ..ChatMessage::default()
    }
}

fn request(model: &str) -> GenerateRequest {
    GenerateRequest {
        model: model.to_owned(),
        messages: vec![says(ChatRole::User, "hello")],
        ..Default::default()
    }
}

async fn generate(
    running: &Running,
    request: GenerateRequest,
) -> (Vec<GenerateResponse>, Result<(), Status>) {
    let mut pieces = Vec::new();
    let mut answer = match running.model.clone().generate(request).await {
        Ok(answer) => answer.into_inner(),
        Err(status) => return (pieces, Err(status)),
    };
    loop {
        match answer.message().await {
            Ok(Some(piece)) => pieces.push(piece),
            Ok(None) => return (pieces, Ok(())),
            Err(status) => return (pieces, Err(status)),
        }
    }
}

#[tokio::test]
async fn a_model_streams_thinking_text_and_the_end() {
    let calls =
        json!([{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]);
    let turns = json!([{"answer": {"thinking": "hm", "text": "Hello", "chunk": 2, "finish_reason": "tool_calls",
        "input_tokens": 4, "output_tokens": 2, "tool_calls": calls}}]);
    let running = World::new(TestRegistry::default(), &[], &turns)
        .build()
        .await;
    let (pieces, ended) = generate(&running, request("play")).await;
    ended.unwrap();
    let text: String = pieces
        .iter()
        .filter_map(|piece| match piece.piece.as_ref()? {
            Piece::Text(text) => Some(text.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(text, "Hello");
    assert!(matches!(&pieces[0].piece, Some(Piece::Thinking(text)) if text == "hm"));
    let Some(Piece::End(end)) = &pieces.last().unwrap().piece else {
        panic!("no end: {pieces:?}")
    };
    assert_eq!(
        (
            end.finish_reason.as_str(),
            end.input_tokens,
            end.output_tokens
        ),
        ("tool_calls", 4, 2)
    );
    assert_eq!(end.tool_calls_json, calls.to_string());
}

#[tokio::test]
async fn a_model_that_fails_fails_after_the_pieces_that_came() {
    let turns = json!([{"answer": {"text": "half"}, "fault": {"kind": "cut"}}]);
    let running = World::new(TestRegistry::default(), &[], &turns)
        .build()
        .await;
    let (pieces, ended) = generate(&running, request("play")).await;
    assert_eq!(pieces.len(), 1);
    let status = ended.unwrap_err();
    assert_eq!(grpc_kit::reason(&status), Some(ErrorReason::ModelFailed));
    assert!(grpc_kit::retry_after(&status).is_some());
}

#[tokio::test]
async fn the_vendors_status_is_in_the_details() {
    let turns = json!([{"fault": {"kind": "refused", "status": 401, "message": "no such key"}}]);
    let running = World::new(TestRegistry::default(), &[], &turns)
        .build()
        .await;
    let status = generate(&running, request("play")).await.1.unwrap_err();
    assert_eq!(grpc_kit::metadata(&status)["status"], "401");
    assert!(status.message().contains("no such key"));
    assert!(grpc_kit::retry_after(&status).is_none());
}

#[tokio::test]
async fn bad_requests_name_every_field() {
    let running = World::new(TestRegistry::default(), &[], &json!([]))
        .build()
        .await;
    let unknown = generate(&running, request("unknown")).await.1.unwrap_err();
    assert_eq!(grpc_kit::reason(&unknown), Some(ErrorReason::ModelNotFound));
    let bad = GenerateRequest {
        messages: vec![ChatMessage::default()],
        temperature: Some(9.0),
        timeout: Some(prost_types::Duration {
            seconds: -1,
            nanos: 0,
        }),
        ..request("play")
    };
    let status = generate(&running, bad).await.1.unwrap_err();
    let fields: Vec<String> = grpc_kit::violations(&status)
        .into_iter()
        .map(|(field, _)| field)
        .collect();
    assert_eq!(fields, ["messages[0].role", "temperature", "timeout"]);
    for tools_json in ["{}", "[{}]"] {
        let bad = GenerateRequest {
            tools_json: tools_json.to_owned(),
            ..request("play")
        };
        let status = generate(&running, bad).await.1.unwrap_err();
        assert_eq!(grpc_kit::violations(&status)[0].0, "tools_json");
    }
}

#[tokio::test]
async fn models_and_profiles_are_listed_by_page() {
    let profiles: Vec<(String, serde_json::Value)> = ["c", "a", "b"]
        .iter()
        .map(|id| {
            (
                format!("{id}.json"),
                json!({"id": id, "tool_ids_inventory": ["T"], "initial_goals": ["e"]}),
            )
        })
        .collect();
    let named: Vec<(&str, &serde_json::Value)> = profiles
        .iter()
        .map(|(file, profile)| (file.as_str(), profile))
        .collect();
    let world = World::of(TestRegistry::default(), &named, &json!({"turns": []}));
    std::fs::write(world.settings.agents_dir.join("broken.json"), "{").unwrap();
    let running = world.build().await;
    let mut agent = running.profiles.clone();
    let first = ListProfilesRequest {
        page_size: 2,
        ..Default::default()
    };
    let first = agent.list_profiles(first).await.unwrap().into_inner();
    let ids: Vec<&str> = first
        .profiles
        .iter()
        .map(|profile| profile.profile_id.as_str())
        .collect();
    assert_eq!(ids, ["a", "b"]);
    let left_out: Vec<&str> = first
        .diagnostics
        .iter()
        .map(|finding| finding.path.as_str())
        .collect();
    assert_eq!(left_out, ["broken.json"]);
    let rest = ListProfilesRequest {
        page_size: 2,
        page_token: first.next_page_token,
    };
    let rest = agent.list_profiles(rest).await.unwrap().into_inner();
    assert_eq!(
        (rest.profiles.len(), rest.next_page_token.as_str()),
        (1, "")
    );
    let profile = agent
        .get_profile(GetProfileRequest {
            profile_id: "c".to_owned(),
            ..GetProfileRequest::default()
        })
        .await
        .unwrap()
        .into_inner();
    let profile = profile.profile.unwrap();
    assert_eq!(
        profile.profile_json,
        r#"{"id":"c","tool_ids_inventory":["T"],"initial_goals":["e"]}"#
    );
    let findings = profile.diagnostics.iter();
    let places: Vec<&str> = findings.map(|finding| finding.path.as_str()).collect();
    assert_eq!(places, ["/initial_goals", "/custom_metadata/tavern/model"]);
    let models = running
        .model
        .clone()
        .list_models(ListModelsRequest::default())
        .await
        .unwrap()
        .into_inner();
    assert_eq!(
        (
            models.models[0].name.as_str(),
            models.models[0].provider.as_str()
        ),
        ("play", "scripted")
    );
}
