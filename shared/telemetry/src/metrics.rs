//! The metrics that every service has: rate, errors and durations of its RPCs, and its certificates.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{LazyLock, Mutex, PoisonError},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use opentelemetry::{
    KeyValue,
    metrics::{Counter, Histogram, ObservableGauge},
};

use crate::attributes::{
    RPC_METHOD, RPC_SERVICE, RPC_STATUS_CODE, RPC_SYSTEM, TLS_FILE, TLS_RENEWAL,
};

/// Bounds of the buckets, in seconds: a lookup takes a tenth of a millisecond, a watch as long as its run.
const SECONDS: [f64; 16] = [
    0.000_1, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0,
    60.0, 600.0,
];

/// The durations of RPCs. It is created when first needed, which is after telemetry has been set
/// up.
static DURATION: LazyLock<Histogram<f64>> = LazyLock::new(|| {
    let meter = crate::meter();
    let histogram = meter.f64_histogram("rpc.server.call.duration");
    let histogram = histogram.with_unit("s").with_boundaries(SECONDS.to_vec());
    histogram
        .with_description("From the arrival of an RPC to the end of its answer.")
        .build()
});

/// Records an RPC that has ended. `method` is the name without the service, `code` the gRPC status code.
pub fn rpc_ended(service: &str, method: &str, code: i32, took: Duration) {
    let attributes = [
        KeyValue::new(RPC_SYSTEM, "grpc"),
        KeyValue::new(RPC_SERVICE, service.to_owned()),
        KeyValue::new(RPC_METHOD, method.to_owned()),
        KeyValue::new(RPC_STATUS_CODE, i64::from(code)),
    ];
    DURATION.record(took.as_secs_f64(), &attributes);
}

static RENEWALS: LazyLock<Counter<u64>> = LazyLock::new(|| {
    let meter = crate::meter();
    let counter = meter.u64_counter("tavern.tls.renewals");
    let counter = counter.with_unit("{renewal}");
    counter
        .with_description("Changes of the certificates of a server.")
        .build()
});

/// Counts a change of certificates, which are in force or were refused.
pub fn certificates_changed(in_force: bool) {
    let result = match in_force {
        true => "renewed",
        false => "refused",
    };
    RENEWALS.add(1, &[KeyValue::new(TLS_RENEWAL, result)]);
}

/// The ends of the certificates that are in force, in seconds since 1970, by their files. Locked for a moment.
static ENDS: Mutex<BTreeMap<Box<str>, i64>> = Mutex::new(BTreeMap::new());

/// Sets the end of the certificate of a file, in seconds since 1970.
pub fn certificate_ends(file: &Path, end: i64) {
    let mut ends = ENDS.lock().unwrap_or_else(PoisonError::into_inner);
    ends.insert(file.to_string_lossy().into(), end);
}

static LEFT: LazyLock<ObservableGauge<i64>> = LazyLock::new(|| {
    let meter = crate::meter();
    let gauge = meter.i64_observable_gauge("tavern.tls.certificate.left");
    gauge
        .with_unit("s")
        .with_description("The time until a certificate of this process expires.")
        .with_callback(|observer| {
            let now = SystemTime::now().duration_since(UNIX_EPOCH);
            let now = now.map_or(0, |now| now.as_secs().cast_signed());
            let ends = ENDS.lock().unwrap_or_else(PoisonError::into_inner);
            for (file, end) in &*ends {
                observer.observe(end - now, &[KeyValue::new(TLS_FILE, file.to_string())]);
            }
        })
        .build()
});

/// Reports the time that certificates have left, from now on, for as long as the process lives.
pub fn observe_certificates() {
    LazyLock::force(&LEFT);
}
