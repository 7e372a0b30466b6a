//! Counts runs and refusals.
//!
//! The audit record of a run counts it, so that log and metrics agree. Attributes take few values each:
//! never the name of a caller, nor that of an unknown runtime.

use std::{sync::LazyLock, time::Duration};

use opentelemetry::{
    KeyValue,
    metrics::{Counter, Histogram, Meter},
};
use sandbox_engine::domain::usage::Usage;
use telemetry::attributes::{
    ERROR_TYPE, SANDBOX_VERDICT, SANDBOX_WHAT, SCRIPT_RUNTIME, WARM_START,
};

/// Bounds of the buckets of times, in seconds: a warm start takes a millisecond, a session hours.
const SECONDS: [f64; 18] = [
    0.001, 0.002, 0.003, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
    600.0, 3600.0,
];

/// Made on first use, which is after telemetry has been set up.
static RUNS: LazyLock<Runs> = LazyLock::new(|| Runs::new(&telemetry::meter()));

struct Runs {
    ended: Counter<u64>,
    refused: Counter<u64>,
    duration: Histogram<f64>,
    setup: Histogram<f64>,
}

impl Runs {
    fn new(meter: &Meter) -> Self {
        let seconds = |name: &'static str, about: &'static str| {
            let histogram = meter.f64_histogram(name).with_unit("s");
            let histogram = histogram.with_description(about);
            histogram.with_boundaries(SECONDS.to_vec()).build()
        };
        let count = |name: &'static str, unit: &'static str, about: &'static str| {
            let counter = meter.u64_counter(name).with_unit(unit);
            counter.with_description(about).build()
        };
        Self {
            ended: count(
                "tavern.sandbox.runs",
                "{run}",
                "Scripts, cells and sessions that have ended.",
            ),
            refused: count(
                "tavern.sandbox.refusals",
                "{request}",
                "Sound requests that were refused.",
            ),
            duration: seconds(
                "tavern.sandbox.run.duration",
                "From the start of a script, cell or session to its end.",
            ),
            setup: seconds(
                "tavern.sandbox.setup.duration",
                "From a request's acceptance to the first instruction of its script.",
            ),
        }
    }
}

/// Counts an end; without a time its duration is unknown.
pub(crate) fn ended(
    what: &'static str,
    runtime: &str,
    verdict: &'static str,
    wall_time: Option<Duration>,
    usage: Option<&Usage>,
) {
    let runtime = KeyValue::new(SCRIPT_RUNTIME, runtime.to_owned());
    let kind = [KeyValue::new(SANDBOX_WHAT, what), runtime.clone()];
    // A run that never began took no time, and would only improve the picture.
    if let Some(time) = wall_time.filter(|time| !time.is_zero()) {
        RUNS.duration.record(time.as_secs_f64(), &kind);
    }
    if let Some(usage) = usage.filter(|usage| !usage.setup_time.is_zero()) {
        let warm = KeyValue::new(WARM_START, usage.warm_start);
        let time = usage.setup_time.as_secs_f64();
        RUNS.setup.record(time, &[runtime.clone(), warm]);
    }
    let [what, runtime] = kind;
    let verdict = KeyValue::new(SANDBOX_VERDICT, verdict);
    RUNS.ended.add(1, &[what, runtime, verdict]);
}

/// Counts a valid request that was refused.
pub(crate) fn refused(what: &'static str, why: &'static str) {
    let what = KeyValue::new(SANDBOX_WHAT, what);
    RUNS.refused.add(1, &[what, KeyValue::new(ERROR_TYPE, why)]);
}
