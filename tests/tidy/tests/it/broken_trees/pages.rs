//! Pages that are too long, or name files that do not exist.

use tidy::{error_page, pages};

use super::{GOOD, check};

#[test]
fn a_first_page_that_is_too_long_or_leaves_a_crate_out_is_found() {
    let page = format!("- run-log\n- `call`-text{}", "\n".repeat(200));
    check(
        pages::architecture,
        &[
            ("ARCHITECTURE.md", &page),
            ("shared/call/Cargo.toml", GOOD),
            ("shared/run-log/Cargo.toml", GOOD),
            ("shared/log/Cargo.toml", GOOD),
            ("services/agent/domain/Cargo.toml", GOOD),
            ("tests/double/Cargo.toml", GOOD),
        ],
        &[
            ("ARCHITECTURE.md", "has 201 lines", "docs/design/"),
            ("ARCHITECTURE.md", "`shared/log`", "add `log`"),
            ("ARCHITECTURE.md", "`services/agent/domain`", "add `domain`"),
        ],
    );
}

#[test]
fn a_page_that_names_a_file_that_does_not_exist_is_found() {
    let design = "\
`shared/a/src/lib.rs`, `lib.rs`, `src/lib.rs`, `shared/a/src/`, `shared/*/x.rs`, `a/b`, `rpc/`
`shared/a/src/gone.rs` and `gone.rs` and `shared/b/`
```
`shared/c/` [x](gone.md)
```
[up](../../README.md#one-way), [here](#ways), [out](https://example.com/gone.md)
[gone](gone.md) [up](../../README.md#another-way) [here](#way)
# Ways
";
    check(
        pages::named_files,
        &[
            ("docs/design/a.md", design),
            (
                "README.md",
                "# One `way`\n`shared/gone.rs` [gone](docs/gone.md)\n",
            ),
            ("shared/a/src/lib.rs", ""),
        ],
        &[
            (
                "docs/design/a.md:2",
                "`shared/a/src/gone.rs`",
                "by its path",
            ),
            ("docs/design/a.md:2", "`gone.rs`", "by its path"),
            ("docs/design/a.md:2", "`shared/b/`", "by its path"),
            ("docs/design/a.md:7", "`gone.md`", "by its path"),
            (
                "docs/design/a.md:7",
                "`../../README.md#another-way`",
                "heading",
            ),
            ("docs/design/a.md:7", "`#way`", "heading"),
            ("README.md:2", "`docs/gone.md`", "by its path"),
        ],
    );
}

#[test]
fn a_reason_without_a_remedy_or_beside_the_page_is_found() {
    let contract = "\
enum ErrorReason {
  // Never sent.
  ERROR_REASON_UNSPECIFIED = 0;
  // No run has this
  // id. Remedy: take another.
  ERROR_REASON_RUN_NOT_FOUND = 2;
  // The disk is full.
  ERROR_REASON_DISK_FULL = 3;
}
";
    let page = error_page::page(contract);
    let section = "## RUN_NOT_FOUND\n\nNo run has this id.\n\n**Remedy:** take another.\n";
    assert!(page.contains(section), "{page}");
    assert!(!page.contains("UNSPECIFIED"), "{page}");
    let changed = page.replace("another", "the same");
    let line = 1 + page
        .lines()
        .take_while(|line| !line.contains("another"))
        .count();
    let contract = (error_page::CONTRACT, contract);
    check(
        error_page::page_is_made,
        &[contract, (error_page::PAGE, &page)],
        &[],
    );
    check(
        error_page::page_is_made,
        &[contract, (error_page::PAGE, &changed)],
        &[(
            &format!("{}:{line}", error_page::PAGE),
            "is not the page",
            "BLESS=1",
        )],
    );
    check(
        error_page::remedies,
        &[contract],
        &[(
            &format!("{}:8", error_page::CONTRACT),
            "DISK_FULL",
            "Remedy:",
        )],
    );
}
