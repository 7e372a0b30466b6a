//! The end of a tenant: its runs are cancelled, and everything of it is removed.

use std::collections::BTreeMap;

use contracts::tavern::{
    run::v1::ListRunsRequest,
    tenant::v1::{TenantQuantity, TenantState},
};
use doubles::{Behaviour, TestRegistry};
use serde_json::json;
use sql_store::count_rows;

use super::{limits::synced, profile, talk};
use crate::{turns::call, world::World};

impl World {
    /// Counts the rows of a tenant in each table.
    async fn rows(&self, tenant: &str) -> BTreeMap<String, u64> {
        let mut rows = BTreeMap::new();
        for file in ["agent-runtime.db", "agent-runtime.runs.db"] {
            let path = self.settings.data_dir.join(file);
            rows.extend(count_rows(&path, tenant).await.unwrap());
        }
        rows
    }
}

#[tokio::test]
async fn a_closed_tenant_has_its_turns_and_scenes_cancelled_and_leaves_nothing() {
    let turns = json!([{"answer": {"text": call("Look", "at", "moss")}},
        {"answer": {"text": call("Look", "at", "moss")}}]);
    let registry = TestRegistry::default().tool("Look", &["at"], Behaviour::Hangs);
    let world = World::new(registry, &["Look"], &turns);
    let running = world.build().await;
    for (principal, name) in [("bob", "ours"), ("acme/bob", "theirs")] {
        let caller = running.operator(principal);
        let mut profile = profile(name);
        profile["tool_ids_inventory"] = json!(["Look"]);
        caller.put_profile(&profile).await;
        let entries = json!([{"id": "moss", "content": {"value": name}}]);
        let base = json!({"kb_id": "lore", "kb_displayName": name, "entries": entries});
        caller.put_knowledge(&base).await;
        caller.put_scene(name).await;
        caller.append("talk", name).await.unwrap();
        caller.set_mood("talk", name).await.unwrap();
        caller.start(talk("talk")).await.unwrap();
        caller.start_scene().await;
    }
    let before = world.rows("default").await;
    let stored = world.rows("acme").await;
    assert!(stored.values().sum::<u64>() > 8, "{stored:?}");

    let mut closing = synced("acme");
    closing.tenant.as_mut().unwrap().state = TenantState::Closing.into();
    closing.cancel = true;
    loop {
        let uses = running.sync(closing.clone()).await.uses;
        let mut open = uses.iter().filter(|used| used.used > 0);
        if open.all(|used| used.quantity() != TenantQuantity::OpenRuns) {
            break;
        }
        tokio::task::yield_now().await;
    }
    let mut removing = synced("acme");
    removing.tenant.as_mut().unwrap().state = TenantState::Removing.into();
    while running.sync(removing.clone()).await.left > 0 {}

    let left = world.rows("acme").await;
    assert!(left.values().all(|rows| *rows == 0), "{left:?}");
    assert_eq!(world.rows("default").await, before);
    let theirs = running.operator("acme/bob");
    assert_eq!(theirs.listed().await, [""; 0]);
    let ours = running.operator("bob");
    assert_eq!(ours.find("lore", "ours").await.unwrap(), ["ours"]);
    let mut runs = ours.runs.clone();
    let runs = runs.list_runs(ListRunsRequest::default()).await;
    let runs = runs.unwrap().into_inner().runs;
    assert!(runs.iter().all(|run| run.outcome.is_none()), "{runs:?}");
    assert_eq!(runs.len(), 2);
}
