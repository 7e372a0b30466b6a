//! Each service is terminated, and killed, again and again under a steady load, and started again:
//! for clients that retry while a service is missing no call fails, and only calls that a kill cut
//! off are in doubt.
//!
//! `TAVERN_TEST_RESTARTS` sets the number of restarts, and `TAVERN_TEST_RATE` the calls a second;
//! `make bars` sets 20 and 100.

mod load;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use anyhow::{Context, ensure};
use contracts::tavern::registry::v1::{Call, CallDecision};
use testkit::{Stack, size};

use crate::doubt::Decider;
use crate::kills::child;
use crate::ledger::World;
use crate::text::failing_agents;
use load::{IDEMPOTENT, Load, may_repeat, note};

/// Restarts, and kills, of each service in `make test`.
const TIMES: u32 = 1;

/// Requests a second in `make test`.
const RATE: u32 = 25;

const SERVICES: [&str; 5] = [
    "gateway",
    "tool-registry",
    "workflow-execution",
    "script-sandbox",
    "agent-runtime",
];

/// Services whose kills may leave calls in doubt: each of them carries calls out.
const CARRIERS: [&str; 2] = ["tool-registry", "script-sandbox"];

/// Returns the times that each service is terminated and killed, and the time from one request to
/// the next.
fn pace() -> anyhow::Result<(u32, Duration)> {
    let times = size("TAVERN_TEST_RESTARTS", TIMES)?;
    let rate = size("TAVERN_TEST_RATE", RATE)?;
    Ok((times, Duration::from_secs(1) / rate))
}

/// The calls in doubt that were decided, and when.
type Decided = Arc<Mutex<Vec<(Call, SystemTime)>>>;

/// An end of a service.
#[derive(Debug)]
struct Fault {
    victim: &'static str,
    is_kill: bool,
    time: SystemTime,
}

impl Fault {
    /// Ends a service and starts it again.
    async fn happen(
        stack: &mut Stack,
        victim: &'static str,
        is_kill: bool,
    ) -> anyhow::Result<Self> {
        let time = SystemTime::now();
        match is_kill {
            true => stack.kill_service(victim)?,
            false => {
                let status = tokio::task::block_in_place(|| stack.terminate_service(victim))?;
                ensure!(status.success(), "{victim}: {status}");
            }
        }
        stack.restart_service(victim).await?;
        Ok(Self {
            victim,
            is_kill,
            time,
        })
    }
}

/// Decides about calls in doubt as their effects are. Returns each with the time of its decision.
fn decide(world: &World) -> (Decider, Decided) {
    let decided = Decided::default();
    let (kept, happened) = (Arc::clone(&decided), world.happened());
    let decider = Decider::start(&world.stack, move |call| {
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.push((call.clone(), SystemTime::now()));
        match happened(&call.effect_id) {
            true => CallDecision::TookEffect,
            false => CallDecision::Repeat,
        }
    });
    (decider, decided)
}

/// Checks that a call in doubt was out at a kill of a service that carries calls out.
fn check_doubt(faults: &[Fault], call: &Call, decided: SystemTime) -> anyhow::Result<()> {
    ensure!(call.tool_id != IDEMPOTENT, "{call:?} may be repeated");
    let left = call.dispatch_time.context("a call in doubt has left")?;
    let left = SystemTime::try_from(left)?;
    // Calls that a fault leaves in doubt are decided before the next fault.
    let fault = faults.iter().rfind(|fault| fault.time <= decided);
    let fault = fault.with_context(|| format!("{call:?} was in doubt before all faults"))?;
    let is_cut_off = fault.is_kill && CARRIERS.contains(&fault.victim) && left <= fault.time;
    ensure!(is_cut_off, "{call:?} is in doubt after {fault:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn under_load_no_call_fails_by_a_restart_and_only_kills_leave_calls_in_doubt()
-> anyhow::Result<()> {
    let (times, pace) = pace()?;
    let stack = Stack::builder().separate().deploy(failing_agents());
    let mut world = World::new(stack.start().await?).await?;
    world.put_workflow("note", &child()).await?;
    let (decider, decided) = decide(&world);
    let load = Load::start(world.stack.gateway(), pace);
    let mut faults = Vec::new();
    for victim in SERVICES {
        for at in 0..2 * times {
            let fault = Fault::happen(&mut world.stack, victim, at % 2 == 1).await?;
            load.until_answered()
                .await
                .with_context(|| format!("after {fault:?}"))?;
            faults.push(fault);
        }
    }
    let interruptions = load.interruptions();
    let ends = load.stop().await?;
    let decided = decided.lock().unwrap_or_else(PoisonError::into_inner);
    println!(
        "{} requests, sent away {interruptions} times; {} decisions",
        ends.len(),
        decided.len()
    );
    ensure!(interruptions > 0, "no client met a restart");
    for (call, time) in decided.iter() {
        check_doubt(&faults, call, *time)?;
    }
    check_effects(&world, &decider, &ends)
}

/// Checks that each note is in the ledger under one effect, and no more often than was decided
/// where its tool may not be repeated.
fn check_effects(
    world: &World,
    decider: &Decider,
    ends: &BTreeMap<u32, bool>,
) -> anyhow::Result<()> {
    let effects = world.effects_by_note()?;
    for (number, _) in ends.iter().filter(|(_, is_noted)| **is_noted) {
        let note = note(*number);
        let effects = effects.get(&note);
        let effects = effects.with_context(|| format!("{note} is lost"))?;
        let is_one = effects.iter().all(|effect| *effect == effects[0]);
        ensure!(is_one, "{note} has several effects: {effects:?}");
        let is_allowed = may_repeat(*number) || effects.len() <= decider.allowed(&effects[0]);
        ensure!(is_allowed, "{note} was repeated: {effects:?}");
    }
    Ok(())
}
