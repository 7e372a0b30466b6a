//! Revisions of profiles and scenes (rules G101 to G104).

use contracts::tavern::{
    agent::v1::{
        DeleteProfileRequest, DocumentRevision, GetProfileRequest, GetSceneRequest,
        GetSceneStatusRequest, ListProfileRevisionsRequest, ListSceneRevisionsRequest, Profile,
        PutProfileRequest, PutSceneRequest, StartSceneRequest, StateOperation,
        UpdatePrivateStateRequest, state_operation,
    },
    common::v1::ErrorReason,
};
use doubles::TestRegistry;
use serde_json::{Value, json};
use tonic::Status;

use crate::{
    scenes::{self, event},
    world::{Running, World, says},
};

/// Returns a profile of `ada` with a label, a prompt and an unknown key.
fn ada(version: &str, prompt: &str) -> String {
    let prompt = json!({"model": "play", "system_prompt": prompt});
    // The order of the keys and the white space are the author's.
    format!(
        "{{ \"version\":\"{version}\",  \"id\": \"ada\", \"mine\": 1.0,\n \"custom_metadata\": {{\"tavern\": {prompt}}}}}"
    )
}

fn world(turns: &Value) -> World {
    World::new(TestRegistry::default(), &[], turns)
}

impl Running {
    async fn put_ada(&self, version: &str, prompt: &str) -> Profile {
        let request = PutProfileRequest {
            profile_json: ada(version, prompt),
            ..PutProfileRequest::default()
        };
        let put = self.profiles.clone().put_profile(request).await.unwrap();
        put.into_inner().profile.unwrap()
    }

    async fn ada_at(&self, revision: u64) -> Result<Profile, Status> {
        let request = GetProfileRequest {
            profile_id: "ada".to_owned(),
            revision,
        };
        let got = self.profiles.clone().get_profile(request).await?;
        Ok(got.into_inner().profile.unwrap())
    }

    /// Returns the revisions of a profile over all pages.
    async fn revisions(&self, id: &str, page_size: i32) -> Result<Vec<DocumentRevision>, Status> {
        let (mut all, mut page_token) = (Vec::new(), String::new());
        loop {
            let request = ListProfileRevisionsRequest {
                profile_id: id.to_owned(),
                page_size,
                page_token,
            };
            let mut profiles = self.profiles.clone();
            let page = profiles.list_profile_revisions(request).await?.into_inner();
            all.extend(page.revisions);
            page_token = page.next_page_token;
            if page_token.is_empty() {
                return Ok(all);
            }
        }
    }
}

fn numbers(revisions: &[DocumentRevision]) -> Vec<u64> {
    revisions.iter().map(|row| row.revision).collect()
}

#[tokio::test]
async fn g102_each_change_is_a_revision_and_a_label_on_other_bytes_is_remarked() {
    let world = world(&json!([]));
    let running = world.build().await;
    let file = running.ada_at(0).await.unwrap();
    let first = running.put_ada("1.0.0", "One.").await;
    let repeated = running.put_ada("1.0.0", "One.").await;
    assert_eq!(repeated, first, "the same bytes are no new revision");
    let second = running.put_ada("1.0.0", "Two.").await;
    let third = running.put_ada("1.1.0", "Three.").await;
    let remarks = |profile: &Profile| {
        let codes = profile.diagnostics.iter();
        let codes = codes.filter(|finding| finding.path == "/version");
        codes
            .map(|finding| finding.code.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(remarks(&first), [""; 0]);
    assert_eq!(remarks(&second), ["same_version"]);
    assert_eq!(remarks(&third), [""; 0]);
    let rows = running.revisions("ada", 2).await.unwrap();
    let listed: Vec<(u64, &str, bool, u64)> = rows
        .iter()
        .map(|row| {
            let version = row.version.as_str();
            (row.revision, version, row.from_file, row.same_version_as)
        })
        .collect();
    assert_eq!(
        listed,
        [
            (4, "1.1.0", false, 0),
            (3, "1.0.0", false, 2),
            (2, "1.0.0", false, 0),
            (1, "", true, 0)
        ]
    );
    let sha256 = |text: &str| run_log::Hash::of(text.as_bytes()).to_string();
    assert_eq!(rows[3].etag, sha256(&file.profile_json));

    // The stored bytes are unchanged at every revision and after a restart, which is no change.
    running.runtime.shutdown().await;
    let running = world.build().await;
    assert_eq!(
        numbers(&running.revisions("ada", 0).await.unwrap()),
        [4, 3, 2, 1]
    );
    let kept = running.ada_at(3).await.unwrap();
    assert_eq!(kept.profile_json, ada("1.0.0", "Two."));
    assert_eq!(
        (remarks(&kept), kept.revision),
        (remarks(&second), second.revision)
    );
    let missing = running.ada_at(5).await.unwrap_err();
    assert_eq!(
        missing.message(),
        "no revision 5 of the profile `ada` is kept"
    );
    assert_eq!(
        grpc_kit::reason(&missing),
        Some(ErrorReason::ProfileNotFound)
    );
}

#[tokio::test]
async fn g103_a_file_that_changes_is_a_revision_too() {
    let world = world(&json!([]));
    let running = world.build().await;
    std::fs::write(world.settings.agents_dir.join("ada.json"), ada("2", "New.")).unwrap();
    running.runtime.shutdown().await;
    let running = world.build().await;
    let rows = running.revisions("ada", 0).await.unwrap();
    assert_eq!(numbers(&rows), [2, 1]);
    assert!(rows.iter().all(|row| row.from_file));
    let unknown = running.revisions("bob", 0).await.unwrap_err();
    assert_eq!(
        grpc_kit::reason(&unknown),
        Some(ErrorReason::ProfileNotFound)
    );
}

#[tokio::test]
async fn g104_a_turn_keeps_its_revision_which_is_kept_for_it_beyond_the_newest_hundred() {
    let running = world(&json!([{"answer": {"text": "..."}, "fault": {"kind": "hang"}}]));
    let running = running.build().await;
    let started = running.start(says("hello")).await.unwrap();
    assert_eq!(started.profile_revision, 1);
    for number in 0..105 {
        running.put_ada("1", &format!("Number {number}.")).await;
    }
    let rows = numbers(&running.revisions("ada", 0).await.unwrap());
    assert_eq!((rows.len(), rows[0], rows[99], rows[100]), (101, 106, 7, 1));
    running.ada_at(1).await.unwrap();
    running.ada_at(6).await.unwrap_err();

    running.cancel(&started.run.unwrap().run_id).await;
    running.put_ada("1", "The last one.").await;
    let rows = numbers(&running.revisions("ada", 0).await.unwrap());
    assert_eq!((rows.len(), rows[0], rows[99]), (100, 107, 8));

    // A deletion removes the revision in force; the file follows as another revision.
    let delete = DeleteProfileRequest {
        profile_id: "ada".to_owned(),
        ..DeleteProfileRequest::default()
    };
    running
        .profiles
        .clone()
        .delete_profile(delete)
        .await
        .unwrap();
    let file = running.ada_at(0).await.unwrap();
    assert_eq!(
        (file.from_file, file.revision.unwrap().revision),
        (true, 108)
    );
}

#[tokio::test]
async fn g104_an_instance_moves_to_the_newer_revision_at_its_next_turn_unless_pinned() {
    let mut scene = scenes::scene();
    scene["agent_instances"][1]["custom_runtime_config"] =
        json!({"tavern": {"profile_revision": 1}});
    let gm = json!([
        {"expect": {"contains": ["You are gm."]}, "answer": {"text": "One."}},
        {"expect": {"contains": ["You are new."]}, "answer": {"text": "Two."}},
    ]);
    let elara = json!([
        {"expect": {"contains": ["You are elara."]}, "answer": {"text": "One."}},
        {"expect": {"contains": ["You are elara."]}, "answer": {"text": "Two."}},
    ]);
    let running = scenes::world(&scene, &gm, &elara).build().await;
    let run_id = running.start_scene().await;
    for turns in [2, 4] {
        for event_type in ["player.action.speak", "npc.elara.address"] {
            let event = event(&run_id, event_type, &json!({}));
            running.publish(event).await.unwrap();
        }
        running.until_handled(&run_id, turns).await;
        for id in ["gm", "elara"] {
            let mut profile = scenes::profile(id, &json!([]));
            profile["custom_metadata"]["tavern"]["system_prompt"] = json!("You are new.");
            let request = PutProfileRequest {
                profile_json: profile.to_string(),
                ..PutProfileRequest::default()
            };
            running.profiles.clone().put_profile(request).await.unwrap();
        }
    }
    let status = running.status(&run_id).await;
    let revisions: Vec<u64> = status.iter().map(|agent| agent.profile_revision).collect();
    assert_eq!(revisions, [2, 1]);
    let ended = running.end_scene(&run_id).await;
    let said: Vec<String> = running
        .messages(&format!("{run_id}.gm"))
        .await
        .into_iter()
        .map(|message| message.text)
        .collect();
    assert!(said.contains(&"Two.".to_owned()), "{said:?} {ended:?}");
}

#[tokio::test]
async fn g104_the_state_of_a_pinned_instance_meets_the_schema_of_its_revision() {
    let mut scene = scenes::scene();
    scene["agent_instances"][1]["custom_runtime_config"] =
        json!({"tavern": {"profile_revision": 1}});
    let gm = json!([{"answer": {"text": "One."}}]);
    let running = scenes::world(&scene, &gm, &gm).build().await;
    let run_id = running.start_scene().await;
    for event_type in ["player.action.speak", "npc.elara.address"] {
        let event = event(&run_id, event_type, &json!({}));
        running.publish(event).await.unwrap();
    }
    running.until_handled(&run_id, 2).await;
    for id in ["gm", "elara"] {
        let mut profile = scenes::profile(id, &json!([]));
        profile["initial_private_state_schema"] =
            json!({"type": "object", "properties": {"trust": {"maximum": 5}}});
        let request = PutProfileRequest {
            profile_json: profile.to_string(),
            ..PutProfileRequest::default()
        };
        running.profiles.clone().put_profile(request).await.unwrap();
    }
    let mut accepted = Vec::new();
    for id in ["gm", "elara"] {
        let request = UpdatePrivateStateRequest {
            conversation_id: format!("{run_id}.{id}"),
            operations: vec![StateOperation {
                kind: state_operation::Kind::Set.into(),
                path: "/trust".to_owned(),
                value_json: "9".to_owned(),
            }],
            ..UpdatePrivateStateRequest::default()
        };
        let updated = running.world_states().update_private_state(request).await;
        accepted.push(updated.is_ok());
    }
    assert_eq!(accepted, [false, true]);
    running.end_scene(&run_id).await;
}

#[tokio::test]
async fn g102_scenes_have_revisions_and_a_run_keeps_its_own() {
    let world = scenes::world(&scenes::scene(), &json!([]), &json!([]));
    let running = world.build().await;
    let run_id = running.start_scene().await;
    let mut changed = scenes::scene();
    changed["name"] = json!("Another wood");
    let put = PutSceneRequest {
        scene_json: changed.to_string(),
        ..PutSceneRequest::default()
    };
    let put = running.scenes().put_scene(put).await.unwrap().into_inner();
    assert_eq!(put.scene.unwrap().revision.unwrap().revision, 2);
    let request = GetSceneStatusRequest {
        run_id: run_id.clone(),
    };
    let status = running.scenes().get_scene_status(request).await.unwrap();
    assert_eq!(status.into_inner().scene_revision, 1);
    let at = |revision| GetSceneRequest {
        scene_id: "wood".to_owned(),
        revision,
    };
    let first = running
        .scenes()
        .get_scene(at(1))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(first.scene.unwrap().scene_json, scenes::scene().to_string());
    let missing = running.scenes().get_scene(at(3)).await.unwrap_err();
    assert_eq!(grpc_kit::reason(&missing), Some(ErrorReason::SceneNotFound));
    let list = ListSceneRevisionsRequest {
        scene_id: "wood".to_owned(),
        ..ListSceneRevisionsRequest::default()
    };
    let list = running.scenes().list_scene_revisions(list).await.unwrap();
    assert_eq!(numbers(&list.into_inner().revisions), [2, 1]);
}

#[tokio::test]
async fn a_scene_that_pins_a_revision_that_is_not_kept_does_not_start() {
    let mut scene = scenes::scene();
    scene["agent_instances"][0]["custom_runtime_config"] =
        json!({"tavern": {"profile_revision": 7}});
    let running = scenes::world(&scene, &json!([]), &json!([])).build().await;
    let request = StartSceneRequest {
        scene_id: "wood".to_owned(),
        ..StartSceneRequest::default()
    };
    let refused = running.scenes().start_scene(request).await.unwrap_err();
    let violations = grpc_kit::violations(&refused);
    assert_eq!(violations[0].0, "scene/agent_instances/0/profile_id");
    assert!(violations[0].1.contains("revision 7"), "{violations:?}");
}
