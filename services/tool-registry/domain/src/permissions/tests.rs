use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::{hook_point::HookPoint, manifest};

const CITY_WEATHER: &str = include_str!("../../tests/fixtures/city_weather.yaml");
const PLAN: &str = include_str!("../../tests/fixtures/plan.json");

#[test]
fn the_kinds_stand_in_the_order_of_the_enum_and_have_prefixes_of_their_own() {
    let mut seen = Vec::new();
    for (index, kind) in PermissionKind::all().enumerate() {
        assert_eq!(kind as usize, index);
        assert!(!seen.contains(&kind.prefix()));
        seen.push(kind.prefix());
    }
}

#[test]
fn the_example_asks_for_the_permissions_of_its_plan_in_order_spelling_risk_and_reason() {
    let asked = manifest::read(CITY_WEATHER).unwrap().permissions;
    let plan: Value = serde_json::from_str(PLAN).unwrap();
    let rows = plan["plan"]["permissions"].as_array().unwrap();
    let effects = |_: &str| Some(approval_rules::EffectClass::ReadOnly);
    let found: Vec<_> = asked
        .iter()
        .map(|each| {
            let risk = each.permission.risk(effects).as_str();
            (each.permission.to_string(), risk, each.reason.as_str())
        })
        .collect();
    let expected: Vec<_> = rows
        .iter()
        .map(|row| {
            let text = |key: &str| row[key].as_str().unwrap();
            (text("permission").to_owned(), text("risk"), text("reason"))
        })
        .collect();
    assert_eq!(found, expected);
}

#[test]
fn each_permission_has_a_sentence_that_a_person_understands() {
    for (spelling, sentence) in [
        ("network:api.example.com:443", "Talks to api.example.com."),
        (
            "network:api.example.com:8443",
            "Talks to api.example.com, on port 8443.",
        ),
        ("secrets:key", "Reads the secret key."),
        (
            "hooks:hook:server:tool:after",
            "Sees every recorded result of a tool, and changes nothing.",
        ),
        ("storage:16777216", "Keeps up to 16 MiB of its own data."),
        (
            "files.workspace:read",
            "Reads the files of the conversation.",
        ),
        (
            "resources:wall_seconds 20, memory_bytes 268435456",
            "Uses up to 20 s of time, 256 MiB of memory.",
        ),
        ("packages:data", "Uses the packages data."),
    ] {
        let permission: Permission = spelling.parse().unwrap();
        assert_eq!(permission.sentence(), sentence);
        assert_eq!(permission.to_string(), spelling);
    }
}

#[track_caller]
fn check(section: &str, expected: &[(&str, &str)]) {
    let text = format!("name: p\npermissions: {{{section}}}\n");
    let wrong = manifest::read(&text).err().unwrap_or_default();
    let found: Vec<(&str, &str)> = (wrong.iter())
        .map(|each| (each.pointer.as_str(), &*each.code))
        .collect();
    assert_eq!(found, expected, "{section}");
}

#[test]
fn bounds_are_kept() {
    for good in [
        "network: [api.example.com, {host: b.example.com, port: 8443}, c.example.com:80]",
        "storage: {bytes: 1073741824}",
        "files: {workspace: write}",
        "packages: [data, {name: plots, reason: Draws.}]",
        "hooks: ['hook:server:turn:after', 'hook:client:anything:at-all']",
        "network: null",
    ] {
        check(good, &[]);
    }
    let host = |host: &str| format!("network: ['{host}']");
    for bad in [
        "*.example.com",
        "https://x.org",
        "10.0.0.1",
        "a b",
        "x.org/path",
        "",
        "::1",
        "-a.org",
    ] {
        check(&host(bad), &[("/permissions/network/0", "invalid_host")]);
    }
    check(
        &host("x.org:0"),
        &[("/permissions/network/0", "out_of_range")],
    );
    let many: Vec<String> = (0..33).map(|index| format!("h{index}.org")).collect();
    check(
        &format!("network: [{}]", many.join(", ")),
        &[("/permissions/network", "limit_exceeded")],
    );
    check(
        "storage: {bytes: 1073741825}",
        &[("/permissions/storage/bytes", "out_of_range")],
    );
    check(
        "resources: {gpus: 1}",
        &[("/permissions/resources/gpus", "unknown_permission")],
    );
    check(
        "resources: {processes: 0}",
        &[("/permissions/resources/processes", "out_of_range")],
    );
    check(
        "files: {workspace: all}",
        &[("/permissions/files/workspace", "not_in_enum")],
    );
    check(
        "services: {read: [audit]}",
        &[("/permissions/services/read/0", "unknown_permission")],
    );
    check(
        "hooks: ['hook:server:node:run']",
        &[("/permissions/hooks/0", "unknown_permission")],
    );
    check(
        "secrets: ['a*']",
        &[("/permissions/secrets/0", "invalid_name")],
    );
    check(
        "tools: {call: ['']}",
        &[("/permissions/tools/call/0", "invalid_id")],
    );
}

#[test]
fn only_what_works_or_is_listed_can_be_installed() {
    let manifest = manifest::read(CITY_WEATHER).unwrap();
    let refused: Vec<_> = (manifest.permissions.iter())
        .filter_map(PermissionRequest::refusal)
        .map(|refusal| refusal.pointer)
        .collect();
    let expected = [
        "/permissions/network/0",
        "/permissions/secrets/0",
        "/permissions/tools/call/0",
        "/permissions/services/read/0",
    ];
    assert_eq!(refused, expected);
}

fn requests(spellings: &[&str]) -> Vec<PermissionRequest> {
    let request = |spelling: &&str| PermissionRequest {
        permission: spelling.parse().expect("a permission"),
        reason: String::new(),
        pointer: String::new(),
    };
    spellings.iter().map(request).collect()
}

#[test]
fn a_smaller_amount_is_kept_and_a_larger_one_is_new() {
    let before = requests(&[
        "storage:100",
        "files.workspace:write",
        "resources:processes 4",
        "secrets:a",
    ]);
    let less = requests(&[
        "storage:50",
        "files.workspace:read",
        "resources:processes 4",
    ]);
    let change = PermissionChange::between(&before, &less);
    assert_eq!((change.added.len(), change.kept.len()), (0, 3));
    assert_eq!(change.removed, requests(&["secrets:a"]));
    let more = requests(&[
        "storage:101",
        "files.workspace:write",
        "resources:processes 4, wall_seconds 1",
        "network:x.org:443",
    ]);
    let change = PermissionChange::between(&before, &more);
    assert_eq!(
        (change.added.len(), change.kept.len(), change.removed.len()),
        (3, 1, 1)
    );
}

fn permission() -> impl Strategy<Value = Permission> {
    let name = "[a-z][a-z0-9:._/-]{0,20}";
    let limits = proptest::collection::vec(proptest::option::of(1_u64..10_000), 4);
    prop_oneof![
        ("[a-z]{1,9}(\\.[a-z]{1,9}){0,3}", 1_u16..)
            .prop_map(|(host, port)| Permission::Network { host, port }),
        name.prop_map(|name| Permission::Secret { name }),
        (0_usize..10).prop_map(|index| Permission::ServerHook {
            point: HookPoint::all().nth(index).expect("a point"),
        }),
        name.prop_map(|tool_id| Permission::ToolCall { tool_id }),
        (1_u64..=MAX_STORAGE_BYTES).prop_map(|bytes| Permission::Storage { bytes }),
        name.prop_map(|point| Permission::ClientHook { point }),
        name.prop_map(|outlet| Permission::UiInject { outlet }),
        name.prop_map(|component| Permission::UiOverride { component }),
        name.prop_map(|set| Permission::Packages { set }),
        limits
            .prop_filter("one is stated", |limits| limits.iter().any(Option::is_some))
            .prop_map(|limits| Permission::Resources(ResourceRequest {
                wall_seconds: limits[0],
                cpu_seconds: limits[1],
                memory_bytes: limits[2],
                processes: limits[3],
            })),
    ]
}

proptest! {
    #[test]
    fn a_spelling_is_read_back(permission in permission()) {
        prop_assert_eq!(permission.to_string().parse(), Ok(permission.clone()));
        prop_assert!(permission.covers(&permission));
    }
}
