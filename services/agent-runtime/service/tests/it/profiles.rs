//! Profiles that are put, deleted and read again, over the wire.

use contracts::tavern::{
    agent::v1::{
        DeleteProfileRequest, GetProfileRequest, ListProfilesRequest, Profile, PutProfileRequest,
        PutProfileResponse, ReloadProfilesRequest,
    },
    common::v1::ErrorReason,
};
use doubles::TestRegistry;
use serde_json::json;
use tonic::{Code, Status};

use crate::world::{Running, World, says};

/// A world with the file of `ada`.
fn world() -> World {
    let turns = json!([{"answer": {"text": "hi"}}]);
    World::new(TestRegistry::default(), &[], &turns)
}

fn profile(id: &str, name: &str) -> String {
    json!({"id": id, "name": name, "custom_metadata": {"tavern": {"model": "play"}}}).to_string()
}

fn put(profile_json: String) -> PutProfileRequest {
    PutProfileRequest {
        profile_json,
        ..PutProfileRequest::default()
    }
}

impl Running {
    async fn put(&self, request: PutProfileRequest) -> Result<PutProfileResponse, Status> {
        let put = self.profiles.clone().put_profile(request).await;
        Ok(put?.into_inner())
    }

    async fn profile(&self, id: &str) -> Result<Profile, Status> {
        let request = GetProfileRequest {
            profile_id: id.to_owned(),
            revision: 0,
        };
        let got = self.profiles.clone().get_profile(request).await?;
        Ok(got.into_inner().profile.unwrap())
    }

    async fn delete(&self, id: &str, etag: &str) -> Result<(), Status> {
        let request = DeleteProfileRequest {
            profile_id: id.to_owned(),
            etag: etag.to_owned(),
        };
        self.profiles.clone().delete_profile(request).await?;
        Ok(())
    }
}

#[tokio::test]
async fn a_stored_profile_hides_the_file_until_it_is_deleted() {
    let world = world();
    let running = world.build().await;
    let file = running.profile("ada").await.unwrap();
    assert!(file.from_file);
    let text = profile("ada", "Another Ada");
    let stored = running.put(put(text.clone())).await.unwrap();
    let stored = stored.profile.unwrap();
    assert_eq!(
        (stored.name.as_str(), stored.from_file),
        ("Another Ada", false)
    );
    assert_eq!(stored.profile_json, text);
    assert_ne!(stored.etag, file.etag);
    running.runtime.shutdown().await;
    drop(running);

    let running = world.build().await;
    assert_eq!(running.profile("ada").await.unwrap(), stored);
    assert_eq!(running.play(says("hello")).await.text(), "hi");
    running.delete("ada", "").await.unwrap();
    let again = running.profile("ada").await.unwrap();
    assert_eq!(
        (again.profile_json, again.from_file),
        (file.profile_json, true)
    );
    let refused = running.delete("ada", "").await.unwrap_err();
    assert_eq!(grpc_kit::violations(&refused)[0].0, "profile_id");
    let missing = running.delete("bob", "").await.unwrap_err();
    assert_eq!(
        grpc_kit::reason(&missing),
        Some(ErrorReason::ProfileNotFound)
    );
}

#[tokio::test]
async fn a_stale_etag_changes_nothing() {
    let running = world().build().await;
    let first = running.put(put(profile("bob", "Bob"))).await.unwrap();
    let etag = first.profile.unwrap().etag;
    let with_etag = |name: &str, etag: &str| PutProfileRequest {
        etag: etag.to_owned(),
        ..put(profile("bob", name))
    };
    running.put(with_etag("Robert", &etag)).await.unwrap();
    let stale = running.put(with_etag("Rob", &etag)).await.unwrap_err();
    let also_stale = running.delete("bob", &etag).await.unwrap_err();
    let current = running.profile("bob").await.unwrap();
    assert_eq!(current.name, "Robert");
    for status in [stale, also_stale] {
        assert_eq!(status.code(), Code::Aborted);
        assert_eq!(grpc_kit::reason(&status), Some(ErrorReason::EtagMismatch));
        assert_eq!(grpc_kit::metadata(&status)["etag"], current.etag);
    }
    running.delete("bob", &current.etag).await.unwrap();
}

#[tokio::test]
async fn what_is_only_validated_is_not_stored_and_what_is_wrong_is_named_by_its_path() {
    let running = world().build().await;
    let checked = PutProfileRequest {
        validate_only: true,
        ..put(profile("bob", "Bob"))
    };
    assert_eq!(
        running.put(checked).await.unwrap().profile.unwrap().name,
        "Bob"
    );
    let missing = running.profile("bob").await.unwrap_err();
    assert_eq!(
        grpc_kit::reason(&missing),
        Some(ErrorReason::ProfileNotFound)
    );
    let wrong = json!({"id": "", "custom_metadata": {"tavern": {"language": "fr"}}});
    let wrong = running.put(put(wrong.to_string())).await.unwrap_err();
    let fields: Vec<String> = grpc_kit::violations(&wrong)
        .into_iter()
        .map(|(field, _)| field)
        .collect();
    let language = "profile_json/custom_metadata/tavern/language";
    assert_eq!(fields, ["profile_json/id", language]);
}

#[tokio::test]
async fn a_request_that_is_repeated_returns_its_answer_and_stores_nothing() {
    let running = world().build().await;
    let request = PutProfileRequest {
        request_id: "r1".to_owned(),
        ..put(profile("bob", "Bob"))
    };
    let first = running.put(request.clone()).await.unwrap();
    running.put(put(profile("bob", "Robert"))).await.unwrap();
    let again = running.put(request.clone()).await.unwrap();
    assert!(!first.replayed && again.replayed);
    assert_eq!(again.profile, first.profile);
    assert_eq!(running.profile("bob").await.unwrap().name, "Robert");
    let other = PutProfileRequest {
        profile_json: profile("bob", "Rob"),
        ..request
    };
    let other = running.put(other).await.unwrap_err();
    assert_eq!(grpc_kit::reason(&other), Some(ErrorReason::RequestIdReused));
}

#[tokio::test]
async fn a_reload_reads_the_directory_again() {
    let world = world();
    let running = world.build().await;
    let agents = &world.settings.agents_dir;
    std::fs::write(agents.join("bob.json"), profile("bob", "Bob")).unwrap();
    std::fs::write(agents.join("ada.json"), profile("ada", "Ada II")).unwrap();
    std::fs::write(agents.join("broken.json"), "{").unwrap();
    let mut profiles = running.profiles.clone();
    let reloaded = profiles.reload_profiles(ReloadProfilesRequest {}).await;
    let reloaded = reloaded.unwrap().into_inner();
    assert_eq!(reloaded.added_profile_ids, ["bob"]);
    assert_eq!(reloaded.changed_profile_ids, ["ada"]);
    assert_eq!(reloaded.diagnostics[0].path, "broken.json");
    std::fs::remove_file(agents.join("bob.json")).unwrap();
    let reloaded = profiles.reload_profiles(ReloadProfilesRequest {}).await;
    assert_eq!(reloaded.unwrap().into_inner().removed_profile_ids, ["bob"]);
    std::fs::remove_dir_all(agents).unwrap();
    let failed = profiles.reload_profiles(ReloadProfilesRequest {}).await;
    let reason = grpc_kit::reason(&failed.unwrap_err());
    assert_eq!(reason, Some(ErrorReason::StorageUnavailable));
    assert_eq!(running.profile("ada").await.unwrap().name, "Ada II");
}

#[tokio::test]
async fn g103_a_changed_file_is_in_force_by_itself_and_a_broken_one_leaves_its_predecessor() {
    let mut world = world();
    world.settings.follow_agents_dir = true;
    let running = world.build().await;
    let file = world.settings.agents_dir.join("ada.json");
    let left_out = async || {
        let request = ListProfilesRequest::default();
        let page = running.profiles.clone().list_profiles(request).await;
        page.unwrap().into_inner().diagnostics
    };
    std::fs::write(&file, profile("ada", "Ada II")).unwrap();
    while running.profile("ada").await.unwrap().name != "Ada II" {
        tokio::task::yield_now().await;
    }
    std::fs::write(
        &file,
        r#"{"id": "ada", "name": 7, "tool_ids_inventory": 8}"#,
    )
    .unwrap();
    let diagnostics = loop {
        match left_out().await {
            none if none.is_empty() => tokio::task::yield_now().await,
            some => break some,
        }
    };
    assert_eq!(diagnostics[0].path, "ada.json");
    for part in ["/name", "/tool_ids_inventory", "stays in force"] {
        let message = &diagnostics[0].message;
        assert!(message.contains(part), "{part} is not in: {message}");
    }
    assert_eq!(running.profile("ada").await.unwrap().name, "Ada II");
    std::fs::write(&file, profile("ada", "Ada III")).unwrap();
    while !left_out().await.is_empty() {
        tokio::task::yield_now().await;
    }
    assert_eq!(running.profile("ada").await.unwrap().name, "Ada III");
}

#[tokio::test]
async fn lists_hold_files_and_stored_profiles() {
    let running = world().build().await;
    for id in ["aaron", "bob"] {
        running.put(put(profile(id, id))).await.unwrap();
    }
    let mut profiles = running.profiles.clone();
    let (mut ids, mut page_token) = (Vec::new(), String::new());
    loop {
        let request = ListProfilesRequest {
            page_size: 1,
            page_token,
        };
        let page = profiles.list_profiles(request).await.unwrap().into_inner();
        ids.extend(page.profiles.into_iter().map(|profile| profile.profile_id));
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    assert_eq!(ids, ["aaron", "ada", "bob"]);
}
