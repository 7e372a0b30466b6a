//! The commands for the parts of agents: profiles, goals, knowledge bases and projects.

use serde_json::Value;
use testkit::Stack;

use super::{printed, tavern};

#[tokio::test(flavor = "multi_thread")]
async fn a_profile_is_listed_and_shown_at_its_revisions() -> anyhow::Result<()> {
    let stack = Stack::all_in_one().await?;
    let listed = printed(&stack, &["profiles", "list"])?;
    assert!(listed.contains("weather_guide"), "{listed}");
    let revisions = printed(
        &stack,
        &["profiles", "revisions", "weather_guide", "--json"],
    )?;
    let revision: Value = serde_json::from_str(revisions.trim_end())?;
    assert_eq!(revision["revision"], "1");
    let shown = ["profiles", "show", "weather_guide", "--revision"];
    let profile: Value = serde_json::from_str(&printed(&stack, &[&shown[..], &["1"]].concat())?)?;
    assert_eq!(profile["id"], "weather_guide");
    let missing = tavern(&stack, &[&shown[..], &["2"]].concat())?;
    assert!(!missing.status.success(), "{missing:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_goals_of_a_conversation_are_listed_and_changed() -> anyhow::Result<()> {
    let stack = Stack::all_in_one().await?;
    printed(
        &stack,
        &["invoke", "--agent", "librarian", "What is moonmoss for?"],
    )?;
    let conversations = printed(&stack, &["conversations", "list", "--json"])?;
    let conversation: Value = serde_json::from_str(conversations.trim_end())?;
    let id = conversation["conversationId"].as_str().unwrap_or_default();
    let goal = "goal_answer_readers";
    let shown = || -> anyhow::Result<Value> {
        let listed = printed(&stack, &["goals", "list", id, "--json"])?;
        let line = listed.lines().find(|line| line.contains(goal));
        Ok(serde_json::from_str(line.unwrap_or_default())?)
    };
    assert_eq!(shown()?["status"], "GOAL_STATUS_ACTIVE");
    let update = ["goals", "update", id, goal, "--status"];
    let drop = [&update[..], &["dropped", "--priority", "0.1"]].concat();
    printed(&stack, &drop)?;
    let dropped = shown()?;
    assert_eq!(dropped["status"], "GOAL_STATUS_DROPPED");
    assert_eq!(dropped["priority"], 0.1);
    let unknown = tavern(&stack, &[&update[..], &["lost"]].concat())?;
    assert!(!unknown.status.success(), "{unknown:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_is_written_found_and_deleted() -> anyhow::Result<()> {
    let stack = Stack::all_in_one().await?;
    let listed = printed(&stack, &["knowledge", "list"])?;
    assert!(listed.contains("kb_librarian_notes"), "{listed}");
    let base = "kb_librarian_notes";
    let write = ["knowledge", "write", base, "The cellar floods in spring."];
    let id = printed(&stack, &write)?;
    let id = id.trim_end();
    let found = printed(&stack, &["knowledge", "find", base, "flooded cellars"])?;
    assert!(found.contains(id), "{found}");
    printed(&stack, &["knowledge", "delete", base, id])?;
    let entries = printed(&stack, &["knowledge", "entries", base])?;
    assert!(entries.contains("goal_answer_readers"), "{entries}");
    assert!(!entries.contains(id), "{entries}");

    let directory = tempfile::tempdir()?;
    let file = directory.path().join("cellar.json");
    let document =
        serde_json::json!({"kb_id": "cellar", "kb_displayName": "The cellar", "entries": []});
    std::fs::write(&file, document.to_string())?;
    let stored = printed(&stack, &["knowledge", "put", &file.to_string_lossy()])?;
    assert_eq!(stored, "cellar\n");
    printed(&stack, &["knowledge", "delete", "cellar"])?;
    let gone = tavern(&stack, &["knowledge", "entries", "cellar"])?;
    assert!(!gone.status.success(), "{gone:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_project_is_stored_and_its_scene_started() -> anyhow::Result<()> {
    let stack = Stack::all_in_one().await?;
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("project.json");
    let document = serde_json::json!({
        "id": "whisperwood", "name": "Whisperwood", "version": "1",
        "createdAt": "2026-11-22T10:00:00Z", "updatedAt": "2026-11-22T10:00:00Z",
        "default_scene_id": "whisperwood_edge",
        "agent_profiles": [{"id": "no_such_agent", "path": "a.json", "name": "A"}],
    });
    std::fs::write(&file, document.to_string())?;
    let stored = printed(&stack, &["projects", "put", &file.to_string_lossy()])?;
    assert!(stored.starts_with("whisperwood\n"), "{stored}");
    assert!(stored.contains("no_such_agent"), "{stored}");
    let listed = printed(&stack, &["projects", "list"])?;
    assert!(listed.contains("whisperwood_edge"), "{listed}");
    let shown: Value =
        serde_json::from_str(&printed(&stack, &["projects", "show", "whisperwood"])?)?;
    assert_eq!(shown, document);
    let revisions = printed(&stack, &["projects", "revisions", "whisperwood"])?;
    assert_eq!(revisions.lines().count(), 2, "{revisions}");
    let run = printed(&stack, &["projects", "start", "whisperwood", "--json"])?;
    let run: Value = serde_json::from_str(run.trim_end())?;
    let run_id = run["runId"].as_str().unwrap_or_default();
    printed(&stack, &["scenes", "end", run_id])?;
    printed(&stack, &["projects", "delete", "whisperwood"])?;
    let gone = tavern(&stack, &["projects", "show", "whisperwood"])?;
    assert!(!gone.status.success(), "{gone:?}");
    Ok(())
}
