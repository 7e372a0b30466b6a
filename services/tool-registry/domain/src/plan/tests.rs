use std::{collections::BTreeMap, sync::Arc};

use approval_rules::EffectClass;
use semver::Version;
use serde_json::{Map, Value, json};

use super::*;
use crate::{
    definition::{self, Definition},
    hook_point::HookPoint,
    manifest::{self, Manifest},
    tool::Origin,
};

const CITY_WEATHER: &str = include_str!("../../tests/fixtures/city_weather.yaml");
const PLAN: &str = include_str!("../../tests/fixtures/plan.json");
const TOOLS: &str = include_str!("../../tests/fixtures/plugin_tools.json");
const NEW_DIGEST: &str = "sha256:08d02cb6dbcac5eeb698caf9d236fd326b1f7081467e6a7fe118b998d14d5b1b";
const OLD_DIGEST: &str = "sha256:7b13d2af3b6479080c67c5530c51b06fc7fecfc4ff35bb6fb663ad9bb222aaf0";

/// A version of a plugin with all that it borrows.
#[derive(Clone)]
struct Case {
    manifest: Manifest,
    tools: Vec<Arc<Definition>>,
    nodes: Vec<String>,
    files: Vec<PackedFile>,
    digest: &'static str,
}

impl Case {
    fn new(manifest: &str, tools: &[Value], digest: &'static str) -> Self {
        let tools = tools
            .iter()
            .map(|tool| definition::read_value(tool.clone()).map(Arc::new));
        Self {
            manifest: manifest::read(manifest).expect("a manifest"),
            tools: tools.collect::<Result<_, _>>().expect("tools"),
            nodes: Vec::new(),
            files: Vec::new(),
            digest,
        }
    }

    fn with_files(mut self, files: &[(&str, u64, &str)]) -> Self {
        let file = |(path, size, sha256): &(&str, u64, &str)| PackedFile {
            path: (*path).to_owned(),
            size: *size,
            sha256: (*sha256).to_owned(),
        };
        self.files = files.iter().map(file).collect();
        self
    }

    fn version(&self) -> PluginVersion<'_> {
        PluginVersion {
            manifest: &self.manifest,
            tools: &self.tools,
            nodes: &self.nodes,
            libraries: None,
            files: &self.files,
            package_digest: self.digest,
        }
    }
}

/// The surroundings of a plan.
struct Around {
    tavern: Version,
    held: Vec<HeldName>,
    effects: BTreeMap<String, EffectClass>,
    hooks: Vec<ChainedHook>,
    dependents: Dependents,
    option_values: Map<String, Value>,
}

impl Default for Around {
    fn default() -> Self {
        Self {
            tavern: Version::new(0, 6, 0),
            held: Vec::new(),
            effects: BTreeMap::from([(
                "system:get_current_time".to_owned(),
                EffectClass::ReadOnly,
            )]),
            hooks: Vec::new(),
            dependents: Dependents::default(),
            option_values: Map::new(),
        }
    }
}

impl Around {
    fn input<'a>(&'a self, in_force: Option<&'a Case>, new: &'a Case) -> PlanInput<'a> {
        PlanInput {
            source: "archive",
            expire_time: "2026-11-23T09:00:00Z",
            in_force: in_force.map(Case::version),
            new: new.version(),
            tavern: &self.tavern,
            held: &self.held,
            effects: &self.effects,
            hooks: &self.hooks,
            dependents: &self.dependents,
            option_values: &self.option_values,
        }
    }

    fn plan(&self, in_force: Option<&Case>, new: &Case) -> Plan {
        make(&self.input(in_force, new))
    }
}

fn tool_file(name: &str) -> Value {
    let tools: Value = serde_json::from_str(TOOLS).expect("JSON");
    let mut tool = tools[name].clone();
    // Time limits stand in the implementation at present.
    tool.as_object_mut().expect("an object").remove("timeout");
    tool
}

/// The example, new and in force: the one in force has another script, fewer files and permissions.
fn city_weather() -> (Case, Case) {
    let tools = [
        tool_file("forecast.tool.json"),
        tool_file("send_warning.tool.json"),
    ];
    let new = Case {
        nodes: vec!["city-weather:WeatherCard".to_owned()],
        ..Case::new(CITY_WEATHER, &tools, NEW_DIGEST)
    };
    let new = new.with_files(&[
        ("plugin.yaml", 2841, "a1"),
        ("scripts/metric_units.py", 800, "b1"),
        ("tools/forecast.tool.json", 1210, "c1"),
        ("workflows/morning_report.json", 500, "d1"),
    ]);
    let mut text = CITY_WEATHER.replace("version: 1.4.0", "version: 1.3.2");
    let later = [
        "    - point: hook:server:tool:before-call\n      reason: Adds the unit that the user chose.\n",
        "    - point: hook:server:tool:after-call\n      reason: Removes coordinates from answers.\n",
        "    override: [tool-search]\n",
        "  tools:\n    call: [system:get_current_time]\n",
        "  files:\n    workspace: read\n",
        "  storage:\n    bytes: 16777216\n",
    ];
    for line in later {
        assert!(text.contains(line), "{line}");
        text = text.replacen(line, "", 1);
    }
    let old = Case::new(&text, &tools[..1], OLD_DIGEST).with_files(&[
        ("plugin.yaml", 2841, "a0"),
        ("tools/forecast.tool.json", 1210, "c0"),
        ("workflows/morning_report.json", 500, "d1"),
    ]);
    (old, new)
}

fn around_city_weather() -> Around {
    Around {
        hooks: vec![ChainedHook {
            plugin: "audit-tags".to_owned(),
            id: "tag".to_owned(),
            point: HookPoint::ToolBeforeCall,
            order: 50,
        }],
        dependents: Dependents {
            profiles: vec!["weather_guide".to_owned()],
            workflows: vec!["morning_report".to_owned()],
            plugins: Vec::new(),
        },
        ..Around::default()
    }
}

#[test]
fn the_plan_of_the_example_has_the_json_of_the_design() {
    let (old, new) = city_weather();
    let plan = around_city_weather().plan(Some(&old), &new);
    let found = serde_json::to_value(&plan).unwrap();
    let design: Value = serde_json::from_str(PLAN).unwrap();
    let expected = &design["plan"];
    let keys = |value: &Value| {
        value
            .as_object()
            .unwrap()
            .keys()
            .cloned()
            .collect::<Vec<_>>()
    };
    assert_eq!(keys(&found), keys(expected));
    for key in [
        "plugin",
        "version",
        "package_digest",
        "source",
        "expire_time",
        "replaces",
        "nodes",
        "workflows",
        "hooks",
        "overrides",
        "permissions",
        "conflicts",
        "dependents",
    ] {
        assert_eq!(found[key], expected[key], "{key}");
    }
    for key in ["added", "changed", "removed"] {
        assert_eq!(found["files"][key], expected["files"][key], "{key}");
    }
    // The digests of tools are of the definitions as they are written today.
    for (found, expected) in plan.tools.iter().zip(expected["tools"].as_array().unwrap()) {
        let mut found = serde_json::to_value(found).unwrap();
        found["digest"] = expected["digest"].clone();
        assert_eq!(found, *expected);
    }
    let options = expected["config_options"].as_array().unwrap();
    for option in options {
        assert!(
            found["config_options"].as_array().unwrap().contains(option),
            "{option}"
        );
    }
    assert_eq!(found["config_options"][0], options[0]);
    for remark in expected["remarks"].as_array().unwrap() {
        assert!(
            found["remarks"].as_array().unwrap().contains(remark),
            "{remark}"
        );
    }
    // Each permission that does not work yet stops the plan, and so does the secret option.
    let codes: Vec<_> = plan
        .violations
        .iter()
        .map(|each| each.code.as_str())
        .collect();
    assert_eq!(codes, ["permission_not_yet"; 5]);
    assert!(!plan.is_installable());
    let read: Plan = serde_json::from_value(found).unwrap();
    assert_eq!(read, plan);
}

#[test]
fn the_same_change_has_the_same_digest_whenever_it_is_planned() {
    let (old, new) = city_weather();
    let around = around_city_weather();
    let plan = around.plan(Some(&old), &new);
    let again = make(&PlanInput {
        expire_time: "2027-01-01T00:00:00Z",
        ..around.input(Some(&old), &new)
    });
    assert_eq!(plan.digest(), again.digest());
    assert!(plan.digest().starts_with("sha256:") && plan.digest().len() == 71);
    let mut other = plan.clone();
    other.permissions[0].reason.push('!');
    assert_ne!(other.digest(), plan.digest());
    assert_ne!(around.plan(None, &new).digest(), plan.digest());
}

#[test]
fn only_a_plan_that_can_be_installed_has_a_digest() {
    let case = |name: &str| Case::new(&format!("name: {name}\n"), &[], NEW_DIGEST);
    let mut plan = Around::default().plan(None, &case("p"));
    assert_eq!(plan.plan_digest, plan.digest());
    let text = render::text(&plan);
    assert!(
        text.contains("\nPlan from archive, to be decided before 2026"),
        "{text}"
    );
    assert!(text.ends_with(&format!("\nPlan digest {}\n", plan.plan_digest)));
    let refused = Around::default().plan(None, &case("core"));
    plan.refuse([PlanRemark {
        code: "no_tools".to_owned(),
        pointer: "plugin.yaml/tools/entry".to_owned(),
        message: "there is no tool".to_owned(),
    }]);
    for plan in [plan, refused] {
        assert_eq!(plan.plan_digest, "");
        let text = render::text(&plan);
        assert!(!text.contains("Plan digest"), "{text}");
    }
}

fn simple(flags: &Value) -> Value {
    let mut tool = json!({"id": "p:run", "description": "Runs.", "parameters": {"type": "object"},
        "implementation": {"type": "script", "command": "python run.py"}});
    for (key, value) in flags.as_object().expect("an object") {
        tool[key] = value.clone();
    }
    tool
}

#[test]
fn r109_only_new_permissions_and_weaker_effects_need_a_person() {
    let case = |manifest: &str, flags: Value| {
        Case::new(
            &format!("name: p\n{manifest}"),
            &[simple(&flags)],
            OLD_DIGEST,
        )
    };
    let plain = case("", json!({}));
    let reads = case("permissions: {files: {workspace: read}}\n", json!({}));
    let writes = case("permissions: {files: {workspace: write}}\n", json!({}));
    let of_backend = |flags: Value| {
        let method = json!({"type": "service", "service": "shop", "method": "a.Shop/Buy"});
        let mut tool = simple(&flags);
        tool["implementation"] = method;
        Case::new("name: p\n", &[tool], OLD_DIGEST)
    };
    let method = of_backend(json!({}));
    let read_only = of_backend(json!({"readOnly": true}));
    let destructive = of_backend(json!({"destructive": true}));
    let own_script = case("", json!({"readOnly": true}));
    let by = |backend: &str| {
        let stand_in = format!("services: {{override: {{tool-search: {{backend: {backend}}}}}}}\n");
        let permission = "permissions: {services: {override: [tool-search]}}\n";
        case(&format!("{stand_in}{permission}"), json!({}))
    };
    let (by_one, by_other) = (by("one"), by("other"));
    for (before, after, count) in [
        (None, &plain, 0),
        (None, &reads, 1),
        (Some(&plain), &plain, 0),
        (Some(&plain), &reads, 1),
        (Some(&writes), &reads, 0),
        (Some(&reads), &writes, 1),
        (Some(&method), &read_only, 1),
        (Some(&read_only), &method, 0),
        (Some(&method), &destructive, 0),
        (Some(&destructive), &method, 1),
        (Some(&plain), &by_one, 1),
        (Some(&by_one), &by_one, 0),
        (Some(&by_one), &by_other, 1),
        // A script has no effects, so that it may declare them away (rule R012).
        (Some(&plain), &own_script, 0),
    ] {
        let before = before.map(Case::version);
        let reasons = approval::reasons(before.as_ref(), &after.version());
        assert_eq!(reasons.len(), count, "{reasons:?}");
    }
}

#[test]
fn the_classes_of_a_change_name_what_differs() {
    let plan = |flags: Value| {
        let before = Case::new("name: p\n", &[simple(&json!({}))], OLD_DIGEST);
        let after = Case::new("name: p\n", &[simple(&flags)], OLD_DIGEST);
        Around::default()
            .plan(Some(&before), &after)
            .tools
            .remove(0)
    };
    for (flags, classes) in [
        (
            json!({"description": "Runs far."}),
            vec![ChangeClass::Description],
        ),
        (
            json!({"parameters": {"type": "object", "properties": {"a": {}}}}),
            vec![ChangeClass::SchemaNarrower],
        ),
        (
            json!({"returns": {"type": "string"}}),
            vec![ChangeClass::Output],
        ),
        (
            json!({"examples": [{"input": {}}]}),
            vec![ChangeClass::Examples],
        ),
        (json!({"idempotent": true}), vec![ChangeClass::Effects]),
        (
            json!({"securityContext": {"networkAccess": {"allowHosts": []}}}),
            vec![ChangeClass::Permissions],
        ),
        (json!({"tags": ["a"]}), vec![ChangeClass::Description]),
        (
            json!({"implementation": {"type": "script", "command": "python go.py", "timeout": "3s"}}),
            vec![ChangeClass::Implementation, ChangeClass::Timeout],
        ),
    ] {
        let tool = plan(flags);
        assert_eq!((tool.change, tool.classes), (Change::Changed, classes));
    }
    let kept = plan(json!({}));
    assert_eq!((kept.change, kept.classes.len()), (Change::Kept, 0));
}

fn held(kind: NameKind, id: &str, owner: Origin) -> HeldName {
    HeldName {
        kind,
        id: id.to_owned(),
        alias: match kind {
            NameKind::Tool => call_catalogue::alias_of(id),
            _ => String::new(),
        },
        owner,
    }
}

/// Plans a plugin with one tool, and compares kind, owner and likeness of the conflicts.
#[track_caller]
fn check_conflicts(id: &str, held: Vec<HeldName>, expected: &[(&str, &str, &str)]) {
    let mut tool = simple(&json!({}));
    tool["id"] = json!(id);
    let case = Case::new("name: city-weather\n", &[tool], NEW_DIGEST);
    let around = Around {
        held,
        ..Around::default()
    };
    let plan = around.plan(None, &case);
    let found: Vec<_> = (plan.conflicts.iter())
        .map(|each| (each.kind.as_str(), each.held_by.as_str(), each.how.as_str()))
        .collect();
    assert_eq!(found, expected, "{id}");
    assert_eq!(plan.is_installable(), expected.is_empty());
}

const FORECAST: &str = "city-weather:forecast";

#[test]
fn r108_a_name_that_another_owner_holds_stops_the_plan() {
    let pro = || Origin::Plugin("weather-pro".to_owned());
    let squashed = "equal after squashing to cityweatherforecast";
    for (id, held, expected) in [
        (
            FORECAST,
            held(NameKind::Tool, "CityWeather_Forecast", pro()),
            ("tool_id", "plugin:weather-pro", squashed),
        ),
        (
            "city-weather:fоrecast",
            held(NameKind::Tool, FORECAST, Origin::Registered),
            (
                "tool_id",
                "registered",
                "looks like 'city-weather:forecast'",
            ),
        ),
        (
            "read_file",
            held(NameKind::Tool, "read_file", Origin::Builtin),
            ("tool_id", "builtin", "the same name"),
        ),
        (
            FORECAST,
            held(NameKind::Plugin, "cityweather", pro()),
            (
                "plugin",
                "plugin:weather-pro",
                "equal after squashing to cityweather",
            ),
        ),
    ] {
        check_conflicts(id, vec![held], &[expected]);
    }
    let alias = call_catalogue::alias_of(FORECAST);
    let other = HeldName {
        alias: alias.clone(),
        ..held(NameKind::Tool, "other", pro())
    };
    let how = format!("equal to '{alias}', the alias of 'other'");
    check_conflicts(
        FORECAST,
        vec![other],
        &[("alias", "plugin:weather-pro", &how)],
    );
}

#[test]
fn names_of_the_plugin_itself_and_of_another_kind_are_no_conflicts() {
    let own = Origin::Plugin("city-weather".to_owned());
    let pro = Origin::Plugin("weather-pro".to_owned());
    let names = vec![
        held(NameKind::Tool, FORECAST, own.clone()),
        held(NameKind::Plugin, "city-weather", own),
        held(NameKind::NodeType, FORECAST, pro),
    ];
    check_conflicts(FORECAST, names, &[]);
}

#[test]
fn r108_a_plugin_conflicts_with_the_platform_and_with_itself() {
    let mut twice = Case::new("name: system\n", &[simple(&json!({}))], NEW_DIGEST);
    let mut twin = simple(&json!({}));
    twin["id"] = json!("P_Run");
    twice
        .tools
        .push(definition::read_value(twin).unwrap().into());
    let mut reserved = simple(&json!({}));
    reserved["id"] = json!("system:run");
    twice
        .tools
        .push(definition::read_value(reserved).unwrap().into());
    let conflicts = Around::default().plan(None, &twice).conflicts;
    let kinds: Vec<_> = (conflicts.iter())
        .map(|each| (each.kind.as_str(), each.held_by.as_str()))
        .collect();
    let expected = [
        ("plugin", "platform"),
        ("tool_id", "plugin:system"),
        ("tool_id", "platform"),
    ];
    assert_eq!(kinds, expected);
}

#[test]
fn a_version_that_does_not_fit_and_values_that_are_dropped_are_named() {
    let case = |version: &str, digest| {
        let text = format!(
            "apiVersion: tavern/v1\nname: p\nversion: '{version}'\nrequires: {{tavern: '<0.5'}}\nnodes: {{entry: nodes}}\n\
             configOptions: [{{key: extensions.p.x, type: integer, maximum: 3, required: true}}]\n"
        );
        Case::new(
            &text,
            &[simple(
                &json!({"securityContext": {"networkAccess": {"allowHosts": ["x.org"]}}}),
            )],
            digest,
        )
        .with_files(&[("nodes/card.ts", 5, "a")])
    };
    let around = Around {
        option_values: json!({"extensions.p.x": 9}).as_object().unwrap().clone(),
        ..Around::default()
    };
    let plan = around.plan(Some(&case("1.1.0", OLD_DIGEST)), &case("1.0.9", NEW_DIGEST));
    let codes = |remarks: &[PlanRemark]| -> Vec<String> {
        let each = remarks.iter().map(|each| each.code.clone());
        each.filter(|code| code != "not_supported" && code != "not_granted")
            .collect()
    };
    assert_eq!(
        codes(&plan.violations),
        ["version_out_of_range", "beyond_permissions"]
    );
    assert_eq!(
        codes(&plan.remarks),
        ["version_lower", "not_loadable", "option_dropped"]
    );
    assert!(
        plan.config_options[0]
            .state
            .starts_with("missing, required")
    );
    let plan = around.plan(Some(&case("1.1.0", OLD_DIGEST)), &case("1.1.0", NEW_DIGEST));
    assert_eq!(codes(&plan.remarks)[0], "version_repeated");
    let plan = around.plan(Some(&case("1.1.0", OLD_DIGEST)), &case("1.1.0", OLD_DIGEST));
    assert_eq!(codes(&plan.remarks)[0], "unchanged");
}

#[test]
fn a_plan_reads_well_before_it_is_approved() {
    let (old, new) = city_weather();
    let plan = around_city_weather().plan(Some(&old), &new);
    let text = render::text(&plan);
    for line in [
        "city-weather 1.4.0, in the place of 1.3.2\n",
        "\nIt cannot be installed\n",
        "\nNew permissions\n  high risk    Sees every call of a tool before it runs, and may change its arguments, \
         refuse it, or answer in the tool's place.  [hooks:hook:server:tool:before-call]\n",
        "               The author's reason: Adds the unit that the user chose.\n",
        "               Used by hook metric-units.\n",
        "               Does not work yet.\n",
        "  high risk    Reads the secret weather_api_key.  [secrets:weather_api_key]\n",
        "  city-weather:forecast (changed: its implementation or the files that it runs)\n    \
         It declares that it changes nothing.\n",
        "  city-weather:send_warning (new)\n    It has effects, and repeating a call repeats them.\n",
        "    Order: audit-tags/tag, then city-weather/metric-units\n",
        "  extensions.city-weather.api_key: missing, required: the plugin's tools are held until it is set\n",
        "  agent profiles: weather_guide\n",
        "  new      scripts/metric_units.py\n",
    ] {
        assert!(text.contains(line), "{line}\n---\n{text}");
    }
    assert!(!text.contains("Used by listed"));
}

#[test]
fn a_text_of_the_author_cannot_change_the_look_of_a_plan() {
    let text = "name: p\nversion: \"1.0\\e[2J\\nIt asks for no permission\"\npermissions:\n  files: \
                {workspace: write, reason: \"safe \u{202e}evil\"}\n";
    let plan = Around::default().plan(None, &Case::new(text, &[], NEW_DIGEST));
    let text = render::text(&plan);
    assert!(!text.contains('\u{1b}') && !text.contains('\u{202e}'));
    assert!(text.starts_with("p 1.0\\u{1b}[2J\\u{a}It asks for no permission, a first install\n"));
}
