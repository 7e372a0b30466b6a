//! Loading settings from files and variables, as a program does.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{collections::BTreeMap, ffi::OsString, net::SocketAddr, path::Path, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use settings::{Problems, Secret, Settings, SettingsError, Source, load_from};

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum Mode {
    #[default]
    Quick,
    Careful,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
struct Inner {
    listen: SocketAddr,
    /// The number of connections that
    /// are open at once.
    connections: u32,
    #[serde(with = "settings::DurationText")]
    limit: Duration,
    #[serde(with = "settings::SizeText")]
    message: usize,
}

impl Default for Inner {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 7000)),
            connections: 64,
            limit: Duration::from_secs(30),
            message: 4 << 20,
        }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
struct Example {
    /// The address to listen on. Default address: 127.0.0.1:7401.
    server: Inner,
    mode: Mode,
    name: String,
    tags: Vec<String>,
    ratio: f64,
    labels: BTreeMap<String, String>,
    api_key: Option<Secret>,
}

impl Default for Example {
    fn default() -> Self {
        let listen = SocketAddr::from(([127, 0, 0, 1], 7401));
        Self {
            server: Inner {
                listen,
                ..Inner::default()
            },
            mode: Mode::default(),
            name: String::new(),
            tags: vec!["default".to_owned()],
            ratio: 0.5,
            labels: BTreeMap::new(),
            api_key: None,
        }
    }
}

impl Settings for Example {
    const PREFIX: &'static str = "EXAMPLE";

    const REPLACED: &'static [(&'static str, &'static str)] =
        &[("server.earlier", "set server.limit")];

    fn check(&self, problems: &mut Problems) {
        if self.server.connections == 0 {
            problems.add("server.connections", "is 0", "give at least 1");
        }
    }
}

fn check(file: &str, vars: &[(&str, &str)]) -> Result<settings::Loaded<Example>, SettingsError> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("example.toml");
    std::fs::write(&path, file).unwrap();
    load_from(Some(&path), variables(vars), &[])
}

fn variables(vars: &[(&str, &str)]) -> Vec<(OsString, OsString)> {
    vars.iter()
        .map(|(name, value)| (OsString::from(name), OsString::from(value)))
        .collect()
}

fn problems(result: Result<settings::Loaded<Example>, SettingsError>) -> Vec<(String, String)> {
    let error = result.expect_err("the settings are wrong");
    error
        .problems
        .iter()
        .map(|problem| {
            (
                problem.key.clone(),
                format!("{}: {}", problem.what, problem.remedy),
            )
        })
        .collect()
}

#[test]
fn the_environment_overrides_the_file_and_the_file_the_defaults() {
    let loaded = check(
        "name = 'file'\nmode = 'careful'\n[server]\nconnections = 5\nlimit = '2m'\n",
        &[
            ("EXAMPLE__SERVER__CONNECTIONS", "9"),
            ("EXAMPLE__TAGS", "[a, b]"),
            ("OTHER__X", "1"),
        ],
    )
    .unwrap()
    .settings;
    assert_eq!(loaded.name, "file");
    assert_eq!(loaded.mode, Mode::Careful);
    assert_eq!(loaded.server.connections, 9);
    assert_eq!(loaded.server.limit, Duration::from_secs(120));
    assert_eq!(loaded.server.message, 4 << 20);
    assert_eq!(loaded.tags, ["a", "b"]);
}

#[test]
fn a_key_of_an_earlier_version_is_answered_with_its_remedy_wherever_it_is_set() {
    let expected = [(
        "server.earlier".to_owned(),
        "is no longer a setting: set server.limit".to_owned(),
    )];
    let file = check("[server]\nearlier = false\n", &[]);
    let environment = check("", &[("EXAMPLE__SERVER__EARLIER", "true")]);
    for loaded in [file, environment] {
        assert_eq!(problems(loaded), expected);
    }
}

#[test]
fn setting_one_field_leaves_the_programs_own_defaults_of_the_others() {
    let loaded = check("", &[("EXAMPLE__SERVER__CONNECTIONS", "9")])
        .unwrap()
        .settings;
    assert_eq!(loaded.server.listen.port(), 7401);
    assert_eq!(loaded.server.connections, 9);
    assert_eq!((loaded.ratio, loaded.tags.len()), (0.5, 1));
    assert!(loaded.api_key.is_none());
}

#[test]
fn a_variable_can_name_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("named.toml");
    std::fs::write(&path, "name = 'found'").unwrap();
    let loaded = load_from::<Example>(
        None,
        variables(&[("EXAMPLE_CONFIG", path.to_str().unwrap())]),
        &[],
    );
    assert_eq!(loaded.unwrap().settings.name, "found");
}

#[test]
fn a_text_that_looks_like_a_number_stays_a_text() {
    let loaded = check(
        "",
        &[
            ("EXAMPLE__NAME", "0123"),
            ("EXAMPLE__API_KEY", "12345"),
            ("EXAMPLE__RATIO", "0.1"),
            ("EXAMPLE__LABELS__BUILD", "true"),
        ],
    )
    .unwrap()
    .settings;
    assert_eq!(loaded.name, "0123");
    assert_eq!(loaded.api_key.unwrap().expose(), "12345");
    assert_eq!(loaded.ratio, 0.1);
    assert_eq!(loaded.labels["build"], "true");
}

#[test]
fn every_problem_is_reported_at_once_with_key_source_and_remedy() {
    let result = check(
        "mode = 'reckless'\nnmae = 'x'\n[server]\nlimit = 30\nconnections = 0\n",
        &[
            ("EXAMPLE__SERVER__LISTEN", "nowhere"),
            ("EXAMPLE__SERVER__LIMITS", "1s"),
        ],
    );
    let sources: Vec<Source> = result
        .as_ref()
        .unwrap_err()
        .problems
        .iter()
        .map(|found| found.source.clone())
        .collect();
    let found = problems(result);
    let expect = |key: &str, words: &str| {
        assert!(
            found
                .iter()
                .any(|(known, text)| known == key && text.contains(words)),
            "{key} with {words:?} in {found:#?}"
        );
    };
    expect("mode", "use one of quick, careful");
    expect("nmae", "is unknown: use name, or remove it");
    expect("server.limit", "is `30`: give a string");
    expect("server.connections", "is 0: give at least 1");
    expect("server.listen", "is");
    expect("server.limits", "use limit, or remove it");
    assert_eq!(found.len(), 6, "{found:#?}");
    assert!(sources.contains(&Source::Environment("EXAMPLE__SERVER__LISTEN".to_owned())));
    assert!(
        sources
            .iter()
            .any(|source| matches!(source, Source::File(_)))
    );
}

#[test]
fn a_bad_value_in_the_file_is_found_beneath_a_bad_variable() {
    let found = problems(check(
        "[server]\nconnections = 'many'\n",
        &[("EXAMPLE__SERVER__CONNECTIONS", "more")],
    ));
    assert_eq!(found.len(), 2, "{found:?}");
}

#[test]
fn a_file_that_is_absent_or_no_toml_is_named_with_the_line() {
    let absent = load_from::<Example>(Some(Path::new("/nonexistent/x.toml")), variables(&[]), &[]);
    assert!(problems(absent)[0].1.starts_with("cannot be read"));
    let broken = check("name = 'a'\napi_key = 'hunter2\n", &[]);
    let text = broken.as_ref().unwrap_err().to_string();
    assert!(text.contains("line 2"), "{text}");
    assert!(!text.contains("hunter2"), "{text}");
}

#[test]
fn a_value_under_a_secretive_key_is_not_shown() {
    let found = problems(check("api_key = 4711\n", &[]));
    assert!(!found[0].1.contains("4711"), "{found:?}");
}

#[test]
fn the_effective_settings_can_be_printed_and_read_back_without_secrets() {
    let loaded = check(
        "api_key = 'hunter2'\n[labels]\n'a.b' = 'x\"y'\n",
        &[("EXAMPLE__SERVER__CONNECTIONS", "9")],
    )
    .unwrap();
    let printed = loaded.effective("example", |_| true);
    assert!(!printed.contains("hunter2"), "{printed}");
    for part in [
        "# example: environment variables EXAMPLE__…\n",
        "api_key = \"[redacted]\"  # file ",
        "# server: The address to listen on. Default address: 127.0.0.1:7401.\n# The number of connections that are open at \
         once.\nserver.connections = 9  # environment variable EXAMPLE__SERVER__CONNECTIONS, default 64",
        "server.limit = \"30s\"  # default",
    ] {
        assert!(printed.contains(part), "{part} is not in {printed}");
    }
    assert_eq!(printed.matches("# server: ").count(), 1, "{printed}");
    let again = check(&printed, &[]).unwrap().settings;
    assert_eq!(again.server.connections, 9);
    assert_eq!(again.labels["a.b"], "x\"y");
}

#[test]
fn the_command_line_overrides_everything_and_is_named_as_the_source() {
    let load = |name: &str, listen: &str| {
        let vars = variables(&[("EXAMPLE__NAME", "variable")]);
        let flags = [
            ("name", name.to_owned()),
            ("server.listen", listen.to_owned()),
        ];
        load_from::<Example>(None, vars, &flags)
    };
    let printed = load("flag", "127.0.0.1:9")
        .unwrap()
        .effective("example", |_| true);
    for line in [
        "name = \"flag\"  # command line, default \"\"",
        "server.listen = \"127.0.0.1:9\"  # command line, default \"127.0.0.1:7401\"",
    ] {
        assert!(printed.contains(line), "{line} is not in {printed}");
    }
    let refused = load("flag", "nowhere").unwrap_err();
    assert_eq!(refused.problems[0].source, Source::CommandLine);
}

#[test]
fn variables_that_contradict_each_other_are_refused() {
    let found = problems(check(
        "",
        &[
            ("EXAMPLE__SERVER", "x"),
            ("EXAMPLE__SERVER__CONNECTIONS", "1"),
        ],
    ));
    assert!(
        found.iter().any(|(key, _)| key == "server.connections"),
        "{found:?}"
    );
}

/// Returns the problem that loading with one more variable reports.
fn problem_of(variable: &str) -> Option<String> {
    let vars = [(variable.into(), "1".into())];
    let error = settings::load_from::<Example>(None, vars, &[]).err()?;
    Some(error.to_string())
}

#[test]
fn a_misspelt_variable_is_a_problem_with_the_name_that_was_meant() {
    for (written, meant) in [
        (
            "TAVERN_SANDBX__LOWEST_ISOLATION",
            "TAVERN_SANDBOX__LOWEST_ISOLATION",
        ),
        (
            "TAVERN_GATWAY__SERVER__LISTEN",
            "TAVERN_GATEWAY__SERVER__LISTEN",
        ),
        ("TAVERN_REGISTRY_DATA_DIR", "TAVERN_REGISTRY__DATA_DIR"),
        (
            "TAVERN_SANDBOXES__USE_CGROUPS",
            "TAVERN_SANDBOX__USE_CGROUPS",
        ),
        ("TAVERN_NOTHING_LIKE_IT__X", "TAVERN_AGENT"),
        ("TAVERN_SANDBOX", "TAVERN_AGENT"),
    ] {
        let problem = problem_of(written).unwrap_or_default();
        assert!(
            problem.contains(written) && problem.contains(meant),
            "{written}: {problem}"
        );
    }
}

#[test]
fn the_variables_of_other_programs_and_platforms_are_none_of_ours() {
    for name in [
        "TAVERN_SANDBOX__LOWEST_ISOLATION",
        "TAVERN_AGENT_CONFIG",
        "TAVERN_CONFIG",
        "TAVERN__SERVER__LISTEN",
        "TAVERN_ADDRESS",
        "TAVERN_APPROVER_KEY",
        "TAVERN_APPROVER_KEY_FILE",
        "TAVERN_KEY_FILE",
        "TAVERN_TOKEN_FILE",
        "TAVERN_TEST_PYTHON",
        "TAVERN_GATEWAY_SERVICE_HOST",
        "TAVERN_GATEWAY_SERVICE_PORT_GRPC",
        "TAVERN_GATEWAY_PORT",
        "TAVERN_GATEWAY_PORT_7401_TCP_ADDR",
        "TAVERNA_X",
    ] {
        assert_eq!(problem_of(name), None, "{name}");
    }
}
