//! The plugin directory, whose changes take force while the registry runs (rules R105 and R109).

use std::{fs, path::PathBuf, time::Duration};

use contracts::tavern::common::v1::Severity;

use super::*;

fn write(fixture: &Fixture, directory: &str, files: &[(&str, String)]) -> PathBuf {
    let plugin = fixture.plugins.join(directory);
    for (path, content) in files {
        let path = plugin.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    plugin
}

/// Waits until the tool answers with a number.
async fn until_rolled(fixture: &Fixture, number: i64) {
    until(fixture, async || {
        let result = roll(fixture).await;
        result.output_json == number.to_string()
    })
    .await;
}

async fn until(fixture: &Fixture, condition: impl AsyncFn() -> bool) {
    for _ in 0..600 {
        if condition().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("it did not happen: {:?}", listed(fixture).await);
}

/// Waits until the plugin of a directory has a finding with a code.
async fn until_found(fixture: &Fixture, directory: &str, code: &str) -> Plugin {
    let found = async || {
        let mut plugins = listed(fixture).await.into_iter();
        plugins.find(|plugin| {
            let mut codes = plugin.diagnostics.iter().map(|found| &found.code);
            plugin.directory == directory && codes.any(|found| found == code)
        })
    };
    until(fixture, async || found().await.is_some()).await;
    found().await.unwrap()
}

async fn watched() -> Fixture {
    let fixture = empty().await;
    fixture.recover().await;
    fixture
}

#[tokio::test]
async fn r109_a_changed_script_is_in_force_without_a_restart() {
    let fixture = watched().await;
    let plugin = write(&fixture, "dice", &dice("1"));
    until_rolled(&fixture, 1).await;
    fs::write(plugin.join("roll.py"), "print(2)").unwrap();
    until_rolled(&fixture, 2).await;
    fs::remove_dir_all(plugin).unwrap();
    until(&fixture, async || {
        code_of(&roll(&fixture).await) == "tool_removed"
    })
    .await;
}

#[tokio::test]
async fn r109_broken_files_leave_the_plugin_in_force_also_after_a_restart() {
    let mut fixture = watched().await;
    let plugin = write(&fixture, "dice", &dice("1"));
    until_rolled(&fixture, 1).await;
    fs::write(
        plugin.join("plugin.yaml"),
        "name: dice\nversion: []\ntools: 3\n",
    )
    .unwrap();
    fs::write(plugin.join("tools/roll.tool.json"), "{").unwrap();
    for _ in 0..2 {
        let broken = until_found(&fixture, "dice", "malformed_json").await;
        let places: Vec<&str> = broken
            .diagnostics
            .iter()
            .map(|found| &*found.path)
            .collect();
        for place in [
            "plugin.yaml/version",
            "plugin.yaml/tools",
            "tools/roll.tool.json",
        ] {
            let named = places.iter().any(|found| found.starts_with(place));
            assert!(named, "{place}: {:?}", broken.diagnostics);
        }
        assert!(broken.loaded && broken.has_changes);
        assert_eq!(rolled(&fixture).await, 1);
        fixture.crash_and_restart().await;
        fixture.recover().await;
    }
    write(&fixture, "dice", &dice("3"));
    until_rolled(&fixture, 3).await;
    assert!(!the_dice(&fixture).await.has_changes);
}

#[tokio::test]
async fn r109_a_change_that_asks_for_more_waits_for_a_person() {
    let fixture = watched().await;
    write(&fixture, "dice", &dice("1"));
    until_rolled(&fixture, 1).await;
    let mut asking = dice("2");
    asking[0].1 = format!("{MANIFEST}permissions:\n  resources: {{wall_seconds: 20}}\n");
    write(&fixture, "dice", &asking);
    let waiting = until_found(&fixture, "dice", "approval_needed").await;
    assert!(waiting.loaded && waiting.has_changes);
    assert_eq!(waiting.permissions, Vec::<String>::new());
    assert_eq!(rolled(&fixture).await, 1);
    let planned = plan_directory(&fixture, "dice").await.unwrap();
    install(&fixture, &planned.plan_digest).await.unwrap();
    assert_eq!(rolled(&fixture).await, 2);
    let plugin = the_dice(&fixture).await;
    assert_eq!(
        (plugin.permissions.len(), plugin.directory.as_str()),
        (1, "dice")
    );
    // Less than was approved needs no person.
    write(&fixture, "dice", &dice("3"));
    until_rolled(&fixture, 3).await;
}

#[tokio::test]
async fn r105_a_plugin_that_asks_waits_for_a_person_or_for_the_lock() {
    let fixture = watched().await;
    let mut asking = dice("2");
    asking[0].1 = format!("{MANIFEST}permissions:\n  resources: {{wall_seconds: 20}}\n");
    write(&fixture, "dice", &asking);
    let waiting = until_found(&fixture, "dice", "approval_needed").await;
    assert!(!waiting.loaded);
    let finding = &waiting.diagnostics[0];
    assert_eq!(finding.severity(), Severity::Warning);
    let command = "`tavern plugins plan dice`";
    assert!(finding.message.contains(command), "{finding:?}");
    let planned = plan_directory(&fixture, "dice").await.unwrap();
    let plan: Value = serde_json::from_str(&planned.plan_json).unwrap();
    let lock = json!({"plugins": [{"name": "dice", "package_digest": plan["package_digest"]}]});
    fs::write(fixture.plugins.join("plugins.lock"), lock.to_string()).unwrap();
    until_rolled(&fixture, 2).await;
}

#[tokio::test]
async fn files_that_no_plan_could_install_are_not_in_force() {
    let fixture = watched().await;
    write(&fixture, "dice", &dice("1"));
    until_rolled(&fixture, 1).await;
    let mut other_version = dice("2");
    other_version[0].1 = format!("{MANIFEST}requires: {{tavern: '>=9'}}\n");
    write(&fixture, "dice", &other_version);
    until_found(&fixture, "dice", "version_out_of_range").await;
    let mut reserved = dice("3");
    reserved[0].1 = MANIFEST.replace("dice", "core");
    write(&fixture, "reserved", &reserved);
    let refused = until_found(&fixture, "reserved", "conflict").await;
    assert!(!refused.loaded);
    assert_eq!(refused.diagnostics[0].severity(), Severity::Error);
    assert_eq!(rolled(&fixture).await, 1);
}

#[tokio::test]
async fn a_removed_plugin_of_the_directory_stays_away_until_its_files_change() {
    let mut fixture = watched().await;
    write(&fixture, "dice", &dice("1"));
    until_rolled(&fixture, 1).await;
    let request = UninstallPluginRequest {
        name: "dice".into(),
        ..UninstallPluginRequest::default()
    };
    service(&fixture).uninstall_plugin(request).await.unwrap();
    until_found(&fixture, "dice", "plugin_removed").await;
    fixture.crash_and_restart().await;
    fixture.recover().await;
    until_found(&fixture, "dice", "plugin_removed").await;
    assert_eq!(code_of(&roll(&fixture).await), "tool_removed");
    write(&fixture, "dice", &dice("2"));
    until_rolled(&fixture, 2).await;
}

#[tokio::test]
async fn a_rollback_holds_until_the_files_of_the_directory_change() {
    let fixture = watched().await;
    write(&fixture, "dice", &dice("1"));
    until_rolled(&fixture, 1).await;
    write(&fixture, "dice", &dice("2"));
    until_rolled(&fixture, 2).await;
    let request = RollbackPluginRequest {
        name: "dice".into(),
        ..RollbackPluginRequest::default()
    };
    service(&fixture).rollback_plugin(request).await.unwrap();
    until_found(&fixture, "dice", "plugin_replaced").await;
    assert_eq!(rolled(&fixture).await, 1);
    write(&fixture, "dice", &dice("3"));
    until_rolled(&fixture, 3).await;
}
