//! Every rule fails where it should, at the right place, and names the remedy.

mod edges;
mod pages;

use tidy::{
    Finding, Tree, circles, layout, manifests, once, prose, sentences, sizes, tenants, unsafe_code,
    words,
};

const GOOD: &str = r#"
[package]
name = "good"
description = "Does good."
version.workspace = true
edition.workspace = true
rust-version.workspace = true
license.workspace = true
publish.workspace = true
[lints]
workspace = true
"#;

/// Holds a rule against a tree; each expected finding is a place, and words of problem and remedy.
#[track_caller]
fn check(rule: fn(&Tree) -> Vec<Finding>, files: &[(&str, &str)], expected: &[(&str, &str, &str)]) {
    let findings = rule(&Tree::made_up(files.iter().copied()));
    let found: Vec<String> = findings.iter().map(ToString::to_string).collect();
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for (place, problem, remedy) in expected {
        let matching = found.iter().any(|text| {
            let (first, second) = text
                .split_once("\n    remedy: ")
                .expect("a finding has a remedy");
            first.starts_with(&format!("{place}:"))
                && first.contains(problem)
                && second.contains(remedy)
        });
        assert!(matching, "{place}: {problem} / {remedy} not in {found:#?}");
    }
}

/// Writes a manifest with dependencies.
fn manifest(name: &str, dependencies: &[&str]) -> String {
    let lines: String = dependencies
        .iter()
        .map(|name| format!("{name}.workspace = true\n"))
        .collect();
    format!("{}[dependencies]\n{lines}", GOOD.replace("good", name))
}

#[test]
fn a_stray_file_at_the_root_is_found() {
    let findings = layout::top_level(&Tree::made_up([
        ("scripts/x.sh", ""),
        ("Makefile", ""),
        (".gitignore", ""),
    ]));
    let texts: Vec<String> = findings.iter().map(ToString::to_string).collect();
    assert!(
        texts
            .iter()
            .any(|text| text.starts_with("scripts: does not belong") && text.contains("tests/")),
        "{texts:?}"
    );
    assert!(
        texts
            .iter()
            .any(|text| text.starts_with("README.md: is missing") && text.contains("add it")),
        "{texts:?}"
    );
    assert!(
        !texts
            .iter()
            .any(|text| text.starts_with("Makefile") || text.starts_with(".gitignore")),
        "{texts:?}"
    );
}

#[test]
fn a_service_without_its_files_is_found() {
    let with_sqlx = manifest("gateway", &["sqlx"]);
    check(
        layout::services,
        &[
            ("services/gateway/Cargo.toml", &with_sqlx),
            ("services/gateway/src/main.rs", ""),
            ("services/gateway/src/lib.rs", ""),
            ("services/gateway/src/error.rs", ""),
            ("services/gateway/src/rpc.rs", ""),
        ],
        &[
            (
                "services/gateway/src/settings.rs",
                "missing in the service gateway",
                "typed settings",
            ),
            ("services/gateway/src/domain.rs", "missing", "pure part"),
            ("services/gateway/src/store.rs", "missing", "sqlx"),
            (
                "services/gateway/migrations/sqlite",
                "missing",
                "migrations",
            ),
        ],
    );
    let domain_beside = manifest("gateway", &["call-domain"]);
    let gateway = [
        ("services/gateway/Cargo.toml", domain_beside.as_str()),
        ("services/gateway/src/main.rs", ""),
        ("services/gateway/src/lib.rs", ""),
        ("services/gateway/src/settings.rs", ""),
        ("services/gateway/src/error.rs", ""),
        ("services/gateway/src/rpc.rs", ""),
    ];
    check(layout::services, &gateway, &[]);
    let no_services = [
        ("services/all-in-one/Cargo.toml", GOOD),
        ("services/all-in-one/src/main.rs", ""),
        ("services/all-in-one/src/lib.rs", ""),
        ("services/cli/Cargo.toml", GOOD),
        ("services/cli/src/main.rs", ""),
        ("services/cli/src/lib.rs", ""),
    ];
    check(layout::services, &no_services, &[]);
    let of_parts = [
        ("services/a/domain/Cargo.toml", GOOD),
        ("services/a/service/Cargo.toml", domain_beside.as_str()),
        ("services/a/service/src/main.rs", ""),
        ("services/a/service/src/lib.rs", ""),
        ("services/a/service/src/settings.rs", ""),
        ("services/a/service/src/error.rs", ""),
    ];
    let missing = ("services/a/service/src/rpc.rs", "missing", "the wire");
    check(layout::services, &of_parts, &[missing]);
}

#[test]
fn a_mod_file_is_found() {
    check(
        layout::module_files,
        &[("shared/a/src/b/mod.rs", ""), ("shared/a/src/model.rs", "")],
        &[(
            "shared/a/src/b/mod.rs",
            "is a `mod.rs`",
            "shared/a/src/b.rs",
        )],
    );
}

#[test]
fn a_proto_without_its_package_for_go_is_found() {
    let named = "option go_package = \"tavern/run/v1;runv1\";";
    check(
        layout::go_packages,
        &[
            ("proto/tavern/run/v1/a.proto", named),
            ("proto/tavern/run/v1/b.proto", "package tavern.run.v1;"),
            ("proto/tavern/agent/v1/c.proto", named),
            ("proto/third_party/d.proto", ""),
        ],
        &[
            (
                "proto/tavern/agent/v1/c.proto",
                "Go",
                "tavern/agent/v1;agentv1",
            ),
            ("proto/tavern/run/v1/b.proto", "Go", "tavern/run/v1;runv1"),
        ],
    );
}

#[test]
fn a_second_test_binary_is_found() {
    check(
        layout::integration_binaries,
        &[
            ("shared/a/Cargo.toml", GOOD),
            ("shared/a/tests/it/main.rs", ""),
            ("shared/a/tests/other.rs", ""),
            ("shared/a/tests/data/x.json", ""),
        ],
        &[(
            "shared/a/tests/other.rs",
            "binary of its own",
            "shared/a/tests/it/main.rs",
        )],
    );
}

#[test]
fn manifests_without_the_common_fields_are_found() {
    check(manifests::fields, &[("shared/good/Cargo.toml", GOOD)], &[]);
    check(
        manifests::fields,
        &[(
            "shared/bad/Cargo.toml",
            "[package]\nname = \"other\"\nversion = \"1.0.0\"\n[dependencies]\nserde = \"1\"\n",
        )],
        &[
            (
                "shared/bad/Cargo.toml",
                "not named after its directory",
                "name = \"bad\"",
            ),
            (
                "shared/bad/Cargo.toml",
                "description is missing",
                "full stop",
            ),
            (
                "shared/bad/Cargo.toml",
                "`version` is not inherited",
                "version.workspace = true",
            ),
            (
                "shared/bad/Cargo.toml",
                "`edition` is not inherited",
                "edition.workspace = true",
            ),
            (
                "shared/bad/Cargo.toml",
                "`rust-version` is not inherited",
                "rust-version.workspace = true",
            ),
            (
                "shared/bad/Cargo.toml",
                "`license` is not inherited",
                "license.workspace = true",
            ),
            (
                "shared/bad/Cargo.toml",
                "`publish` is not inherited",
                "publish.workspace = true",
            ),
            ("shared/bad/Cargo.toml", "lints do not apply", "[lints]"),
            (
                "shared/bad/Cargo.toml",
                "version of `serde` is not inherited",
                "[workspace.dependencies]",
            ),
        ],
    );
    check(
        manifests::fields,
        &[("shared/bad/Cargo.toml", "[package")],
        &[("shared/bad/Cargo.toml", "not readable", "syntax")],
    );
}

#[test]
fn a_package_from_elsewhere_is_found() {
    let lock = "[[package]]\nname = \"mine\"\n[[package]]\nname = \"odd\"\nsource = \"git+https://example.com/odd\"\n";
    check(
        manifests::lock_file_sources,
        &[("Cargo.lock", lock)],
        &[("Cargo.lock", "`odd` does not come", "published version")],
    );
}

#[test]
fn a_loose_python_requirement_is_found() {
    check(
        manifests::python_requirements,
        &[(
            "tests/python/requirements.txt",
            "# for tests\ngrpcio==1.0.0\nprotobuf>=3 # newest\n",
        )],
        &[(
            "tests/python/requirements.txt:3",
            "`protobuf>=3` is not pinned",
            "==",
        )],
    );
}

#[test]
fn long_files_are_found() {
    let long = "\n".repeat(601);
    check(
        sizes::files,
        &[
            ("shared/a/src/b.rs", &long),
            ("tests/python/b.py", &long),
            ("proto/b.proto", &long),
            ("README.md", &long),
            ("shared/a/src/c.rs", &long[1..]),
        ],
        &[
            (
                "shared/a/src/b.rs",
                "has 601 lines, more than 600",
                "split it",
            ),
            ("tests/python/b.py", "has 601 lines", "split it"),
            ("proto/b.proto", "has 601 lines", "split it"),
        ],
    );
}

#[test]
fn type_names_in_two_files_of_a_crate_are_found() {
    let inner = "pub(super) struct Stop {}\nstruct Inner;\n#[cfg(test)]\nmod tests {\n    struct Other;\n}\n";
    check(
        sizes::type_names,
        &[
            ("shared/a/Cargo.toml", ""),
            (
                "shared/a/src/b.rs",
                "enum Stop<T> {}\nstruct Inner;\nstruct Other;\n",
            ),
            ("shared/a/src/c.rs", inner),
            ("shared/a/src/tests.rs", "struct Stop;\n"),
            ("shared/b/Cargo.toml", ""),
            ("shared/b/src/b.rs", "struct Stop;\n"),
        ],
        &[(
            "shared/a/src/c.rs",
            "the type `Stop`, as shared/a/src/b.rs does",
            "sets it apart",
        )],
    );
}

#[test]
fn unfinished_work_is_found() {
    let source = "fn f() { todo!() }\n#[ignore]\nfn test_it() {}\n// FIXME later\n// \"todo!\" and XXXXXX are fine\nlet s = \"#[ignore]\";\n";
    check(
        words::unfinished,
        &[
            ("shared/a/src/b.rs", source),
            ("tests/tidy/src/b.rs", source),
            ("deploy/notes.md", "TODO: buy milk"),
        ],
        &[
            ("shared/a/src/b.rs:1", "`todo!`", "do it now"),
            ("shared/a/src/b.rs:2", "`#[ignore`", "run everywhere"),
            ("shared/a/src/b.rs:3", "`fn test_`", "state a fact"),
            ("shared/a/src/b.rs:4", "`FIXME`", "do it now"),
        ],
    );
}

#[test]
fn machine_paths_and_talk_are_found() {
    check(
        words::places_and_talk,
        &[(
            "README.md",
            "Run it in /work/main.\nComes with a Later Issue.\nThe script's /work is private.\n",
        )],
        &[
            ("README.md:1", "`/work/main`", "relative to the repository"),
            ("README.md:2", "\"later issue\"", "what the code is"),
        ],
    );
}

#[test]
fn a_given_up_word_more_or_fewer_than_recorded_is_found() {
    let files = |text: &'static str| {
        [
            ("README.md", text),
            ("tests/tidy/prose.toml", "\"goes on\" = 1\n"),
        ]
    };
    check(
        prose::given_up_words,
        &files("It goes on.\nforgoes on"),
        &[],
    );
    check(
        prose::given_up_words,
        &files("It goes on.\nAnd Goes on."),
        &[("README.md:2", "stands 2 times, 1 are recorded", "continues")],
    );
    check(
        prose::given_up_words,
        &files("It continues."),
        &[(
            "tests/tidy/prose.toml",
            "stands 0 times, 1 are recorded",
            "\"goes on\" = 0",
        )],
    );
}

#[test]
fn comments_without_nouns_are_found() {
    let source = "/// How long it may take.\nfn a() {}\n/// Returns what\n/// is left.\nfn b() {}\n\
                  /// Whether it is so.\nfn c() {}\n// When it ends, what they hold goes.\nfn d() {}\n";
    check(
        sentences::nouns,
        &[
            ("shared/a/src/a.rs", source),
            ("proto/a.proto", "// Why it ended.\n"),
            ("README.md", "What is this?\n"),
        ],
        &[
            (
                "shared/a/src/a.rs:1",
                "opens with a question",
                "a noun or a verb",
            ),
            ("shared/a/src/a.rs:3", "stands for a noun", "the noun"),
            ("shared/a/src/a.rs:8", "stands for a noun", "the noun"),
            (
                "proto/a.proto:1",
                "opens with a question",
                "a noun or a verb",
            ),
        ],
    );
}

#[test]
fn unsafe_code_is_found() {
    let source = "// SAFETY: the pointer is valid\nlet a = unsafe { f() };\n\n\n\n\n\n\n\n\n\nlet b = unsafe { g() };\nlet s = \"unsafe {\";\nunsafe extern \"C\" {}\n";
    check(
        unsafe_code::unsafe_code,
        &[("services/script-sandbox/launcher/src/a.rs", source)],
        &[(
            "services/script-sandbox/launcher/src/a.rs:12",
            "without its reason",
            "SAFETY:",
        )],
    );
    check(
        unsafe_code::unsafe_code,
        &[(
            "shared/a/src/a.rs",
            "let a = unsafe { f() };\nlet unsafe_name = 1;\n",
        )],
        &[(
            "shared/a/src/a.rs:1",
            "outside the sandbox launcher",
            "safe wrapper",
        )],
    );
}

#[test]
fn folders_that_import_each_other_are_found() {
    check(
        circles::of_folders,
        &[
            ("shared/a/src/lib.rs", "mod one; mod two;"),
            ("shared/a/src/one.rs", "mod deep; pub struct One;"),
            ("shared/a/src/one/deep.rs", "use crate::two::Two;"),
            ("shared/a/src/two.rs", "mod deep; pub struct Two;"),
            // No two files import each other.
            (
                "shared/a/src/two/deep.rs",
                "use crate::one::One; use super::Two;",
            ),
        ],
        &[(
            "shared/a",
            "one::deep uses two, two::deep uses one",
            "a module of its own",
        )],
    );
}

#[test]
fn files_that_import_each_other_are_found() {
    check(
        circles::of_files,
        &[
            ("shared/a/src/lib.rs", "mod one; mod two; mod three;"),
            (
                "shared/a/src/one.rs",
                "use crate::two::Two; pub struct One;",
            ),
            (
                "shared/a/src/two.rs",
                "use super::three::{self, One as _}; pub struct Two;",
            ),
            ("shared/a/src/three.rs", "pub use crate::one::One;"),
            // A module may name modules above it, and a comment is no import.
            (
                "shared/b/src/lib.rs",
                "mod top; // use crate::top::below::Below;",
            ),
            (
                "shared/b/src/top.rs",
                "mod below; pub struct Top; use self::below::Below;",
            ),
            (
                "shared/b/src/top/below.rs",
                "use super::Top; pub struct Below;",
            ),
        ],
        &[(
            "shared/a/src/one.rs",
            "shared/a/src/one.rs, shared/a/src/three.rs, shared/a/src/two.rs",
            "a file of its own",
        )],
    );
}

#[test]
fn the_parts_of_a_service_are_named_after_it_or_their_directories() {
    let named = |name: &str| GOOD.replace("good", name);
    let parts = [
        ("services/a/service/Cargo.toml", named("a")),
        ("services/a/domain/Cargo.toml", named("any-domain")),
        ("services/a/model-client/Cargo.toml", named("model-client")),
        ("services/b/service/Cargo.toml", named("b-service")),
        ("services/b/domain/Cargo.toml", named("subdomain")),
    ];
    let parts: Vec<(&str, &str)> = parts
        .iter()
        .map(|(path, text)| (*path, text.as_str()))
        .collect();
    check(
        manifests::fields,
        &parts,
        &[
            ("services/b/service/Cargo.toml", "not named", "name = \"b\""),
            ("services/b/domain/Cargo.toml", "not named", "…-domain"),
        ],
    );
}

#[test]
fn a_second_store_of_documents_or_request_ids_is_found() {
    check(
        once::copies,
        &[
            (
                "shared/documents/src/sqlite.rs",
                "\"INSERT INTO document (tenant)\"",
            ),
            (
                "services/a/migrations/0002_again.sql",
                "CREATE TABLE once_more (\n    request_id  TEXT NOT NULL\n);",
            ),
            (
                "services/a/src/store.rs",
                "\"DELETE FROM document \\\n  WHERE id = ?1\"",
            ),
        ],
        &[
            (
                "services/a/migrations/0002_again.sql:2",
                "a second time",
                "requests::note",
            ),
            (
                "services/a/src/store.rs:1",
                "a second time",
                "Documents::delete",
            ),
        ],
    );
}

#[test]
fn a_statement_without_the_tenant_is_found() {
    let migration = "CREATE TABLE notes (\n    tenant TEXT NOT NULL,\n    id TEXT NOT NULL\n);\n\
                     CREATE TABLE plain (\n    id TEXT NOT NULL\n);\n";
    let code = "fn f() {\n    q(\"SELECT id FROM notes WHERE id = ?1\");\n    q(\"SELECT id FROM plain\");\n    \
                q(\"SELECT id FROM notes WHERE tenant = ?1\");\n    \
                q(\"SELECT tenant FROM notes WHERE id = ?1\");\n    \
                q(\"INSERT INTO notes (tenant, id) VALUES (?1, ?2)\");\n    \
                q(\"INSERT INTO notes (id) VALUES (?1)\");\n}\n";
    check(
        tenants::in_statements,
        &[
            ("services/a/migrations/sqlite/0001_notes.sql", migration),
            ("services/a/src/store.rs", code),
        ],
        &[
            ("services/a/src/store.rs:2", "`notes`", "tenant = ?"),
            ("services/a/src/store.rs:5", "`notes`", "tenant = ?"),
            ("services/a/src/store.rs:7", "`notes`", "tenant = ?"),
        ],
    );
}
