//! The commands for calls: a call in doubt is found, read, followed and decided.

use serde_json::Value;
use testkit::{Stack, eventually, until};

use super::{printed, tavern, text};
use crate::ledger::{World, append, dispatched};
use crate::text::model_text;

/// Returns the effect ids of the calls that `tavern calls list` prints with `conditions`.
fn listed(stack: &Stack, conditions: &[&str]) -> anyhow::Result<Vec<String>> {
    let list = [&["calls", "list", "--json"], conditions].concat();
    let effects = printed(stack, &list)?;
    let effects = effects.lines().map(|line| {
        let call: Value = serde_json::from_str(line)?;
        Ok(call["effectId"].as_str().unwrap_or_default().to_owned())
    });
    effects.collect()
}

/// Waits until a command prints a part, and returns its output then.
async fn await_printed(stack: &Stack, arguments: &[&str], part: &str) -> anyhow::Result<String> {
    eventually(part, || async {
        let printed = printed(stack, arguments).ok()?;
        printed.contains(part).then_some(printed)
    })
    .await
}

/// Decides about one call in each way.
async fn decide_about_each(world: &World) -> anyhow::Result<()> {
    let stack = &world.stack;
    let file = stack.directory().join("output.json");
    std::fs::write(&file, r#"{"index":7}"#)?;
    let file = format!("@{}", file.display());
    let took_effect = [
        "calls",
        "resolve",
        "gift 1",
        "--took-effect",
        "--output",
        &file,
        "--reason",
        "it is there",
        "--request-id",
        "d1",
    ];
    // The same request decides once.
    for _ in 0..2 {
        let decided = printed(stack, &took_effect)?;
        for part in [
            "state         succeeded\n",
            r#"output        {"index":7}"#,
            "took effect, ",
            ", it is there\n",
        ] {
            assert!(decided.contains(part), "{part} is not in {decided}");
        }
    }
    let decided = printed(stack, &["calls", "resolve", "gift-2", "--did-not"])?;
    assert!(decided.contains("state         failed\n"), "{decided}");
    assert!(decided.contains("(took_no_effect)"), "{decided}");
    let repeated = printed(stack, &["calls", "resolve", "gift-3", "--repeat", "--json"])?;
    let repeated: Value = serde_json::from_str(&repeated)?;
    assert_eq!(repeated["state"], "CALL_STATE_RUNNING", "{repeated}");
    assert_eq!(repeated["attempt"], 2, "{repeated}");
    eventually("the repeated effect", || async {
        let happened = world.effects("gift-3").ok()?.len();
        (happened == 2).then_some(())
    })
    .await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_in_doubt_are_listed_shown_followed_and_decided() -> anyhow::Result<()> {
    let mut world = World::new(Stack::all_in_one().await?).await?;
    let effects = ["gift 1", "gift-2", "gift-3"];
    world.leave_in_doubt(&effects).await?;
    let stack = &world.stack;

    let newest_first = ["gift-3", "gift-2", "gift 1"];
    for state in ["in-doubt", "in_doubt"] {
        let in_doubt = await_printed(stack, &["calls", "list", "--state", state], "gift 1").await?;
        assert!(in_doubt.contains("ledger.append"), "{in_doubt}");
        assert_eq!(listed(stack, &["--state", state])?, newest_first);
    }
    assert_eq!(listed(stack, &["--limit", "1"])?, ["gift-3"]);
    for others in [
        ["--tool", "no_such_tool"],
        ["--conversation", "c1"],
        ["--state", "failed"],
        ["--run", "call_00000000000000000000000000000000"],
    ] {
        assert!(listed(stack, &others)?.is_empty(), "{others:?}");
    }

    let shown = printed(stack, &["calls", "show", "gift 1"])?;
    for part in [
        "effect        gift 1\n",
        "state         in_doubt\n",
        "tool          ledger.append\n",
        r#""note":"gift 1""#,
        "tavern calls resolve 'gift 1' --took-effect (or --did-not, --repeat)\n",
    ] {
        assert!(shown.contains(part), "{part} is not in {shown}");
    }
    let arguments = r#"{"key":"k","note":"gift 1","delay_ms":30000}"#;
    let call = [
        "tools",
        "call",
        "ledger.append",
        arguments,
        "--effect-id",
        "gift 1",
    ];
    let called = tavern(stack, &call)?;
    assert!(!called.status.success(), "{called:?}");
    let hint = "decide by: tavern calls resolve 'gift 1' --took-effect";
    assert!(text(&called.stdout).contains(hint), "{called:?}");
    let watched = tavern(stack, &["calls", "watch", "gift 1"])?;
    assert!(!watched.status.success(), "{watched:?}");
    assert!(text(&watched.stdout).contains("state         in_doubt"));

    decide_about_each(&world).await?;
    assert!(listed(stack, &["--state", "in-doubt"])?.is_empty());
    let again = tavern(stack, &["calls", "resolve", "gift 1", "--did-not"])?;
    assert!(!again.status.success(), "{again:?}");
    let said = text(&again.stderr);
    assert!(
        said.starts_with("error: the call is not in doubt"),
        "{said}"
    );
    let watched = printed(stack, &["calls", "watch", "gift 1", "--json"])?;
    let ended: Value = serde_json::from_str(watched.lines().last().unwrap_or_default())?;
    assert_eq!(ended["terminal"]["state"], "CALL_STATE_SUCCEEDED");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_names_its_effects_in_doubt_and_the_command_that_decides() -> anyhow::Result<()> {
    let mut world = World::new(Stack::all_in_one().await?).await?;
    let request = model_text(&append("ledger.append", "slow", 30_000));
    let (run_id, _) = until(&world.stack.gateway(), request, dispatched).await?;
    world.await_effect("slow").await?;
    world.stack.kill()?;
    world.stack.restart().await?;
    let effects = world.effects("slow")?;
    let effect_id = effects[0]["effect_id"].as_str().unwrap_or_default();
    let command = format!("tavern calls resolve {effect_id} --took-effect");
    let show = ["runs", "show", &run_id];
    let shown = await_printed(&world.stack, &show, &command).await?;
    let named = format!("in doubt      {effect_id}\n");
    assert!(shown.contains(&named), "{shown}");
    assert_eq!(listed(&world.stack, &["--run", &run_id])?, [effect_id]);
    let resolve = ["calls", "resolve", effect_id, "--took-effect"];
    let decided = printed(&world.stack, &resolve)?;
    assert!(
        decided.contains(&format!("run           {run_id}\n")),
        "{decided}"
    );
    Ok(())
}
