//! Crates and modules that name forbidden crates.

use tidy::{edges, purity};

use super::{check, manifest};

/// One crate: its directory and its dependencies.
type Crate<'a> = (&'a str, &'a [&'a str]);

/// The crates that the cases below depend on.
const COMMON: [Crate<'static>; 6] = [
    ("shared/contracts", &[]),
    ("shared/core-types", &["serde"]),
    ("shared/call-text", &[]),
    ("shared/sql-store", &[]),
    ("services/script-sandbox/launcher", &[]),
    ("tests/testkit", &["contracts"]),
];

/// The name of the crate in a directory: of the part `a/b` of a service `a-b`.
fn name_of(root: &str) -> String {
    match root.strip_prefix("services/") {
        Some(own) => own.trim_end_matches("/service").replace('/', "-"),
        None => root.rsplit('/').next().unwrap_or_default().to_owned(),
    }
}

#[track_caller]
fn check_edges(crates: &[Crate<'_>], expected: &[(&str, &str, &str)]) {
    let files: Vec<(String, String)> = COMMON
        .iter()
        .chain(crates)
        .map(|(root, dependencies)| {
            let name = name_of(root);
            (format!("{root}/Cargo.toml"), manifest(&name, dependencies))
        })
        .collect();
    let files: Vec<(&str, &str)> = files
        .iter()
        .map(|(path, text)| (path.as_str(), text.as_str()))
        .collect();
    check(edges::between_crates, &files, expected);
}

#[test]
fn edges_that_go_down_pass() {
    check_edges(
        &[
            ("shared/run-log", &["core-types", "sql-store"]),
            ("services/gateway", &["contracts", "call-text"]),
            (
                "services/script-sandbox/service",
                &["script-sandbox-launcher"],
            ),
            (
                "services/all-in-one",
                &["cli", "gateway", "script-sandbox", "call-text"],
            ),
            ("services/cli", &["contracts", "core-types"]),
            ("tests/e2e", &["gateway", "testkit", "call-text"]),
        ],
        &[],
    );
}

#[test]
fn edges_that_go_up_or_across_are_found() {
    check_edges(
        &[
            ("shared/run-log", &["contracts"]),
            ("shared/novelty", &[]),
            ("shared/settings", &["gateway"]),
            ("services/gateway", &["script-sandbox-launcher", "testkit"]),
            ("services/script-sandbox/service", &["call-text"]),
            (
                "services/script-sandbox/protocol",
                &["script-sandbox-launcher"],
            ),
            ("services/tool-registry/novelty", &[]),
            ("services/cli", &["call-text", "script-sandbox"]),
            ("services/workflow-execution/service", &["cli"]),
        ],
        &[
            (
                "shared/run-log/Cargo.toml",
                "must not depend on `contracts`",
                "core-types, sql-store",
            ),
            (
                "shared/novelty/Cargo.toml",
                "no place in the layers",
                "SHARED",
            ),
            (
                "shared/settings/Cargo.toml",
                "must not depend on `gateway`",
                "knows no service",
            ),
            (
                "services/gateway/Cargo.toml",
                "must not depend on `script-sandbox-launcher`",
                "meet over gRPC",
            ),
            (
                "services/gateway/Cargo.toml",
                "must not depend on `testkit`",
                "tests/e2e",
            ),
            (
                "services/script-sandbox/service/Cargo.toml",
                "must not depend on `call-text`",
                "ask the gateway",
            ),
            (
                "services/script-sandbox/protocol/Cargo.toml",
                "must not depend on `script-sandbox-launcher`",
                "the parts below it",
            ),
            (
                "services/tool-registry/novelty/Cargo.toml",
                "has no part `novelty`",
                "PARTS",
            ),
            (
                "services/cli/Cargo.toml",
                "must not depend on `call-text`",
                "ships alone",
            ),
            (
                "services/cli/Cargo.toml",
                "must not depend on `script-sandbox`",
                "meet over gRPC",
            ),
            (
                "services/workflow-execution/service/Cargo.toml",
                "must not depend on `cli`",
                "meet over gRPC",
            ),
        ],
    );
}

#[test]
fn only_the_tests_of_a_service_meet_other_services_and_doubles() {
    let develops = |name: &str, dependency: &str| {
        manifest(name, &[]) + &format!("[dev-dependencies]\n{dependency}.workspace = true\n")
    };
    let gateway = "services/gateway/Cargo.toml";
    let settings = "shared/settings/Cargo.toml";
    for (path, written, found) in [
        (gateway, develops("gateway", "tool-registry"), None),
        (gateway, develops("gateway", "doubles"), None),
        (gateway, develops("gateway", "testkit"), Some("tests/e2e")),
        (
            gateway,
            manifest("gateway", &["doubles"]),
            Some("development"),
        ),
        (
            gateway,
            manifest("gateway", &["tool-registry"]),
            Some("development"),
        ),
        (
            settings,
            develops("settings", "tool-registry"),
            Some("knows no service"),
        ),
        (settings, develops("settings", "doubles"), Some("tests/e2e")),
    ] {
        let registry = manifest("tool-registry", &[]);
        let (doubles, testkit) = (manifest("doubles", &[]), manifest("testkit", &[]));
        let tree = [
            (
                "services/tool-registry/service/Cargo.toml",
                registry.as_str(),
            ),
            ("tests/doubles/Cargo.toml", &doubles),
            ("tests/testkit/Cargo.toml", &testkit),
            (path, &written),
        ];
        match found {
            None => check(edges::between_crates, &tree, &[]),
            Some(remedy) => {
                check(
                    edges::between_crates,
                    &tree,
                    &[(path, "must not depend on", remedy)],
                );
            }
        }
    }
}

#[test]
fn a_second_client_of_calls_or_child_runs_is_found() {
    let source = "//! Sends .call_tool( nothing.\nasync fn f(mut c: C) {\n    c.clone()\n        .call_tool(r)\n        .await;\n    c.watch_run(r).await;\n    let s = \".cancel_run(\";\n}\n";
    let (owner, part) = (
        "services/agent-runtime/service/src/a.rs",
        "shared/run-events/src/a.rs",
    );
    check(
        purity::within_run_client,
        &[
            (owner, source),
            (part, "fn f() { runs.cancel_run(request); }\n"),
            ("shared/run-client/src/remote.rs", source),
            ("services/gateway/src/rpc/a.rs", source),
            ("services/cli/src/a.rs", source),
            ("services/agent-runtime/service/tests/it/a.rs", source),
        ],
        &[
            (owner, "sends `call_tool` itself", "run-client"),
            (owner, "sends `watch_run` itself", "run-client"),
            (part, "sends `cancel_run` itself", "run-client"),
        ],
    );
}

#[test]
fn io_in_a_loop_of_runs_and_a_second_fold_of_events_are_found() {
    let (runner, service) = (
        "services/workflow-execution/runner/src",
        "services/workflow-execution/service",
    );
    let [loops, zones, drive, state, predict] = [
        "run_loop/ends.rs",
        "zone_loop.rs",
        "drive.rs",
        "run_state.rs",
        "predict.rs",
    ]
    .map(|file| format!("{runner}/{file}"));
    let [simulated, tested] =
        ["simulation/process.rs", "runs.rs"].map(|file| format!("{service}/tests/it/{file}"));
    let turn = "services/agent-runtime/turn-log/src/state.rs";
    let source = "//! Reads no clock.now().\nfn f() { let now = clock.now(); }\nfn g() { tokio::spawn(work); }\n";
    let folds = "fn f() { engine.apply(event, &mut commands); }\n";
    check(
        purity::within_loops,
        &[
            (&loops, source),
            (&zones, "fn f() { let chance = fastrand::f64(); }\n"),
            (turn, "fn f(recorder: &Recorder) {}\n"),
            (&drive, &format!("{source}{folds}")),
            (&state, folds),
            (&predict, folds),
            (&simulated, folds),
            (&tested, folds),
        ],
        &[
            (&drive, "second place", "`RunState::apply`"),
            (&format!("{loops}:2"), "names `.now()`", "arguments"),
            (&format!("{loops}:3"), "names `tokio`", "action"),
            (&zones, "names `fastrand`", "arguments"),
            (turn, "names `Recorder`", "driver"),
            (&simulated, "second place", "loop take"),
        ],
    );
}

#[test]
fn an_impure_domain_module_is_found() {
    let source = "//! Knows no tokio.\nuse prost_types::Any;\nfn f(_: tonic::Status) {}\nasync fn g() {}\nfn tokio_like() {}\nlet s = \"sqlx::query\";\n";
    check(
        purity::within_domain,
        &[
            ("services/gateway/src/domain/a.rs", source),
            ("services/gateway/src/rpc/a.rs", source),
            ("shared/a/src/domain/a.rs", source),
            ("services/a/domain/src/a.rs", "use tokio::time;\n"),
            ("shared/domain-names/src/a.rs", "use tokio::time;\n"),
            (
                "services/a/nodes/src/a.rs",
                "use contracts::tavern;\nuse call_wire::outcome;\n",
            ),
        ],
        &[
            (
                "services/gateway/src/domain/a.rs:2",
                "names `prost`",
                "convert in `rpc/`",
            ),
            (
                "services/gateway/src/domain/a.rs:3",
                "names `tonic`",
                "plain values",
            ),
            (
                "services/gateway/src/domain/a.rs:4",
                "asynchronous",
                "runner",
            ),
            ("services/a/domain/src/a.rs:1", "names `tokio`", "pure"),
            ("services/a/nodes/src/a.rs:1", "names `contracts`", "pure"),
            ("services/a/nodes/src/a.rs:2", "names `call_wire`", "pure"),
        ],
    );
    check(
        purity::within_domain,
        &[("services/gateway/src/domain.rs", "use sqlx as db;\n")],
        &[(
            "services/gateway/src/domain.rs:1",
            "names `sqlx`",
            "`store/`",
        )],
    );
}

#[test]
fn sql_outside_a_store_is_found() {
    let source =
        "//! Knows no sqlx.\nuse sqlx::Row;\nfn f(_: sqlx::Error) {}\nlet s = \"sqlx::query\";\n";
    check(
        purity::within_store,
        &[
            ("services/gateway/src/store.rs", source),
            ("services/gateway/src/store/a.rs", source),
            ("services/gateway/src/a/store.rs", source),
            ("services/gateway/tests/it/a.rs", source),
            ("shared/a/src/a.rs", source),
        ],
        &[
            (
                "services/gateway/src/a/store.rs:2",
                "`sqlx`",
                "`src/store/`",
            ),
            (
                "services/gateway/src/a/store.rs:3",
                "`sqlx`",
                "`src/store/`",
            ),
        ],
    );
}

#[test]
fn a_shared_crate_with_one_owner_is_found() {
    let crates = [
        ("shared/contracts", manifest("contracts", &[])),
        ("shared/core-types", manifest("core-types", &[])),
        ("shared/sql-store", manifest("sql-store", &["core-types"])),
        ("shared/settings", manifest("settings", &[])),
        ("services/gateway", manifest("gateway", &["contracts"])),
        ("services/b/domain", manifest("b-domain", &["sql-store"])),
        ("services/b/service", manifest("b", &["contracts"])),
        // They are no owners: one links every service, the other is a client of theirs.
        (
            "services/all-in-one",
            manifest("all-in-one", &["sql-store"]),
        ),
        ("services/cli", manifest("cli", &["core-types", "settings"])),
    ];
    let files: Vec<(String, String)> = crates
        .into_iter()
        .map(|(root, text)| (format!("{root}/Cargo.toml"), text))
        .collect();
    let files: Vec<(&str, &str)> = files
        .iter()
        .map(|(path, text)| (path.as_str(), text.as_str()))
        .collect();
    check(
        edges::owners,
        &files,
        &[
            ("shared/core-types", "has 1 owners", "services/b/"),
            ("shared/sql-store", "has 1 owners", "services/b/"),
            ("shared/settings", "has 0 owners", "remove it"),
        ],
    );
}
