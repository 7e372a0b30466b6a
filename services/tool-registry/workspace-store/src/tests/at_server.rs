//! The same with files at a server, and the copies of several processes.

use postgres_kit::{
    at_server,
    files::{at_server, of_test},
};

use super::*;

at_server! {
    a_failed_change_leaves_the_file_as_it_was
    a_file_is_written_with_its_directories_read_changed_listed_and_deleted
    a_workspace_is_out_of_reach_of_who_sees_only_its_own_and_did_not_make_it
    appends_from_many_threads_lose_nothing
    conversations_do_not_see_each_other
    limits_are_kept_and_leave_the_file_as_it_was
    no_conversation_reaches_the_files_of_another_tenant_whatever_its_name
}
/// Returns the paths and texts of all files.
fn texts(workspace: &Workspace) -> Vec<(String, String)> {
    let files = workspace.files().unwrap().into_iter();
    files
        .map(|file| {
            let text = workspace.read(&path(&file.path)).unwrap();
            (file.path, text)
        })
        .collect()
}

fn listed(of: &[(&str, &str)]) -> Vec<(String, String)> {
    let owned = |(path, text): &(&str, &str)| ((*path).to_owned(), (*text).to_owned());
    of.iter().map(owned).collect()
}

#[test]
fn another_machine_has_the_files_as_they_were_last_with_their_times() {
    at_server(|| {
        let fixture = Fixture::new();
        let workspace = fixture.workspace();
        for (file, text) in [("a/b/c", "1"), ("a/d", "2"), ("e", "3"), ("empty", "")] {
            workspace.write(&path(file), text).unwrap();
        }
        workspace.write(&path("e"), "4").unwrap();
        workspace.delete(&path("a/d")).unwrap();
        let moved = workspace.rename(&path("a/b/c"), &path("f"), Condition::Any);
        moved.unwrap();
        let large = "x".repeat(3 << 20);
        let mut staging = fixture.workspaces.stage().unwrap();
        staging.write(large.as_bytes()).unwrap();
        let staged = staging.finish().unwrap();
        workspace
            .put(&path("large"), staged, Condition::IsNew)
            .unwrap();

        let other = Fixture::new();
        let there = other.workspace();
        assert_eq!(there.files().unwrap(), workspace.files().unwrap());
        there.delete(&path("large")).unwrap();
        let expected = listed(&[("e", "4"), ("empty", ""), ("f", "1")]);
        assert_eq!(texts(&there), expected);
        // The first process looks again when it opens the workspace.
        assert_eq!(texts(&fixture.workspace()), expected);
        assert_eq!((fixture.staged(), other.staged()), (0, 0));
    });
}

#[test]
fn a_change_on_top_of_an_old_copy_is_refused_and_undone() {
    at_server(|| {
        let (one, two) = (Fixture::new(), Fixture::new());
        let (mine, theirs) = (one.workspace(), two.workspace());
        mine.write(&path("a"), "mine").unwrap();
        let failure = theirs.write(&path("a"), "theirs").unwrap_err();
        assert!(failure.retryable, "{failure:?}");
        assert_eq!(texts(&theirs), listed(&[("a", "mine")]));
        theirs.write(&path("b"), "theirs").unwrap();
        assert_eq!(
            texts(&one.workspace()),
            listed(&[("a", "mine"), ("b", "theirs")])
        );
    });
}

#[test]
fn a_copy_that_was_damaged_while_nothing_ran_is_made_whole() {
    at_server(|| {
        let fixture = Fixture::new();
        let workspace = fixture.workspace();
        for file in ["damaged", "removed", "deep/kept"] {
            workspace.write(&path(file), file).unwrap();
        }
        fs::write(fixture.inside("damaged"), "other!!").unwrap();
        fs::remove_file(fixture.inside("removed")).unwrap();
        fs::create_dir(fixture.inside("removed")).unwrap();
        fs::write(fixture.inside("removed/stranger"), "x").unwrap();
        symlink("/", fixture.inside("link")).unwrap();
        let again = Fixture {
            workspaces: fixture.reopened(),
            ..fixture
        };
        let expected = ["damaged", "deep/kept", "removed"].map(|file| (file, file));
        assert_eq!(texts(&again.workspace()), listed(&expected));
        assert!(!again.inside("link").exists());
    });
}

#[test]
fn workspaces_move_to_a_server_and_back_and_a_repeat_changes_nothing() {
    let fixture = Fixture::new();
    let acme = CallContext::of_tenant(Tenant::new("acme").unwrap());
    let id = ConversationId::new("c1").unwrap();
    let of_acme = fixture.workspaces.of_conversation(&acme, &id).unwrap();
    let plugin = fixture
        .workspaces
        .of_plugin(acme.tenant(), "notes", 1 << 20);
    for (workspace, text) in [
        (&fixture.workspace(), "1"),
        (&of_acme, "2"),
        (&plugin.unwrap(), "3"),
    ] {
        workspace.write(&path("d/f"), text).unwrap();
    }
    let all = CopiedFiles {
        workspaces: 3,
        files: 3,
    };
    let back = Fixture::new();
    at_server(|| {
        let server = of_test().unwrap();
        for _ in 0..2 {
            assert_eq!(fixture.workspaces.copy_to(&server).unwrap(), all);
            assert_eq!(back.workspaces.copy_from(&server).unwrap(), all);
        }
    });
    if postgres_kit::shared().is_none() {
        return;
    }
    let there = back.workspaces.of_conversation(&acme, &id).unwrap();
    assert_eq!(there.files().unwrap(), of_acme.files().unwrap());
    assert_eq!(texts(&back.workspace()), listed(&[("d/f", "1")]));
    let plugin = back.workspaces.of_plugin(acme.tenant(), "notes", 1 << 20);
    assert_eq!(texts(&plugin.unwrap()), listed(&[("d/f", "3")]));
    let owner = fs::read_to_string(back.directory.path().join(".owners/.tenants/acme/c1"));
    assert_eq!(owner.unwrap(), acme.principal().as_str());
}
