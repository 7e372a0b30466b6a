//! Package sets: scripts import them and cannot change them.
//!
//! The sets are built by `make packages`; tests below `large_set` need the set `data` too, of `make packages-data`.

mod hostile;
mod large_set;
mod removal;

use std::path::PathBuf;

use contracts::tavern::{
    common::v1::ErrorReason,
    sandbox::v1::{
        CreateSessionRequest, CreateSessionResponse, ExecuteRequest, Limits, ListRuntimesRequest,
        PackageSet, RunCellRequest, run_cell_response::Event,
    },
};
use sandbox_engine::domain::isolation::IsolationLevel;
use script_sandbox::SandboxSettings;
use tonic::Code;

use crate::{
    support::{
        Host, expect_output, expect_refusal, limited, python, reduced_settings, request, stdout,
    },
    warm::{self, run_warm},
};

/// The variable that names the directory of the sets.
const SETS: &str = "TAVERN_TEST_SETS";

/// The variable that gives every script of the tests a set, so that all of them run with one.
const EVERYWHERE: &str = "TAVERN_TEST_WITH_SETS";

/// The directory of the sets that `make packages` has built.
pub(crate) fn sets() -> PathBuf {
    let built = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../target/packages");
    let named = std::env::var_os(SETS).map(PathBuf::from);
    named.unwrap_or(built)
}

/// Gives a sandbox the sets where every script has one.
pub(crate) fn with_sets(settings: SandboxSettings) -> SandboxSettings {
    match std::env::var_os(EVERYWHERE) {
        Some(_) => SandboxSettings {
            packages_directory: sets(),
            ..settings
        },
        None => settings,
    }
}

/// The set of a script in a test that names none.
pub(crate) fn of_every_script(runtime: &str) -> String {
    let set = match (std::env::var_os(EVERYWHERE), runtime) {
        (Some(_), "python3" | "python") => "small",
        (Some(_), "node" | "nodejs" | "javascript") => "web",
        _ => "",
    };
    set.to_owned()
}

/// The settings of each level, with the sets.
fn levels() -> Vec<SandboxSettings> {
    let default = SandboxSettings {
        packages_directory: sets(),
        ..SandboxSettings::default()
    };
    vec![
        default.clone(),
        SandboxSettings {
            use_cgroups: false,
            ..default.clone()
        },
        SandboxSettings {
            highest_isolation: IsolationLevel::FullWithoutProc,
            lowest_isolation: IsolationLevel::Reduced,
            ..default
        },
        SandboxSettings {
            packages_directory: sets(),
            ..reduced_settings()
        },
    ]
}

async fn host() -> Host {
    Host::with(levels().remove(0)).await
}

fn with(set: &str, request: ExecuteRequest) -> ExecuteRequest {
    ExecuteRequest {
        packages: set.to_owned(),
        ..request
    }
}

async fn listed(host: &Host, name: &str) -> Option<PackageSet> {
    let answer = host
        .client
        .clone()
        .list_runtimes(ListRuntimesRequest {})
        .await;
    let runtimes = answer.unwrap().into_inner().runtimes.into_iter();
    let mut sets = runtimes.flat_map(|runtime| runtime.package_sets);
    sets.find(|set| set.name == name)
}

/// Asks for a script that is refused; returns the message.
async fn refused(host: &Host, request: ExecuteRequest, code: Code, reason: ErrorReason) -> String {
    let refused = host.client.clone().execute(request).await.unwrap_err();
    expect_refusal(&refused, code, reason);
    refused.message().to_owned()
}

/// Asks for a session with a set.
async fn session_with(host: &Host, set: &str, key: &str) -> CreateSessionResponse {
    let request = CreateSessionRequest {
        runtime: "python3".to_owned(),
        packages: set.to_owned(),
        session_key: key.to_owned(),
        ..CreateSessionRequest::default()
    };
    let made = host.sessions.clone().create_session(request).await;
    made.unwrap().into_inner()
}

#[tokio::test]
async fn scripts_import_the_set_that_they_name_at_every_level() {
    let source = "
import datetime, dateutil.parser, json, six
print(dateutil.parser.parse('2026-11-27').year, six.__name__, json.__name__, datetime.__name__)
";
    let node = "
const lodash = require('lodash');
import('date-fns').then(({ addDays }) => console.log(lodash.sum([1, 2]), typeof addDays));
";
    for settings in levels() {
        let host = Host::with(settings).await;
        let answer = host.run(with("small", python(source))).await;
        expect_output(&answer, "2026 six json datetime\n");
        let answer = host.run(with("web", request("node", node))).await;
        expect_output(&answer, "3 function\n");
        let none = python(
            "import os, sys; print('/packages' in str(sys.path), 'TAVERN_PACKAGES_PATH' in os.environ)",
        );
        expect_output(&host.run(with("", none)).await, "False False\n");
    }
}

#[tokio::test]
async fn modules_of_node_find_the_set_whichever_kind_they_are() {
    let host = host().await;
    let asked = ExecuteRequest {
        program: Some(
            contracts::tavern::sandbox::v1::execute_request::Program::EntryPath(
                "inner/main.mjs".to_owned(),
            ),
        ),
        files: vec![contracts::tavern::sandbox::v1::InputFile {
            path: "inner/main.mjs".to_owned(),
            content: b"import lodash from 'lodash'; import { addDays } from 'date-fns';\n\
                console.log(lodash.max([1, 2]), addDays(new Date(0), 1).getTime());"
                .to_vec(),
            ..Default::default()
        }],
        ..request("node", "x")
    };
    expect_output(&host.run(with("web", asked)).await, "2 86400000\n");
}

#[tokio::test]
async fn cells_of_a_session_import_the_set_of_the_session() {
    let host = host().await;
    let session = session_with(&host, "small", "one").await.session.unwrap();
    assert_eq!(session.packages, "small");
    let mut sessions = host.sessions.clone();
    let cell = sessions
        .run_cell(RunCellRequest {
            session_id: session.session_id.clone(),
            source_text: "import six; six.__name__".to_owned(),
            ..RunCellRequest::default()
        })
        .await;
    let mut events = cell.unwrap().into_inner();
    let mut value = None;
    while let Some(event) = events.message().await.unwrap() {
        if let Some(Event::Value(found)) = event.event {
            value = Some(found.text);
        }
    }
    assert_eq!(value.as_deref(), Some("'six'"));
    // The same key with another set is another session.
    let other = session_with(&host, "", "one").await;
    assert!(!other.found);
    assert_ne!(other.session.unwrap().session_id, session.session_id);
}

#[tokio::test]
async fn an_unknown_set_two_sets_and_a_set_of_another_runtime_are_refused_by_name() {
    let host = host().await;
    for name in ["none-such", "small,web", "../small", ".sets"] {
        let asked = with(name, python("1"));
        let message = refused(&host, asked, Code::NotFound, ErrorReason::UnknownPackageSet).await;
        assert!(message.contains("small"), "{message}");
    }
    let asked = with("small", request("node", "1"));
    let (code, reason) = (Code::FailedPrecondition, ErrorReason::PackageSetUnfit);
    let message = refused(&host, asked, code, reason).await;
    assert!(message.contains("libraries of python3"), "{message}");
}

#[tokio::test]
async fn the_runtimes_name_their_sets_with_packages_and_modules() {
    let host = host().await;
    let set = listed(&host, "small").await.unwrap();
    assert_eq!(set.problem, "");
    assert!(set.digest.starts_with("sha256:") && set.size_bytes > 0);
    assert!(set.modules.contains(&"dateutil".to_owned()), "{set:?}");
    let named = |name: &str| set.packages.iter().any(|package| package.name == name);
    assert!(named("python-dateutil") && named("six"), "{set:?}");
}

#[tokio::test]
async fn interpreters_wait_with_the_modules_of_the_set_imported() {
    let source = "import sys; print('six' in sys.modules, 'dateutil.parser' in sys.modules)";
    for settings in levels() {
        let host = Host::with(settings).await;
        let response = run_warm(&host, with("small", warm::python(source))).await;
        expect_output(&response, "True True\n");
        // A library may read any variable when it is imported.
        let mut with_variable = with("small", warm::python("print(1)"));
        with_variable
            .environment
            .insert("MINE".to_owned(), "1".to_owned());
        let response = host.run(with_variable).await;
        assert!(!response.usage.unwrap().warm_start);
        let plain = with("", warm::python("import sys; print('six' in sys.modules)"));
        expect_output(&run_warm(&host, plain).await, "False\n");
        host.sandbox.shutdown().await;
    }
}

#[tokio::test]
async fn a_set_that_needs_more_than_all_waiting_interpreters_may_have_says_so() {
    let host = Host::with(SandboxSettings {
        warm_memory: 1 << 20,
        ..levels().remove(0)
    })
    .await;
    expect_output(
        &host.run(with("small", warm::python("print(1)"))).await,
        "1\n",
    );
    let set = listed(&host, "small").await.unwrap();
    assert!(set.warm_problem.contains("warm_memory"), "{set:?}");
    assert_eq!(set.warm_ready, 0);
}

#[tokio::test]
async fn threads_of_numeric_libraries_follow_the_limit_of_processes() {
    let host = host().await;
    let source =
        "import os; print(os.environ['OPENBLAS_NUM_THREADS'], os.environ['OMP_NUM_THREADS'])";
    let narrow = limited(
        with("small", python(source)),
        Limits {
            processes: Some(3),
            ..Limits::default()
        },
    );
    expect_output(&host.run(narrow).await, "1 1\n");
    let usual = stdout(&host.run(with("small", python(source))).await);
    let processors = std::thread::available_parallelism().unwrap().get();
    assert_eq!(usual, format!("{0} {0}\n", processors.min(32)));
}
