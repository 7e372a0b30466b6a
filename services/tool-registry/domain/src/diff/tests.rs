use super::*;

/// The change of seed 002 §3.2.4, as the value of its CDATA section.
const SEED_002_3_2_4: &str = r#"
<<<<<<< SEARCH
:start_line:10
-------
console.log("Old version");
=======
console.log("New version with <special & characters>");
>>>>>>> REPLACE
            "#;

/// The change of seed 002 §5.3, as the value of its CDATA section. Its counts are wrong there.
const SEED_002_5_3: &str = r#"
--- a/config/settings.json
+++ b/config/settings.json
@@ -1,5 +1,5 @@
 {
-  "feature_enabled": false,
+  "feature_enabled": true,
   "api_key": "old_key_value"
 }
            "#;

#[test]
fn seed_002_3_2_4_applies() {
    let file = format!(
        "{}console.log(\"Old version\");\n// end\n",
        "// line\n".repeat(9)
    );
    let changed = apply(&file, &read_blocks(SEED_002_3_2_4).unwrap()).unwrap();
    assert!(
        changed.contains("console.log(\"New version with <special & characters>\");\n// end\n")
    );
    assert!(!changed.contains("Old version"));
}

#[test]
fn seed_002_5_3_applies_although_its_counts_are_wrong() {
    let file = "{\n  \"feature_enabled\": false,\n  \"api_key\": \"old_key_value\"\n}\n";
    let changed = apply(file, &read_unified(SEED_002_5_3).unwrap()).unwrap();
    assert_eq!(
        changed,
        "{\n  \"feature_enabled\": true,\n  \"api_key\": \"old_key_value\"\n}\n"
    );
}

#[test]
fn several_blocks_apply_in_order_and_lines_choose_between_equals() {
    let change = "<<<<<<< SEARCH\n:start_line:4\n-------\nx\n=======\ny\ny\n>>>>>>> REPLACE\n\
                  <<<<<<< SEARCH\nend\n=======\n>>>>>>> REPLACE\n";
    let changed = apply("x\na\nb\nx\nend\n", &read_blocks(change).unwrap()).unwrap();
    assert_eq!(changed, "x\na\nb\ny\ny\n");
}

#[test]
fn the_files_own_line_ending_and_missing_last_newline_are_kept() {
    let change = "@@ -1 +1 @@\n-b\n+c\n";
    let edits = read_unified(change).unwrap();
    assert_eq!(apply("a\r\nb\r\n", &edits).unwrap(), "a\r\nc\r\n");
    assert_eq!(apply("a\nb", &edits).unwrap(), "a\nc");
}

#[test]
fn a_unified_diff_may_begin_a_new_file_and_add_without_context() {
    let edits = read_unified("--- /dev/null\n+++ b/x\n@@ -0,0 +1,2 @@\n+a\n+b\n").unwrap();
    assert_eq!(apply("", &edits).unwrap(), "a\nb\n");
}

#[test]
fn an_edit_that_has_no_place_or_two_changes_nothing_and_says_why() {
    let block = |old: &str| format!("<<<<<<< SEARCH\n{old}\n=======\nnew\n>>>>>>> REPLACE");
    for (file, old, code) in [
        ("a\nb\n", "c", "diff_does_not_apply"),
        ("a\nb\n", "a\nb\nc", "diff_does_not_apply"),
        ("a\na\n", "a", "diff_is_ambiguous"),
        ("", "a", "diff_does_not_apply"),
    ] {
        let error = apply(file, &read_blocks(&block(old)).unwrap()).unwrap_err();
        assert_eq!(error.code(), code, "{file:?} {old:?}");
    }
    let error = apply("  indented\n", &read_blocks(&block("indented")).unwrap()).unwrap_err();
    assert!(
        error.to_string().contains("a line like it is line 1"),
        "{error}"
    );
}

#[test]
fn a_change_that_is_not_written_as_it_should_be_names_the_line() {
    for (change, line) in [
        ("", 1),
        ("hello\n", 1),
        ("<<<<<<< SEARCH\na\n", 2),
        ("<<<<<<< SEARCH\na\n=======\nb\n", 4),
        ("<<<<<<< SEARCH\n:start_line:zero\n", 2),
        (
            "<<<<<<< SEARCH\na\n=======\nb\n>>>>>>> REPLACE\ntrailing",
            6,
        ),
    ] {
        match read_blocks(change).unwrap_err() {
            DiffError::Malformed { line: found, .. } => assert_eq!(found, line, "{change:?}"),
            other => unreachable!("{other}"),
        }
    }
    for change in [
        "",
        "+a\n",
        "@@ -1 +1 @@\n*a\n",
        "@@ -1 +1 @@\n a\n",
        "--- a\n+++ a\n@@ -1 +1 @@\n-a\n+b\n--- b\n+++ b\n@@ -1 +1 @@\n-a\n+b\n",
    ] {
        assert_eq!(
            read_unified(change).unwrap_err().code(),
            "malformed_diff",
            "{change:?}"
        );
    }
}

mod properties {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_text_is_read_or_refused_without_a_panic(change in "(?s).{0,400}") {
            let _ = read_blocks(&change);
            let _ = read_unified(&change);
        }

        #[test]
        fn a_block_made_from_a_line_of_the_file_replaces_that_line(
            lines in proptest::collection::vec("[a-z ]{1,8}", 1..20),
            pick in any::<prop::sample::Index>(),
        ) {
            let at = pick.index(lines.len());
            let file: String = lines.iter().map(|line| format!("{line}\n")).collect();
            let edits = [Edit { old: vec![lines[at].clone()], new: vec!["NEW".into()], line: Some(at + 1) }];
            let mut expected = lines.clone();
            expected[at] = "NEW".into();
            let expected: String = expected.iter().map(|line| format!("{line}\n")).collect();
            prop_assert_eq!(apply(&file, &edits).unwrap(), expected);
        }
    }
}
