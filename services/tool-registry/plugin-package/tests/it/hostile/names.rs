//! Names and kinds of entries that are refused.

use plugin_package::read_archive;

use super::{check, one, whole};
use crate::build::{Archive, Item, extra};

#[test]
fn r102_names_that_lead_elsewhere_or_mislead_are_refused() {
    let named = |label: &'static str, name: &str, place: &str| {
        one(label, Item::stored(name, b"x"), "invalid_path", place)
    };
    let long = "x".repeat(300);
    let shown = format!("{}…", "x".repeat(120));
    let path = format!(
        "{}/{}/{}/a",
        "x".repeat(100),
        "y".repeat(100),
        "z".repeat(60)
    );
    let path_shown = format!("{}/{}…", "x".repeat(100), "y".repeat(19));
    let deep = "a/".repeat(12) + "b";
    check(vec![
        named("parent", "../evil", "../evil"),
        named("parent inside", "a/../../evil", "a/../../evil"),
        named("parent at the end", "a/..", "a/.."),
        named("parent as a directory", "../", "../"),
        named("absolute", "/etc/passwd", "/etc/passwd"),
        named("absolute twice", "//host/share", "//host/share"),
        named("drive", "C:evil", "C:evil"),
        named("stream", "a.txt:evil", "a.txt:evil"),
        named("backslash", "..\\evil", "..\\evil"),
        named("backslash inside", "a\\b", "a\\b"),
        named("NUL", "a.py\0.txt", "a.py\\u{0}.txt"),
        named("line feed", "a\nb", "a\\u{a}b"),
        named("escape", "a\x1b[2Jb", "a\\u{1b}[2Jb"),
        named("delete", "a\x7fb", "a\\u{7f}b"),
        named("right to left", "a\u{202e}yp.exe", "a\\u{202e}yp.exe"),
        named("isolate", "a\u{2066}b", "a\\u{2066}b"),
        named("arabic mark", "a\u{61c}b", "a\\u{61c}b"),
        named("zero width", "a\u{200b}b", "a\\u{200b}b"),
        named("trailing dot", "a./b", "a./b"),
        named("trailing space", "a ", "a "),
        named("dots", "...", "..."),
        named("this directory", "./a", "./a"),
        named("empty component", "a//b", "a//b"),
        named("empty", "", ""),
        named("root", "/", "/"),
        named("long name", &long, &shown),
        named("long path", &path, &path_shown),
        named("deep", &deep, &deep),
        one(
            "name that is not UTF-8",
            Item::stored(b"a\xff", b""),
            "invalid_path",
            "a\u{fffd}",
        ),
    ]);
}

#[test]
fn r102_names_that_stand_for_one_file_are_refused() {
    let two = |label: &'static str, first: &str, second: &str, code: &'static str, place: &str| {
        let items = [Item::stored(first, b"1"), Item::stored(second, b"2")];
        whole(label, Archive::plugin(items), code, place)
    };
    check(vec![
        two("case twins", "a.py", "A.py", "case_twins", "A.py"),
        two(
            "case twins of directories",
            "lib/a",
            "Lib/b",
            "case_twins",
            "Lib/b",
        ),
        two("sharp s", "straße", "STRASSE", "case_twins", "STRASSE"),
        two("final sigma", "ς", "σ", "case_twins", "σ"),
        two("NFC twins", "\u{e9}", "e\u{301}", "case_twins", "e\u{301}"),
        two("Kelvin", "\u{212a}", "k", "case_twins", "k"),
        two("duplicate", "a", "a", "duplicate", "a"),
        two(
            "duplicate manifest",
            "b",
            "plugin.yaml",
            "duplicate",
            "plugin.yaml",
        ),
        two(
            "case twin of the manifest",
            "b",
            "Plugin.YAML",
            "case_twins",
            "Plugin.YAML",
        ),
        two(
            "file and directory",
            "a",
            "a/b",
            "file_and_directory",
            "a/b",
        ),
        two("directory and file", "a/b", "a", "file_and_directory", "a"),
    ]);
}

#[test]
fn r102_links_and_special_files_are_refused() {
    let kind = |label: &'static str, mode: u32| {
        one(
            label,
            Item::stored("a", b"/etc/passwd").mode(mode),
            "link",
            "a",
        )
    };
    let with_extra = |label: &'static str, field: Vec<u8>| {
        let item = Item::stored("a", b"").central(|header| header.extra = field.clone());
        one(label, item, "link", "a")
    };
    let unlike = "malformed_record";
    check(vec![
        kind("symbolic link", 0o120_777),
        kind("FIFO", 0o010_644),
        kind("character device", 0o020_644),
        kind("block device", 0o060_644),
        kind("socket", 0o140_644),
        kind("no kind at all", 0o170_000),
        with_extra("hard link of PKWARE", extra(0x000d, &[0; 13])),
        with_extra("link of ASi", extra(0x756e, &[0; 14])),
        one(
            "link in the local header",
            {
                let field = extra(0x000d, &[0; 20]);
                Item::stored("a", b"").local(|header| header.extra = field.clone())
            },
            "link",
            "a",
        ),
        one(
            "file with the mode of a directory",
            Item::stored("a", b"x").mode(0o040_755),
            unlike,
            "a",
        ),
        one(
            "directory with the mode of a file",
            Item::stored("a/", b"").mode(0o100_644),
            unlike,
            "a/",
        ),
        one(
            "file with the attribute of a directory",
            Item::stored("a", b"x").with(|item| item.attributes = 0x10),
            unlike,
            "a",
        ),
        one(
            "directory with content",
            Item::stored("a/", b"x"),
            unlike,
            "a/",
        ),
    ]);
}

#[test]
fn the_violation_of_a_hostile_name_can_be_printed() {
    let names = ["\x1b]0;x\x07", "a\u{202e}b", &"\u{202e}".repeat(200)];
    let items = names.map(|name| Item::stored(name, b""));
    let wrong = read_archive(&Archive::plugin(items).bytes()).unwrap_err();
    assert_eq!(wrong.len(), names.len());
    for violation in wrong {
        let printed = violation.to_string();
        let hidden = printed.chars().find(|c| core_types::text::is_hidden(*c));
        assert_eq!(hidden, None, "{printed:?}");
        assert!(printed.len() < 2_000);
    }
}
