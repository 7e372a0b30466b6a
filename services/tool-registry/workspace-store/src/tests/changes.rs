//! The changes of code.

use super::*;

fn staged(workspaces: &Workspaces, text: &str) -> Staged {
    let mut staging = workspaces.stage().unwrap();
    staging.write(text.as_bytes()).unwrap();
    staging.finish().unwrap()
}

#[test]
fn a_change_of_code_meets_every_change_of_the_other_side() {
    let digest = |text: &str| ContentDigest::of(text.as_bytes());
    // The content that the code began with, that the other side has, and that the code left; then the kind of the change,
    // and the content of the file and of the one beside it.
    type Case = (
        Option<&'static str>,
        Option<&'static str>,
        Option<&'static str>,
        &'static str,
        Option<&'static str>,
        Option<&'static str>,
    );
    let cases: [Case; 12] = [
        (None, None, Some("new"), "created", Some("new"), None),
        (Some("a"), Some("a"), Some("b"), "changed", Some("b"), None),
        (Some("a"), Some("a"), None, "removed", None, None),
        (
            Some("a"),
            Some("c"),
            Some("b"),
            "conflict",
            Some("c"),
            Some("b"),
        ),
        (None, Some("c"), Some("b"), "conflict", Some("c"), Some("b")),
        (Some("a"), None, Some("b"), "conflict", Some("b"), None),
        (Some("a"), Some("c"), None, "conflict", Some("c"), None),
        (None, Some("c"), None, "conflict", Some("c"), None),
        (Some("a"), None, None, "", None, None),
        (Some("a"), Some("b"), Some("b"), "", Some("b"), None),
        (None, Some("b"), Some("b"), "", Some("b"), None),
        (None, None, None, "", None, None),
    ];
    for (base, ours, theirs, kind, left, beside) in cases {
        let fixture = Fixture::new();
        let workspace = fixture.workspace();
        if let Some(ours) = ours {
            workspace.write(&path("d/report.csv"), ours).unwrap();
        }
        let change = Change {
            path: path("d/report.csv"),
            base: base.map(digest),
            content: theirs.map(|text| staged(&fixture.workspaces, text)),
        };
        let made = workspace.make(vec![change], "cell 4").unwrap();
        let kinds: Vec<&str> = made
            .iter()
            .map(|made| match made.kind {
                MadeKind::Created => "created",
                MadeKind::Changed => "changed",
                MadeKind::Removed => "removed",
                MadeKind::Conflict => "conflict",
                MadeKind::Refused(_) => "refused",
            })
            .collect();
        let case = format!("{base:?} {ours:?} {theirs:?}");
        assert_eq!(kinds.first().copied().unwrap_or_default(), kind, "{case}");
        let read = |name: &str| workspace.read(&path(name)).ok();
        assert_eq!(read("d/report.csv").as_deref(), left, "{case}");
        assert_eq!(read("d/report (cell 4).csv").as_deref(), beside, "{case}");
        assert_eq!(fixture.staged(), 0, "{case}");
    }
}

#[test]
fn changes_that_do_not_fit_are_made_all_or_not_at_all() {
    let fixture = Fixture::with(WorkspaceLimits {
        total_bytes: 10,
        ..WorkspaceLimits::default()
    });
    let workspace = fixture.workspace();
    workspace.write(&path("old"), "123456").unwrap();
    let change = |name: &str, content: Option<&str>, base: Option<&str>| Change {
        path: path(name),
        base: base.map(|text| ContentDigest::of(text.as_bytes())),
        content: content.map(|text| staged(&fixture.workspaces, text)),
    };
    let both = vec![
        change("a", Some("1234"), None),
        change("b", Some("1"), None),
    ];
    let failure = workspace.make(both, "code").unwrap_err();
    assert_eq!(failure.code, "workspace_full");
    assert!(
        failure.message.contains("'old' (6 bytes)"),
        "{}",
        failure.message
    );
    assert_eq!(workspace.files().unwrap().len(), 1);
    // A removal makes room, whatever the order.
    let moved = vec![
        change("new", Some("1234567"), None),
        change("old", None, Some("123456")),
    ];
    assert_eq!(workspace.make(moved, "code").unwrap().len(), 2);
    assert_eq!(workspace.read(&path("new")).unwrap(), "1234567");
    assert_eq!(fixture.staged(), 0);
}

#[test]
fn a_path_that_differs_only_in_case_from_another_is_refused_to_every_writer() {
    let fixture = Fixture::new();
    let workspace = fixture.workspace();
    for file in ["Sub/Straße.csv", "Sub/other"] {
        workspace.write(&path(file), "1").unwrap();
    }
    for other in ["sub/x", "SUB/y", "Sub/straße.CSV", "Sub/Straße.csv/z"] {
        let failure = workspace.write(&path(other), "2").unwrap_err();
        assert!(
            matches!(failure.code.as_str(), "invalid_path" | "not_a_directory"),
            "{other}: {failure:?}"
        );
        let content = staged(&fixture.workspaces, "2");
        let put = workspace.put(&path(other), content, Condition::Any);
        assert!(put.is_err(), "{other}");
        let change = Change {
            path: path(other),
            base: None,
            content: Some(staged(&fixture.workspaces, "2")),
        };
        let made = workspace.make(vec![change], "code").unwrap();
        assert!(matches!(made[0].kind, MadeKind::Refused(_)), "{other}");
    }
    let moved = workspace.rename(&path("Sub/Straße.csv"), &path("sub/a"), Condition::Any);
    assert_eq!(moved.unwrap_err().code, "invalid_path");
    assert_eq!(workspace.files().unwrap().len(), 2);
    assert_eq!(fixture.staged(), 0);
}

/// Returns the change that leaves content in a file, or removes it.
fn change(fixture: &Fixture, path: &str, base: Option<&str>, content: Option<&str>) -> Change {
    let staged = content.map(|content| {
        let mut staging = fixture.workspaces.stage().unwrap();
        staging.write(content.as_bytes()).unwrap();
        staging.finish().unwrap()
    });
    Change {
        path: WorkspacePath::exact(path).unwrap(),
        base: base.map(|base| ContentDigest::of(base.as_bytes())),
        content: staged,
    }
}

fn paths(workspace: &Workspace) -> Vec<String> {
    let files = workspace.files().unwrap();
    files.into_iter().map(|file| file.path).collect()
}

#[test]
fn a_directory_is_removed_with_its_last_file() {
    let fixture = Fixture::new();
    let workspace = fixture.workspace();
    for file in ["a/b/c/x", "a/y"] {
        workspace.write(&path(file), "1").unwrap();
    }
    workspace.delete(&path("a/b/c/x")).unwrap();
    assert!(!fixture.inside("a/b").exists() && fixture.inside("a/y").exists());
    let moved = workspace.rename(&path("a/y"), &path("A/y"), Condition::Any);
    assert_eq!(moved.unwrap().path, "A/y");
    assert!(!fixture.inside("a").exists());
    workspace.delete(&path("A/y")).unwrap();
    workspace.write(&path("A"), "a file").unwrap();
    assert_eq!(paths(&workspace), ["A"]);
}

#[test]
fn a_directory_that_code_renames_or_replaces_keeps_its_files() {
    let fixture = Fixture::new();
    let workspace = fixture.workspace();
    for file in ["Data/x/1", "Data/2", "old/3"] {
        workspace.write(&path(file), "content").unwrap();
    }
    let base = Some("content");
    let changes = vec![
        change(&fixture, "Data/2", base, None),
        change(&fixture, "Data/x/1", base, None),
        change(&fixture, "data/2", None, base),
        change(&fixture, "data/x/1", None, base),
        change(&fixture, "old/3", base, None),
        change(&fixture, "old", None, Some("a file")),
    ];
    let made = workspace.make(changes, "cell 1").unwrap();
    let kinds: Vec<MadeKind> = made.into_iter().map(|made| made.kind).collect();
    let (removed, created) = (MadeKind::Removed, MadeKind::Created);
    let expected = [&removed, &removed, &created, &created, &created, &removed];
    assert_eq!(kinds, expected.map(Clone::clone));
    assert_eq!(paths(&workspace), ["data/2", "data/x/1", "old"]);
}

#[test]
fn the_other_version_of_a_file_has_a_path_that_a_client_can_name() {
    let fixture = Fixture::new();
    let workspace = fixture.workspace();
    let deep = format!("{0}/{0}/{0}/{0}/aaaaaaaaaaaa.csv", "d".repeat(250));
    let long = format!("a.{}", "x".repeat(253));
    for file in [&deep, &long] {
        workspace.write(&path(file), "theirs").unwrap();
        let changes = vec![change(&fixture, file, Some("base"), Some("ours"))];
        let made = workspace.make(changes, "cell 12").unwrap();
        assert_eq!(made[0].kind, MadeKind::Conflict, "{file}");
        let beside = &made[0].file.as_ref().unwrap().path;
        let named = WorkspacePath::exact(beside).unwrap();
        assert_eq!(workspace.read(&named).unwrap(), "ours");
        assert_eq!(workspace.read(&path(file)).unwrap(), "theirs");
    }
}

#[test]
fn the_last_changes_that_were_taken_are_known_after_a_restart() {
    let fixture = Fixture::new();
    let workspace = fixture.workspace();
    assert_eq!(workspace.taken("python3").unwrap(), Taken::default());
    let of = |session: &str, cell| Taken {
        session: session.to_owned(),
        cell,
        not_taken: vec!["A ".to_owned()],
    };
    for (taken, last) in [
        (of("s1", 2), of("s1", 2)),
        (of("s1", 1), of("s1", 2)),
        (of("s2", 1), of("s2", 1)),
    ] {
        workspace.record_taken("python3", &taken).unwrap();
        assert_eq!(workspace.taken("python3").unwrap(), last);
    }
    let again = Fixture {
        workspaces: fixture.reopened(),
        ..fixture
    };
    assert_eq!(again.workspace().taken("python3").unwrap(), of("s2", 1));
    assert_eq!(again.workspace().taken("node").unwrap(), Taken::default());
    assert_eq!(again.staged(), 0);
}

#[test]
fn the_paths_of_all_files_fit_into_a_message() {
    let mut tree = tree::Tree::default();
    let limits = WorkspaceLimits::default();
    let directory = ["d".repeat(250), "e".repeat(250), "f".repeat(250)].join("/");
    let put = |tree: &mut tree::Tree, number: usize| {
        tree.put(&path(&format!("{directory}/{number:0200}")), 1, &limits)
    };
    let fit = tree::MAX_PATHS_BYTES / (directory.len() + 1 + 200);
    for number in 0..fit {
        put(&mut tree, number).unwrap();
    }
    let failure = put(&mut tree, fit).unwrap_err();
    assert_eq!(failure.code, "workspace_full");
    assert!(
        failure.message.contains("the paths of its files"),
        "{failure:?}"
    );
    // A file that is there is replaced, and a removal makes room.
    put(&mut tree, 0).unwrap();
    tree.remove(&format!("{directory}/{:0200}", 1));
    put(&mut tree, fit).unwrap();
}

/// The same with files at a server.
mod at_server {
    postgres_kit::at_server! {
        a_directory_is_removed_with_its_last_file
        a_directory_that_code_renames_or_replaces_keeps_its_files
        a_path_that_differs_only_in_case_from_another_is_refused_to_every_writer
        changes_that_do_not_fit_are_made_all_or_not_at_all
        the_last_changes_that_were_taken_are_known_after_a_restart
        the_other_version_of_a_file_has_a_path_that_a_client_can_name
    }
}
