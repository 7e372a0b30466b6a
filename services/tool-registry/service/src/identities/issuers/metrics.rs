//! Counts of reads and refusals, and the age of keys.

use std::sync::LazyLock;
use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry::metrics::Counter;
use telemetry::attributes::{ERROR_TYPE, ISSUER};
use tool_domain::identity::TokenFault;

/// Made on first use, which is after telemetry has been set up.
static COUNTS: LazyLock<Counts> = LazyLock::new(|| {
    let meter = telemetry::meter();
    let count = |name: &'static str, unit: &'static str, about: &'static str| {
        let counter = meter.u64_counter(name).with_unit(unit);
        counter.with_description(about).build()
    };
    Counts {
        reads: count(
            "tavern.issuer.key_set.reads",
            "{read}",
            "Reads of the keys of an issuer.",
        ),
        refused: count(
            "tavern.issuer.tokens.refused",
            "{token}",
            "Tokens that proved no principal.",
        ),
    }
});

struct Counts {
    reads: Counter<u64>,
    refused: Counter<u64>,
}

/// Counts a read of keys.
pub(super) fn read(issuer: &str, is_good: bool) {
    let mut about = vec![KeyValue::new(ISSUER, issuer.to_owned())];
    if !is_good {
        about.push(KeyValue::new(ERROR_TYPE, "not_read"));
    }
    COUNTS.reads.add(1, &about);
}

/// Counts a refused token; `issuer` is empty where it is unknown.
pub(super) fn refused(issuer: &str, fault: TokenFault) {
    let issuer = KeyValue::new(ISSUER, issuer.to_owned());
    let reason = KeyValue::new(ERROR_TYPE, format!("{fault:?}"));
    COUNTS.refused.add(1, &[issuer, reason]);
}

/// Observes the age of the keys of an issuer for as long as they have one.
pub(super) fn observe(issuer: &str, age: impl Fn() -> Option<Duration> + Send + Sync + 'static) {
    let issuer = issuer.to_owned();
    let meter = telemetry::meter();
    let gauge = meter.u64_observable_gauge("tavern.issuer.key_set.age");
    let gauge = gauge.with_unit("s");
    let gauge = gauge.with_description("Time since the keys of an issuer were read.");
    let gauge = gauge.with_callback(move |seen| {
        if let Some(age) = age() {
            seen.observe(age.as_secs(), &[KeyValue::new(ISSUER, issuer.clone())]);
        }
    });
    gauge.build();
}
