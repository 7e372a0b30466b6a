//! Chains against a model, in simulated time.
//!
//! `TAVERN_TEST_CHAINS` sets the number of passes; `make bars` sets 100,000.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use serde_json::{Value, json};
use tokio::time::Instant;
use tool_domain::{
    hook_point::HookPoint,
    manifest::{Hook, HookHandler, OnFailure},
};

use super::*;

/// The passes in `make test`.
const PASSES: usize = 5_000;

/// The answer of a handler in one pass.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Behaviour {
    Continue,
    Replace,
    Deny,
    Answer,
    /// It changes a part that it must not change.
    Reach,
    /// It makes the payload unfit.
    Unfit,
    Crash,
    Sleep,
}

use Behaviour::{Answer, Continue, Crash, Deny, Reach, Replace, Sleep, Unfit};

/// Handlers that behave as a pass of the test wants.
#[derive(Default)]
struct Handlers {
    behaviours: HashMap<String, Behaviour>,
    asked: Mutex<Vec<String>>,
}

impl Ask for Handlers {
    async fn ask(
        &self,
        hook: &ActiveHook,
        _: &Value,
        limit: Duration,
    ) -> Result<Value, HookFailure> {
        let name = hook.name();
        self.asked.lock().unwrap().push(name.clone());
        tokio::time::sleep(Duration::from_millis(10)).await;
        let change = |path: &str, value: Value| json!({"action": "replace", "patch": [{"op": "add", "path": path, "value": value}]});
        Ok(match self.behaviours[&name] {
            Continue => json!({"action": "continue"}),
            Replace => change(&format!("/call/arguments/{}", hook.hook.id), json!(true)),
            Deny => json!({"action": "deny", "code": "no"}),
            Answer => json!({"action": "answer", "output": name}),
            Reach => change("/call/tool_id", json!("other")),
            Unfit => change("/call/arguments/unfit", json!(true)),
            Crash => return Err(HookFailure::new("hook_failed", "crashed")),
            Sleep => {
                tokio::time::sleep(limit * 2).await;
                json!({"action": "continue"})
            }
        })
    }
}

struct Arguments;

impl Subject for Arguments {
    fn check(&self, _: &ActiveHook, _: &Value, changed: &mut Value) -> Result<(), String> {
        match changed["call"]["arguments"].get("unfit") {
            Some(_) => Err("made the arguments unfit".to_owned()),
            None => Ok(()),
        }
    }
}

fn hook(id: &str, order: i64, on_failure: OnFailure) -> Hook {
    Hook {
        id: id.to_owned(),
        point: HookPoint::ToolBeforeCall,
        when: None,
        handler: HookHandler::Backend("double".to_owned()),
        order,
        timeout: Duration::from_millis(500),
        on_failure,
    }
}

/// The health of a hook in the model: the failures in a row, and the time of the next probe.
#[derive(Clone, Copy, Default)]
struct Modelled {
    failures: u32,
    probe: Option<Instant>,
}

/// The result that a pass must have.
#[derive(Debug, Default, PartialEq)]
struct Expected {
    asked: Vec<String>,
    actions: Vec<Action>,
    changed: Vec<String>,
    verdict: &'static str,
}

/// Passes through a chain as the rules word it, with the time that handlers take.
fn expected(
    chain: &[Arc<ActiveHook>],
    behaviours: &HashMap<String, Behaviour>,
    health: &mut HashMap<String, Modelled>,
    begun: Instant,
) -> Expected {
    let mut now = begun;
    let end = begun + Duration::from_secs(2);
    let mut expected = Expected {
        verdict: "continue",
        ..Expected::default()
    };
    for hook in chain {
        let name = hook.name();
        let own = health.entry(name.clone()).or_default();
        let has_time = now < end;
        let is_asked = has_time && own.probe.is_none_or(|probe| probe <= now);
        let mut failed = !is_asked;
        if is_asked {
            if let Some(probe) = &mut own.probe {
                *probe = now + Duration::from_secs(30);
            }
            expected.asked.push(name.clone());
            let limit = Duration::from_millis(500).min(end - now);
            let takes = match behaviours[&name] {
                Sleep => Duration::from_millis(10) + limit * 2,
                _ => Duration::from_millis(10),
            };
            let in_time = takes < limit;
            now += takes.min(limit);
            failed = !in_time || matches!(behaviours[&name], Reach | Unfit | Crash | Sleep);
            // A hook that had less than its own time did not fail itself by being late.
            let counts = in_time || limit >= Duration::from_millis(450);
            match failed {
                false => *own = Modelled::default(),
                true if counts => {
                    own.failures += 1;
                    if own.failures >= 5 {
                        own.probe = Some(now + Duration::from_secs(30));
                    }
                }
                true => {}
            }
        }
        let action = match (failed, behaviours[&name]) {
            (true, _) if hook.hook.on_failure == OnFailure::Deny => Action::Fail,
            (true, _) => Action::Skip,
            (false, Replace) => {
                expected.changed.push(hook.hook.id.clone());
                Action::Replace
            }
            (false, Deny) => Action::Deny,
            (false, Answer) => Action::Answer,
            (false, _) => Action::Continue,
        };
        expected.actions.push(action);
        expected.verdict = match action {
            Action::Fail | Action::Deny => "deny",
            Action::Answer => "answer",
            _ => continue,
        };
        break;
    }
    expected
}

/// Makes a chain of up to 32 hooks, of which some have the same order.
fn random_chain(random: &mut fastrand::Rng) -> Vec<Arc<ActiveHook>> {
    let hooks = (0..random.usize(1..=32)).map(|place| {
        let on_failure = match random.u8(..4) {
            0 => OnFailure::Deny,
            _ => OnFailure::Skip,
        };
        let plugin = ["a", "b", "c"][random.usize(..3)];
        let hook = hook(&format!("h{place}"), random.i64(-1..=1), on_failure);
        (place, Arc::new(ActiveHook::new(plugin, hook)))
    });
    let mut placed: Vec<(usize, Arc<ActiveHook>)> = hooks.collect();
    HookPoint::ToolBeforeCall.sort(&mut placed, |each| {
        (each.1.hook.order, &each.1.plugin, each.0)
    });
    let key = |each: &(usize, Arc<ActiveHook>)| (each.1.hook.order, each.1.plugin.clone(), each.0);
    assert!(placed.is_sorted_by_key(key), "by order, plugin and place");
    placed.into_iter().map(|(_, hook)| hook).collect()
}

/// Chooses the behaviour of each hook in a pass. Some hooks fail for a while, so that they are suspended.
fn random_behaviours(
    chain: &[Arc<ActiveHook>],
    pass: usize,
    random: &mut fastrand::Rng,
) -> HashMap<String, Behaviour> {
    const ALL: [Behaviour; 9] = [
        Continue, Continue, Replace, Deny, Answer, Reach, Unfit, Crash, Sleep,
    ];
    const SICK: [Behaviour; 7] = [Crash, Crash, Unfit, Reach, Sleep, Crash, Continue];
    let behaviours = chain.iter().map(|hook| {
        let group = hook.hook.id.len() as u64 + hook.hook.order.unsigned_abs();
        let is_sick = (pass as u64 / 20 + group).is_multiple_of(3);
        let behaviour = match is_sick {
            true => SICK[random.usize(..SICK.len())],
            false => ALL[random.usize(..ALL.len())],
        };
        (hook.name(), behaviour)
    });
    behaviours.collect()
}

#[tokio::test(start_paused = true)]
async fn r203_r204_chains_agree_with_a_model_over_failures_suspensions_and_probes() {
    let passes = std::env::var("TAVERN_TEST_CHAINS");
    let passes = passes.map_or(PASSES, |passes| passes.parse().unwrap());
    let mut random = fastrand::Rng::with_seed(41);
    let mut chain: Vec<Arc<ActiveHook>> = Vec::new();
    let mut health = HashMap::new();
    let mut suspensions = 0;
    for pass in 0..passes {
        if pass % 200 == 0 {
            health.clear();
            chain = random_chain(&mut random);
        }
        let behaviours = random_behaviours(&chain, pass, &mut random);
        let handlers = Handlers {
            behaviours: behaviours.clone(),
            ..Handlers::default()
        };
        let expected = expected(&chain, &behaviours, &mut health, Instant::now());
        let payload = json!({"call": {"tool_id": "t", "arguments": {}}});
        let applied = apply(&chain, payload, &Arguments, &handlers, None).await;
        let changed = applied.payload["call"]["arguments"].as_object().unwrap();
        let found = Expected {
            asked: handlers.asked.lock().unwrap().clone(),
            actions: applied
                .applications
                .iter()
                .map(|each| each.action)
                .collect(),
            changed: changed.keys().cloned().collect(),
            verdict: match &applied.verdict {
                Verdict::Continue => "continue",
                Verdict::Deny { .. } => "deny",
                Verdict::Answer { .. } => "answer",
            },
        };
        assert_eq!(found, expected, "pass {pass}");
        assert_eq!(applied.payload["call"]["tool_id"], "t", "pass {pass}");
        for hook in &chain {
            let modelled = health.get(&hook.name()).copied().unwrap_or_default();
            assert_eq!(hook.health().failures(), modelled.failures, "pass {pass}");
            assert_eq!(
                hook.health().is_suspended(),
                modelled.probe.is_some(),
                "pass {pass}"
            );
            suspensions += usize::from(modelled.probe.is_some());
        }
        tokio::time::advance(Duration::from_secs(random.u64(..8))).await;
    }
    assert!(
        suspensions > passes / 20,
        "hooks were suspended: {suspensions}"
    );
}

fn decide(point: HookPoint, answer: Value) -> Result<Decision, String> {
    Decision::read(point, answer).map_err(|failure| failure.message)
}

#[test]
fn r203_an_answer_that_is_no_decision_of_its_point_is_a_failure() {
    let many: Vec<Value> = vec![json!({"op": "remove", "path": "/call/arguments/x"}); 1_000];
    for (point, answer, words) in [
        (HookPoint::ToolBeforeCall, json!(null), "with an object"),
        (HookPoint::ToolBeforeCall, json!({}), "an 'action'"),
        (
            HookPoint::ToolBeforeCall,
            json!({"action": "allow"}),
            "'allow'",
        ),
        (
            HookPoint::ToolBeforeCall,
            json!({"action": "replace"}),
            "a 'patch'",
        ),
        (
            HookPoint::ToolBeforeCall,
            json!({"action": "replace", "patch": [{"op": "set"}]}),
            "no JSON Patch",
        ),
        (
            HookPoint::ToolBeforeCall,
            json!({"action": "replace", "patch": many}),
            "1000 operations",
        ),
        (
            HookPoint::ToolBeforeCall,
            json!({"action": "answer"}),
            "'output'",
        ),
        (
            HookPoint::ToolBeforeCall,
            json!({"action": "deny", "code": "No way"}),
            "'code'",
        ),
        (
            HookPoint::ToolBeforeCall,
            json!({"action": "continue", "patch": []}),
            "'patch'",
        ),
        (
            HookPoint::ToolAfterCall,
            json!({"action": "answer", "output": 1}),
            "'answer'",
        ),
        (
            HookPoint::TurnBefore,
            json!({"action": "answer", "output": 1}),
            "'answer'",
        ),
        (HookPoint::ToolAfter, json!({"action": "deny"}), "'deny'"),
    ] {
        let message = decide(point, answer.clone()).unwrap_err();
        assert!(message.contains(words), "{answer}: {message}");
    }
    let denied = decide(HookPoint::TurnBefore, json!({"action": "deny"}));
    let code = "denied_by_hook".to_owned();
    assert_eq!(
        denied,
        Ok(Decision::Deny {
            code,
            reason: String::new()
        })
    );
}

/// Patches a call, or a result, as a hook would.
async fn patched(point: HookPoint, payload: &Value, operations: Value) -> Applied {
    struct Patch(Value);
    impl Ask for Patch {
        async fn ask(&self, _: &ActiveHook, _: &Value, _: Duration) -> Result<Value, HookFailure> {
            Ok(json!({"action": "replace", "patch": self.0}))
        }
    }
    struct Anything;
    impl Subject for Anything {
        fn check(&self, _: &ActiveHook, _: &Value, _: &mut Value) -> Result<(), String> {
            Ok(())
        }
    }
    let hook = Hook {
        point,
        ..hook("h", 0, OnFailure::Deny)
    };
    let chain = [Arc::new(ActiveHook::new("p", hook))];
    apply(&chain, payload.clone(), &Anything, &Patch(operations), None).await
}

#[tokio::test]
async fn r205_a_patch_reaches_only_the_part_that_hooks_may_change() {
    let payload = json!({
        "effect_id": "e",
        "call": {"tool_id": "t", "arguments": {"x": 1, "l": [1]}},
        "result": {"status": "failed", "output": null, "warnings": []},
        "request": {"messages": [{"role": "user"}]},
    });
    let op = |op: &str, path: &str| json!({"op": op, "path": path, "value": 2, "from": "/call/arguments/x"});
    let nested = (0..130).fold(json!(1), |value, _| json!([value]));
    for (point, operations) in [
        (
            HookPoint::ToolBeforeCall,
            json!([op("replace", "/call/tool_id")]),
        ),
        (
            HookPoint::ToolBeforeCall,
            json!([op("add", "/call/effect_id")]),
        ),
        (
            HookPoint::ToolBeforeCall,
            json!([op("add", "/call/argumentsx")]),
        ),
        (HookPoint::ToolBeforeCall, json!([op("add", "")])),
        (HookPoint::ToolBeforeCall, json!([op("add", "/effect_id")])),
        (
            HookPoint::ToolBeforeCall,
            json!([op("remove", "/call/arguments/none")]),
        ),
        (
            HookPoint::ToolBeforeCall,
            json!([op("test", "/call/arguments/x")]),
        ),
        (
            HookPoint::ToolBeforeCall,
            json!([op("add", "/call/arguments/l/9")]),
        ),
        (
            HookPoint::ToolBeforeCall,
            json!([{"op": "move", "from": "/call/tool_id", "path": "/call/arguments/y"}]),
        ),
        (
            HookPoint::ToolBeforeCall,
            json!([{"op": "add", "path": "/call/arguments/y", "value": nested}]),
        ),
        (
            HookPoint::ToolAfterCall,
            json!([op("replace", "/result/status")]),
        ),
        (
            HookPoint::ToolAfterCall,
            json!([op("replace", "/result/warnings")]),
        ),
        (
            HookPoint::ToolAfterCall,
            json!([op("add", "/result/warnings/0")]),
        ),
        (
            HookPoint::ToolAfterCall,
            json!([op("add", "/call/arguments/x")]),
        ),
        (
            HookPoint::ModelBeforeRequest,
            json!([op("replace", "/request/messages/0")]),
        ),
        (
            HookPoint::ModelBeforeRequest,
            json!([op("remove", "/request/messages/-")]),
        ),
    ] {
        let applied = patched(point, &payload, operations.clone()).await;
        assert_eq!(applied.payload, payload, "{operations}: nothing is changed");
        assert_eq!(applied.applications[0].action, Action::Fail, "{operations}");
        assert_eq!(
            applied.applications[0].code, "hook_answer_invalid",
            "{operations}"
        );
    }
}

#[tokio::test]
async fn r205_a_patch_cannot_grow_by_operations_on_its_own_results() {
    let payload = json!({
        "call": {"tool_id": "t", "arguments": {"x": 1, "l": [1]}},
        "result": {"status": "failed", "output": null, "warnings": []},
    });
    let op = |op: &str, path: &str| json!({"op": op, "path": path, "value": 2});
    let double = json!({"op": "copy", "from": "/call/arguments", "path": "/call/arguments/y"});
    let applied = patched(
        HookPoint::ToolBeforeCall,
        &payload,
        json!(vec![double; 256]),
    )
    .await;
    assert_eq!(applied.payload, payload);
    let changes = json!([
        {"op": "test", "path": "/call/tool_id", "value": "t"},
        op("add", "/call/arguments/l/-"),
        {"op": "move", "from": "/call/arguments/x", "path": "/call/arguments/y"},
    ]);
    let applied = patched(HookPoint::ToolBeforeCall, &payload, changes).await;
    assert_eq!(
        applied.payload["call"]["arguments"],
        json!({"l": [1, 2], "y": 1})
    );
    let (before, after) = applied.applications[0].digests.clone().unwrap();
    assert!(before.starts_with("sha256:") && before != after);
    let warned = patched(
        HookPoint::ToolAfterCall,
        &payload,
        json!([op("add", "/result/warnings/-")]),
    );
    assert_eq!(warned.await.payload["result"]["warnings"], json!([2]));
}

#[tokio::test]
async fn r202_a_condition_decides_whether_a_hook_is_asked_and_its_failure_is_one_of_the_hook() {
    let handlers = Handlers {
        behaviours: HashMap::from([("p/h".to_owned(), Deny)]),
        ..Handlers::default()
    };
    for (condition, verdict) in [
        ("call.tool_id == 't'", "no"),
        ("call.tool_id == 'u'", ""),
        ("call.missing == 1", "hook_condition_failed"),
        ("has(call.missing)", ""),
    ] {
        let hook = Hook {
            when: Some(condition.to_owned()),
            ..hook("h", 0, OnFailure::Deny)
        };
        let chain = [Arc::new(ActiveHook::new("p", hook))];
        let payload = json!({"call": {"tool_id": "t", "arguments": {}}});
        let applied = apply(&chain, payload, &Arguments, &handlers, None).await;
        let code = match applied.verdict {
            Verdict::Deny { code, .. } => code,
            _ => String::new(),
        };
        assert_eq!(code, verdict, "{condition}");
    }
}
