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
    let expected = [
        ("/frontend", "not_supported"),
        ("/permissions/hooks/0", "client_hook_listed"),
    ];
    assert_eq!(found, expected);
    let asked: Vec<String> = manifest
        .permissions
        .iter()
        .map(|request| request.permission.to_string())
        .collect();
    let expected = [
        "hooks:hook:client:workflow:before-execute",
        "ui.inject:node:header:right",
        "ui.wrap:ui:BaseNode",
    ];
    assert_eq!(asked, expected);
    assert!(
        manifest
            .permissions
            .iter()
            .all(|each| each.reason.is_empty())
    );
}

#[test]
fn a_name_is_all_that_a_plugin_needs_and_unknown_keys_are_remarked() {
    let manifest = read("name: p\nversion: 1.5\nicon: star\n").unwrap();
    assert_eq!(manifest.display_name, "p");
    assert_eq!(manifest.version, "1.5");
    let found: Vec<_> = manifest
        .diagnostics
        .iter()
        .map(|each| each.code.as_str())
        .collect();
    assert_eq!(found, ["version_form", "unknown_key"]);
    assert!(manifest.diagnostics[1].message.contains("'icon'"));
}

#[test]
fn a_remark_on_a_version_says_why_it_is_none() {
    for (version, reason) in [
        (
            "1.5",
            "unexpected end of input while parsing minor version number",
        ),
        (
            "'1.5'",
            "unexpected end of input while parsing minor version number",
        ),
        ("v1.4.0", "unexpected character 'v'"),
        ("'1.4.01'", "invalid leading zero in patch version number"),
    ] {
        let manifest = read(&format!("name: p\nversion: {version}\n")).unwrap();
        let message = &manifest.diagnostics[0].message;
        assert!(message.contains(reason), "{message}");
        assert!(!message.contains("in quotes"), "{message}");
    }
    for version in ["1.4.0", "'1.4.0'", "1.4.0-rc.1"] {
        let manifest = read(&format!("name: p\nversion: {version}\n")).unwrap();
        assert_eq!(manifest.diagnostics, []);
    }
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
        "name: p\npermissions:\n  devices: true\n  models: [x]\n",
        &[
            ("/permissions/devices", "unknown_permission"),
            ("/permissions/models", "unknown_permission"),
        ],
    );
    check(
        "name: p\npermissions:\n  ui:\n    replace: [x]\n  hooks: yes\n  services: all\n",
        &[
            ("/permissions/hooks", "type_mismatch"),
            ("/permissions/ui/replace", "unknown_permission"),
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

/// The example of the design, whole.
const CITY_WEATHER: &str = include_str!("../../tests/fixtures/city_weather.yaml");

#[test]
fn the_whole_example_is_read() {
    let manifest = read(CITY_WEATHER).unwrap();
    assert!(manifest.is_strict);
    assert_eq!(manifest.license, "MIT");
    let range = manifest.requires_tavern.as_ref().unwrap();
    assert!(range.matches(&Version::new(0, 5, 0)) && !range.matches(&Version::new(1, 0, 0)));
    let entries = [
        &manifest.nodes_entry,
        &manifest.tools_entry,
        &manifest.workflows_entry,
    ];
    assert_eq!(
        entries.map(|entry| entry.as_deref().unwrap()),
        ["nodes", "tools", "workflows"]
    );
    let frontend = &manifest.frontend;
    assert_eq!(frontend.entry.as_deref(), Some("dist/index.js"));
    assert_eq!(frontend.styles, ["dist/style.css"]);
    assert_eq!(frontend.outlets[0].outlet, "node:header:right");
    assert_eq!(frontend.wraps[0].component, "WeatherFrame");
    let hooks = &manifest.hooks;
    assert_eq!((hooks[0].order, hooks[0].timeout.as_millis()), (100, 300));
    assert_eq!(hooks[0].on_failure, OnFailure::Skip);
    assert!(
        matches!(&hooks[0].handler, HookHandler::Script(program) if program.entry == "scripts/metric_units.py")
    );
    assert_eq!(hooks[1].handler, HookHandler::Backend("alerts".to_owned()));
    assert_eq!(
        (hooks[1].timeout.as_millis(), hooks[1].on_failure),
        (500, OnFailure::Deny)
    );
    assert_eq!(manifest.overrides[0].fallback, Fallback::Builtin);
    let keys: Vec<_> = manifest
        .options
        .iter()
        .map(|option| option.name.as_str())
        .collect();
    assert_eq!(keys, ["units", "cities", "api_key", "cache_minutes"]);
    let remarks: Vec<_> = (manifest.diagnostics.iter())
        .filter(|each| each.code != "not_supported")
        .map(|each| (each.path.as_str(), each.code.as_str()))
        .collect();
    let expected = [
        ("/permissions/hooks/2", "client_hook_listed"),
        ("/frontend/wraps/0", "ui_not_applied"),
        (
            "/permissions/services/override",
            "permission_without_reason",
        ),
    ];
    assert_eq!(remarks, expected);
}

#[test]
fn unknown_keys_are_mistakes_of_a_manifest_with_a_version() {
    let text = "name: p\nicon: star\nfrontend:\n  build:\n    entri: a.js\n  outlets:\n    - {outlet: x, component: Y, size: 3}\n";
    assert!(read(text).is_ok());
    check(
        &format!("apiVersion: tavern/v1\n{text}"),
        &[
            ("/frontend/build/entri", "unknown_key"),
            ("/frontend/outlets/0/size", "unknown_key"),
            ("/icon", "unknown_key"),
        ],
    );
    check(
        "apiVersion: tavern/v2\nname: p\n",
        &[("/apiVersion", "not_in_enum")],
    );
    check(
        "apiVersion: tavern/v1\nname: My_Plugin\n",
        &[("/name", "invalid_name")],
    );
    assert_eq!(
        read("name: My_Plugin\n").unwrap().diagnostics[0].code,
        "invalid_name"
    );
}

#[test]
fn mistakes_of_hooks_overrides_and_dependencies_are_named_at_once() {
    check(
        "name: p\nrequires: {tavern: new}\ndependencies: {runtime: ruby, lock: ../x}\n\
         hooks:\n  - {id: a b, point: 'tool:before', handler: {type: lua}}\n  \
         - {id: h, point: 'tool:before-call', when: 'result.x', timeout_ms: 9000, handler: {type: script, command: 'sh -c \"x\"'}}\n\
         services:\n  override:\n    search: {backend: b}\n    knowledge-base: {backend: b, fallback: builtin}\n",
        &[
            ("/requires/tavern", "invalid_range"),
            ("/dependencies/runtime", "not_in_enum"),
            ("/dependencies/lock", "invalid_path"),
            ("/hooks/0/id", "invalid_id"),
            ("/hooks/0/point", "not_in_enum"),
            ("/hooks/0/handler/type", "not_in_enum"),
            ("/hooks/1/when", "invalid_expression"),
            ("/hooks/1/handler/command", "invalid_command"),
            ("/hooks/1/timeout_ms", "out_of_range"),
            ("/services/override/search", "not_in_enum"),
            ("/services/override/knowledge-base/fallback", "not_in_enum"),
        ],
    );
    let lone = read(
        "name: p\nhooks:\n  - {id: h, point: 'turn:after', handler: {type: grpc, backend: b}}\n",
    );
    let found = lone.unwrap().diagnostics;
    assert!(
        found
            .iter()
            .any(|each| each.code == "permission_missing" && each.path == "/hooks/0")
    );
}

/// Calls `visit` with every pointer into a value.
fn each_place(value: &Value, pointer: &str, visit: &mut impl FnMut(&str)) {
    visit(pointer);
    let members: Vec<(String, &Value)> = match value {
        Value::Object(object) => object
            .iter()
            .map(|(key, value)| (key.clone(), value))
            .collect(),
        Value::Array(items) => (items.iter().enumerate())
            .map(|(index, item)| (index.to_string(), item))
            .collect(),
        _ => Vec::new(),
    };
    for (step, member) in members {
        each_place(member, &json_schema::pointer::join(pointer, &step), visit);
    }
}

#[test]
fn every_field_of_every_type_is_read_or_refused_at_its_place() {
    let root = Value::Object(yaml::mapping(CITY_WEATHER).unwrap());
    let wrong_values = [
        Value::Null,
        serde_json::json!(-3.5),
        serde_json::json!("?"),
        serde_json::json!([7]),
        serde_json::json!({"x": {"y": []}}),
        serde_json::json!(true),
    ];
    let mut places = Vec::new();
    each_place(&root, "", &mut |pointer| places.push(pointer.to_owned()));
    assert!(places.len() > 100);
    for pointer in places.iter().filter(|pointer| !pointer.is_empty()) {
        for wrong in &wrong_values {
            let mut changed = root.clone();
            *changed.pointer_mut(pointer).unwrap() = wrong.clone();
            let Value::Object(object) = &changed else {
                continue;
            };
            for violation in read_root(object).err().into_iter().flatten() {
                assert!(
                    violation.pointer.starts_with('/'),
                    "{pointer} {wrong}: {violation}"
                );
                assert!(!violation.message.is_empty());
            }
        }
        // A mapping is no value of any field but of those that are mappings.
        let mut changed = root.clone();
        let is_mapping = root.pointer(pointer).unwrap().is_object();
        *changed.pointer_mut(pointer).unwrap() = serde_json::json!({"x": {"y": []}});
        if let (false, Value::Object(object)) = (is_mapping, &changed) {
            assert!(read_root(object).is_err(), "{pointer} as a mapping");
        }
    }
}

#[test]
fn the_plugins_of_the_examples_are_read_without_a_remark() {
    for text in [
        include_str!("../../../../../deploy/plugins/bilibili-fetch/plugin.yaml"),
        include_str!("../../../../../deploy/plugins/seed-tools/plugin.yaml"),
    ] {
        assert_eq!(read(text).unwrap().diagnostics, []);
    }
}

proptest::proptest! {
    /// A piece of the example is cut out, and another is put in its place.
    #[test]
    fn no_text_of_a_manifest_is_a_panic(
        from in 0..CITY_WEATHER.len(),
        cut in 0_usize..60,
        at in 0..CITY_WEATHER.len(),
        length in 0_usize..40,
        more in "[ -~\n]{0,12}",
    ) {
        let part = |from: usize, to: usize| -> String {
            let bytes = &CITY_WEATHER.as_bytes()[from..to.min(CITY_WEATHER.len())];
            String::from_utf8_lossy(bytes).into_owned()
        };
        let (before, after) = (part(0, from), part((from + cut).min(CITY_WEATHER.len()), usize::MAX));
        let text = format!("{before}{}{more}{after}", part(at, at + length));
        match read(&text) {
            Ok(manifest) => proptest::prop_assert!(!manifest.name.as_str().is_empty()),
            Err(wrong) => proptest::prop_assert!(!wrong.is_empty()),
        }
    }
}
