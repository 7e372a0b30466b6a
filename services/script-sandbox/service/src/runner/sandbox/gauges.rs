//! Levels of a sandbox, observed whenever metrics are exported.

use std::{
    iter::once,
    sync::{Arc, Weak},
};

use opentelemetry::{KeyValue, metrics::AsyncInstrument};
use sandbox_engine::runtimes::Runtime;
use telemetry::attributes::{SANDBOX_STATE, SCRIPT_RUNTIME};

use super::Sandbox;

/// Observes the levels of a sandbox for as long as it lives.
pub(super) fn observe(sandbox: &Arc<Sandbox>) {
    let meter = telemetry::meter();
    let level = |name: &'static str, unit: &'static str, about: &'static str, look: Observe| {
        let sandbox: Weak<Sandbox> = Arc::downgrade(sandbox);
        let gauge = meter.u64_observable_gauge(name).with_unit(unit);
        let gauge = gauge.with_description(about).with_callback(move |seen| {
            if let Some(sandbox) = sandbox.upgrade() {
                look(&sandbox, seen);
            }
        });
        gauge.build();
    };
    level(
        "tavern.sandbox.scripts",
        "{script}",
        "Scripts that run, and requests that wait until they may.",
        |sandbox, seen| {
            let state = |state| [KeyValue::new(SANDBOX_STATE, state)];
            let (running, waiting) = sandbox.load();
            seen.observe(running as u64, &state("running"));
            seen.observe(waiting as u64, &state("waiting"));
        },
    );
    level(
        "tavern.sandbox.sessions",
        "{session}",
        "Sessions that live.",
        |sandbox, seen| seen.observe(sandbox.sessions().alive() as u64, &[]),
    );
    level(
        "tavern.sandbox.interpreters",
        "{process}",
        "Interpreters that wait for a script, and how many should.",
        |sandbox, seen| {
            for runtime in sandbox.runtimes() {
                let (ready, wanted) = waiting(sandbox, runtime);
                for (state, level) in [("ready", ready), ("wanted", wanted)] {
                    let name = runtime.profile.name.clone();
                    let about = [
                        KeyValue::new(SCRIPT_RUNTIME, name),
                        KeyValue::new(SANDBOX_STATE, state),
                    ];
                    seen.observe(level.into(), &about);
                }
            }
        },
    );
}

/// The interpreters of a runtime that wait, and how many should, with package sets and without.
fn waiting(sandbox: &Sandbox, runtime: &Runtime) -> (u32, u32) {
    let sets = sandbox.package_sets(runtime);
    let digests = sets
        .iter()
        .map(|(packages, _)| Some(packages.set.digest.as_str()));
    let pools = once(None)
        .chain(digests)
        .map(|digest| sandbox.pool_state(runtime, digest, None));
    pools.fold((0, 0), |(ready, wanted), pool| {
        (ready + pool.ready, wanted + pool.target)
    })
}

/// Reads a level of a sandbox.
type Observe = fn(&Sandbox, &dyn AsyncInstrument<u64>);
