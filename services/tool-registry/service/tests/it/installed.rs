//! Plugins that people install, set, switch and remove, and changes of the plugin directory (rules R102 to R115).

mod bad;
mod directory;
mod options;
mod switches;

use std::io::{Cursor, Write};

use contracts::tavern::{
    common::v1::{CallResult, CallStatus},
    registry::v1::{
        InstallPluginRequest, InstallPluginResponse, ListPluginsRequest, PlanPluginHeader,
        PlanPluginRequest, Plugin, PluginPlan, RollbackPluginRequest, SetPluginStateRequest,
        ToolChange, ToolChangeKind, UninstallPluginRequest, WatchPluginsRequest, WatchToolsRequest,
        plan_plugin_request::Part, plugin_service_client::PluginServiceClient,
    },
};
use grpc_kit::Outbound;
use serde_json::{Value, json};
use tonic::{Code, Status};
use zip::{ZipWriter, write::SimpleFileOptions};

use crate::fixture::{Fixture, code_of};

/// A tool that answers with the text of its script.
const TOOL: &str = r#"{"id": "dice:roll", "description": "rolls", "readOnly": true, "idempotent": true,
    "parameters": {"type": "object"}, "implementation": {"type": "script", "command": "python roll.py"}}"#;

const MANIFEST: &str = "name: dice\nversion: 1.0.0\ntools: {entry: tools}\n";

/// Returns a plugin whose tool answers with a number.
fn dice(number: &str) -> Vec<(&'static str, String)> {
    vec![
        ("plugin.yaml", MANIFEST.to_owned()),
        ("tools/roll.tool.json", TOOL.to_owned()),
        ("roll.py", format!("print({number})")),
    ]
}

fn zip<'a>(files: impl IntoIterator<Item = (&'a str, impl AsRef<[u8]>)>) -> Vec<u8> {
    let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
    for (path, content) in files {
        archive
            .start_file(path, SimpleFileOptions::default())
            .unwrap();
        archive.write_all(content.as_ref()).unwrap();
    }
    archive.finish().unwrap().into_inner()
}

fn service(fixture: &Fixture) -> PluginServiceClient<Outbound> {
    let registry = fixture.registry.as_ref().unwrap();
    PluginServiceClient::new(grpc_kit::local(&registry.services()).outermost())
}

async fn plan(fixture: &Fixture, archive: Vec<u8>) -> PluginPlan {
    let part = |part| PlanPluginRequest { part: Some(part) };
    let mut messages = vec![part(Part::Header(PlanPluginHeader::default()))];
    messages.extend(
        archive
            .chunks(1 << 20)
            .map(|piece| part(Part::Chunk(piece.to_vec()))),
    );
    let mut plugins = service(fixture);
    let planned = plugins.plan_plugin(futures::stream::iter(messages)).await;
    planned.unwrap().into_inner().plan.unwrap()
}

async fn plan_directory(fixture: &Fixture, directory: &str) -> Result<PluginPlan, Status> {
    let header = PlanPluginHeader {
        directory: directory.to_owned(),
    };
    let message = PlanPluginRequest {
        part: Some(Part::Header(header)),
    };
    let mut plugins = service(fixture);
    let planned = plugins.plan_plugin(futures::stream::iter([message])).await;
    Ok(planned?.into_inner().plan.unwrap())
}

async fn install(fixture: &Fixture, plan_digest: &str) -> Result<InstallPluginResponse, Status> {
    let request = InstallPluginRequest {
        plan_digest: plan_digest.to_owned(),
        request_id: format!("install {plan_digest}"),
    };
    let installed = service(fixture).install_plugin(request).await?;
    Ok(installed.into_inner())
}

/// Plans and installs an archive.
async fn put(fixture: &Fixture, archive: Vec<u8>) -> InstallPluginResponse {
    let planned = plan(fixture, archive).await;
    assert_eq!(planned.violations, [], "{}", planned.text);
    install(fixture, &planned.plan_digest).await.unwrap()
}

async fn rolled(fixture: &Fixture) -> Value {
    let result = fixture.call("dice:roll", json!({})).await;
    assert_eq!(result.status(), CallStatus::Succeeded, "{result:?}");
    serde_json::from_str(&result.output_json).unwrap()
}

async fn roll(fixture: &Fixture) -> CallResult {
    fixture.call("dice:roll", json!({})).await
}

async fn listed(fixture: &Fixture) -> Vec<Plugin> {
    let mut catalogue = fixture.catalogue.clone();
    let listed = catalogue.list_plugins(ListPluginsRequest {}).await;
    listed.unwrap().into_inner().plugins
}

/// Returns the plugin that the tests install.
async fn the_dice(fixture: &Fixture) -> Plugin {
    let mut plugins = listed(fixture).await.into_iter();
    plugins.find(|plugin| plugin.name == "dice").unwrap()
}

/// A registry with an empty plugin directory.
async fn empty() -> Fixture {
    Fixture::with_scripts(&[]).await
}

#[tokio::test]
async fn a_package_is_planned_installed_called_and_there_after_a_restart() {
    let mut fixture = empty().await;
    let planned = plan(&fixture, zip(dice("4"))).await;
    assert_eq!(
        (planned.plugin.as_str(), &planned.violations[..]),
        ("dice", &[][..])
    );
    assert!(planned.text.contains("dice:roll"), "{}", planned.text);
    let json: Value = serde_json::from_str(&planned.plan_json).unwrap();
    assert_eq!(json["tools"][0]["tool_id"], "dice:roll");
    assert_eq!(json["tools"][0]["change"], "added");
    // A plan changes nothing.
    assert_eq!(code_of(&roll(&fixture).await), "unknown_tool");
    let installed = install(&fixture, &planned.plan_digest).await.unwrap();
    assert_eq!(installed.plugin.unwrap().tool_ids, ["dice:roll"]);
    assert_eq!(rolled(&fixture).await, 4);
    let again = install(&fixture, &planned.plan_digest).await.unwrap();
    assert!(again.replayed && again.revision == installed.revision);
    assert_eq!(again.plugin.unwrap().name, "dice");
    fixture.crash_and_restart().await;
    assert_eq!(rolled(&fixture).await, 4);
    let plugin = the_dice(&fixture).await;
    assert_eq!(
        (plugin.version.as_str(), plugin.directory.as_str()),
        ("1.0.0", "")
    );
}

#[tokio::test]
async fn r106_an_update_replaces_the_package_and_a_rollback_brings_it_back() {
    let mut fixture = empty().await;
    let mut revisions = vec![0];
    for number in 1..=6 {
        revisions.push(put(&fixture, zip(dice(&number.to_string()))).await.revision);
        assert_eq!(rolled(&fixture).await, number);
    }
    assert!(revisions.is_sorted_by(|a, b| a < b), "{revisions:?}");
    // The last three are kept.
    let earlier = the_dice(&fixture).await.earlier_digests;
    assert_eq!(earlier.len(), 3);
    let back = |package_digest: &str| RollbackPluginRequest {
        name: "dice".into(),
        package_digest: package_digest.into(),
        request_id: String::new(),
    };
    service(&fixture).rollback_plugin(back("")).await.unwrap();
    assert_eq!(rolled(&fixture).await, 5);
    service(&fixture)
        .rollback_plugin(back(&earlier[2]))
        .await
        .unwrap();
    assert_eq!(rolled(&fixture).await, 3);
    fixture.crash_and_restart().await;
    assert_eq!(rolled(&fixture).await, 3);
    let unknown = service(&fixture).rollback_plugin(back("sha256:00")).await;
    let unknown = unknown.unwrap_err();
    assert_eq!(unknown.code(), Code::NotFound);
    assert!(unknown.message().contains("earlier package"), "{unknown}");
}

#[tokio::test]
async fn r110_the_tools_of_a_removed_plugin_say_that_they_are_gone() {
    let mut fixture = empty().await;
    put(&fixture, zip(dice("4"))).await;
    let mut request = UninstallPluginRequest {
        name: "dice".into(),
        validate_only: true,
        ..UninstallPluginRequest::default()
    };
    let removed = service(&fixture)
        .uninstall_plugin(request.clone())
        .await
        .unwrap();
    assert_eq!(removed.into_inner().tool_ids, ["dice:roll"]);
    assert_eq!(rolled(&fixture).await, 4);
    request.validate_only = false;
    request.request_id = "remove".into();
    service(&fixture)
        .uninstall_plugin(request.clone())
        .await
        .unwrap();
    let replayed = service(&fixture).uninstall_plugin(request).await.unwrap();
    assert!(replayed.into_inner().replayed);
    for _ in 0..2 {
        let gone = roll(&fixture).await;
        assert_eq!(code_of(&gone), "tool_removed", "{gone:?}");
        let message = gone.error.unwrap().message;
        assert!(message.contains("dice"), "{message}");
        fixture.crash_and_restart().await;
    }
    put(&fixture, zip(dice("5"))).await;
    assert_eq!(rolled(&fixture).await, 5);
}

#[tokio::test]
async fn r106_a_plan_that_would_be_another_one_by_now_is_stale() {
    let fixture = empty().await;
    let first = plan(&fixture, zip(dice("1"))).await;
    let second = plan(&fixture, zip(dice("2"))).await;
    assert_ne!(first.plan_digest, second.plan_digest);
    // The same change is the same plan.
    assert_eq!(
        plan(&fixture, zip(dice("2"))).await.plan_digest,
        second.plan_digest
    );
    install(&fixture, &second.plan_digest).await.unwrap();
    for digest in [&first.plan_digest, "sha256:00"] {
        let stale = install(&fixture, digest).await.unwrap_err();
        assert_eq!(stale.code(), Code::FailedPrecondition);
        assert_eq!(
            grpc_kit::reason(&stale).unwrap().as_str_name(),
            "ERROR_REASON_PLAN_STALE"
        );
    }
    assert_eq!(rolled(&fixture).await, 2);
}

#[tokio::test]
async fn the_oldest_of_too_many_plans_make_room() {
    let fixture = empty().await;
    let mut digests = Vec::new();
    for number in 0..=64 {
        fixture.clock.advance(std::time::Duration::from_secs(1));
        let planned = plan(&fixture, zip(dice(&number.to_string()))).await;
        digests.push(planned.plan_digest);
    }
    let stale = install(&fixture, &digests[0]).await.unwrap_err();
    assert_eq!(stale.code(), Code::FailedPrecondition);
    install(&fixture, &digests[1]).await.unwrap();
    assert_eq!(rolled(&fixture).await, 1);
}

#[tokio::test]
async fn a_plan_is_stale_after_a_day() {
    let fixture = empty().await;
    let planned = plan(&fixture, zip(dice("1"))).await;
    fixture
        .clock
        .advance(std::time::Duration::from_secs(24 * 60 * 60));
    let stale = install(&fixture, &planned.plan_digest).await.unwrap_err();
    assert_eq!(
        grpc_kit::reason(&stale).unwrap().as_str_name(),
        "ERROR_REASON_PLAN_STALE"
    );
}

#[tokio::test]
async fn a_watch_shows_the_plugins_at_once_and_after_each_change() {
    let fixture = empty().await;
    let mut watch = service(&fixture)
        .watch_plugins(WatchPluginsRequest {})
        .await;
    let watch = watch.as_mut().unwrap().get_mut();
    let mut next = async || {
        let shown = watch.message().await.unwrap().unwrap();
        let mut names = shown.plugins.into_iter().map(|plugin| plugin.name);
        (shown.revision, names.any(|name| name == "dice"))
    };
    let (first, is_there) = next().await;
    assert!(!is_there);
    let installed = put(&fixture, zip(dice("1"))).await;
    assert_eq!(next().await, (installed.revision, true));
    assert!(installed.revision > first);
}

#[tokio::test]
async fn r508_a_watch_shows_every_tool_at_once_and_then_each_change() {
    let fixture = empty().await;
    let mut watch = service(&fixture).watch_tools(WatchToolsRequest {}).await;
    let watch = watch.as_mut().unwrap().get_mut();
    let mut next = async || {
        let mut changes = Vec::new();
        loop {
            let shown = watch.message().await.unwrap().unwrap();
            changes.extend(shown.changes);
            if shown.complete {
                return changes;
            }
        }
    };
    let first = next().await;
    let is_present = |change: &ToolChange| change.kind() == ToolChangeKind::Present;
    assert!(first.iter().all(is_present), "{first:?}");
    assert!(
        first
            .iter()
            .any(|change| change.tool_id.starts_with("system:"))
    );

    let mut expect = async |kind: ToolChangeKind, inactive: &str| {
        let [change] = <[_; 1]>::try_from(next().await).unwrap();
        assert_eq!((change.kind(), &*change.tool_id), (kind, "dice:roll"));
        assert_eq!(
            (&*change.plugin, &*change.inactive_code),
            ("dice", inactive)
        );
        assert_eq!(inactive.is_empty(), change.inactive_reason.is_empty());
    };
    put(&fixture, zip(dice("1"))).await;
    expect(ToolChangeKind::Added, "").await;
    put(&fixture, zip(dice("2"))).await;
    expect(ToolChangeKind::Changed, "").await;
    for (enabled, inactive) in [(false, "tool_not_available"), (true, "")] {
        let name = "dice".into();
        let request = SetPluginStateRequest { name, enabled };
        service(&fixture).set_plugin_state(request).await.unwrap();
        expect(ToolChangeKind::State, inactive).await;
    }
    let request = UninstallPluginRequest {
        name: "dice".into(),
        ..UninstallPluginRequest::default()
    };
    service(&fixture).uninstall_plugin(request).await.unwrap();
    expect(ToolChangeKind::Removed, "").await;
}

#[tokio::test]
async fn a_registry_without_plugins_has_none_in_force_and_forgets_none() {
    let mut fixture = empty().await;
    put(&fixture, zip(dice("4"))).await;
    fixture.without_plugins = true;
    fixture.crash_and_restart().await;
    assert_eq!(code_of(&roll(&fixture).await), "unknown_tool");
    assert_eq!(listed(&fixture).await, []);
    let planned = plan(&fixture, zip(dice("5"))).await;
    let refused = install(&fixture, &planned.plan_digest).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    fixture.without_plugins = false;
    fixture.crash_and_restart().await;
    assert_eq!(rolled(&fixture).await, 4);
}

#[tokio::test]
async fn calls_see_the_old_or_the_new_package_while_it_is_updated() {
    let fixture = empty().await;
    put(&fixture, zip(dice("0"))).await;
    let (last, seen) = (30, std::sync::Mutex::new(Vec::new()));
    let update = async {
        for number in 1..=last {
            put(&fixture, zip(dice(&number.to_string()))).await;
        }
    };
    let call = async {
        loop {
            let number = rolled(&fixture).await.as_i64().unwrap();
            seen.lock().unwrap().push(number);
            if number == last {
                return;
            }
        }
    };
    futures::join!(update, call);
    let seen = seen.into_inner().unwrap();
    assert!(seen.is_sorted(), "{seen:?}");
}
