//! A call runs the files of its approval, or people are asked again (rules G807 and R401).

use contracts::tavern::{common::v1::CallStatus, registry::v1::ApprovalState};
use doubles::Mode;
use serde_json::{Value, json};
use sqlx::{ConnectOptions, sqlite::SqliteConnectOptions};

use crate::{
    approvals::{Followed, approve, approver, begin, decide, pending, reject, started},
    fixture::{Fixture, code_of, put_scripts, until, with_effect},
};

const EXCHANGED: &str = "print(2)";

/// Two tools of one script that may be repeated; people approve calls of the first.
fn tools() -> [Value; 2] {
    ["asked", "free"].map(|id| {
        json!({"id": id, "description": "runs", "idempotent": true,
               "parameters": {"type": "object"},
               "implementation": {"type": "script", "command": "python run.py"}})
    })
}

async fn fixture() -> Fixture {
    let file = json!({
        "rules": [{"id": "all", "tools": ["asked"], "action": "ask",
                   "approvers": {"role": "keeper"}}],
        "approvers": [approver("mara", &["keeper"])]
    });
    Fixture::with_approvals(&tools(), &file).await
}

fn exchange(fixture: &Fixture) {
    std::fs::write(fixture.plugins.join("scripts/run.py"), EXCHANGED).unwrap();
}

/// Returns the script that ran last.
fn last_script(fixture: &Fixture) -> String {
    let last = fixture.sandbox.last.lock().unwrap().clone().unwrap();
    let script = last.files.into_iter().find(|file| file.path == "run.py");
    String::from_utf8(script.unwrap().content).unwrap()
}

#[tokio::test]
async fn g807_a_call_that_waits_over_an_exchange_of_its_script_is_asked_for_again() {
    let mut fixture = fixture().await;
    let waiting = begin(&fixture, "e1", "asked", json!({}));
    let first = pending(&fixture, "e1").await;
    exchange(&fixture);
    fixture.crash_and_restart().await;
    assert!(waiting.await.is_err());
    let decided = decide(&fixture, "mara", approve(&first)).await.unwrap();
    assert_eq!(decided.state(), ApprovalState::Approved);
    let waiting = begin(&fixture, "e1", "asked", json!({}));
    let second = pending(&fixture, "e1").await;
    assert_ne!(second.tool_digest, first.tool_digest);
    assert_eq!(started(&fixture), 0);
    decide(&fixture, "mara", approve(&second)).await.unwrap();
    assert_eq!(waiting.await.unwrap().1.status(), CallStatus::Succeeded);
    assert_eq!(last_script(&fixture), EXCHANGED);
}

#[tokio::test]
async fn a_call_runs_the_files_that_were_approved_whatever_becomes_of_their_directory() {
    let fixture = fixture().await;
    let waiting = begin(&fixture, "e1", "asked", json!({}));
    let approval = pending(&fixture, "e1").await;
    exchange(&fixture);
    decide(&fixture, "mara", approve(&approval)).await.unwrap();
    assert_eq!(waiting.await.unwrap().1.status(), CallStatus::Succeeded);
    assert_ne!(last_script(&fixture), EXCHANGED);
}

#[tokio::test]
async fn a_package_that_is_written_again_as_it_is_keeps_the_approval() {
    let mut fixture = fixture().await;
    let waiting = begin(&fixture, "e1", "asked", json!({}));
    let approval = pending(&fixture, "e1").await;
    put_scripts(&fixture.plugins, &tools());
    fixture.crash_and_restart().await;
    assert!(waiting.await.is_err());
    decide(&fixture, "mara", approve(&approval)).await.unwrap();
    let result = fixture.finish(with_effect("e1", "asked", json!({}))).await;
    assert_eq!(result.1.status(), CallStatus::Succeeded);
}

/// Cuts a call off that has left, and calls it again as its owner does, after some changes.
async fn cut_off(
    fixture: &mut Fixture,
    tool: &str,
    changes: impl AsyncFnOnce(&mut Fixture),
) -> Followed {
    fixture.sandbox.set(Mode::Hold("1".into()));
    let call = begin(fixture, "e1", tool, json!({}));
    if tool == "asked" {
        let approval = pending(fixture, "e1").await;
        decide(fixture, "mara", approve(&approval)).await.unwrap();
    }
    until("the dispatch", || started(fixture) == 1).await;
    changes(fixture).await;
    fixture.crash_and_restart().await;
    assert!(call.await.is_err());
    fixture.sandbox.set(Mode::Run);
    fixture.recover().await;
    begin(fixture, "e1", tool, json!({}))
}

#[tokio::test]
async fn r107_a_call_that_was_cut_off_runs_the_files_of_its_dispatch_without_another_approval() {
    for (tool, exchanges) in [("asked", false), ("asked", true), ("free", true)] {
        let mut fixture = fixture().await;
        let change = async |fixture: &mut Fixture| {
            if exchanges {
                exchange(fixture);
            }
        };
        let again = cut_off(&mut fixture, tool, change).await;
        assert_eq!(again.await.unwrap().1.status(), CallStatus::Succeeded);
        assert_eq!(started(&fixture), 2);
        assert_ne!(last_script(&fixture), EXCHANGED);
        let new = fixture.call("free", json!({})).await;
        assert_eq!(new.status(), CallStatus::Succeeded);
        assert_eq!(last_script(&fixture) == EXCHANGED, exchanges);
    }
}

#[tokio::test]
async fn r107_a_package_is_kept_while_a_call_that_was_cut_off_needs_it() {
    let mut fixture = fixture().await;
    let change = async |fixture: &mut Fixture| {
        // Three earlier packages are kept without any call.
        for number in 0..5 {
            let script = format!("print({number})");
            std::fs::write(fixture.plugins.join("scripts/run.py"), script).unwrap();
            fixture.crash_and_restart().await;
        }
        std::fs::remove_dir_all(fixture.plugins.join("scripts")).unwrap();
    };
    let again = cut_off(&mut fixture, "free", change).await;
    assert_eq!(again.await.unwrap().1.status(), CallStatus::Succeeded);
    assert!(last_script(&fixture).starts_with("import sys"));
    let gone = fixture.call("free", json!({})).await;
    assert_eq!(code_of(&gone), "tool_removed");
}

#[tokio::test]
async fn r115_a_registry_without_plugins_runs_no_kept_script() {
    let mut fixture = fixture().await;
    let without = async |fixture: &mut Fixture| fixture.without_plugins = true;
    let again = cut_off(&mut fixture, "free", without).await;
    assert_eq!(again.await.unwrap().1.status(), CallStatus::InDoubt);
    assert_eq!(started(&fixture), 1);
}

/// Exchanges the script, and loses the package of before, as a backup that was made in between does.
async fn exchange_and_lose(fixture: &mut Fixture) {
    exchange(fixture);
    let database = fixture.directory.path().join("tool-registry.db");
    let options = SqliteConnectOptions::new().filename(database);
    let mut connection = options.connect().await.unwrap();
    let lost = sqlx::query("DELETE FROM plugin_package");
    assert_ne!(
        lost.execute(&mut connection).await.unwrap().rows_affected(),
        0
    );
}

#[tokio::test]
async fn g807_an_approved_call_whose_package_is_lost_is_asked_for_again() {
    let mut approved = fixture().await;
    let again = cut_off(&mut approved, "asked", exchange_and_lose).await;
    let approval = pending(&approved, "e1").await;
    assert_eq!(started(&approved), 1);
    decide(&approved, "mara", approve(&approval)).await.unwrap();
    assert_eq!(again.await.unwrap().1.status(), CallStatus::Succeeded);
    assert_eq!(last_script(&approved), EXCHANGED);

    // The first attempt may have taken effect, so the call is not said to be refused.
    let mut rejected = fixture().await;
    let again = cut_off(&mut rejected, "asked", exchange_and_lose).await;
    let approval = pending(&rejected, "e1").await;
    let decided = decide(&rejected, "mara", reject(&approval, "")).await;
    decided.unwrap();
    assert_eq!(again.await.unwrap().1.status(), CallStatus::InDoubt);
    assert_eq!(started(&rejected), 1);

    let mut free = fixture().await;
    let again = cut_off(&mut free, "free", exchange_and_lose).await;
    assert_eq!(again.await.unwrap().1.status(), CallStatus::Succeeded);
    assert_eq!(last_script(&free), EXCHANGED);
}
