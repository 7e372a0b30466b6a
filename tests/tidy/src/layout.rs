//! The fixed top level, the files of every service, one way to lay out modules.

use toml::Value;

use crate::{Finding, Tree};

/// The entries that the root must hold.
const REQUIRED: [&str; 16] = [
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE",
    "Makefile",
    "README.md",
    "console",
    "deploy",
    "docker-compose.yml",
    "docs",
    "proto",
    "rust-toolchain.toml",
    "services",
    "shared",
    "tests",
];

/// Further entries that the root may hold; names that begin with a dot are allowed too.
const ALLOWED: [&str; 3] = ["clippy.toml", "deny.toml", "rustfmt.toml"];

/// Programs among the services that do not serve by themselves and so have no wire, domain or
/// store.
const NOT_A_SERVICE: [&str; 2] = ["all-in-one", "cli"];

/// Holds the root against the fixed top level.
pub fn top_level(tree: &Tree) -> Vec<Finding> {
    let names = tree.names_in("");
    let missing = REQUIRED.iter().filter(|name| !tree.has(name)).map(|name| {
        Finding::new(
            *name,
            "is missing at the root",
            "add it; ARCHITECTURE.md describes the fixed top level",
        )
    });
    let extra = names
        .iter()
        .filter(|name| !name.starts_with('.') && !REQUIRED.contains(&name.as_str()) && !ALLOWED.contains(&name.as_str()))
        .map(|name| {
            Finding::new(
                name,
                "does not belong at the root",
                "move code to `shared/` or `services/`, programs that test to `tests/`, and what is deployed to `deploy/`",
            )
        });
    missing.chain(extra).collect()
}

/// Checks every service for the files that every service has.
pub fn services(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for name in tree.names_in("services") {
        let whole = format!("services/{name}");
        let root = match tree.has(&format!("{whole}/Cargo.toml")) {
            true => whole,
            false => format!("{whole}/service"),
        };
        let mut need = |path: &str, why: &str| {
            let wanted = format!("{root}/{path}");
            if !tree.has(&wanted) {
                findings.push(Finding::new(
                    wanted,
                    format!("is missing in the service {name}"),
                    why,
                ));
            }
        };
        need(
            "src/main.rs",
            "add the thin binary: read settings, start telemetry, build, serve, wait",
        );
        need(
            "src/lib.rs",
            "add the library: crate documentation and the modules in reading order",
        );
        if NOT_A_SERVICE.contains(&name.as_str()) {
            continue;
        }
        need("src/settings.rs", "add the service's typed settings");
        need(
            "src/error.rs",
            "add the service's errors and their mapping to gRPC codes",
        );
        need(
            "src/rpc.rs",
            "add the wire: `src/rpc.rs` with one file per concern beneath `src/rpc/`",
        );
        let depends_on = dependencies(tree, &root);
        if !depends_on.iter().any(|name| name.ends_with("-domain")) {
            need(
                "src/domain.rs",
                "add the pure part: `src/domain.rs` with one file per concern beneath `src/domain/`, or a crate `domain` beside the service once it is large",
            );
        }
        if depends_on.iter().any(|name| name == "sqlx") {
            need(
                "src/store.rs",
                "the service depends on sqlx: put its SQL into `src/store.rs` and `src/store/`",
            );
            need(
                "migrations/sqlite",
                "the service depends on sqlx: put its migrations into `migrations/sqlite/`",
            );
        }
    }
    findings
}

fn dependencies(tree: &Tree, root: &str) -> Vec<String> {
    let manifest = tree
        .text(&format!("{root}/Cargo.toml"))
        .and_then(|text| text.parse::<toml::Table>().ok())
        .unwrap_or_default();
    let dependencies = manifest.get("dependencies").and_then(Value::as_table);
    dependencies
        .map(|table| table.keys().cloned().collect())
        .unwrap_or_default()
}

/// Refuses `mod.rs`: a module's file is next to its directory.
pub fn module_files(tree: &Tree) -> Vec<Finding> {
    let misplaced = tree.paths().filter(|path| path.ends_with("/mod.rs"));
    misplaced
        .map(|path| {
            let directory = path.trim_end_matches("/mod.rs");
            Finding::new(
                path,
                "is a `mod.rs`",
                format!("move it to `{directory}.rs`, beside the directory"),
            )
        })
        .collect()
}

/// Requires the package for Go in every proto file: without it no Go client can be generated.
pub fn go_packages(tree: &Tree) -> Vec<Finding> {
    let ours = tree.texts(&[".proto"]);
    let ours = ours.filter_map(|(path, text)| {
        let rest = path.strip_prefix("proto/tavern/")?;
        let (directory, _file) = rest.rsplit_once('/')?;
        Some((path, text, directory))
    });
    ours.filter_map(|(path, text, directory)| {
        let area = directory.replace('/', "");
        let option = format!("option go_package = \"tavern/{directory};{area}\";");
        let remedy = format!("add `{option}` below the imports");
        (!text.contains(&option)).then(|| Finding::new(path, "has no package for Go", remedy))
    })
    .collect()
}

/// Allows one integration test binary per crate, as each costs a link.
pub fn integration_binaries(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for root in tree.crates() {
        for name in tree.names_in(&format!("{root}/tests")) {
            let is_binary =
                name.ends_with(".rs") || tree.has(&format!("{root}/tests/{name}/main.rs"));
            if is_binary && name != "it" {
                findings.push(Finding::new(
                    format!("{root}/tests/{name}"),
                    "is a test binary of its own",
                    format!("make it a module of `{root}/tests/it/main.rs`"),
                ));
            }
        }
    }
    findings
}
