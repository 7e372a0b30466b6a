//! The metrics that every service has: rate, errors and durations of its RPCs.

use std::{sync::LazyLock, time::Duration};

use opentelemetry::{KeyValue, metrics::Histogram};

use crate::attributes::{RPC_METHOD, RPC_SERVICE, RPC_STATUS_CODE, RPC_SYSTEM};

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
