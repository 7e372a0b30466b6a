//! Packages that are refused, and directories that are no plugins.

use super::*;

/// Plans an archive, and checks that it cannot be installed because of a violation at a place.
async fn check_refused(fixture: &Fixture, archive: Vec<u8>, place: &str) {
    let planned = plan(fixture, archive).await;
    assert_eq!(planned.plan_digest, "", "{}", planned.text);
    let places: Vec<&str> = planned
        .violations
        .iter()
        .map(|found| &*found.path)
        .collect();
    let named = places.iter().any(|found| found.contains(place));
    assert!(named, "{place}: {:?}", planned.violations);
    assert_eq!(code_of(&roll(fixture).await), "unknown_tool");
}

#[tokio::test]
async fn a_package_that_breaks_a_rule_has_a_plan_with_the_reasons() {
    let fixture = empty().await;
    check_refused(&fixture, b"no archive".to_vec(), "").await;
    let escaping = [("plugin.yaml", MANIFEST), ("../evil.py", "")];
    check_refused(&fixture, zip(escaping), "../evil.py").await;
    let mut wrong = dice("1");
    wrong[0].1 = "name: dice\ntools: {entry: tools}\npermissions: {fly: true}\n".to_owned();
    wrong[1].1 = "{}".to_owned();
    let planned = plan(&fixture, zip(wrong)).await;
    let places: Vec<&str> = planned
        .violations
        .iter()
        .map(|found| &*found.path)
        .collect();
    for place in ["plugin.yaml/permissions/fly", "tools/roll.tool.json"] {
        let named = places.iter().any(|found| found.starts_with(place));
        assert!(named, "{place}: {places:?}");
    }
}

#[tokio::test]
async fn r108_a_package_whose_tool_has_an_id_that_is_taken_is_refused() {
    let fixture = empty().await;
    let tool = TOOL.replace("dice:roll", "system:get_current_time");
    let mut files = dice("1");
    files[1].1 = tool;
    let planned = plan(&fixture, zip(files)).await;
    assert_eq!(planned.plan_digest, "", "{}", planned.text);
    assert!(
        planned.text.contains("system:get_current_time"),
        "{}",
        planned.text
    );
    put(&fixture, zip(dice("1"))).await;
    let mut files = dice("2");
    files[0].1 = MANIFEST.replace("dice", "other");
    let planned = plan(&fixture, zip(files)).await;
    assert_eq!(planned.plan_digest, "", "{}", planned.text);
    assert_eq!(rolled(&fixture).await, 1);
}

#[tokio::test]
async fn a_permission_that_does_not_work_yet_refuses_the_install_by_its_name() {
    let fixture = empty().await;
    let mut files = dice("1");
    let network = "permissions:\n  network:\n    - {host: api.example.com, reason: Reads.}\n";
    files[0].1 = format!("{MANIFEST}{network}");
    let planned = plan(&fixture, zip(files)).await;
    assert_eq!(planned.plan_digest, "");
    let named = |found: &contracts::tavern::common::v1::LoadDiagnostic| {
        found.message.contains("network:api.example.com:443")
    };
    assert!(
        planned.violations.iter().any(named),
        "{:?}",
        planned.violations
    );
}

#[tokio::test]
async fn a_directory_that_is_no_plugin_cannot_be_planned() {
    let fixture = empty().await;
    for directory in ["nothing", "..", "a/b", "."] {
        let refused = plan_directory(&fixture, directory).await.unwrap_err();
        assert_eq!(refused.code(), Code::NotFound, "{directory}");
    }
}
