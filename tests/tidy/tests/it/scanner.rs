//! The scanners that the rules use.

use tidy::Tree;
use tidy::rust_text::code_only;

#[track_caller]
fn check(source: &str, expected: &str) {
    assert_eq!(code_only(source), expected);
    assert_eq!(source.matches('\n').count(), expected.matches('\n').count());
}

#[test]
fn comments_and_literals_are_blanked() {
    check("a // b\nc", "a     \nc");
    check("a /* b /* c */ d */ e", "a                   e");
    check("f(\"}\\\"{\", 1)", "f(      , 1)");
    check("r#\"a\"b\"# + x", "         + x");
    check("br\"{\" + cr\"}\"", "      +      ");
    check("var\"x\"", "var   ");
    check(
        "'{' as u8 + '\\'' + '\\u{7d}'",
        "    as u8 +      +         ",
    );
    check("fn f<'a>(x: &'a str) {}", "fn f<'a>(x: &'a str) {}");
    check("\"é\n\" x", "  \n  x");
    check("\"never closed {", "               ");
}

#[test]
fn a_directory_without_version_control_is_walked() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let write = |path: &str, bytes: &[u8]| {
        let path = directory.path().join(path);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("creates");
        std::fs::write(path, bytes).expect("writes");
    };
    write("shared/a/Cargo.toml", b"[package]");
    write("shared/a/src/lib.rs", b"x");
    write("shared/a/logo.png", &[0xff, 0xfe]);
    write("target/debug/a.rs", b"x");
    let tree = Tree::read(directory.path()).expect("reads");
    assert_eq!(
        tree.paths().collect::<Vec<_>>(),
        [
            "shared/a/Cargo.toml",
            "shared/a/logo.png",
            "shared/a/src/lib.rs"
        ]
    );
    assert_eq!(tree.text("shared/a/logo.png"), None);
    assert_eq!(tree.crates(), ["shared/a"]);
    assert_eq!(tree.names_in("shared/a"), ["Cargo.toml", "logo.png", "src"]);
    assert!(tree.has("shared/a/src") && !tree.has("shared/a/sr"));
}
