//! Levels of a sandbox, observed whenever metrics are exported.

use std::sync::{Arc, Weak};

use opentelemetry::{KeyValue, metrics::AsyncInstrument};
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
                let pool = sandbox.pool_state(runtime, None, None);
                for (state, level) in [("ready", pool.ready), ("wanted", pool.target)] {
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

/// Reads a level of a sandbox.
type Observe = fn(&Sandbox, &dyn AsyncInstrument<u64>);
