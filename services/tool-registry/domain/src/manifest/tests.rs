use super::*;

/// Seed 004 §6.2, verbatim.
const SEED_004_6_2: &str = r#"
# 插件的唯一标识符
name: my-awesome-plugin
displayName: 我的超棒插件
version: 1.0.0
description: 这个插件能极大地提升生产力。

# 声明此插件提供的后端节点
nodes:
  entry: ./nodes

# 声明此插件提供的工具
tools:
  entry: ./tools

# 声明此插件提供的前端资源
frontend:
  build:
    entry: dist/index.js
    styles: [dist/style.css]

# 声明插件需要的权限
permissions:
  hooks: ["hook:client:workflow:before-execute"]
  ui:
    wrap: ["ui:BaseNode"]
    inject: ["node:header:right"]
  services:
    override: []
"#;

#[test]
fn seed_004_6_2_is_read_whole() {
    let manifest = read(SEED_004_6_2).unwrap();
    assert_eq!(manifest.name.as_str(), "my-awesome-plugin");
    assert_eq!(manifest.display_name, "我的超棒插件");
    assert_eq!(manifest.version, "1.0.0");
    assert_eq!(manifest.tools_entry.as_deref(), Some("tools"));
    assert_eq!(manifest.nodes_entry.as_deref(), Some("nodes"));
    let found: Vec<_> = manifest
        .diagnostics
        .iter()
        .map(|each| (each.path.as_str(), each.code.as_str()))
        .collect();
    let not_supported = ["/nodes", "/frontend", "/permissions"].map(|path| (path, "not_supported"));
    assert_eq!(found, not_supported);
}

#[test]
fn a_name_is_all_that_a_plugin_needs_and_unknown_keys_are_remarked() {
    let manifest = read("name: p\nversion: 1.5\nauthor: someone\n").unwrap();
    assert_eq!(manifest.display_name, "p");
    assert_eq!(manifest.version, "1.5");
    assert!(manifest.diagnostics[0].message.contains("'author'"));
}

/// Reads a manifest and compares the places and codes of its problems.
fn check(text: &str, expected: &[(&str, &str)]) {
    let wrong = read(text).unwrap_err();
    let found: Vec<(&str, &str)> = wrong
        .iter()
        .map(|each| (each.pointer.as_str(), &*each.code))
        .collect();
    assert_eq!(found, expected, "{text}");
}

#[test]
fn every_mistake_of_a_manifest_is_named_at_once() {
    check("", &[("", "type_mismatch")]);
    check("- a\n- b\n", &[("", "type_mismatch")]);
    check("name: [", &[("", "malformed_yaml")]);
    check("displayName: x\n", &[("/name", "invalid_name")]);
    check("name: ../p\n", &[("/name", "invalid_name")]);
    check("name: p\nname: q\n", &[("", "malformed_yaml")]);
    check(
        "name: p\ntools:\n  entry: ../../etc\nnodes: 5\nfrontend:\n  build:\n    entry: /abs.js\n    styles: [a/../../b]\n",
        &[
            ("/tools/entry", "invalid_path"),
            ("/nodes/entry", "missing_parameter"),
            ("/frontend/build/entry", "invalid_path"),
            ("/frontend/build/styles/0", "invalid_path"),
        ],
    );
    check(
        "name: p\nconfigOptions:\n  - key: extensions.p.limit\n  - key: extensions.other.limit\n  - label: x\n",
        &[
            ("/configOptions/1/key", "invalid_key"),
            ("/configOptions/2/key", "invalid_key"),
        ],
    );
}

#[test]
fn an_unknown_permission_is_refused_not_ignored() {
    check(
        "name: p\npermissions:\n  network: true\n",
        &[("/permissions/network", "unknown_permission")],
    );
    check(
        "name: p\npermissions:\n  ui:\n    replace: [x]\n  hooks: yes\n  services: all\n",
        &[
            ("/permissions/ui/replace", "unknown_permission"),
            ("/permissions/hooks", "type_mismatch"),
            ("/permissions/services", "type_mismatch"),
        ],
    );
}

#[test]
fn aliases_that_multiply_tags_depth_and_size_are_refused() {
    let mut bomb = String::from("name: p\na0: &a0 [x, x]\n");
    for level in 1..10 {
        let before = level - 1;
        bomb.push_str(&format!(
            "a{level}: &a{level} [*a{before}, *a{before}, *a{before}]\n"
        ));
    }
    check(&bomb, &[("", "limit_exceeded")]);
    check("name: !!python/object p\n", &[("", "tag")]);
    check("name: p\nx: [!local y]\n", &[("", "tag")]);
    assert!(read("name: p\ndescription: \"*a* and !b\"\nversion: 1 * 2 ! 3\n").is_ok());
    let deep = format!("name: p\nx: {}{}\n", "[".repeat(20), "]".repeat(20));
    assert_eq!(read(&deep).unwrap_err()[0].code, "too_deep");
    check(
        &format!("name: p\ndescription: {}\n", "x".repeat(MAX_MANIFEST_BYTES)),
        &[("", "too_large")],
    );
}
