use std::{fs, os::unix::fs::symlink, path::Path, sync::Arc};

use call_outcome::{Category, Failure};
use core_types::{CallPath, ContentDigest, ConversationId, Principal, Reach, SystemIds, Tenant};
use grpc_kit::CallContext;
use tool_domain::path::WorkspacePath;

use super::*;
use store::STAGING;

mod at_server;
mod changes;

struct Fixture {
    directory: tempfile::TempDir,
    workspaces: Workspaces,
}

impl Fixture {
    fn new() -> Self {
        Self::with(WorkspaceLimits::default())
    }

    fn with(limits: WorkspaceLimits) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let workspaces = open(directory.path(), limits);
        Self {
            directory,
            workspaces,
        }
    }

    /// Returns the workspaces as the next process finds them.
    fn reopened(&self) -> Workspaces {
        open(self.directory.path(), WorkspaceLimits::default())
    }

    fn workspace(&self) -> Workspace {
        self.workspaces
            .of_conversation(
                &CallContext::of_tenant(Tenant::DEFAULT),
                &ConversationId::new("c1").unwrap(),
            )
            .unwrap()
    }

    fn inside(&self, path: &str) -> std::path::PathBuf {
        self.directory.path().join("c1").join(path)
    }

    fn staged(&self) -> usize {
        fs::read_dir(self.directory.path().join(STAGING))
            .unwrap()
            .count()
    }
}

/// Opens workspaces, which are copies in the tests of `at_server`.
fn open(directory: &Path, limits: WorkspaceLimits) -> Workspaces {
    let server = postgres_kit::files::of_test();
    Workspaces::open(directory, limits, Arc::new(SystemIds), server).unwrap()
}

fn path(text: &str) -> WorkspacePath {
    WorkspacePath::file(text).unwrap()
}

#[test]
fn no_conversation_reaches_the_files_of_another_tenant_whatever_its_name() {
    let fixture = Fixture::new();
    let tenants =
        ["default", "acme", "beta", "acme-c1", "system"].map(|name| Tenant::new(name).unwrap());
    let ids = [
        "c1",
        "acme",
        "tenants",
        ".tenants",
        "..",
        ".",
        "acme.c1",
        "acme:c1",
        ".staging",
        ".call-1",
        "%2Etenants",
        "default",
    ];
    let ids = ids.map(ConversationId::new);
    let ids: Vec<ConversationId> = ids.into_iter().flatten().collect();
    let open = |tenant, id| {
        let context = CallContext::of_tenant(tenant);
        fixture.workspaces.of_conversation(&context, id).unwrap()
    };
    let text = |tenant: Tenant, id: &ConversationId| format!("{tenant} {id}");
    let all = || {
        tenants
            .iter()
            .flat_map(|tenant| ids.iter().map(move |id| (*tenant, id)))
    };
    for (tenant, id) in all() {
        open(tenant, id)
            .write(&path("f"), &text(tenant, id))
            .unwrap();
    }
    let reopened = fixture.reopened();
    for (tenant, id) in all() {
        let context = CallContext::of_tenant(tenant);
        let workspace = reopened.of_conversation(&context, id).unwrap();
        assert_eq!(workspace.read(&path("f")).unwrap(), text(tenant, id));
        let listed = workspace.list(&WorkspacePath::directory("").unwrap());
        assert_eq!(listed.unwrap().entries.len(), 1, "{tenant} {id}");
    }
    assert!(ids.len() > 8 && fixture.inside("f").is_file());
}

#[test]
fn a_workspace_is_out_of_reach_of_who_sees_only_its_own_and_did_not_make_it() {
    let fixture = Fixture::new();
    let id = ConversationId::new("talk").unwrap();
    let open = |principal: &str, reach| {
        let principal = Principal::new(principal).unwrap();
        let context = CallContext::new(principal, CallPath::default()).reaching(reach);
        let opened = fixture.workspaces.of_conversation(&context, &id);
        opened.map(drop).map_err(|failure| failure.code.clone())
    };
    let refused = Err("no_such_conversation".into());
    for (principal, reach, expected) in [
        ("acme/ada", Reach::Own, Ok(())),
        ("acme/ada", Reach::Own, Ok(())),
        ("acme/bob", Reach::Own, refused.clone()),
        ("acme/bob", Reach::Tenant, Ok(())),
        ("bob", Reach::Own, Ok(())),
        ("ada", Reach::Own, refused),
    ] {
        assert_eq!(open(principal, reach), expected, "{principal} {reach:?}");
    }
    let acme = Tenant::new("acme").unwrap();
    assert_eq!(fixture.workspaces.remove_of(acme, 10).unwrap(), 0);
    assert_eq!(open("acme/bob", Reach::Own), Ok(()));
    assert_eq!(fixture.staged(), 0);
}

#[test]
fn a_directory_of_an_earlier_version_has_no_owner() {
    let fixture = Fixture::new();
    fs::create_dir(fixture.directory.path().join("talk")).unwrap();
    let context = CallContext::new(Principal::new("ada").unwrap(), CallPath::default());
    let id = ConversationId::new("talk").unwrap();
    let opened = fixture
        .workspaces
        .of_conversation(&context.reaching(Reach::Own), &id);
    assert!(opened.is_ok());
}

#[test]
fn a_file_is_written_with_its_directories_read_changed_listed_and_deleted() {
    let fixture = Fixture::new();
    let workspace = fixture.workspace();
    assert_eq!(workspace.write(&path("/logs/a/today.log"), "begin"), Ok(5));
    let appended = workspace.modify(&path("logs/a/today.log"), |old| {
        Ok(format!("{}+", old.unwrap()))
    });
    assert_eq!(appended, Ok(6));
    assert_eq!(workspace.read(&path("logs/a/today.log")).unwrap(), "begin+");
    let listing = workspace
        .list(&WorkspacePath::directory("").unwrap())
        .unwrap();
    let paths: Vec<&str> = listing
        .entries
        .iter()
        .map(|entry| entry.path.as_str())
        .collect();
    assert_eq!(paths, ["logs", "logs/a", "logs/a/today.log"]);
    assert_eq!(workspace.delete(&path("logs/a/today.log")), Ok(6));
    assert_eq!(
        workspace.read(&path("logs/a/today.log")).unwrap_err().code,
        "file_not_found"
    );
    assert_eq!(fixture.staged(), 0);
}

#[test]
fn conversations_do_not_see_each_other() {
    let fixture = Fixture::new();
    fixture.workspace().write(&path("a"), "1").unwrap();
    let other = fixture
        .workspaces
        .of_conversation(
            &CallContext::of_tenant(Tenant::DEFAULT),
            &ConversationId::new("c2").unwrap(),
        )
        .unwrap();
    assert_eq!(other.read(&path("a")).unwrap_err().code, "file_not_found");
}

#[test]
fn a_link_that_leads_out_is_never_followed() {
    let fixture = Fixture::new();
    let workspace = fixture.workspace();
    let secret = fixture.directory.path().join("secret");
    fs::write(&secret, "secret").unwrap();
    symlink(&secret, fixture.inside("absolute")).unwrap();
    symlink("../secret", fixture.inside("relative")).unwrap();
    symlink("..", fixture.inside("up")).unwrap();
    symlink("loop", fixture.inside("loop")).unwrap();
    symlink("/proc/self/root", fixture.inside("magic")).unwrap();
    for written in [
        "absolute",
        "relative",
        "up/secret",
        "loop",
        "magic/etc/passwd",
    ] {
        let failure = workspace.read(&path(written)).unwrap_err();
        assert_eq!(failure.code, "path_outside_workspace", "read {written}");
    }
    for written in ["up/new", "magic/tmp/new"] {
        let failure = workspace.write(&path(written), "x").unwrap_err();
        assert_eq!(failure.code, "path_outside_workspace", "write {written}");
    }
    for written in ["up", "magic"] {
        let directory = WorkspacePath::directory(written).unwrap();
        assert_eq!(
            workspace.list(&directory).unwrap_err().code,
            "path_outside_workspace"
        );
    }
    // Writing to a link and deleting one touch the link itself.
    workspace.write(&path("absolute"), "mine").unwrap();
    workspace.delete(&path("relative")).unwrap();
    assert_eq!(fs::read_to_string(&secret).unwrap(), "secret");
    let whole = workspace
        .list(&WorkspacePath::directory("").unwrap())
        .unwrap();
    assert!(
        whole.entries.iter().all(|entry| !entry.path.contains('/')),
        "{whole:?}"
    );
}

#[test]
fn a_link_inside_the_workspace_is_followed() {
    let fixture = Fixture::new();
    let workspace = fixture.workspace();
    workspace.write(&path("real/a"), "1").unwrap();
    symlink("real", fixture.inside("alias")).unwrap();
    assert_eq!(workspace.read(&path("alias/a")).unwrap(), "1");
    workspace.write(&path("alias/b/c"), "2").unwrap();
    assert_eq!(workspace.read(&path("real/b/c")).unwrap(), "2");
}

#[test]
fn directories_files_on_the_way_and_binary_content_have_their_codes() {
    let fixture = Fixture::new();
    let workspace = fixture.workspace();
    workspace.write(&path("d/f"), "x").unwrap();
    fs::write(fixture.inside("binary"), [0xff, 0xfe]).unwrap();
    assert_eq!(
        workspace.read(&path("d")).unwrap_err().code,
        "is_a_directory"
    );
    assert_eq!(
        workspace.write(&path("d"), "x").unwrap_err().code,
        "is_a_directory"
    );
    assert_eq!(
        workspace.delete(&path("d")).unwrap_err().code,
        "is_a_directory"
    );
    assert_eq!(
        workspace.write(&path("d/f/g"), "x").unwrap_err().code,
        "not_a_directory"
    );
    assert_eq!(
        workspace.read(&path("binary")).unwrap_err().code,
        "not_text"
    );
    assert_eq!(fixture.staged(), 0);
}

#[test]
fn limits_are_kept_and_leave_the_file_as_it_was() {
    let limits = WorkspaceLimits {
        file_bytes: 10,
        total_bytes: 15,
        entries: 3,
        read_bytes: 8,
        listing: 2,
    };
    let fixture = Fixture::with(limits);
    let workspace = fixture.workspace();
    workspace.write(&path("a"), "1234567890").unwrap();
    assert_eq!(
        workspace.write(&path("a"), "12345678901").unwrap_err().code,
        "too_large"
    );
    assert_eq!(workspace.read(&path("a")).unwrap_err().code, "too_large");
    assert_eq!(
        workspace.write(&path("b"), "123456").unwrap_err().code,
        "workspace_full"
    );
    workspace.write(&path("a"), "12345678").unwrap();
    workspace.write(&path("b"), "1").unwrap();
    workspace.write(&path("c"), "1").unwrap();
    assert_eq!(
        workspace.write(&path("d"), "1").unwrap_err().code,
        "workspace_full"
    );
    assert_eq!(workspace.read(&path("a")).unwrap(), "12345678");
    let listing = workspace
        .list(&WorkspacePath::directory("/").unwrap())
        .unwrap();
    assert!(listing.truncated && listing.entries.len() == 2);
}

#[test]
fn a_failed_change_leaves_the_file_as_it_was() {
    let fixture = Fixture::new();
    let workspace = fixture.workspace();
    workspace.write(&path("a"), "old").unwrap();
    let no = Failure::new(Category::Domain, "no", "no");
    assert_eq!(workspace.modify(&path("a"), |_| Err(no.clone())), Err(no));
    assert_eq!(workspace.read(&path("a")).unwrap(), "old");
}

#[test]
fn appends_from_many_threads_lose_nothing() {
    let fixture = Fixture::new();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let workspace = fixture.workspace();
                for _ in 0..8 {
                    workspace
                        .modify(&path("log"), |old| Ok(old.unwrap_or_default() + "x"))
                        .unwrap();
                }
            });
        }
    });
    assert_eq!(fixture.workspace().read(&path("log")).unwrap().len(), 64);
}

#[test]
fn the_workspace_of_a_single_call_and_what_a_crash_left_are_removed() {
    let fixture = Fixture::new();
    let single = fixture.workspaces.of_single_call().unwrap();
    single.write(&path("a"), "1").unwrap();
    drop(single);
    let left = fixture.directory.path().join(".call-left");
    fs::create_dir(&left).unwrap();
    fs::write(fixture.directory.path().join(STAGING).join("half"), "hal").unwrap();
    fixture.workspace().write(&path("kept"), "1").unwrap();
    fixture.reopened();
    assert!(!left.exists());
    assert_eq!(fixture.staged(), 0);
    assert_eq!(fixture.workspace().read(&path("kept")).unwrap(), "1");
    let names = fs::read_dir(fixture.directory.path()).unwrap().count();
    assert_eq!(
        names, 3,
        "the directories of staging and of owners, and one conversation"
    );
}

#[test]
fn a_conversation_id_that_no_directory_can_have_is_refused() {
    let id = ConversationId::new(".".repeat(100)).unwrap();
    assert_eq!(
        check_conversation(&id).unwrap_err().code,
        "invalid_conversation_id"
    );
    assert!(check_conversation(&ConversationId::new("c.1").unwrap()).is_ok());
}
