//! A registry that is killed while hooks decide repeats no effect, and its callers read the hooked result.
//!
//! `TAVERN_TEST_HOOK_KILLS` sets the kills; `make bars` sets 20.

use anyhow::{Context, ensure};
use contracts::tavern::registry::v1::{
    CallState, GetBackendRequest, GetCallRequest, GetRawResultRequest, PutBackendRequest,
    StartCallRequest,
};
use serde_json::json;
use testkit::{Stack, eventually, size};

use super::{Backend, code_of, follow, grpc, install, plugin, replace};
use crate::ledger::World;

/// Kills in `make test`.
const KILLS: usize = 3;

#[tokio::test(flavor = "multi_thread")]
async fn r205_a_call_whose_hooks_a_kill_cut_off_settles_with_the_hooked_result_and_one_effect()
-> anyhow::Result<()> {
    let kills = size("TAVERN_TEST_HOOK_KILLS", KILLS)?;
    let mut world = World::new(Stack::all_in_one().await?).await?;
    let backend = Backend::start(&world.stack, "hooks", |_, act| {
        Ok(match act["point"].as_str() {
            Some("tool:after-call") => replace("/result/output", json!("hooked")),
            _ => json!({"action": "continue"}),
        })
    });
    let backend = backend.await?;
    let when = json!({"when": "call.tool_id == 'ledger.append'"});
    let hooks = [
        grpc("before", "tool:before-call", when.clone()),
        grpc("after", "tool:after-call", when),
    ];
    install(&world.stack, &plugin("appends", &hooks, &[])?).await?;
    for kill in 0..kills {
        let effect_id = format!("append-{kill}");
        let asked = backend.asked("tool:after-call").len();
        backend.hold(true);
        let before = backend.asked("tool:before-call").len();
        let request = StartCallRequest {
            tool_id: "ledger.append".to_owned(),
            arguments_json: json!({"key": "k", "note": effect_id, "delay_ms": 1}).to_string(),
            effect_id: effect_id.clone(),
            ..StartCallRequest::default()
        };
        let mut calls = world.stack.calls();
        let started = tokio::spawn(async move { calls.start_call(request).await });
        eventually("the hook before the call", || async {
            (backend.asked("tool:before-call").len() > before).then_some(())
        })
        .await?;
        backend.hold(false);
        started.await??;
        backend.hold(true);
        // The hook after the call may have been asked in between; then its effect is there all the same.
        eventually("the hook after the call", || async {
            (backend.asked("tool:after-call").len() > asked).then_some(())
        })
        .await?;
        world.stack.kill()?;
        backend.hold(false);
        world.stack.restart().await?;
        let calls = world.stack.calls();
        let settled = eventually("the call to settle", || async {
            let request = GetCallRequest {
                effect_id: effect_id.clone(),
            };
            let call = calls
                .clone()
                .get_call(request)
                .await
                .ok()?
                .into_inner()
                .call?;
            (call.state() != CallState::Running).then_some(call)
        });
        let settled = settled.await?;
        ensure!(
            settled.state() == CallState::Succeeded,
            "{kill}: {settled:?}"
        );
        let result = settled.result.context("a result")?;
        ensure!(result.output_json == "\"hooked\"", "{kill}: {result:?}");
        ensure!(world.effects(&effect_id)?.len() == 1, "{kill}: one effect");
        let request = GetRawResultRequest { effect_id };
        let raw = world
            .stack
            .calls()
            .get_raw_result(request)
            .await?
            .into_inner();
        let raw = raw.result.context("operators see the raw result")?;
        ensure!(raw.output_json != result.output_json, "{raw:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn r206_calls_that_a_backend_makes_as_its_own_principal_do_not_run_its_hooks()
-> anyhow::Result<()> {
    let stack = Stack::all_in_one().await?;
    super::echo(&stack).await?;
    let backend = Backend::start(&stack, "hooks", |_, _| Ok(json!({"action": "deny"}))).await?;
    install(
        &stack,
        &plugin("own", &[grpc("all", "tool:before-call", json!({}))], &[])?,
    )
    .await?;
    let refused = follow(&stack, "echo:say", "", json!({})).await?.1;
    ensure!(code_of(&refused) == "denied_by_hook", "{refused:?}");
    // Without keys every caller is `local`, which is stated as the backend's own here.
    let mut registry = stack.registry();
    let request = GetBackendRequest {
        name: "hooks".to_owned(),
    };
    let found = registry.get_backend(request).await?;
    let endpoint = found.into_inner().backend.unwrap_or_default().endpoint;
    let request = PutBackendRequest {
        name: "hooks".to_owned(),
        endpoint,
        principal: "local".to_owned(),
        ..PutBackendRequest::default()
    };
    registry.put_backend(request).await?;
    let asked = backend.asked("tool:before-call").len();
    let (events, passed) = follow(&stack, "echo:say", "", json!({})).await?;
    ensure!(
        passed.error.is_none() && super::applied(&events).is_empty(),
        "{passed:?}"
    );
    ensure!(backend.asked("tool:before-call").len() == asked);
    Ok(())
}
